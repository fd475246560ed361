"""A GPU through torch and its driver: torch owns memory and streams, the driver loads and launches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from luminal.runtimes.gpu_device import Code, bytes_of
from luminal.runtimes.gpu_driver import Driver, Function, Graph

Array = NDArray[Any]
FLUSH_BYTES = 512 << 20
"""What is written between two timed runs: more than any second cache holds."""


def current_device() -> TorchDevice | None:
    """Torch's current GPU; None where it has none."""
    if not torch.cuda.is_available():
        return None
    return _device(torch.cuda.current_device())


@cache
def _device(ordinal: int) -> TorchDevice:
    return TorchDevice(ordinal)


def architecture_of(ordinal: int) -> str:
    """The architecture of a device as targets name it: "sm_90", "gfx942"."""
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(ordinal).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability(ordinal)
    return f"sm_{major}{minor}"


class TorchDevice:
    """The device of a number.  See `Device`."""

    def __init__(self, ordinal: int) -> None:
        torch.cuda.init()
        self._ordinal = ordinal
        self.torch = torch.device("cuda", ordinal)
        self.architecture = architecture_of(ordinal)
        # what torch brings comes before what the system has
        own = Path(torch.__file__).parent / "lib"
        self._driver = Driver.open("hip" if torch.version.hip is not None else "cuda", own)
        self._lock = threading.Lock()
        self._recording_stream = 0
        self._of_thread = threading.local()
        self._flush: torch.Tensor | None = None

    @contextmanager
    def active(self) -> Generator[None]:
        with torch.cuda.device(self._ordinal):
            if not getattr(self._of_thread, "ready", False):
                self._driver.ensure_context(self._ordinal)
                self._of_thread.ready = True
            yield

    def load(self, code: Code) -> Function:
        return self._driver.load(code.image, code.symbol, code.threads, code.shared)

    def launch(self, function: Function, programs: int, arguments: Sequence[int], stream: int) -> None:
        self._driver.launch(function, programs, arguments, stream)

    def record(self, launch: Callable[[int], None]) -> Graph:
        with self._lock:
            self._recording_stream = self._recording_stream or self._driver.new_stream()
            return self._driver.record(launch, self._recording_stream)

    def stream(self) -> int:
        return torch.cuda.current_stream(self._ordinal).cuda_stream

    def is_recording(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def read_bytes(self, addresses: Sequence[int], stream: int) -> bytes:
        flags = torch.empty(len(addresses), dtype=torch.uint8, pin_memory=True)
        for place, address in enumerate(addresses, flags.data_ptr()):
            self._driver.call("copy_to_host", place, address, 1, stream)
        self._driver.call("wait", stream)
        return bytes(flags.numpy())

    def wait(self) -> None:
        torch.cuda.current_stream(self._ordinal).synchronize()

    def allocate(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self.torch)

    def view(self, address: int, size: int) -> torch.Tensor:
        if size == 0:
            return self.allocate(0)
        return torch.as_tensor(_Memory(address, size), device=self.torch)

    def upload(self, array: Array) -> torch.Tensor:
        # pinned memory belongs to torch, which keeps it until the copy is done
        pinned = torch.empty(array.nbytes, dtype=torch.uint8, pin_memory=True)
        np.copyto(pinned.numpy(), bytes_of(array))
        return pinned.to(self.torch, non_blocking=True)

    def download(self, tensor: torch.Tensor) -> Array:
        pinned = torch.empty(tensor.numel(), dtype=torch.uint8, pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        self.wait()
        return pinned.numpy()

    def time(self, run: Callable[[], None]) -> float:
        if self._flush is None:
            self._flush = self.allocate(FLUSH_BYTES)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.zero_()
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


class _Memory:
    """Memory of a device as torch reads it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }
