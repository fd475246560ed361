"""The driver's calls, on a library that takes them down: arguments of launches, contexts, graphs, and failures."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from luminal.errors import DriverError
from luminal.runtimes.gpu_driver import CALLS, CONTEXT_CALLS, Driver


class Library:
    """Functions of a driver by name; each gives 0, and a handle of its own where it is asked for one."""

    def __init__(self, **statuses: int) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.launched: list[list[int]] = []
        self.statuses = statuses

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if name in ("cuGetErrorName", "hipDrvGetErrorName"):
                arguments[1]._obj.value = b"ERROR_OF_THE_DRIVER"
            elif arguments and hasattr(arguments[0], "_obj") and name != "cuCtxGetCurrent":
                arguments[0]._obj.value = len(self.calls)
            if name in ("cuLaunchKernel", "hipModuleLaunchKernel"):
                places = arguments[9]
                self.launched.append([ctypes.c_int64.from_address(place).value for place in places])
            return self.statuses.get(name, 0)

        return function

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_a_kernel_is_loaded_and_launched(backend: str) -> None:
    library = Library()
    driver = Driver(backend, library)
    function = driver.load(b"code", "kernel", 128, 100)
    driver.launch(function, 6, [1 << 40, 7], 3)
    (call,) = [arguments for name, arguments in library.calls if name == CALLS["launch"][backend == "hip"]]
    assert call[:9] == (function.handle, 6, 1, 1, 128, 1, 1, 100, 3)
    assert library.launched == [[1 << 40, 7, 0, 0]]  # and the two pointers of Triton's convention
    del function
    assert library.names[-1] == CALLS["unload_module"][backend == "hip"]


def test_much_shared_memory_is_asked_for() -> None:
    library = Library()
    Driver("cuda", library).load(b"code", "kernel", 128, 100_000)
    ((_, arguments),) = [call for call in library.calls if call[0] == "cuFuncSetAttribute"]
    assert arguments[1:] == (8, 100_000)
    other = Library()
    Driver("hip", other).load(b"code", "kernel", 128, 60_000)
    assert other.names == ["hipModuleLoadData", "hipModuleGetFunction", "hipModuleUnload"]


def test_a_thread_without_a_context_gets_the_device_s_own() -> None:
    library = Library()
    Driver("cuda", library).ensure_context(2)
    assert library.names == ["cuCtxGetCurrent", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]
    assert library.calls[1][1][1] == 2
    other = Library()
    Driver("hip", other).ensure_context(0)
    assert not other.calls


def test_launches_are_recorded_and_replayed() -> None:
    library = Library()
    driver = Driver("cuda", library)
    function = driver.load(b"code", "kernel", 32, 0)
    graph = driver.record(lambda stream: driver.launch(function, 1, [], stream), driver.new_stream())
    graph.replay(5)
    graph.replay(6)
    names = library.names[3:]
    assert names[:5] == [
        "cuStreamBeginCapture_v2",
        "cuLaunchKernel",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
    ]
    assert [arguments[1] for name, arguments in library.calls if name == "cuGraphLaunch"] == [5, 6]
    del graph
    assert library.names[-1] == "cuGraphExecDestroy"


def test_a_recording_that_fails_is_ended() -> None:
    library = Library(cuLaunchKernel=1)
    driver = Driver("cuda", library)
    function = driver.load(b"code", "kernel", 32, 0)
    with pytest.raises(DriverError, match=r"launch failed with ERROR_OF_THE_DRIVER \(1\)"):
        driver.record(lambda stream: driver.launch(function, 1, [], stream), 4)
    assert library.names[-1] == "cuStreamEndCapture"


def test_a_driver_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="libcuda"):
        Driver.open("cuda", tmp_path)


def test_every_function_is_declared() -> None:
    library = Library()
    for backend in ("cuda", "hip"):
        driver = Driver(backend, library)
        wanted = {*CALLS, *(CONTEXT_CALLS if backend == "cuda" else ())}
        assert set(driver._calls) == wanted
        assert all(
            function.restype is ctypes.c_int and function.argtypes for function in driver._calls.values()
        )
