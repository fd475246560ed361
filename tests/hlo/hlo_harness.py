"""Run one hlo op at every level that the tests of this folder compare with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.dialects.graph_op import GraphOp, build_graph, finish_graph
from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo import interpreter as hlo_interpreter
from luminal.dialects.primitive import interpreter as primitive_interpreter
from luminal.dialects.tensor_type import tensor_type
from luminal.dim import Dim, dim
from luminal.dtype import dtype_of
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.simplify import simplify

Build = Callable[..., Any]
Array = np.ndarray[Any, Any]


def to_array(x: torch.Tensor) -> Array:
    """The bytes of a tensor as a NumPy array of the dtype that Luminal uses."""
    x = x.contiguous()
    dtype = dtype_of(x.dtype)
    if dtype.name in ("bf16", "f8e4m3fn", "f8e5m2"):
        carrier = torch.int16 if dtype.bits == 16 else torch.uint8
        return x.view(carrier).numpy().view(dtype.numpy)
    return x.numpy()


def symbolic_shapes(shapes: Sequence[Sequence[int]]) -> tuple[list[tuple[Dim | int, ...]], dict[str, int]]:
    """Every size but 1 as a symbol, equal sizes as the same one."""
    sizes = sorted({size for shape in shapes for size in shape if size != 1})
    symbols = {size: dim(f"n{size}") for size in sizes}
    return [tuple(symbols.get(size, 1) for size in shape) for shape in shapes], {f"n{s}": s for s in sizes}


def make_graph(build: Build, types: Sequence[Any]) -> tuple[ModuleOp, GraphOp]:
    """A verified module whose graph is what `build(builder, *values)` makes of inputs of these types."""
    graph, block = build_graph("main", [], types)
    found = build(HloBuilder(block), *block.args)
    finish_graph(block, [found] if isinstance(found, SSAValue) else list(found))
    module = ModuleOp([graph])
    module.verify()
    return module, graph


def run(build: Build, inputs: Sequence[torch.Tensor], symbolic: bool = False) -> dict[str, list[Array]]:
    """Results by level: "hlo", "primitive", and "simplified" primitives."""
    arrays = [to_array(x) for x in inputs]
    given: list[Any] = [a.shape for a in arrays]
    dims: dict[str, int] = {}
    if symbolic:
        given, dims = symbolic_shapes(given)
    types = [tensor_type(shape, dtype_of(x.dtype)) for shape, x in zip(given, inputs, strict=True)]
    module, graph = make_graph(build, types)
    results = {"hlo": hlo_interpreter.interpret(graph, arrays, dims)}
    lower_hlo(module)
    module.verify()
    results["primitive"] = primitive_interpreter.interpret(graph, arrays, dims)
    simplify(module)
    module.verify()
    results["simplified"] = primitive_interpreter.interpret(graph, arrays, dims)
    return results


def ulps(found: Array, expected: Array, dtype: Any) -> Array:
    """Distance in units of the last place of `dtype` at the f64 `expected`; 0 where both are NaN or equal."""
    exact = expected.astype(np.float64)
    near = np.abs(exact).astype(dtype)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.maximum(near, np.finfo(dtype).tiny)).astype(np.float64)
        distance = np.abs(found.astype(np.float64) - exact) / unit
    same = (found.astype(np.float64) == exact) | (np.isnan(found) & np.isnan(exact))
    return np.where(same, 0, distance)


def check(
    build: Build,
    inputs: Sequence[torch.Tensor],
    expected: torch.Tensor | Sequence[torch.Tensor],
    *,
    symbolic: bool = False,
    relative: float | None = None,
    absolute: float = 1e-30,
    signs: bool = True,
) -> None:
    """Assert shape, dtype and values at each level: bit for bit (NaN alike, `signs` of zeros too) for integers and
    where `relative` is None, else within the relative or absolute error."""
    wanted = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    for level, found in run(build, inputs, symbolic).items():
        assert len(found) == len(wanted)
        for array, tensor in zip(found, wanted, strict=True):
            target = to_array(tensor)
            assert array.dtype == target.dtype, f"{level}: {array.dtype} is not {target.dtype}"
            assert array.shape == target.shape, f"{level}: {array.shape} is not {target.shape}"
            if array.dtype.kind not in "iub":
                array, target = array.astype(np.float64), target.astype(np.float64)
            if relative is None or array.dtype.kind in "iub":
                np.testing.assert_array_equal(array, target, err_msg=level)
                if signs and array.dtype.kind == "f":
                    zero = array == 0
                    np.testing.assert_array_equal(
                        np.signbit(array)[zero], np.signbit(target)[zero], err_msg=level
                    )
            else:
                np.testing.assert_allclose(array, target, rtol=relative, atol=absolute, err_msg=level)
