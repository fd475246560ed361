"""Kernels of libraries that may compute operations of the hlo level: a row each, for whatever device.

A row says what it matches, what it needs, and how it is called. Rows of this machine's device are candidates like any
other, and timing decides (library_search.py); those of other devices match and are explained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.table import HloOp
from luminal.dtype import DType, bf16, f16, f32, f64, i32
from luminal.search.hlo_rules.rule import Example, Guard, Site, View, made_by, tensor_of
from luminal.search.hlo_rules.siblings import bias_of
from luminal.search.hlo_rules.sketch import Sketch

LICENCES = ("reassociate", "contract")
"""What every library kernel takes for granted: sums in an order of its own, and fused multiplies and adds."""
Find = Callable[[View], Iterator[Site]]


@dataclass(frozen=True)
class LibraryRow:
    """A kernel of a library.

    `package`: what must be loaded in the process; `find` gives the places of the operation, and `needs` are conditions
    on them; `call` says what is called. `build` writes that call for rows of devices that plans run on.
    """

    name: str
    device: str
    package: str
    call: str
    find: Find
    needs: tuple[Guard, ...]
    matches: Example
    misses: Example
    build: Callable[[HloBuilder, Site], SSAValue] | None = None

    def sites(self, view: View) -> list[Site]:
        """The places of a graph that the row could compute."""
        if not set(LICENCES) <= set(view.graph.licences):
            return []
        return [site for site in self.find(view) if all(need.holds(site, view) for need in self.needs)]

    def write(self, b: HloBuilder, site: Site) -> Sequence[SSAValue]:
        """The call at a place; only for rows that have one."""
        assert self.build is not None
        return [self.build(b, site)]


# ---- what rows match -------------------------------------------------------------------------------------------


def _operation(name: str, operands: Sequence[str]) -> Find:
    """Every operation of a name; operands that it lacks are left out."""

    def find(view: View) -> Iterator[Site]:
        for op in view.ops(name):
            groups = zip(operands, op.group(op.operands), strict=True)
            named = {key: (value,) for key, value in groups if value is not None}
            yield Site((op.results[0],), named)

    return find


def _linears(view: View) -> Iterator[Site]:
    """Products to which alone a row is added."""
    for product in view.ops("hlo.matmul"):
        found = bias_of(product, view)
        if found is not None:
            total, row = found
            left, right = product.operands
            yield Site((total.results[0],), {"row": (row,), "left": (left,), "right": (right,)})


PRODUCTS = _operation("hlo.matmul", ("left", "right"))
CONVOLUTIONS = _operation("hlo.conv", ("x", "weight", "bias"))
ATTENTIONS = _operation("hlo.attention", ("query", "key", "value", "mask"))


def _of(*dtypes: DType) -> Guard:
    names = ", ".join(dtype.name for dtype in dtypes)
    return Guard(f"the elements are {names}", lambda site, _: tensor_of(site.replaced[0]).dtype in dtypes)


def _have_rank(count: int) -> Guard:
    def holds(site: Site, view: View) -> bool:
        return all(len(tensor_of(site.named[name][0]).shape) == count for name in ("left", "right"))

    return Guard(f"both operands have {count} axes", holds)


def _is_plain(site: Site, view: View) -> bool:
    query, value = (tensor_of(site.named[name][0]).shape for name in ("query", "value"))
    return len(query) == 4 and query[1] == value[1] and query[-1] == value[-1]


PLAIN = Guard("four axes, as many key heads as query heads, and one width", _is_plain)


# ---- how torch is called ---------------------------------------------------------------------------------------


def _call(
    b: HloBuilder, site: Site, op: str, arguments: Sequence[Any], into: str = "", **keywords: Any
) -> SSAValue:
    """The operation that calls an op of torch; a transposed operand is passed on with its order of axes."""
    operands: list[SSAValue] = []

    def encode(value: Any) -> Any:
        if not isinstance(value, SSAValue):
            return value
        turned = made_by(value, "hlo.permute")
        operands.append(value if turned is None else turned.operands[0])
        entry: dict[str, Any] = {"tensor": len(operands) - 1}
        return entry if turned is None else {**entry, "order": list(turned.values["order"])}

    payload: dict[str, Any] = {
        "op": {"op": op},
        "args": [encode(value) for value in arguments],
        "kwargs": {key: encode(value) for key, value in keywords.items()},
        "results": 1,
    }
    if into:
        payload["into"] = {"op": into}
    type_ = tensor_of(site.replaced[0])
    return b.extern(operands, target=op, payload=json.dumps(payload), types=[(type_.dtype, *type_.shape)])


def _matmul(b: HloBuilder, site: Site) -> SSAValue:
    operands = [site.named[name][0] for name in ("left", "right")]
    return _call(b, site, "aten::matmul.default", operands, into="aten::matmul.out")


def _addmm(b: HloBuilder, site: Site) -> SSAValue:
    operands = [site.named[name][0] for name in ("row", "left", "right")]
    return _call(b, site, "aten::addmm.default", operands, into="aten::addmm.out")


def _optional(site: Site, name: str) -> SSAValue | None:
    found = site.named.get(name)
    return None if found is None else found[0]


def _convolution(b: HloBuilder, site: Site) -> SSAValue:
    op = site.replaced[0].owner
    assert isinstance(op, HloOp)
    given = op.values
    extra = given["output_padding"] or (0,) * len(given["stride"])
    operands = [_optional(site, name) for name in ("x", "weight", "bias")]
    options = [list(given["stride"]), list(given["padding"]), list(given["dilation"])]
    rest = [given["transposed"], list(extra), given["groups"]]
    return _call(b, site, "aten::convolution.default", [*operands, *options, *rest])


def _attention(b: HloBuilder, site: Site) -> SSAValue:
    op = site.replaced[0].owner
    assert isinstance(op, HloOp)
    operands = [_optional(site, name) for name in ("query", "key", "value", "mask")]
    name = "aten::scaled_dot_product_attention.default"
    return _call(b, site, name, [*operands, 0.0, op.values["causal"]], scale=op.values["scale"])


def _is_one_mask(site: Site, view: View) -> bool:
    op = site.replaced[0].owner
    return not (isinstance(op, HloOp) and op.values["causal"] and "mask" in site.named)


ONE_MASK = Guard("a mask, or causal, not both", _is_one_mask)

# ---- examples --------------------------------------------------------------------------------------------------


def _product_of(dtype: DType) -> Example:
    return lambda s: [s.b.matmul(s.input(s.rows, 4, dtype=dtype), s.input(4, 3, dtype=dtype))]


def _linear_of(*shape: int, dtype: DType = f32) -> Example:
    def build(s: Sketch) -> Sequence[SSAValue]:
        x, w, row = (
            s.input(*shape, s.rows, 4, dtype=dtype),
            s.input(3, 4, dtype=dtype),
            s.input(3, dtype=dtype),
        )
        return [s.b.add(s.b.matmul(x, s.b.permute(w, order=(1, 0))), row)]

    return build


def _convolution_of(dtype: DType) -> Example:
    def build(s: Sketch) -> Sequence[SSAValue]:
        x, w = s.input(2, 4, s.rows + 4, dtype=dtype), s.input(3, 4, 3, dtype=dtype)
        return [s.b.conv(x, w, s.input(3, dtype=dtype), stride=[1], padding=[1], dilation=[1])]

    return build


def _attention_of(heads: int, dtype: DType = f32) -> Example:
    def build(s: Sketch) -> Sequence[SSAValue]:
        query = s.input(2, 4, s.rows, 8, dtype=dtype)
        return [s.b.attention(query, *(s.input(2, heads, 3, 8, dtype=dtype) for _ in range(2)))]

    return build


LIBRARY = (
    LibraryRow(
        "torch.addmm", "cpu", "torch", "torch.addmm: MKL's or oneDNN's matrix product with a row added",
        _linears, (_of(f32, f64), _have_rank(2)), _linear_of(), _linear_of(2), _addmm,
    ),
    LibraryRow(
        "torch.matmul", "cpu", "torch", "torch.matmul: MKL's or oneDNN's matrix product",
        PRODUCTS, (_of(f32, f64, bf16),), _product_of(f32), _product_of(i32), _matmul,
    ),
    LibraryRow(
        "torch.conv", "cpu", "torch", "torch.convolution: oneDNN's",
        CONVOLUTIONS, (_of(f32, f64, bf16),), _convolution_of(f32), _convolution_of(i32), _convolution,
    ),
    LibraryRow(
        "torch.sdpa", "cpu", "torch", "torch.nn.functional.scaled_dot_product_attention",
        ATTENTIONS, (_of(f32, f64, bf16), PLAIN, ONE_MASK), _attention_of(4), _attention_of(2), _attention,
    ),
    LibraryRow(
        "cuBLASLt", "cuda", "torch", "cublasLtMatmul, the row as its epilogue",
        _linears, (_of(f32, f16, bf16), _have_rank(2)), _linear_of(), _linear_of(2),
    ),
    LibraryRow(
        "FlashInfer", "cuda", "flashinfer", "flashinfer.single_prefill_with_kv_cache",
        ATTENTIONS, (_of(f16, bf16), PLAIN, ONE_MASK), _attention_of(4, bf16), _attention_of(4),
    ),
    LibraryRow(
        "MPS matrix product", "mps", "torch", "MPSNDArrayMatrixMultiplication",
        PRODUCTS, (_of(f32, f16, bf16),), _product_of(f16), _product_of(f64),
    ),
    LibraryRow(
        "MPS convolution", "mps", "torch", "MPSGraph convolution2D",
        CONVOLUTIONS, (_of(f32, f16),), _convolution_of(f16), _convolution_of(f64),
    ),
)  # fmt: skip
"""All rows. Of rows of one device that match one place, the first is tried first."""
