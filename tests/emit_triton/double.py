"""A GPU's double: the launches of a program, run by Triton's interpreter on torch tensors of the host.

Its machine code is the kernel itself, pickled (`compile_for_double`), or that of a product's folder (`know_product`).
Every launch is checked: as many programs as the kernel has, addresses as aligned as it was told, accesses in bounds.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from luminal.dim import Symbol, parse_dim
from luminal.dtype import dtype_of
from luminal.emit_triton.aot import TYPES, CompiledKernel, signature_type
from luminal.emit_triton.kernel import Parameter, TritonKernel
from luminal.emit_triton.resources import Resources
from luminal.emit_triton.targets import GpuTarget
from luminal.errors import DriverError, NoDeviceError
from luminal.plan import gpu_build, gpu_compile, gpu_executable, gpu_program
from luminal.plan.kernels import memory_view
from luminal.runtimes.gpu_device import Code, bytes_of
from tests.emit_triton.interpreter import _launch

Array = np.ndarray[Any, Any]
STREAM, RECORDING = 7, 8
GARBAGE = 0xFF
"""A byte that makes every float a NaN and every integer -1."""


class Recorded:
    """Launches of the double, as they were when they were recorded."""

    def __init__(self, double: Double, launches: list[tuple[TritonKernel, int, list[int]]]) -> None:
        self.double, self.launches = double, launches

    def replay(self, stream: int) -> None:
        self.double.replays += 1
        for kernel, programs, arguments in self.launches:
            self.double.launch(kernel, programs, arguments, stream)


class Double:
    """See `luminal.runtimes.gpu_device.Device`; it counts what it is asked for."""

    torch = torch.device("cpu")

    def __init__(self, architecture: str = "sm_90") -> None:
        self.architecture = architecture
        self.loads = self.launches = self.recordings = self.replays = self.reads = self.uploads = 0
        self.is_recorded = False
        self.known: dict[str, TritonKernel] = {}
        self._recorded: list[tuple[TritonKernel, int, list[int]]] | None = None

    def active(self) -> nullcontext[None]:
        return nullcontext()

    def load(self, code: Code) -> TritonKernel:
        self.loads += 1
        digest = hashlib.sha256(code.image).hexdigest()
        kernel = self.known[digest] if digest in self.known else pickle.loads(code.image)
        if code.symbol != kernel.name:
            raise DriverError(f"the machine code has no function {code.symbol}")
        assert code.signature == tuple(map(signature_type, kernel.parameters))
        return kernel

    def launch(self, kernel: TritonKernel, programs: int, arguments: Sequence[int], stream: int) -> None:
        if stream == RECORDING:
            assert self._recorded is not None
            self._recorded.append((kernel, programs, list(arguments)))
            return
        self.launches += 1
        pairs = list(zip(kernel.parameters, arguments))
        assert 0 <= len(arguments) - len(pairs) <= 1, "the address of scratch memory may follow"
        dims = {parameter.name: value for parameter, value in pairs if not parameter.is_pointer}
        assert programs == kernel.grid.evaluate(dims) > 0
        arrays: list[Array] = []
        for parameter, address in pairs:
            if parameter.is_pointer:
                assert parameter.elements is not None and address % parameter.divisor == 0
                arrays.append(memory_view(address, parameter.elements.evaluate(dims), parameter.dtype))
            else:
                assert address % parameter.divisor == 0
        _launch(kernel, arrays, dims)

    def record(self, launch: Callable[[int], None]) -> Recorded:
        self.recordings += 1
        self._recorded = []
        launch(RECORDING)
        found, self._recorded = self._recorded, None
        return Recorded(self, found)

    def stream(self) -> int:
        return STREAM

    def is_recording(self) -> bool:
        return self.is_recorded

    def read_bytes(self, addresses: Sequence[int], stream: int) -> bytes:
        self.reads += 1
        return bytes(ctypes.c_uint8.from_address(address).value for address in addresses)

    def wait(self) -> None:
        pass

    def allocate(self, size: int) -> torch.Tensor:
        return torch.full((size,), GARBAGE, dtype=torch.uint8)

    def view(self, address: int, size: int) -> torch.Tensor:
        memory = (ctypes.c_uint8 * size).from_address(address)
        return torch.frombuffer(memory, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)

    def upload(self, array: Array) -> torch.Tensor:
        self.uploads += 1
        return torch.from_numpy(bytes_of(array).copy())

    def download(self, tensor: torch.Tensor) -> Array:
        return tensor.numpy().copy()

    def time(self, run: Callable[[], None]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def know_product(self, folder: Path) -> None:
        """Take the text of a product's kernels for their machine code."""
        for function in json.loads((folder / "manifest.json").read_text())["functions"].values():
            symbols = {name: Symbol(name, low, high) for name, low, high in function["symbols"]}
            for launch in function["launches"]:
                path = folder / launch["file"]
                parameters = tuple(_parameter(each, symbols) for each in launch["parameters"])
                grid = parse_dim(launch["grid"], symbols)
                kernel = TritonKernel(launch["symbol"], path.with_suffix(".py").read_text(), parameters, grid)
                self.known[hashlib.sha256(path.read_bytes()).hexdigest()] = kernel


def _parameter(each: dict[str, Any], symbols: dict[str, Symbol]) -> Parameter:
    names = {text: name for name, text in TYPES.items()}
    dtype = dtype_of(names[each["type"].removeprefix("*")])
    elements = None if each["elements"] is None else parse_dim(each["elements"], symbols)
    return Parameter(each["name"], dtype, each["type"].startswith("*"), each["divisor"], elements)


def compile_for_double(kernel: TritonKernel, target: GpuTarget | str, seconds: float = 0.0) -> CompiledKernel:
    """In place of `compile_kernel`: the kernel itself is its machine code."""
    metadata = {"name": kernel.name, "num_warps": kernel.options.warps, "shared": 0}
    resources = Resources(32, 0, 0, 0, 0, kernel.options.warps, {})
    return CompiledKernel(pickle.dumps(kernel), "", metadata, resources)


def use_double(monkeypatch: pytest.MonkeyPatch, device: Double | None) -> None:
    """Kernels are not compiled, and run on `device`, or nowhere."""

    def find(architecture: str) -> Double:
        if device is None or device.architecture != architecture:
            raise NoDeviceError(f"no {architecture} here")
        return device

    monkeypatch.setattr(gpu_build, "compile_kernel", compile_for_double)
    for module in (gpu_executable, gpu_compile, gpu_program):
        monkeypatch.setattr(module, "find_device", find)
