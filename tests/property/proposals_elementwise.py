"""Elementwise steps of random programs, and tensors made from nothing."""

from __future__ import annotations

from tests.property.choices import EXPONENTS, number_for, size, sizes
from tests.property.maker import Maker, Value
from tests.property.namespaces import FLOATS, INTEGERS
from tests.property.operations import BINARY, KEEPING, METHODS, UNARY
from tests.property.program import Name


def unary(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    if m.kind == "dyadic":
        names = [*KEEPING, "isnan", "isinf", "isfinite", "logical_not", "sqrt", "reciprocal"]
    else:
        names = [*KEEPING, *UNARY, *UNARY, "isnan", "isinf", "isfinite", "logical_not"]
    if not x.is_float:
        names.append("bitwise_not")
    return m.one(m.chance.choice(names), x)


def activation(m: Maker) -> object:
    x = m.floats()
    if x is None:
        return None
    name = m.chance.choice(("silu", "gelu", "gelu", "softplus", "round_decimals"))
    if name == "gelu":
        return m.one("gelu", x, approximate=m.chance.choice(("none", "tanh")))
    if name == "round_decimals":
        return m.one(name, x, decimals=m.chance.choice((-1, 1, 2)))
    return m.one(name, x)


def binary(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    y = (
        m.broadcastable(x)
        if m.chose(0.8)
        else m.broadcastable(x, accepts=lambda other: other.dtype == x.dtype)
    )
    if y is None:
        return None
    whole = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
    names = [name for name in BINARY if name not in whole] + list(METHODS)
    names += ["add", "mul", "sub", "trunc_divide", "pow", "add_alpha", "sub_alpha"]
    if not x.is_float and not y.is_float:
        names += whole
    name = m.chance.choice(names)
    if (
        name in ("div", "remainder", "floor_divide", "trunc_divide", "fmod")
        and not y.is_float
        and m.chose(0.9)
    ):
        y = m.one("add_number", y, other=11) or y  # seldom an integer divided by zero
    if name.endswith("alpha"):
        return m.one(name, x, y, alpha=m.chance.choice((2, -1, 0.5) if x.is_float or y.is_float else (2, -1)))
    return m.one(name, x, y)


def with_number(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    name = m.chance.choice([name for name in BINARY if name not in ("shift_left",)])
    number = number_for(m, x)
    if not x.is_float and number == 0 and name in ("floor_divide", "remainder"):
        return None  # refused while the graph is built, even where there is no element
    if m.chose(0.1):
        number = 0.5 if not x.is_float else 2
    if m.chose(0.3):  # numbers that change nothing, or seem to
        name = m.chance.choice(("add", "sub", "mul", "div"))
        number = m.chance.choice((0.0, -0.0, 1.0, -1.0) if x.is_float else (0, 1, -1))
    reverse = (
        "add",
        "sub",
        "mul",
        "div",
        "floor_divide",
        "remainder",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    )
    if name in reverse and m.chose(0.3):
        return m.one(f"{name}_reverse", x, other=number, reverse=True)
    return m.one(f"{name}_number", x, other=number)


def power(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    if m.chose(0.2):
        return m.one("pow_reverse", x, other=m.chance.choice((2.0, 0.5, 3.0, -1.5, 10.0, 2)), reverse=True)
    return m.one("pow_number", x, other=m.chance.choice(EXPONENTS))


def mask_like(m: Maker, x: Value) -> Value | None:
    found = m.broadcastable(x, accepts=lambda other: other.dtype == "bool_")
    if found is not None and m.chose(0.6):
        return found
    other = m.broadcastable(x)
    if other is None:
        return None
    return m.one(m.chance.choice(("lt", "ge", "eq", "ne")), x, other)


def select(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    mask = mask_like(m, x)
    if mask is None:
        return None
    kind = m.chance.choice(("where", "where", "where_no", "where_yes", "masked_fill"))
    if kind == "where":
        y = m.broadcastable(x, mask)
        return y and m.one("where", mask, x, y)
    if kind == "masked_fill":
        return m.one(kind, x, mask, value=number_for(m, x))
    return m.one(kind, mask, x, **{kind[6:]: number_for(m, x)})


def clamp(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    if m.chose(0.6):
        low, high = number_for(m, x), number_for(m, x)
        keep_low, keep_high = m.chance.choice(((True, True), (True, False), (False, True)))
        return m.one("clamp", x, min=low if keep_low else None, max=high if keep_high else None)
    low = m.broadcastable(x)
    if low is None:
        return None
    high = m.broadcastable(x, low)
    if high is None:
        return None
    return m.one("clamp_low", x, low) if m.chose(0.5) else m.one("clamp_both", x, low, high)


def cast(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    return m.one("cast", x, dtype=Name(m.chance.choice((*FLOATS, *INTEGERS, "bool_"))))


def bits(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    same = {"f64": "i64", "f32": "i32", "i64": "f64", "i32": "f32", "bf16": "i16", "f16": "i16", "i16": "f16"}
    found = same.get(x.dtype) or ("u8" if x.dtype == "i8" else "i8")
    return None if x.dtype == "bool_" else m.one("bits", x, dtype=Name(found))


def create(m: Maker) -> object:
    like = m.pick()
    assert like is not None
    if m.chose(0.5):
        axis = m.chance.randrange(like.rank) if like.rank else 0
        count = like.shape[axis] if like.rank else 3
        return m.one("arange", count=size(count), dtype=Name(m.chance.choice(("i64", "i32", "f32"))))
    value = m.chance.choice((0, 1, 2, -1, 0.5))
    dtype = Name(
        m.chance.choice(("f32", "f64", "i64", "bf16") if isinstance(value, int) else ("f32", "bf16"))
    )
    return m.one("full", shape=sizes(like.shape), value=value, dtype=dtype)
