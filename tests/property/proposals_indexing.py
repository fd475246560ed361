"""Steps of random programs that read and write at positions that tensors give."""

from __future__ import annotations

from collections.abc import Callable

from luminal.dim import Dim
from tests.property.choices import number_for, size
from tests.property.maker import Maker, Value
from tests.property.program import Name


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
