"""What a GPU must do for a program: memory, machine code, launches, recorded launches, and copies to the host.

`find_device` finds the one that runs a target's code; `gpu_torch.py` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from luminal.errors import NoDeviceError

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Code:
    """Machine code of one kernel: a cubin or hsaco, the function in it, threads of a program and bytes of its shared
    memory.  `signature`: the types of its parameters in Triton's words ("*bf16", "i32")."""

    image: bytes
    symbol: str
    threads: int
    shared: int
    signature: tuple[str, ...]


class Recording(Protocol):
    """Launches that were recorded once, with the addresses and sizes that they then had."""

    def replay(self, stream: int) -> None: ...


class Device(Protocol):
    """One GPU.  Streams are the handles of its driver, addresses plain numbers."""

    @property
    def architecture(self) -> str:
        """Of the code that it runs: "sm_90", "gfx942"."""
        ...

    @property
    def torch(self) -> torch.device:
        """Where its tensors are."""
        ...

    def active(self) -> AbstractContextManager[None]:
        """While open, the calls of this thread go to this device."""
        ...

    def load(self, code: Code) -> Any:
        """The function of some machine code, for `launch`; DriverError where the device refuses it."""
        ...

    def launch(self, function: Any, programs: int, arguments: Sequence[int], stream: int) -> None:
        """Put `programs` programs in a stream, with addresses and sizes in the order of the signature."""
        ...

    def record(self, launch: Callable[[int], None]) -> Recording:
        """Record what a function launches on the stream that it is given; nothing runs."""
        ...

    def stream(self) -> int:
        """The stream on which torch works now."""
        ...

    def is_recording(self) -> bool:
        """Whether the user records what torch's stream is given: nothing may be waited for."""
        ...

    def read_bytes(self, addresses: Sequence[int], stream: int) -> bytes:
        """One byte at each address, as it is when the stream has come here: the caller waits."""
        ...

    def wait(self) -> None:
        """Until the stream on which torch works has come here."""
        ...

    def allocate(self, size: int) -> torch.Tensor:
        """Bytes from torch's allocator, for the stream on which torch works now."""
        ...

    def view(self, address: int, size: int) -> torch.Tensor:
        """Memory of the device as bytes of torch; nothing keeps it alive."""
        ...

    def upload(self, array: Array) -> torch.Tensor:
        """The bytes of a contiguous array, copied to the device in torch's stream; the array may be changed at once."""
        ...

    def download(self, tensor: torch.Tensor) -> Array:
        """Bytes of the device as an array of the host's."""
        ...

    def time(self, run: Callable[[], None]) -> float:
        """Seconds of what a function puts in torch's stream, with nothing of it in the device's caches."""
        ...


def find_device(architecture: str) -> Device:
    """The device that runs code for an architecture: torch's current one.  NoDeviceError where it cannot."""
    from luminal.runtimes.gpu_torch import current_device

    device = current_device()
    if device is None:
        raise NoDeviceError(
            f"this program is for {architecture}, and torch finds no GPU here; it can be compiled, explained and "
            "built on this machine, and run on one that has the device"
        )
    if device.architecture != architecture:
        raise NoDeviceError(
            f"this program is for {architecture}, and the current device is {device.architecture}"
        )
    return device


def bytes_of(array: Array) -> Array:
    """The memory of a contiguous array as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
