"""The operations of random programs: how each is written, and the rule that bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from tests.property import intervals as iv
from tests.property import rules, rules_composed, rules_indexing, rules_reduction
from tests.property.rules import Rule


@dataclass(frozen=True)
class Operation:
    """`text` has {0}, {1} ... for operands, {all} for all of them, and attributes by name."""

    text: str
    rule: Rule


OPERATIONS: dict[str, Operation] = {}


def _add(name: str, text: str, rule: Rule) -> None:
    OPERATIONS[name] = Operation(text, rule)


UNARY: dict[str, Rule] = {
    "exp": rules.rises(torch.exp, floor=0.0),
    "exp2": rules.rises(torch.exp2, floor=0.0),
    "expm1": rules.rises(torch.expm1, floor=-1.0),
    "log": rules.rises(torch.log),
    "log2": rules.rises(torch.log2),
    "log10": rules.rises(torch.log10),
    "log1p": rules.rises(torch.log1p),
    "tanh": rules.rises(torch.tanh, floor=-1.0, ceiling=1.0),
    "sinh": rules.rises(torch.sinh),
    "asin": rules.rises(torch.asin),
    "acos": rules.rises(torch.acos, falling=True, floor=0.0),
    "atan": rules.rises(torch.atan),
    "asinh": rules.rises(torch.asinh),
    "acosh": rules.rises(torch.acosh, floor=0.0),
    "atanh": rules.rises(torch.atanh),
    "erf": rules.rises(torch.erf, floor=-1.0, ceiling=1.0),
    "sigmoid": rules.rises(torch.sigmoid, floor=0.0, ceiling=1.0, error=2.4e-38),
    "sin": rules.bounded(torch.sin, 1.0, -1.0, 1.0),
    "cos": rules.bounded(torch.cos, 1.0, -1.0, 1.0),
    "tan": rules.tangent,
    "cosh": lambda c, xs: iv.monotone(iv.absolute(rules.floating(c, xs[0])), torch.cosh, floor=1.0),
    "sqrt": rules.root,
    "rsqrt": rules.inverse_root,
    "reciprocal": lambda c, xs: iv.divide(iv.exact(torch.ones((), dtype=c.dtype)), rules.floating(c, xs[0])),
}
"""Functions of real numbers; integers become f32."""

KEEPING: dict[str, Rule] = {
    "abs": lambda c, xs: iv.absolute(xs[0]) if xs[0].is_float else rules.pointwise(c, xs),
    "neg": lambda c, xs: iv.negative(xs[0]) if xs[0].is_float else rules.pointwise(c, xs),
    "sign": rules.sign,
    "relu": lambda c, xs: iv.extremum(xs[0], iv.exact(torch.zeros((), dtype=xs[0].dtype)), True),
    "square": lambda c, xs: rules.square(xs[0]) if xs[0].is_float else rules.pointwise(c, xs),
    "floor": lambda c, xs: iv.monotone(xs[0], torch.floor, ulps=0) if xs[0].is_float else xs[0],
    "ceil": lambda c, xs: iv.monotone(xs[0], torch.ceil, ulps=0) if xs[0].is_float else xs[0],
    "trunc": lambda c, xs: iv.monotone(xs[0], torch.trunc, ulps=0) if xs[0].is_float else xs[0],
    "round": lambda c, xs: iv.monotone(xs[0], torch.round, ulps=0) if xs[0].is_float else xs[0],
}
"""Functions that keep the dtype."""

for _name, _rule in {**UNARY, **KEEPING}.items():
    _add(_name, f"{{0}}.{_name}()", _rule)
_add("silu", "silu({0})", rules.cancelling(1.1))
_add("gelu", "gelu({0}, approximate={approximate})", rules.gelu)
_add("softplus", "softplus({0})", rules.rises(torch.nn.functional.softplus, floor=0.0, error=2.1e-9))
_add("round_decimals", "{0}.round(decimals={decimals})", rules.pointwise)
_add("isnan", "{0}.isnan()", rules.tests("nan"))
_add("isinf", "{0}.isinf()", rules.tests("inf"))
_add("isfinite", "{0}.isfinite()", rules.tests("finite"))
_add("logical_not", "{0}.logical_not()", lambda c, xs: iv.invert(iv.convert(xs[0], torch.bool)))
_add(
    "bitwise_not", "~{0}", lambda c, xs: iv.invert(xs[0]) if c.dtype == torch.bool else rules.pointwise(c, xs)
)
_add("cast", "{0}.to({dtype})", rules.cast)
_add("bits", "bits({0}, {dtype})", rules.bits)

BINARY: dict[str, tuple[str, Rule]] = {
    "add": ("+", rules.arithmetic(iv.add, "or")),
    "sub": ("-", rules.arithmetic(iv.subtract)),
    "mul": ("*", rules.arithmetic(iv.multiply, "and")),
    "div": ("/", rules.arithmetic(iv.divide)),
    "floor_divide": ("//", rules.pointwise),
    "remainder": ("%", rules.remainder_rule(True)),
    "eq": ("==", rules.compare("eq")),
    "ne": ("!=", rules.compare("ne")),
    "lt": ("<", rules.compare("lt")),
    "le": ("<=", rules.compare("le")),
    "gt": (">", rules.compare("gt")),
    "ge": (">=", rules.compare("ge")),
    "bitwise_and": ("&", rules.bitwise("and")),
    "bitwise_or": ("|", rules.bitwise("or")),
    "bitwise_xor": ("^", rules.bitwise("xor")),
    "shift_left": ("<<", rules.pointwise),
    "shift_right": (">>", rules.pointwise),
}
"""Operators: with a tensor, with a number on the right, with one on the left."""
for _name, (_sign, _rule) in BINARY.items():
    _add(_name, f"{{0}} {_sign} {{1}}", _rule)
    _add(f"{_name}_number", f"{{0}} {_sign} {{other}}", _rule)
    if _sign not in ("==", "!=", "<", "<=", ">", ">=", "/"):
        _add(f"{_name}_reverse", f"{{other}} {_sign} {{0}}", _rule)


def _reverse_division(c: rules.Context, xs: list[iv.Interval]) -> iv.Interval:
    """other * (1 / x), as PyTorch computes it."""
    x = iv.convert(xs[0], c.dtype)
    inverse = iv.divide(iv.exact(torch.ones((), dtype=c.dtype)), x)
    return iv.multiply(inverse, rules.number(c.values["other"], c.dtype))


_add("div_reverse", "{other} / {0}", _reverse_division)
METHODS: dict[str, Rule] = {
    "maximum": rules.arithmetic(partial(iv.extremum, largest=True)),
    "minimum": rules.arithmetic(partial(iv.extremum, largest=False)),
    "fmod": rules.remainder_rule(False),
    "atan2": rules.near_points(6),
    "logical_and": rules.logic("and"),
    "logical_or": rules.logic("or"),
    "logical_xor": rules.logic("xor"),
}
"""Methods of two tensors."""
for _name, _rule in METHODS.items():
    _add(_name, f"{{0}}.{_name}({{1}})", _rule)
_add("trunc_divide", "{0}.div({1}, rounding_mode='trunc')", rules.pointwise)
_add("pow", "{0} ** {1}", rules.powers)
_add("pow_number", "{0} ** {other}", rules.power)
_add("pow_reverse", "{other} ** {0}", rules.powers)
_add("add_alpha", "{0}.add({1}, alpha={alpha})", rules.scaled(False))
_add("sub_alpha", "{0}.sub({1}, alpha={alpha})", rules.scaled(True))
_add("where", "where({0}, {1}, {2})", rules.where(True, True))
_add("where_no", "where({0}, {1}, {no})", rules.where(True, False))
_add("where_yes", "where({0}, {yes}, {1})", rules.where(False, True))
_add("masked_fill", "{0}.masked_fill({1}, {value})", rules.masked_fill)
_add("clamp", "{0}.clamp({min}, {max})", rules.clamp(False, False))
_add("clamp_low", "{0}.clamp(min={1})", rules.clamp(True, False))
_add("clamp_both", "{0}.clamp({1}, {2})", rules.clamp(True, True))

VIEWS: dict[str, str] = {
    "permute": "{0}.permute({order})",
    "transpose": "{0}.transpose({first}, {second})",
    "mT": "{0}.mT",
    "expand": "{0}.expand({shape})",
    "reshape": "{0}.reshape({shape})",
    "flatten": "{0}.flatten({start}, {end})",
    "squeeze": "{0}.squeeze({dim})",
    "unsqueeze": "{0}.unsqueeze({dim})",
    "index": "{0}[{index}]",
    "flip": "{0}.flip({dims})",
    "unfold": "{0}.unfold({dim}, {size}, {step})",
    "pad_inside": "pad({0}, {amounts}, mode={mode})",
    "tril": "{0}.tril({diagonal})",
    "triu": "{0}.triu({diagonal})",
}
for _name, _text in VIEWS.items():
    _add(_name, _text, rules.view)
_add("pad", "pad({0}, {amounts}, value={value})", rules.padded)
_add("cat", "cat([{all}], dim={dim})", rules.joined)
_add("stack", "stack([{all}], dim={dim})", rules.joined)

_add("sum", "{0}.sum(dim={dim}, keepdim={keepdim})", rules_reduction.summed)
_add("sum_as", "{0}.sum(dim={dim}, keepdim={keepdim}, dtype={dtype})", rules_reduction.summed)
_add("prod", "{0}.prod(dim={dim}, keepdim={keepdim})", rules_reduction.multiplied)
_add("prod_all", "{0}.prod()", rules_reduction.multiplied)
_add("mean", "{0}.mean(dim={dim}, keepdim={keepdim})", rules_reduction.mean)
_add("var", "{0}.var(dim={dim}, correction={correction}, keepdim={keepdim})", rules_reduction.variance)
_add("std", "{0}.std(dim={dim}, correction={correction}, keepdim={keepdim})", rules_reduction.deviation)
_add("amax", "{0}.amax(dim={dim}, keepdim={keepdim})", rules_reduction.extremes(True))
_add("amin", "{0}.amin(dim={dim}, keepdim={keepdim})", rules_reduction.extremes(False))
_add("max", "{0}.max(dim={dim}, keepdim={keepdim})", rules_reduction.extreme_pair(True))
_add("min", "{0}.min(dim={dim}, keepdim={keepdim})", rules_reduction.extreme_pair(False))
_add("argmax", "{0}.argmax(dim={dim}, keepdim={keepdim})", rules_reduction.position(True))
_add("argmin", "{0}.argmin(dim={dim}, keepdim={keepdim})", rules_reduction.position(False))
_add("any", "{0}.any(dim={dim}, keepdim={keepdim})", rules_reduction.any_or_all)
_add("all", "{0}.all(dim={dim}, keepdim={keepdim})", rules_reduction.any_or_all)
_add("logsumexp", "{0}.logsumexp(dim={dim}, keepdim={keepdim})", rules_composed.logsumexp)
_add("cumsum", "{0}.cumsum({dim})", rules_reduction.running("sum"))
_add("cumprod", "{0}.cumprod({dim})", rules_reduction.running("prod"))
_add("cummax", "{0}.cummax({dim})", rules_reduction.running_extreme(True))
_add("cummin", "{0}.cummin({dim})", rules_reduction.running_extreme(False))
_add("sort", "sort({0}, {dim}, {descending})", rules_reduction.sort)
_add("argsort", "argsort({0}, {dim}, {descending})", rules_reduction.argsort)
_add("topk", "{0}.topk({k}, {dim}, largest={largest})", rules_reduction.top)
_add("softmax", "{0}.softmax({dim})", rules_composed.softmax)
_add("log_softmax", "{0}.log_softmax({dim})", rules_composed.log_softmax)
for _weight in (False, True):
    for _bias in (False, True):
        _given = ", ".join(("{1}" if _weight else "None", ("{2}" if _weight else "{1}") if _bias else "None"))
        _add(
            f"layer_norm{'_weight' * _weight}{'_bias' * _bias}",
            f"layer_norm({{0}}, {{shape}}, {_given}, {{eps}})",
            rules_composed.normalised(True, _weight, _bias),
        )
_add("rms_norm", "rms_norm({0}, {shape}, None, {eps})", rules_composed.normalised(False, False, False))
_add("rms_norm_weight", "rms_norm({0}, {shape}, {1}, {eps})", rules_composed.normalised(False, True, False))
_add("group_norm", "group_norm({0}, {groups}, {1}, {2}, {eps})", rules_composed.group_norm)
_add("matmul", "{0} @ {1}", rules_composed.matmul)
_add("attention", "attention({0}, {1}, {2}, is_causal={causal})", rules_composed.attention)
_add("attention_mask", "attention({0}, {1}, {2}, {3})", rules_composed.attention)
_CONV = "{stride}, {padding}, {dilation}, {transposed}, {extra}, {groups})"
_add("convolution", f"convolution({{0}}, {{1}}, None, {_CONV}", rules_composed.bilinear)

_add("gather", "{0}.gather({dim}, {1})", rules_indexing.picked(0))
_add("index_select", "{0}.index_select({dim}, {1})", rules_indexing.picked(0))
_add("embedding", "embedding({0}, {1})", rules_indexing.picked(1))
_add("pick", "{0}[{1}]", rules_indexing.picked(0))
_add("pick_second", "{0}[:, {1}]", rules_indexing.picked(0))
_add("pick_both", "{0}[{1}, {2}]", rules_indexing.picked(0))
_add("pick_apart", "{0}[{1}, :, {2}]", rules_indexing.picked(0))
_add("scatter", "{0}.scatter({dim}, {1}, {2})", rules_indexing.scattered("set"))
_add("scatter_number", "{0}.scatter({dim}, {1}, {value})", rules_indexing.scattered("set"))
_add("scatter_add", "{0}.scatter_add({dim}, {1}, {2})", rules_indexing.scattered("add"))
for _reduce, _combine in (("sum", "add"), ("prod", "mul"), ("amax", "max"), ("amin", "min")):
    _add(
        f"scatter_reduce_{_reduce}",
        f"{{0}}.scatter_reduce({{dim}}, {{1}}, {{2}}, {_reduce!r})",
        rules_indexing.scattered(_combine),
    )
_add("index_put", "index_put({0}, [{2}], {1}, {accumulate})", rules_indexing.index_put)
_add("index_put_both", "index_put({0}, [{2}, {3}], {1}, {accumulate})", rules_indexing.index_put)

_add("full", "full({shape}, {value}, dtype={dtype})", rules.known)
_add("full_like", "full({0}.shape, {value}, dtype={dtype})", rules.known)
_add("arange", "arange({count}, dtype={dtype})", rules.known)
