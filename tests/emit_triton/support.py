"""What the tests of emitted Triton kernels share: a region under a schedule, run as text and by its interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np

from luminal.dialects.kernel.placed_interpreter import garbage
from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, Term, TermTable
from luminal.dim import Dim, as_dim
from luminal.dtype import DType, f32
from luminal.emit_triton.emit import emit_function
from luminal.emit_triton.kernel import Options, TritonKernel
from luminal.passes.place import place
from tests.emit_triton.interpreter import run_kernels

LICENCES = ("contract", "reassociate", "distribute", "keep-wide")
Array = np.ndarray[Any, Any]


def emit(
    region: Region, schedule: str, licences: Sequence[str] = LICENCES, options: Options = Options()
) -> tuple[TritonKernel, ...]:
    """The kernels of a region under a schedule."""
    function = place(region, parse_schedule(schedule), "kernel", licences)
    function.verify()
    return emit_function(function, options)


def run(
    region: Region, kernels: Sequence[TritonKernel], inputs: Sequence[Array], dims: Mapping[str, int]
) -> list[Array]:
    """What kernels write into the region's outputs."""
    arguments = [array.copy() for array in inputs]
    outputs = [
        arguments[o.alias] if o.alias >= 0 else garbage(o.dtype, o.elements.evaluate(dims))
        for o in region.outputs
    ]
    run_kernels(kernels, [*arguments, *outputs], dims)
    for number, (before, after) in enumerate(zip(inputs, arguments, strict=True)):
        if all(output.alias != number for output in region.outputs):
            np.testing.assert_array_equal(bits(before), bits(after))
    return outputs


def check(
    region: Region,
    schedule: str,
    inputs: Sequence[Array],
    dims: Mapping[str, int] | None = None,
    tolerance: float = 1e-5,
    reference: Region | None = None,
    licences: Sequence[str] = LICENCES,
    options: Options = Options(),
) -> tuple[TritonKernel, ...]:
    """Kernels that give what the region's interpreter gives: to the bit where the tolerance is 0, and for integers.

    `reference`: the region whose values are right, where this one is a form of it.
    """
    kernels = emit(region, schedule, licences, options)
    compare(
        run(region, kernels, inputs, dims or {}), evaluate(reference or region, inputs, dims or {}), tolerance
    )
    return kernels


def compare(got: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    for left, right in zip(got, wanted, strict=True):
        assert left.dtype == right.dtype
        if tolerance == 0 or left.dtype.kind in "iub":
            wide = [x if x.dtype.kind in "iub" else x.astype(np.float64) for x in (left, right)]
            np.testing.assert_array_equal(*wide)
        else:
            np.testing.assert_allclose(
                left.astype(np.float64), right.astype(np.float64), rtol=tolerance, atol=tolerance
            )


def bits(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


def numbers(size: int, dtype: DType = f32, seed: int = 0) -> Array:
    """Values near one; small integers of both signs where the dtype has them."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, size).astype(np.bool_)
    if not dtype.is_float:
        return rng.integers(-9 if dtype.is_signed else 0, 10, size).astype(dtype.numpy)
    return rng.standard_normal(size).astype(np.float32).astype(dtype.numpy)


def with_specials(values: Array) -> Array:
    """The same with NaN, infinities, zeros of both signs and subnormals in front."""
    found = values.copy()
    specials = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-42])
    found[: len(specials)] = specials[: len(found)].astype(values.dtype)
    return found


def output(
    term: Term, strides: Mapping[str, Dim | int], extents: Mapping[str, Dim], alias: int = -1
) -> Output:
    """A dense output over the indices of its strides."""
    elements = as_dim(1)
    for index in strides:
        elements = elements * extents[index]
    return Output(term, elements, Affine.of(strides), alias=alias, indices=frozenset(strides))


def elementwise(size: Dim | int, build: Any, dtypes: Sequence[DType] = (f32,)) -> Region:
    """build(table, loads) for each of `size` positions."""
    table, extents = TermTable(), {"i": as_dim(size)}
    loads = [table.read(number, Affine.of({"i": 1}), dtype) for number, dtype in enumerate(dtypes)]
    result = output(build(table, loads), {"i": 1}, extents)
    return Region(table, extents, [Argument(dtype, as_dim(size)) for dtype in dtypes], [result])
