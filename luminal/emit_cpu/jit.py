"""LLVM text to machine code and into the process: targets, the light pass pipeline, objects, loading.

The text is already vectorised and unrolled, so a handful of clean-up passes gives the speed of -O3 in a third
of the time. Objects are position independent and are loaded through one LLJIT a process. After a fork the
child keeps the code that was loaded (its pages were copied) and loads further objects through an LLJIT of its
own.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from luminal.emit_cpu.values import bits_of

_lock = threading.RLock()
_numbers = itertools.count()
_jit: Any = None
_abandoned: list[Any] = []


def _after_fork_in_child() -> None:
    global _jit
    _abandoned.append(_jit)  # never disposed of: its code may still be called
    _jit = None
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)


def keep_for_ever(thing: object) -> None:
    """Never free an object, not even when the interpreter ends: threads may still run in its memory."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@dataclass(frozen=True)
class Target:
    """A processor to compile for. `features` in LLVM's form ("+avx2,-sse4a"); `vector_bits` is the widest
    register that the emitter uses, `vector_registers` how many there are."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int

    @staticmethod
    @cache
    def host() -> Target:
        """The processor that this process runs on."""
        triple = llvm.get_process_triple()
        found = llvm.get_host_cpu_features()
        features = ",".join(("+" if found[name] else "-") + name for name in sorted(found))
        wide = all(found.get(name) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl"))
        bits = 512 if wide else 256 if found.get("avx2") else 128
        registers = 32 if wide or triple.startswith(("aarch64", "arm64")) else 16
        return Target(triple, llvm.get_host_cpu_name(), features, bits, registers)

    @staticmethod
    def avx2() -> Target:
        """x86-64 with AVX2, FMA and F16C, and nothing newer."""
        return Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c", 256, 16)

    @staticmethod
    def aarch64() -> Target:
        """64-bit Arm with NEON and half-precision arithmetic."""
        return Target("aarch64-unknown-linux-gnu", "generic", "+neon,+fullfp16", 128, 32)

    @property
    def key(self) -> str:
        """What an object depends on besides its text."""
        return f"{self.triple} {self.cpu} {self.features} llvm {'.'.join(map(str, llvm.llvm_version_info))}"

    @property
    def name(self) -> str:
        """A short name that tells processors apart; features and LLVM's version are in its last word."""
        architecture = self.triple.partition("-")[0]
        return f"cpu {architecture} {self.cpu} {hashlib.sha256(self.key.encode()).hexdigest()[:8]}"

    @property
    def is_arm(self) -> bool:
        """Whether this is 64-bit Arm."""
        return self.triple.startswith(("aarch64", "arm64"))

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    def lanes(self, element: str) -> int:
        """Lanes of a full vector register of this LLVM element type."""
        return self.vector_bits // bits_of(element)


@cache
def _machine(target: Target, level: int = 3) -> Any:
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="small", jit=True
    )


def _optimized(text: str, target: Target) -> Any:
    machine = _machine(target)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_loop_rotate_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_dead_code_elimination_pass()
    passes.run(module, builder)
    return module


def compile_object(text: str, target: Target, quickly: bool = False) -> bytes:
    """The relocatable object of a module's text; `quickly`: in a time that grows as the text does, of code that hardly
    matters. RuntimeError where LLVM refuses the text."""
    with _lock:
        return _machine(target, 0 if quickly else 3).emit_object(_optimized(text, target))


def assembly(text: str, target: Target) -> str:
    """The machine code of a module's text, as assembly to read."""
    with _lock:
        return _machine(target).emit_assembly(_optimized(text, target))


class Library:
    """A loaded object. Its code stays mapped while this lives."""

    def __init__(self, tracker: Any, names: Iterable[str]) -> None:
        self._tracker, self._owner = tracker, os.getpid()
        self.addresses: dict[str, int] = {name: tracker[name] for name in names}

    def __getitem__(self, name: str) -> int:
        """The address of an exported function."""
        return self.addresses[name]

    def __del__(self, process: Callable[[], int] = os.getpid) -> None:
        # A tracker that came through a fork belongs to the parent's LLJIT, whose locks may be held for ever. (The
        # default is there still when the interpreter ends and this module's names are gone.)
        if self._owner != process():
            _abandoned.append(self._tracker)


def load_object(image: bytes, names: Iterable[str], symbols: Mapping[str, int] | None = None) -> Library:
    """Load an object made for the host and look up `names`. `symbols` gives addresses of functions that it
    calls; C's own (sin, pthread_create) are found in the process."""
    global _jit
    exported = list(names)
    with _lock:
        if _jit is None:
            _initialize()
            _jit = llvm.create_lljit_compiler(_machine(Target.host()), use_jit_link=True)
            keep_for_ever(_jit)
        builder = llvm.JITLibraryBuilder()
        builder.add_object_img(image).add_current_process()
        for name, address in (symbols or {}).items():
            builder.import_symbol(name, address)
        for name in exported:
            builder.export_symbol(name)
        return Library(builder.link(_jit, f"luminal{next(_numbers)}"), exported)
