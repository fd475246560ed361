"""Runs the text of Triton kernels on NumPy arrays, under Triton's own interpreter, and watches their memory.

Triton's interpreter is silently wrong where narrow floats are concerned, and ignores NaN in some reductions: `Builder`
puts that right.  `Memory` refuses accesses outside of all arrays, and accesses of two programs that meet without order.
Nothing of it is left behind: the same functions can be compiled afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from luminal.dialects.kernel.placed_interpreter import garbage
from luminal.emit_triton.kernel import TritonKernel
from luminal.emit_triton.text import TYPES

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not triton.__version__.startswith(("3.6.", "3.7.", "3.8.", "3.9.")):
    pytest.skip("the interpreters of Triton 3.6 to 3.9 are those that are put right", allow_module_level=True)

import triton.language as tl  # noqa: E402
from triton.runtime import interpreter as base  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

Array = np.ndarray[Any, Any]
NARROW = {
    tl.bfloat16: ml_dtypes.bfloat16,
    tl.float8e4nv: ml_dtypes.float8_e4m3fn,
    tl.float8e5: ml_dtypes.float8_e5m2,
}
FLOATS = {**NARROW, tl.float16: np.float16, tl.float32: np.float32, tl.float64: np.float64}
COMPARISONS = {np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal}
UNTOUCHED, SEVERAL, ATOMIC = -1, -2, -3
SATURATING = {tl.float8e4nv: 448.0, tl.float8e5: 57344.0}


class RaceError(AssertionError):
    """Two programs of one kernel touch one element, and one of them writes it."""


class BoundsError(AssertionError):
    """An access outside of all arrays, or between two elements."""


def widened(handle: base.TensorHandle) -> Array:
    """A handle's numbers, in f32 where the interpreter holds bits."""
    kind = handle.dtype.scalar
    return handle.data.view(NARROW[kind]).astype(np.float32) if kind in NARROW else handle.data


def narrowed(values: Array, kind: tl.dtype) -> base.TensorHandle:
    """Numbers as a handle of a float type, rounded to nearest even; 8 bits saturate, as they do on devices."""
    if kind in SATURATING:
        limit = SATURATING[kind]
        values = np.where(np.isnan(values), values, np.clip(values, -limit, limit)).astype(np.float32)
    found = values.astype(FLOATS[kind])
    return base.TensorHandle(found.view(base._get_np_dtype(kind)) if kind in NARROW else found, kind)


