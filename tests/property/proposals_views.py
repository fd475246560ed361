"""Steps of random programs that move elements."""

from __future__ import annotations

from luminal.dim import Dim, product
from tests.property.choices import SHAPE_SIZES, number_for, sizes
from tests.property.maker import Maker, Value
from tests.property.program import Name


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
