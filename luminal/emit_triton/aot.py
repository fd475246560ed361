"""Triton's text to machine code, for GPUs that need not be there: compiled in workers, kept on disk.

A compiler that aborts, hangs or prints costs a worker at most: it is a CompilationError with one line of reason and the
file of all that was said.  Several threads may compile at once; each has a worker of its own.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import metadata as packages
from pathlib import Path
from typing import Any

from luminal.emit_cpu.cache import cache_directory, evict, read_entry, write_entry
from luminal.emit_triton.kernel import Parameter, TritonKernel
from luminal.emit_triton.resources import Resources, read_resources
from luminal.emit_triton.targets import GpuTarget, target_named
from luminal.emit_triton.worker import Product, Request
from luminal.errors import CompilationError, UnsupportedTargetError
from luminal.search.gpu_machine import GpuMachine
from luminal.search.workers import MOST_WORKERS, Worker, WorkerDiedError

MODULE = "luminal.emit_triton.worker"
FORM = "luminal triton kernel 1"
"""Of an entry on disk; a part of its key."""
LOG_BYTES = 64 << 20
"""Of logs that are kept."""
SECONDS = 120.0
"""How long a compilation may take; one that spills takes 7 to 14."""
UNDOTTED = {"sm_100": frozenset({"f64"}), "gfx942": frozenset({"f64"})}
"""By architecture: the dtypes on whose `tl.dot` the compiler of a Triton in `EARLIER` ends with an assertion."""
EARLIER = ("3.6.", "3.7.")
LAST_WORDS = r"LLVM ERROR|Assertion|terminate called"
"""Of libraries that end the process."""
TYPES = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "f8e4m3fn": "fp8e4nv",
    "f8e5m2": "fp8e5",
    "f4e2m1": "u8",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "u8",
    "bool": "i1",
}


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of one kernel for one architecture: a cubin or hsaco, its PTX or AMD assembly, and its resources.

    `metadata` is what a launch needs: the symbol's `name`, `shared` bytes, `num_warps`, sizes of scratch memory.
    """

    binary: bytes
    assembly: str
    metadata: Mapping[str, Any]
    resources: Resources


def signature_type(parameter: Parameter) -> str:
    """A parameter's type in Triton's words: "*bf16", "i32"."""
    return f"{'*' if parameter.is_pointer else ''}{TYPES[parameter.dtype.name]}"


def attributes_of(parameter: Parameter, backend: str) -> tuple[tuple[str, int], ...]:
    """What Triton is told of a parameter: the power of two in its divisor, and on AMD that offsets fit into 32 bits."""
    found: list[tuple[str, int]] = []
    power = parameter.divisor & -parameter.divisor
    if power > 1:
        found.append(("tt.divisibility", power))
    if parameter.is_near and backend == "hip":
        found.append(("tt.pointer_range", 32))
    return tuple(found)


def request_for(kernel: TritonKernel, target: GpuTarget) -> Request:
    """A compilation in Triton's terms; what may change its result is all in it."""
    told = {i: attributes_of(p, target.backend) for i, p in enumerate(kernel.parameters)}
    return Request(
        name=kernel.name,
        source=kernel.source,
        signature={parameter.name: signature_type(parameter) for parameter in kernel.parameters},
        attributes={position: attributes for position, attributes in told.items() if attributes},
        options={
            "num_warps": kernel.options.warps,
            "num_stages": kernel.options.stages,
            "enable_fp_fusion": kernel.options.fuses,
        },
        backend=target.backend,
        arch=target.arch,
        warp=target.machine.warp,
    )


def compile_kernel(kernel: TritonKernel, target: GpuTarget | str, seconds: float = SECONDS) -> CompiledKernel:
    """Machine code for a target, from the cache where it is there.

    Raises CompilationError where Triton refuses the kernel, crashes, or takes longer than `seconds`;
    UnsupportedTargetError for a name that is none, and where Triton is not installed.
    """
    target = target_named(target) if isinstance(target, str) else target
    request = request_for(kernel, target)
    key = _key(request)
    entry = read_entry(key)
    if entry is not None:
        return _unpacked(entry, target.backend)
    product = _compile(request, target, key, seconds)
    write_entry(key, _packed(product))
    return _kernel(product, target.backend)