def fused(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of f64, rounded once."""

    def one(a: float, b: float, c: float) -> float:
        rounded = a * b + c
        exact = Fraction(a) * Fraction(b) + Fraction(c) if np.isfinite([a, b, c]).all() else Fraction(0)
        return float(exact) if exact and np.isfinite(rounded) else rounded

    return np.asarray(np.frompyfunc(one, 3, 1)(x, y, z)).astype(np.float64)


def _scaled_rows(data: Array, kind: tl.dtype, scales: base.TensorHandle) -> Array:
    """Rows of numbers, two to a byte where they have no dtype of their own, times the scales of their groups."""
    if kind in NARROW:
        numbers = data.view(NARROW[kind]).astype(np.float32)
    else:
        halves = np.stack([data & 15, data >> 4], -1).reshape(len(data), -1)
        numbers = halves.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    is_number = scales.dtype.scalar in NARROW
    factors = widened(scales) if is_number else scales.data.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    return numbers * np.repeat(factors, numbers.shape[1] // factors.shape[1], axis=1)


class Memory:
    """The arrays that a kernel may touch, and which program has read and written each element."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        unique = {array.ctypes.data: array for array in arrays if array.size}
        self.arrays = [unique[address] for address in sorted(unique)]
        self.starts = np.array([array.ctypes.data for array in self.arrays], np.int64)
        self.readers = [np.full(array.size, UNTOUCHED) for array in self.arrays]
        self.writers = [np.full(array.size, UNTOUCHED) for array in self.arrays]

    def access(self, pointers: Array, mask: Array, program: int, kind: str) -> None:
        """Take down an access of one program: read, write or atomic."""
        chosen = np.asarray(pointers).astype(np.int64)[np.broadcast_to(mask, np.shape(pointers)).astype(bool)]
        if not chosen.size:
            return
        numbers = np.searchsorted(self.starts, chosen, "right") - 1
        for number in np.unique(numbers):
            array = self.arrays[max(number, 0)]
            offsets = chosen[numbers == number] - self.starts[max(number, 0)]
            places, rests = np.divmod(offsets, array.itemsize)
            if number < 0 or rests.any() or (places >= array.size).any():
                raise BoundsError(f"{kind} at byte {int(offsets.max())} of an array of {array.nbytes}")
            self._touch(int(number), places, program, kind)

    def _touch(self, number: int, places: Array, program: int, kind: str) -> None:
        readers, writers = self.readers[number], self.writers[number]
        mine = ATOMIC if kind == "atomic" else program
        others = (writers[places] != UNTOUCHED) & (writers[places] != mine)
        if kind != "read":
            others |= (readers[places] != UNTOUCHED) & (readers[places] != program)
        if others.any():
            raise RaceError(
                f"program {program}: {kind} of element {int(places[others][0])}, which another one has touched"
            )
        if kind == "read":
            readers[places] = np.where(np.isin(readers[places], [UNTOUCHED, program]), program, SEVERAL)
        else:
            if kind == "write" and np.unique(places).size != places.size:
                raise RaceError(f"program {program}: two lanes write one element")
            writers[places] = mine


class Builder(base.InterpreterBuilder):
    """Triton's operations in NumPy, with the meaning that they have on a device."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    @property
    def program(self) -> int:
        return self.grid_idx[0]

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        kind = lhs.dtype.scalar
        if op in COMPARISONS:
            return base.TensorHandle(op(widened(lhs), widened(rhs)), tl.int1)
        if kind in NARROW:
            return narrowed(op(widened(lhs), widened(rhs)), kind)
        return super().binary_op(lhs, rhs, op)

    def unary_op(self, arg: Any, op: Any) -> Any:
        kind = arg.dtype.scalar
        return narrowed(op(widened(arg)), kind) if kind in NARROW else super().unary_op(arg, op)

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        source, wanted = src.dtype.scalar, dst_type.scalar
        if source in FLOATS and wanted in FLOATS:
            return narrowed(widened(src), wanted)
        if source in NARROW:
            src = base.TensorHandle(widened(src), tl.float32)
        return super().cast_impl(src, dst_type)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """Rounded once; earlier versions, and all in f64, round the product, too."""
        if x.dtype.scalar == tl.float64:
            return base.TensorHandle(fused(x.data, y.data, z.data), tl.float64)
        a, b, c = (widened(each).astype(np.float64) for each in (x, y, z))
        return narrowed(a * b + c, x.dtype.scalar)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        return narrowed(widened(src), dst_type.scalar)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        if a.dtype != b.dtype:
            raise TypeError(f"tl.dot of {a.dtype} and {b.dtype}")
        kind = d.data.dtype
        return base.TensorHandle(
            np.matmul(widened(a).astype(kind), widened(b).astype(kind)) + d.data, d.dtype.scalar
        )

    def create_dot_scaled(self, lhs: Any, lhs_scale: Any, lhs_format: Any, *others: Any) -> Any:
        """Scales are powers of two, or numbers where their dtype says so, which Triton's interpreter does not see."""
        rhs, rhs_scale, *_, total = others
        left = _scaled_rows(lhs.data, lhs.dtype.scalar, lhs_scale)
        right = _scaled_rows(rhs.data.T, rhs.dtype.scalar, rhs_scale)
        return base.TensorHandle(np.matmul(left, right.T) + total.data, tl.float32)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *hints: Any, **named: Any) -> Any:
        self.memory.access(ptrs.data, mask.data, self.program, "read")
        kind = ptrs.get_element_ty()
        # a scalar 0.0 arrives as None here
        if other is None and kind in FLOATS and ptrs.data.size > 1:
            nothing = np.full(ptrs.data.shape, np.nan, np.float32)
            other = narrowed(nothing, kind)
        return super().create_masked_load(ptrs, mask, other, *hints, **named)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *hints: Any) -> Any:
        self.memory.access(ptrs.data, mask.data, self.program, "write")
        return super().create_masked_store(ptrs, value, mask, *hints)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        self.memory.access(ptr.data, mask.data, self.program, "atomic")
        return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)


