"""What a random program may do next: each proposal adds one or a few steps, or nothing where none fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from luminal.dim import Dim, product
from tests.property.maker import Maker, Value
from tests.property.namespaces import FLOATS, INTEGERS
from tests.property.operations import BINARY, KEEPING, METHODS, UNARY
from tests.property.program import Name, Size

Proposal = Callable[[Maker], object]
FLOAT_NUMBERS = (0.5, -1.5, 2.0, 0.25, 3.0, -1.0, 0.0, -0.0, 1.0)
ODD_NUMBERS = (0.1, math.inf, -math.inf, math.nan, 1e-40, 1e30, 1e-8)
WHOLE_NUMBERS = (0, 1, 2, 3, -1, -2, 5, 7)
EXPONENTS = (2, 3, 0.5, -0.5, -1, -2, 1, 0, 2.5, -1.5, 4, 0.25)
SHAPE_SIZES = (
    "0", "1", "1", "2", "2", "3", "3", "4", "4", "5", "6", "7", "8", "8", "12", "16", "17", "24", "33", "40", "64",
    "130",
)  # fmt: skip


def size(value: Dim | int) -> Size:
    return Size(str(value))


def sizes(shape: Sequence[Dim | int]) -> tuple[Size, ...]:
    return tuple(size(one) for one in shape)


def number_for(m: Maker, value: Value) -> bool | int | float:
    if value.is_float:
        odd = m.kind in ("float", "torch") and m.chose(0.15)
        return m.chance.choice(ODD_NUMBERS if odd else FLOAT_NUMBERS)
    if value.dtype == "bool_":
        return m.chose(0.5)
    return m.chance.choice(WHOLE_NUMBERS)


# ---- elementwise -------------------------------------------------------------------------------------------------


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


# ---- views -------------------------------------------------------------------------------------------------------


def permute(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 2)
    if x is None:
        return None
    if m.chose(0.3):
        return m.one("mT", x)
    if m.chose(0.3):
        return m.one("transpose", x, first=m.axis(x), second=m.axis(x))
    order = list(range(x.rank))
    m.chance.shuffle(order)
    return m.one("permute", x, order=tuple(order))


def expand(m: Maker) -> object:
    x = m.pick(lambda value: value.rank <= 4)
    assert x is not None
    shape: list[Dim | int | str] = []
    choices = (*SHAPE_SIZES[:9], *m.symbols)
    for one in x.shape:
        free = bool(one == 1) and m.chose(0.8)
        shape.append(m.chance.choice(choices) if free else "-1" if m.chose(0.3) else one)
    for _ in range(m.chance.choice((0, 0, 1, 1, 2))):
        shape.insert(0, m.chance.choice(choices))
    return m.one("expand", x, shape=sizes(shape))  # type: ignore[arg-type]


def unsqueeze(m: Maker) -> object:
    x = m.pick(lambda value: value.rank <= 3)
    return x and m.one("unsqueeze", x, dim=m.chance.randint(-x.rank - 1, x.rank))


def squeeze(m: Maker) -> object:
    x = m.pick(lambda value: any(bool(one == 1) for one in value.shape))
    if x is None:
        return None
    axes = [axis for axis, one in enumerate(x.shape) if bool(one == 1) or (one.constant and m.chose(0.2))]
    return m.one("squeeze", x, dim=tuple(m.chance.sample(axes, m.chance.randint(1, len(axes)))))


def factors(value: Dim) -> list[Dim | int]:
    number, found = value.constant, list[Dim | int]()
    if number is None:
        return [value]
    divisor = 2
    while number > 1:
        if number % divisor:
            divisor += 1
            continue
        found.append(divisor)
        number //= divisor
    return found if number == 1 else [0]


def reshape(m: Maker) -> object:
    """Any shape of as many elements: the prime factors of all sizes, shuffled, in groups."""
    x = m.pick()
    assert x is not None
    if m.chose(0.2) and x.rank:
        start, end = sorted((m.chance.randrange(x.rank), m.chance.randrange(x.rank)))
        return m.one("flatten", x, start=start, end=end - (x.rank if m.chose(0.5) else 0))
    parts = [part for one in x.shape for part in factors(one)]
    if 0 in parts:
        shape: list[Dim | int] = [m.chance.choice((0, 1, 2, 3)) for _ in range(m.chance.randint(0, 2))]
        shape.insert(m.chance.randint(0, len(shape)), 0)
        return m.one("reshape", x, shape=sizes(shape))
    if m.chose(0.6):
        m.chance.shuffle(parts)
    groups: list[list[Dim | int]] = [[] for _ in range(m.chance.randint(0 if not parts else 1, 4))]
    for part in parts:
        m.chance.choice(groups).append(part)
    if m.chose(0.5):
        order = iter(parts)
        groups = [[next(order) for _ in group] for group in groups]
    shape = [product([*group]) if group else 1 for group in groups]  # type: ignore[list-item]
    if shape and m.chose(0.3) and not m.symbols:
        shape[m.chance.randrange(len(shape))] = -1
    return m.one("reshape", x, shape=sizes(shape))


def index(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    parts: list[str] = []
    for one in x.shape:
        if m.chose(0.1):
            parts.append("None")
        kind = m.chance.randrange(6)
        if kind == 0:
            parts.append(str(m.chance.choice((0, -1, 0, 1, -2))))
        elif kind in (1, 2, 3):
            bounds = (
                "",
                "",
                "1",
                "2",
                "-1",
                "-3",
                "0",
                "5",
                "40",
                *(str(s) for s in m.positive),
                *halves(one),
            )
            start, stop = m.chance.choice(bounds), m.chance.choice(bounds)
            parts.append(f"{start}:{stop}" + m.chance.choice(("", "", ":2", ":3", ":5")))
        else:
            parts.append(":")
    if m.chose(0.2):
        cut = m.chance.randint(0, len(parts))
        parts = ["...", *parts[cut:]] if m.chose(0.5) else [*parts[:cut], "..."]
    return m.one("index", x, index=Name(", ".join(parts)))


def halves(value: Dim) -> tuple[str, ...]:
    """Sizes that are known to be positions of the axis."""
    low = value.bounds()[0]
    return (str(value // 2),) if low is not None and low >= 0 else ()


def flip(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    return x and m.one("flip", x, dims=m.axes(x) or (0,))


def unfold(m: Maker) -> object:
    x = m.pick(lambda value: value.rank <= 4)
    assert x is not None
    return m.one(
        "unfold", x, dim=m.axis(x), size=m.chance.choice((1, 2, 2, 3, 4)), step=m.chance.choice((1, 1, 2, 3))
    )


def pad(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    count = m.chance.randint(1, x.rank)
    choices = (0, 0, 1, 2, 3, -1) if m.kind != "symbolic" else (0, 1, 2, 3, *m.symbols)
    given = [m.chance.choice(choices) for _ in range(2 * count)]
    amounts = sizes(given)  # type: ignore[arg-type]
    if m.chose(0.25):
        mode = m.chance.choice(("reflect", "replicate", "circular"))
        pairs = [
            tuple(n if isinstance(n, int) else 0 for n in given[i : i + 2]) for i in range(0, len(given), 2)
        ]
        left = [n + min(a, 0) + min(b, 0) for n, (a, b) in zip(reversed(x.eager.shape), pairs)]
        if mode == "circular" and any(min(p) < 0 and max(p) > n for n, p in zip(left, pairs)):
            return None  # PyTorch overwrites what it copies from
        return m.one("pad_inside", x, amounts=amounts, mode=mode)
    value = m.chance.choice((0, 0, 1, number_for(m, x)))
    return m.one("pad", x, amounts=amounts, value=value)


def triangle(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 2)
    return x and m.one(m.chance.choice(("tril", "triu")), x, diagonal=m.chance.randint(-2, 2))


def cat(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    axis = m.chance.randrange(x.rank)

    def fits(other: Value) -> bool:
        pairs = zip(other.shape, x.shape)
        return other.rank == x.rank and all(n == axis or bool(a == b) for n, (a, b) in enumerate(pairs))

    others = [m.pick(fits) or x for _ in range(m.chance.randint(1, 3))]
    return m.one("cat", x, *others, dim=axis - (x.rank if m.chose(0.3) else 0))


def stack(m: Maker) -> object:
    x = m.pick(lambda value: value.rank <= 4)
    assert x is not None
    others = [m.pick(lambda v: v.shape == x.shape) or x for _ in range(m.chance.randint(0, 2))]
    return m.one("stack", x, *others, dim=m.chance.randint(-x.rank - 1, x.rank))


def two_views(m: Maker) -> object:
    """A value under two index tuples: x - x.T, x @ x.T, x + x.flip, x[:, None] * x[None]."""
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    combine = m.chance.choice(
        ("add", "sub", "mul", "maximum", "eq") if m.kind != "views" else ("eq", "where")
    )
    if x.rank >= 2 and bool(x.shape[-1] == x.shape[-2]) and m.chose(0.5):
        y = m.one("mT", x)
    elif x.rank >= 2 and x.dtype != "bool_" and m.chose(0.3) and m.kind != "views":
        y = m.one("mT", x)
        return y and (m.one("matmul", x, y) if m.chose(0.6) else m.one("matmul", y, x))
    elif m.chose(0.5):
        y = m.one("flip", x, dims=(m.axis(x),))
    else:
        x, y = m.one("unsqueeze", x, dim=-1) or x, m.one("unsqueeze", x, dim=-2 if x.rank else 0)
    if y is None:
        return None
    if combine == "where":
        condition = m.one("eq", x, y)
        return condition and m.one("where", condition, x, y)
    if combine == "sub" and x.is_float:
        x = m.one("mul_number", x, other=2) or x
    return m.one(combine, x, y)


# ---- reductions --------------------------------------------------------------------------------------------------


def reduce(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    keep = m.chose(0.4)
    name = m.chance.choice(
        ("sum", "sum", "amax", "amin", "any", "all", "prod", "argmax", "max", "mean", "sum_as")
    )
    if name in ("argmax", "max"):
        name = name.replace("max", m.chance.choice(("max", "min")))
        dim = m.axis(x)
        if name.startswith("arg"):
            return m.one(name, x, dim=None if m.chose(0.3) else dim, keepdim=keep)
        return m.add(name, x, dim=dim, keepdim=keep, results=2)
    if name == "prod":
        return m.one("prod", x, dim=m.axis(x), keepdim=keep) if m.chose(0.8) else m.one("prod_all", x)
    dims = m.axes(x)
    if name == "sum_as":
        return m.one(name, x, dim=dims, keepdim=keep, dtype=Name(m.chance.choice((*FLOATS, "i64", "i32"))))
    if name in ("any", "all") and not dims:
        dims = None  # any(dim=()) is the identity in PyTorch
    return m.one(name, x, dim=dims, keepdim=keep)


def spread_reduction(m: Maker) -> object:
    """x - x.max(...): a reduction over an axis, spread over it again."""
    x = m.pick(lambda value: value.rank >= 1 and value.dtype != "bool_")
    if x is None:
        return None
    name = m.chance.choice(("sum", "amax", "amin", "mean"))
    y = m.one(name, x, dim=m.axes(x) or (0,), keepdim=True)
    return y and m.one(m.chance.choice(("sub", "mul", "maximum", "lt")), x, y)


def statistics(m: Maker) -> object:
    x = m.floats(rank=1)
    if x is None:
        return None
    name = m.chance.choice(("var", "std", "logsumexp", "logsumexp"))
    if name == "logsumexp":
        return m.one(name, x, dim=m.axes(x) or (0,), keepdim=m.chose(0.5))
    return m.one(
        name, x, dim=m.axes(x) or (0,), correction=m.chance.choice((0, 1, 1, 2)), keepdim=m.chose(0.5)
    )


def softmax(m: Maker) -> object:
    x = m.floats()
    return x and m.one(m.chance.choice(("softmax", "softmax", "log_softmax")), x, dim=m.axis(x))


def norm(m: Maker) -> object:
    x = m.floats(rank=1)
    if x is None:
        return None
    count = m.chance.randint(1, x.rank)
    shape = x.shape[x.rank - count :]

    def parameter() -> Value | None:
        return m.pick(lambda v: v.shape == shape and v.dtype == x.dtype)

    weight, bias = (parameter() if m.chose(0.6) else None for _ in range(2))
    if m.chose(0.4):
        name = "rms_norm" if weight is None else "rms_norm_weight"
        operands = [x] if weight is None else [x, weight]
        return m.one(name, *operands, shape=sizes(shape), eps=m.chance.choice((None, 1e-6, 0.0)))
    name = "layer_norm" + "_weight" * (weight is not None) + "_bias" * (bias is not None)
    operands = [x, *(one for one in (weight, bias) if one is not None)]
    return m.one(name, *operands, shape=sizes(shape), eps=m.chance.choice((1e-5, 1e-12, 1.0)))


def scan(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    name = m.chance.choice(("cumsum", "cumsum", "cumprod", "cummax", "cummin"))
    return m.add(name, x, dim=m.axis(x), results=2 if name in ("cummax", "cummin") else 1)


def sort(m: Maker) -> object:
    x = m.pick()
    assert x is not None
    name = m.chance.choice(("sort", "sort", "argsort", "topk"))
    axis = m.axis(x)
    if name == "topk":
        extent = x.shape[axis] if x.rank else None
        k = (
            m.chance.choice((0, 1, 2, 3) if x.rank else (1,))
            if extent is None or m.chose(0.7)
            else extent // 2
        )
        return m.add(name, x, k=size(k), dim=axis, largest=m.chose(0.5), results=2)
    return m.add(name, x, dim=axis, descending=m.chose(0.5), results=2 if name == "sort" else 1)


def matmul(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1 and value.dtype != "bool_")
    if x is None:
        return None
    inner = x.shape[-1]

    def fits(other: Value) -> bool:
        if other.rank < 1 or not bool(other.shape[-min(other.rank, 2)] == inner):
            return False
        pairs = zip(reversed(x.shape[:-2]), reversed(other.shape[:-2]))
        return all(bool(a == b) or bool(a == 1) or bool(b == 1) for a, b in pairs)

    y = m.pick(fits)
    if y is None:
        return None
    if y.dtype != x.dtype:
        y = m.one("cast", y, dtype=Name(x.dtype)) or y
    work = x.eager.numel() * (y.eager.shape[-1] if y.rank > 1 else 1)
    return m.one("matmul", x, y) if work <= 60_000 else None


def attention(m: Maker) -> object:
    q = m.floats(rank=3)
    if q is None:
        return None
    key = m.pick(
        lambda v: (
            v.rank == q.rank
            and v.dtype == q.dtype
            and v.shape[:-2] == q.shape[:-2]
            and v.shape[-1] == q.shape[-1]
        )
    )
    key = key or q
    value = (
        m.pick(lambda v: v.rank == q.rank and v.dtype == q.dtype and v.shape[:-1] == key.shape[:-1]) or key
    )
    scores = (q.shape[-2], key.shape[-2])
    mask = m.pick(lambda v: v.shape[-2:] == scores and v.rank == 2 and v.dtype in ("bool_", q.dtype))
    if mask is not None and m.chose(0.5):
        return m.one("attention_mask", q, key, value, mask)
    return m.one("attention", q, key, value, causal=m.chose(0.5))


def positive(value: Dim) -> bool:
    return (value.bounds()[0] or 0) >= 1


def convolution(m: Maker) -> object:
    x = m.floats(rank=3)
    if x is None or x.rank > 4 or not positive(x.shape[1]):
        return None  # PyTorch gives a shape of its own for no channels
    spatial = x.rank - 2

    def fits(other: Value) -> bool:
        small = all(one.constant is not None and 1 <= one.constant <= 4 for one in other.shape[2:])
        return (
            other.rank == x.rank and other.dtype == x.dtype and small and bool(other.shape[1] == x.shape[1])
        )

    weight = m.pick(fits)
    if weight is None and all((one.constant or 0) >= 2 for one in x.shape[2:]):
        weight = positive(x.shape[0]) and m.one(
            "index", x, index=Name(", ".join((":", ":", *["0:2"] * spatial)))
        )
    if not weight:
        return None
    count = [m.chance.randint(1, 2) for _ in range(spatial)]
    return m.one(
        "convolution",
        x,
        weight,
        stride=tuple(count),
        padding=tuple(m.chance.randint(0, 2) for _ in range(spatial)),
        dilation=tuple(m.chance.randint(1, 2) for _ in range(spatial)),
        transposed=False,
        extra=(0,) * spatial,
        groups=1,
    )


# ---- reading and writing at positions ----------------------------------------------------------------------------


def positions(
    m: Maker, extent: Dim, accepts: Callable[[Value], bool], negative: bool = False
) -> Value | None:
    """Indices of an axis; seldom some that may be out of range."""
    base = m.pick(lambda v: accepts(v) and v.is_known and (not v.is_float or m.kind != "views"))
    if base is None or extent.constant == 0:
        return None
    found = base if base.dtype == "i64" else m.one("cast", base, dtype=Name("i64"))
    if found is None or m.chose(0.03):
        return found
    found = m.one("remainder_number", found, other=size(extent))
    if found is not None and negative and m.chose(0.4):
        shifted = m.one("sub_number", found, other=size(extent))
        return shifted or found
    return found


def gather(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    axis = m.chance.randrange(x.rank)

    def covered(other: Value) -> bool:
        pairs = enumerate(zip(other.shape, x.shape))
        return other.rank == x.rank and all(n == axis or bool(a == b) or bool(a == 1) for n, (a, b) in pairs)

    found = positions(m, x.shape[axis], covered)
    return found and m.one("gather", x, found, dim=axis)


def index_select(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    axis = m.chance.randrange(x.rank)
    found = positions(m, x.shape[axis], lambda v: v.rank == 1)
    return found and m.one("index_select", x, found, dim=axis)


def index_tensors(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    name = m.chance.choice(("pick", "pick", "pick_second", "pick_both", "pick_apart", "embedding"))
    least = {"pick": 1, "pick_second": 2, "pick_both": 2, "pick_apart": 3, "embedding": 2}[name]
    if x.rank < least or (name == "embedding" and x.rank != 2):
        return None
    axis = {"pick_second": 1}.get(name, 0)
    first = positions(m, x.shape[axis], lambda v: v.rank <= 3, negative=name != "embedding")
    if first is None:
        return None
    if name == "embedding":
        return m.one(name, first, x)
    if name in ("pick", "pick_second"):
        return m.one(name, x, first)
    other_axis = 1 if name == "pick_both" else 2
    second = positions(m, x.shape[other_axis], lambda v: v.shape == first.shape or v.rank == 0, negative=True)
    return second and m.one(name, x, first, second)


def scatter(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    axis = m.chance.randrange(x.rank)

    def covered(other: Value, exactly: bool = False) -> bool:
        pairs = enumerate(zip(other.shape, x.shape))
        return other.rank == x.rank and all(n == axis or bool(a == b) for n, (a, b) in pairs)

    found = positions(m, x.shape[axis], covered)
    if found is None:
        return None
    name = m.chance.choice(
        ("scatter", "scatter", "scatter_add", "scatter_number", "sum", "prod", "amax", "amin")
    )
    if name == "scatter_number":
        return m.one(name, x, found, dim=axis, value=number_for(m, x))
    source = m.pick(lambda v: v.shape == found.shape)
    if source is None:
        return None
    if source.dtype != x.dtype:
        source = m.one("cast", source, dtype=Name(x.dtype)) or source
    full_name = name if name.startswith("scatter") else f"scatter_reduce_{name}"
    return m.one(full_name, x, found, source, dim=axis)


def index_put(m: Maker) -> object:
    x = m.pick(lambda value: value.rank >= 1)
    if x is None:
        return None
    first = positions(m, x.shape[0], lambda v: v.rank <= 2, negative=True)
    if first is None:
        return None
    both = x.rank >= 2 and m.chose(0.4)
    second = positions(m, x.shape[1], lambda v: v.shape == first.shape, negative=True) if both else None
    indices = [first] if second is None else [first, second]
    target = (*first.shape, *x.shape[len(indices) :])
    value = m.pick(lambda v: v.shape == target or v.rank == 0 or v.shape == x.shape[len(indices) :])
    if value is None:
        return None
    if value.dtype != x.dtype:
        value = m.one("cast", value, dtype=Name(x.dtype)) or value
    name = "index_put" if second is None else "index_put_both"
    return m.one(name, x, value, *indices, accumulate=m.chose(0.4))


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


MOVEMENT: tuple[tuple[int, Proposal], ...] = (
    (3, permute), (3, expand), (2, unsqueeze), (1, squeeze), (5, reshape), (4, index), (2, flip), (2, unfold),
    (3, pad), (1, triangle), (3, cat), (1, stack),
)  # fmt: skip
READING: tuple[tuple[int, Proposal], ...] = ((1, gather), (1, index_select), (2, index_tensors))
PROPOSALS: dict[str, tuple[tuple[int, Proposal], ...]] = {
    "views": (*((2 * weight, one) for weight, one in MOVEMENT), *READING, (6, two_views), (1, select), (1, cast)),
    "dyadic": (
        *MOVEMENT, *READING, (5, unary), (10, binary), (6, with_number), (3, select), (2, clamp), (4, cast), (1, bits),
        (5, two_views), (8, reduce), (5, spread_reduction), (3, scan), (2, sort), (4, matmul), (2, convolution),
        (2, scatter), (2, index_put), (1, create),
    ),
    "float": (
        *MOVEMENT, *READING, (9, unary), (3, activation), (10, binary), (6, with_number), (2, power), (3, select),
        (2, clamp), (4, cast), (1, bits), (5, two_views), (8, reduce), (5, spread_reduction), (4, statistics),
        (5, softmax), (4, norm), (3, scan), (2, sort), (5, matmul), (3, attention), (2, convolution), (2, scatter),
        (2, index_put), (1, create),
    ),
}  # fmt: skip
"""What programs of each kind are made of, with weights."""
PROPOSALS["symbolic"] = PROPOSALS["torch"] = PROPOSALS["float"]
