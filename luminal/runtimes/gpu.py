"""The runtime of the Graph API for GPUs: data goes to the device once, and results come from it when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from luminal.compiler import compile_module
from luminal.data import DataLike
from luminal.errors import NoDeviceError, UnsupportedTargetError
from luminal.options import CompileOptions
from luminal.plan.gpu_executable import GpuExecutable
from luminal.runtimes.protocol import Array, Executable, Runtime

if TYPE_CHECKING:
    import torch

    from luminal.quantised_graph import QuantisedTensor
    from luminal.tensor import Tensor


class GPURuntime(Runtime):
    """`cx.build_search_space(GPURuntime)`, then `cx.search(GPURuntime(), 10)`: ten candidates a region are timed.

    `GPURuntime("sm_90")` compiles for a device that need not be here; without a target it is for torch's current one.
    `execute` waits for nothing; reading a result does.
    """

    options = ("mode", "cache", "hint", "constants")
    backends: ClassVar[tuple[str, ...]] = ("cuda", "hip")

    def __init__(self, target: str | None = None) -> None:
        """UnsupportedTargetError for a target that is no GPU of this runtime; NoDeviceError where none is stated and
        there is no GPU."""
        super().__init__()
        self.target = target if target is not None else _target_here()
        self._sent: dict[int, tuple[Array, torch.Tensor]] = {}
        """Data on the device, beside the array of the host that it is a copy of."""
        self._on_device: list[torch.Tensor] = []
        self._check_backend()

    def _check_backend(self) -> None:
        from luminal.emit_triton.targets import target_named

        backend = target_named(self.target).backend
        if backend not in self.backends:
            raise UnsupportedTargetError(
                f"{type(self).__name__} serves {' and '.join(self.backends)}; {self.target} is a target of {backend}"
            )

    def compile(self, module: ModuleOp, candidates: int, options: Mapping[str, Any]) -> Executable:
        """Machine code for the target; errors as `compile_module`."""
        self._sent = {}
        return compile_module(module, self.target, CompileOptions.of({**options, "candidates": candidates}))

    def set_data(self, tensor: Tensor | QuantisedTensor, data: DataLike) -> None:
        super().set_data(tensor, data)
        if self._sent and isinstance(self.executable, GpuExecutable):
            self.executable.forget_constants()

    def run(self, executable: Executable, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """Run on the device; what is returned is filled in when it is read."""
        found = cast(GpuExecutable, executable)
        device = found.device
        with device.active():
            for position, array in enumerate(inputs):
                known = self._sent.get(position)
                if known is None or known[0] is not self._data[position]:
                    self._sent[position] = self._data[position], device.upload(array)
            tensors = [self._sent[position][1] for position in range(len(inputs))]
            self._on_device = found.run_tensors(tensors, dims)
        self._shapes = [tuple(size.evaluate(dims) for size in type_.shape) for type_ in found.output_types]
        return [_UNREAD] * len(self._on_device)

    def get_numpy(self, output: Tensor) -> Array:
        """The value of an output after the last `execute`: the first reading of it copies it from the device."""
        position = self.result_position(output)
        assert self._results is not None
        if self._results[position] is _UNREAD:
            found = cast(GpuExecutable, self.executable)
            with found.device.active():
                flat = found.device.download(self._on_device[position])
            dtype = found.output_types[position].dtype.numpy
            self._results[position] = flat.view(dtype).reshape(self._shapes[position])
        return self._results[position]


class CUDARuntime(GPURuntime):
    """`GPURuntime` for NVIDIA's devices."""

    backends = ("cuda",)


class ROCmRuntime(GPURuntime):
    """`GPURuntime` for AMD's devices."""

    backends = ("hip",)


_UNREAD = np.empty(0, np.uint8)


def _target_here() -> str:
    import torch

    from luminal.runtimes.gpu_targets import current_target

    if not torch.cuda.is_available():
        raise NoDeviceError(
            "torch finds no GPU here; name a target to compile for one that is elsewhere: GPURuntime('sm_90')"
        )
    return current_target(torch.cuda.current_device())
