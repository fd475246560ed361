"""Regions under schedules as machine code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.schedule import Schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import as_dim
from luminal.dtype import DType
from luminal.emit_cpu.cache import object_key, read_entry, write_entry
from luminal.emit_cpu.emit import TINY_NANOSECONDS, emit_function
from luminal.emit_cpu.jit import Target, compile_object
from luminal.emit_cpu.sorting import SYMBOLS, private_bytes, sort_text
from luminal.passes.ordered_writes import check_order
from luminal.passes.place import place
from luminal.plan.build import KernelFacts

LONG_ENTRY = 60_000
"""Characters of entry functions, about a thousand for a launch, from which on they are compiled quickly: LLVM's
time for the best code grows as the square, and what runs takes microseconds beside kernels."""


@dataclass(frozen=True, slots=True)
class KernelSource(KernelFacts):
    """A kernel before LLVM: its placed form, None where it never had one, or another process has it; its module's text,
    the key of its object, and what it was asked for as."""

    function: FunctionOp | None = None
    text: str = ""
    key: str = ""
    asked: str = ""


@dataclass
class KernelCompiler:
    """Makes kernels for one processor under one set of licences. What it made is kept, since the search's winner is
    wanted again; `shows`: with its placed form, for people to read."""

    target: Target
    licences: tuple[str, ...] = ()
    use_cache: bool = True
    shows: bool = False
    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    sources: dict[str, KernelSource] = field(default_factory=dict[str, KernelSource])

    def source(self, region: Region, schedule: Schedule, cost: int) -> KernelSource:
        """The text of a region's kernel; ScheduleError where the schedule is not legal for it."""
        identity = f"{region_text(region)}\n{schedule}\n{self.licences}"
        asked = f"{identity} {_rounded(cost)}"
        known = self.sources.get(asked)
        if known is not None and (known.function is not None or not self.shows):
            return known
        name = "kernel_" + hashlib.sha256(identity.encode()).hexdigest()[:16]
        check_order(region, schedule)
        function = place(region, schedule, name, self.licences, _rounded(cost))
        emitted = emit_function(function, self.target)
        key = object_key(emitted.text, self.target)
        symbols = tuple(function.symbol_names)
        made = KernelSource(
            name, symbols, emitted.shared_bytes, emitted.private_bytes, function, emitted.text, key, asked
        )
        self.sources[asked] = made
        return made

    def adopt(self, source: KernelSource, image: bytes) -> None:
        """Keep a kernel of a region that another process has made."""
        self.sources.setdefault(source.asked, source)
        self.objects[source.key] = image

    def sort(self, dtype: DType, descending: bool) -> KernelSource:
        """The text of a sort; `dtype` is one of `sorting.SORTED`."""
        name = f"sort_{dtype}_{'down' if descending else 'up'}"
        if name not in self.sources:
            text = sort_text(name, dtype, descending)
            key = object_key(text, self.target)
            private = private_bytes(dtype)
            self.sources[name] = KernelSource(name, SYMBOLS, as_dim(0), private, None, text, key)
        return self.sources[name]

    def image(self, source: KernelSource, keep: bool) -> bytes:
        """The object of a kernel; `keep` writes it to disk."""
        return self._object(source.text, source.key, keep)

    def entry(self, text: str) -> tuple[str, bytes]:
        """The key and the object of a plan's entry functions."""
        key = object_key(text, self.target)
        return key, self._object(text, key, True, len(text) > LONG_ENTRY)

    def _object(self, text: str, key: str, keep: bool, quickly: bool = False) -> bytes:
        image = self.objects.get(key)
        if image is None:
            image = read_entry(key) if self.use_cache else None
            if image is not None:
                self.objects[key] = image
                return image
            image = self.objects[key] = compile_object(text, self.target, quickly)
        if keep and self.use_cache:
            write_entry(key, image)
        return image


def _rounded(cost: int) -> int:
    """The cost to the nearest power of two, up to what is never tiny: it decides about threads only, and equal text is
    compiled once."""
    return 1 << max(0, (min(max(1, cost), TINY_NANOSECONDS) * 3 // 2).bit_length() - 1)
