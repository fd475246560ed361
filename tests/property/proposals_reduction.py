"""Steps of random programs that reduce, scan, sort, normalise and multiply matrices."""

from __future__ import annotations

from tests.property.choices import positive, size, sizes
from tests.property.maker import Maker, Value
from tests.property.namespaces import FLOATS
from tests.property.program import Name


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
