"""The driver of NVIDIA's or AMD's GPUs through ctypes: modules, launches and graphs, under the same names for both.

Triton's own loader needs Triton and a C compiler, and changes with its version; these functions have been there since
CUDA 11.4 and ROCm 5.3.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luminal.errors import DriverError

LIBRARIES = {
    "cuda": ("libcuda.so.1", "libcuda.so"),
    "hip": ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"),
}
_int, _uint, _pointer, _size = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
_LAUNCH = (_pointer, *(_uint,) * 7, _pointer, _pointer, _pointer)
CALLS: Mapping[str, tuple[str, str, tuple[Any, ...]]] = {
    "error_name": ("cuGetErrorName", "hipDrvGetErrorName", (_int, _pointer)),
    "load_module": ("cuModuleLoadData", "hipModuleLoadData", (_pointer, _pointer)),
    "unload_module": ("cuModuleUnload", "hipModuleUnload", (_pointer,)),
    "function": ("cuModuleGetFunction", "hipModuleGetFunction", (_pointer, _pointer, ctypes.c_char_p)),
    "launch": ("cuLaunchKernel", "hipModuleLaunchKernel", _LAUNCH),
    "create_stream": ("cuStreamCreate", "hipStreamCreateWithFlags", (_pointer, _uint)),
    "begin_capture": ("cuStreamBeginCapture_v2", "hipStreamBeginCapture", (_pointer, _int)),
    "end_capture": ("cuStreamEndCapture", "hipStreamEndCapture", (_pointer, _pointer)),
    "instantiate": (
        "cuGraphInstantiateWithFlags",
        "hipGraphInstantiateWithFlags",
        (_pointer, _pointer, ctypes.c_ulonglong),
    ),
    "launch_graph": ("cuGraphLaunch", "hipGraphLaunch", (_pointer, _pointer)),
    "destroy_graph": ("cuGraphDestroy", "hipGraphDestroy", (_pointer,)),
    "destroy_executable": ("cuGraphExecDestroy", "hipGraphExecDestroy", (_pointer,)),
    "copy_to_host": ("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", (_pointer, _pointer, _size, _pointer)),
    "wait": ("cuStreamSynchronize", "hipStreamSynchronize", (_pointer,)),
}
"""Of each function its name in CUDA and in HIP, and its parameters, which are the same."""
CONTEXT_CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "current_context": ("cuCtxGetCurrent", (_pointer,)),
    "retain_context": ("cuDevicePrimaryCtxRetain", (_pointer, _int)),
    "use_context": ("cuCtxSetCurrent", (_pointer,)),
    "set_attribute": ("cuFuncSetAttribute", (_pointer, _int, _int)),
}
"""Functions of CUDA alone: HIP has one context a device, and lets a kernel have all shared memory there is."""
MOST_DYNAMIC_SHARED, STATIC_SHARED = 8, 48 << 10
"""The attribute of a function that lets it have more shared memory than bytes that every function may have."""
NON_BLOCKING, RELAXED = 1, 2
"""A stream that does not wait for the legacy one; a capture during which torch may free and allocate as ever."""
SCRATCH = 2
"""Pointers that Triton's calling convention adds behind a kernel's parameters; null, since no kernel uses them."""


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel on the device; `owner` keeps its module."""

    handle: int
    threads: int
    shared: int
    owner: object


class Driver:
    """Calls of one library, for the devices of one backend; DriverError where one fails."""

    def __init__(self, backend: str, library: Any) -> None:
        self.backend = backend
        self._calls: dict[str, Callable[..., int]] = {}
        if backend == "cuda":
            wanted = {
                name: (cuda, parameters) for name, (cuda, _, parameters) in CALLS.items()
            } | CONTEXT_CALLS
        else:
            wanted = {name: (hip, parameters) for name, (_, hip, parameters) in CALLS.items()}
        for name, (symbol, parameters) in wanted.items():
            function = getattr(library, symbol)
            function.argtypes, function.restype = list(parameters), _int
            self._calls[name] = function

    @staticmethod
    def open(backend: str, folder: Path) -> Driver:
        """The driver that a folder holds, or that is installed; DriverError where there is none."""
        names = LIBRARIES[backend]
        for name in (*(str(folder / name) for name in names), *names):
            try:
                return Driver(backend, ctypes.CDLL(name))
            except OSError:
                continue
        raise DriverError(f"none of {', '.join(LIBRARIES[backend])} is installed: the driver of {backend}")

    def call(self, name: str, *arguments: Any) -> None:
        """DriverError with the driver's own name for what went wrong."""
        status = self._calls[name](*arguments)
        if status:
            text = ctypes.c_char_p()
            self._calls["error_name"](status, ctypes.byref(text))
            said = (text.value or b"an unknown error").decode()
            raise DriverError(f"{self.backend}: {name.replace('_', ' ')} failed with {said} ({status})")

    def ensure_context(self, ordinal: int) -> None:
        """Make the device's own context the one of this thread, where it has none."""
        if self.backend != "cuda":
            return
        context = _pointer()
        self.call("current_context", ctypes.byref(context))
        if not context.value:
            self.call("retain_context", ctypes.byref(context), ordinal)
            self.call("use_context", context)

    def load(self, image: bytes, symbol: str, threads: int, shared: int) -> Function:
        """The function of a module's machine code."""
        module, function = _pointer(), _pointer()
        self.call("load_module", ctypes.byref(module), image)
        self.call("function", ctypes.byref(function), module, symbol.encode())
        if self.backend == "cuda" and shared > STATIC_SHARED:
            self.call("set_attribute", function, MOST_DYNAMIC_SHARED, shared)
        return Function(function.value or 0, threads, shared, _Handle(self, "unload_module", module))

    def launch(self, function: Function, programs: int, arguments: Sequence[int], stream: int) -> None:
        """Arguments take 8 bytes each, low bytes first, of which the kernel reads as many as it declares."""
        count = len(arguments) + SCRATCH
        values = (ctypes.c_uint64 * count)(*arguments)
        first = ctypes.addressof(values)
        places = (_pointer * count)(*range(first, first + 8 * count, 8))
        grid = (programs, 1, 1, function.threads, 1, 1, function.shared)
        self.call("launch", function.handle, *grid, stream, places, None)

    def new_stream(self) -> int:
        stream = _pointer()
        self.call("create_stream", ctypes.byref(stream), NON_BLOCKING)
        return stream.value or 0

    def record(self, launch: Callable[[int], None], stream: int) -> Graph:
        """A graph of what is launched on a stream, which must not be the legacy one."""
        graph, executable = _pointer(), _pointer()
        self.call("begin_capture", stream, RELAXED)
        try:
            launch(stream)
        finally:
            self.call("end_capture", stream, ctypes.byref(graph))
        try:
            self.call("instantiate", ctypes.byref(executable), graph, 0)
        finally:
            self.call("destroy_graph", graph)
        return Graph(self, _Handle(self, "destroy_executable", executable))


@dataclass(frozen=True, slots=True)
class Graph:
    """Launches in the order in which they were recorded."""

    driver: Driver
    executable: _Handle

    def replay(self, stream: int) -> None:
        self.driver.call("launch_graph", self.executable.value, stream)


class _Handle:
    """What the driver has made, given back when nobody holds it."""

    __slots__ = ("_driver", "_end", "value")

    def __init__(self, driver: Driver, end: str, value: ctypes.c_void_p) -> None:
        self._driver, self._end, self.value = driver, end, value

    def __del__(self) -> None:
        # a process that ends, or a device that has failed, has taken it back already
        self._driver._calls[self._end](self.value)