def reduce_slices(self: Any, inputs: Any) -> list[Any]:
    """A reduction by a function of its own, slice by slice in order."""
    axis = self.axis
    parts = [np.moveaxis(value.handle.data, axis, 0) for value in inputs]
    kinds = [value.dtype for value in inputs]
    total = tuple(self.to_tensor(part[0], kind) for part, kind in zip(parts, kinds, strict=True))
    for position in range(1, parts[0].shape[0]):
        new = [self.to_tensor(part[position], kind) for part, kind in zip(parts, kinds, strict=True)]
        joined = self.combine_fn.fn(*total, *new)
        total = joined if isinstance(joined, tuple) else (joined,)
    return list(total)


@contextlib.contextmanager
def interpreting(memory: Memory) -> Generator[Builder]:
    """Triton's language means what `Builder` does, and jitted functions are plain ones."""
    builder = Builder(memory)
    changes: list[tuple[Any, str, Any]] = [
        (base, "interpreter_builder", builder),
        (base, "interpreter_semantic", base.TritonSemantic(builder)),
        (base.ReduceOps, "generic_reduce", reduce_slices),
        (JITFunction, "__call__", lambda function, *args, **kwargs: function.fn(*args, **kwargs)),
        (triton.knobs.runtime, "interpret", True),
    ]
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    scope = base._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    # before 3.8 it asks int() of an array of one element, which NumPy refuses
    scope.set_attr(tl.core.tensor, "__index__", lambda self: self.handle.data.item())
    try:
        with np.errstate(all="ignore"):
            yield builder
    finally:
        scope.restore()
        for owner, name, value in saved:
            setattr(owner, name, value)


def load_function(kernel: TritonKernel) -> Callable[..., None]:
    """The function that a kernel's text defines, not jitted."""
    source = kernel.source.replace("@triton.jit", "@plain")
    names: dict[str, Any] = {"plain": PlainFunction}
    exec(compile(source, f"<{kernel.name}>", "exec"), names)
    return names[kernel.name]


class PlainFunction:
    """A function in place of a jitted one, which reductions ask for `fn`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def run_kernels(kernels: Sequence[TritonKernel], memory: Sequence[Array], dims: Mapping[str, int]) -> None:
    """Launch kernels in order on flat arrays: arguments and outputs, in the order of the parameters.

    Workspaces are made here and begin as garbage.
    """
    arrays = [array if array.size else np.zeros(0, array.dtype) for array in memory]
    for parameter in kernels[0].parameters[len(arrays) :]:
        if parameter.is_pointer:
            assert parameter.elements is not None
            arrays.append(garbage(parameter.dtype, parameter.elements.evaluate(dims)))
    for kernel in kernels:
        _launch(kernel, arrays, dims)


def _launch(kernel: TritonKernel, arrays: Sequence[Array], dims: Mapping[str, int]) -> None:
    function, grid = load_function(kernel), kernel.grid.evaluate(dims)
    with interpreting(Memory(arrays)) as builder:
        arguments: list[Any] = []
        for position, parameter in enumerate(kernel.parameters):
            if parameter.is_pointer:
                kind: Any = tl.pointer_type(getattr(tl, TYPES[parameter.dtype].removeprefix("tl.")))
                data = np.array([arrays[position].ctypes.data], np.uint64)
            else:
                kind = getattr(tl, TYPES[parameter.dtype].removeprefix("tl."))
                data = np.array([dims[parameter.name]], parameter.dtype.numpy)
            arguments.append(tl.tensor(base.TensorHandle(data, kind), kind))
        builder.set_grid_dim(grid, 1, 1)
        for program in range(grid):
            builder.set_grid_idx(program, 0, 0)
            function(*arguments)