@cache
def triton_version() -> str:
    """Of the Triton that is installed; UnsupportedTargetError where none is."""
    try:
        return packages.version("triton")
    except packages.PackageNotFoundError:
        raise UnsupportedTargetError(
            "GPU targets need the package triton, which is not installed: pip install 'luminal[triton]'"
        ) from None


def machine_for(target: GpuTarget) -> GpuMachine:
    """A target's machine as the Triton that is installed can use it."""
    if not triton_version().startswith(EARLIER):
        return target.machine
    return replace(target.machine, undotted=UNDOTTED.get(target.architecture, frozenset()))


def _key(request: Request) -> str:
    text = json.dumps([FORM, triton_version(), asdict(request)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _packed(product: Product) -> bytes:
    return json.dumps({**asdict(product), "binary": base64.b64encode(product.binary).decode()}).encode()


def _unpacked(entry: bytes, backend: str) -> CompiledKernel:
    fields: dict[str, Any] = json.loads(entry)
    fields["binary"] = base64.b64decode(fields["binary"])
    return _kernel(Product(**fields), backend)


def _kernel(product: Product, backend: str) -> CompiledKernel:
    resources = read_resources(backend, product.assembly, product.report, product.metadata)
    return CompiledKernel(product.binary, product.assembly, product.metadata, resources)


def _compile(request: Request, target: GpuTarget, key: str, seconds: float) -> Product:
    log = _log_file(key)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _bench().worker() as worker:
        try:
            result = worker.call(("compile", request, folder, str(log)), seconds, seconds)
        except WorkerDiedError as error:
            said = log.read_text(errors="replace").splitlines() if log.exists() else []
            ended = f"takes longer than {seconds:g} seconds" if error.reason == "hung" else "has crashed"
            lines = [line.strip() for line in said if line.strip()]
            telling = [line for line in lines if re.search(LAST_WORDS, line)] or lines or [""]
            result = f"the compiler {ended}{f': {telling[0]}' if telling[0] else ''}"
    if isinstance(result, str):
        raise CompilationError(request.name, target.name, result, str(log))
    log.unlink(missing_ok=True)
    return result


def _log_file(key: str) -> Path:
    """Among the reports of the cache folder; where that cannot be written, among the temporary files."""
    root = cache_directory() / "reports"
    folder = root / "triton"
    try:
        evict(root, LOG_BYTES)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir())
    path = folder / f"{key}.log"
    path.unlink(missing_ok=True)
    return path


class _Bench:
    """The workers of this process, as many as it has processors; each belongs to one thread at a time."""

    def __init__(self, owner: int) -> None:
        self._owner, self._lock = owner, threading.Lock()
        self._free = threading.Semaphore(max(1, min(MOST_WORKERS, os.cpu_count() or 1)))
        self._idle: list[Worker] = []
        atexit.register(self.close)

    @contextlib.contextmanager
    def worker(self) -> Generator[Worker]:
        """A worker that waits, or a new one; one that has died, or was left at work, does not come back."""
        with self._free:
            worker = self._taken() or Worker(MODULE)
            worker.await_ready()
            try:
                yield worker
            finally:
                if worker.is_busy:
                    worker.stop()
                else:
                    with self._lock:
                        self._idle.append(worker)

    def _taken(self) -> Worker | None:
        """One that waits and lives."""
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.process.poll() is None:
                    return worker
                worker.stop()
        return None

    def close(self) -> None:
        """Stop those that wait; a forked child leaves its parent's alone."""
        if self._owner == os.getpid():
            for worker in self._idle:
                worker.stop()
            self._idle.clear()


@cache
def _bench_of(process: int) -> _Bench:
    return _Bench(process)


def _bench() -> _Bench:
    return _bench_of(os.getpid())
