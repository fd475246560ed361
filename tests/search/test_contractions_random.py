"""Random products of narrow numbers under what the generator puts first: batches, transposed and shared operands,
ragged and empty sizes, epilogues; against NumPy in f64, integers to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dim import as_dim, dim
from luminal.dtype import DType, bf16, f16, f32, i8, i16, i32, u8
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import HostMeasurer, host_machine
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.candidates import coarse_candidates
from luminal.search.forms import forms
from luminal.search.samples import Samples
from tests.kernel.products import inputs

LICENCES = ("contract", "distribute", "reassociate")
MEASURER = HostMeasurer(KernelCompiler(Target.host(), LICENCES, use_cache=False))
PAIRS = [(u8, i8), (i8, i8), (i8, u8), (u8, u8), (i16, i8), (bf16, bf16), (f16, f16)]
Array = np.ndarray[Any, Any]


def region_of(
    sizes: dict[str, int],
    dtypes: tuple[DType, DType],
    orders: tuple[str, str],
    is_symbolic: bool,
    is_constant: bool,
    is_narrow: bool,
) -> Region:
    """out[g, i, j] = bias[j] + sum over k of a[g, i, k] * b[g, k, j], whose axes lie in these orders; b may be without
    g.  `is_narrow`: the result is cast to bf16 or i8."""
    total = f32 if dtypes[0].is_float else i32
    extents = {name: as_dim(size) for name, size in sizes.items()}
    if is_symbolic:
        extents["i"] = dim("rows")
    table = TermTable()
    loads = []
    arguments = [
        Argument(dtypes[0], as_dim(0)),
        Argument(dtypes[1], as_dim(0)),
        Argument(total, extents["j"]),
    ]
    for number, (dtype, order) in enumerate(zip(dtypes, orders, strict=True)):
        stride, strides = as_dim(1), {}
        for index in reversed(order):
            strides[index], stride = stride, stride * extents[index]
        arguments[number] = Argument(dtype, stride, is_constant and number == 1)
        loads.append(table.apply("cast", (table.read(number, Affine.of(strides), dtype),), "none", total))
    result = table.reduce("sum", ["k"], (table.apply("mul", (loads[0], loads[1]), None, total),))
    result = table.apply("add", (result, table.read(2, Affine.of({"j": 1}), total)), None, total)
    if is_narrow:
        result = table.apply("cast", (result,), "none", bf16 if total is f32 else i8)
    address = Affine.of({"g": extents["i"] * extents["j"], "i": extents["j"], "j": 1})
    elements = extents["g"] * extents["i"] * extents["j"]
    output = Output(result, elements, address, indices=frozenset("gij"))
    return Region(table, extents, arguments, [output])


def expected(arrays: list[Array], sizes: dict[str, int], orders: tuple[str, str]) -> Array:
    a, b = (
        x.astype(np.float64).reshape([sizes[i] for i in order])
        for x, order in zip(arrays, orders, strict=False)
    )
    return np.einsum(f"{orders[0]},{orders[1]}->gij", a, b) + arrays[2].astype(np.float64)


@settings(deadline=None, max_examples=24, derandomize=True)
@given(st.data())
def test_random_products(data: st.DataObject) -> None:
    draw = data.draw
    sizes = {
        "g": draw(st.integers(1, 3)),
        "i": draw(st.sampled_from([1, 2, 5, 8, 13, 0])),
        "j": draw(st.sampled_from([1, 7, 16, 33, 64, 65])),
        "k": draw(st.sampled_from([1, 2, 3, 4, 7, 30, 64, 65, 130])),
    }
    dtypes = draw(st.sampled_from(PAIRS))
    orders = draw(st.sampled_from(["gik", "gki"])), draw(st.sampled_from(["gkj", "gjk", "kj", "jk"]))
    is_symbolic, is_constant, is_narrow = (draw(st.booleans()) for _ in range(3))
    is_symbolic |= sizes["i"] == 0
    region = region_of(sizes, dtypes, orders, is_symbolic, is_constant, is_narrow)
    dims = {"rows": sizes["i"]} if is_symbolic else {}
    arrays = inputs(region, dims)
    arrays[2] = np.arange(arrays[2].size).astype(arrays[2].dtype)
    exact = expected(arrays, sizes, orders).reshape(-1)
    every = list(forms(region, frozenset(LICENCES)))
    samples = Samples({name: max(1, size) for name, size in dims.items()})
    named = {"": region, **{form.name: form.region for form in every}}
    for candidate in coarse_candidates(region, host_machine(1), samples, every)[:40:13]:
        of = named[candidate.form]
        result = np.zeros(exact.size, region.outputs[0].dtype.numpy)
        MEASURER.compile(of, candidate.schedule, candidate.cost).run(arrays, [result], dims, 1)
        if region.outputs[0].dtype.is_float:
            scale = np.abs(exact) + sizes["k"]
            unit = 2.0**-8 if is_narrow else 2.0**-20
            assert np.all(np.abs(result.astype(np.float64) - exact) <= unit * scale), candidate.schedule
        else:
            wrapped = exact.astype(np.int64).astype(result.dtype)
            np.testing.assert_array_equal(result, wrapped, str(candidate.schedule))
