"""Loops that run over what is needed: what is left out changes no bit, and nothing else is left out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from luminal.dialects import all_dialects
from luminal.dialects.kernel.placed_interpreter import garbage, interpret_placed
from luminal.dialects.kernel.placed_loops import ForOp, FunctionOp
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Affine, Region, Term, predicate
from luminal.dim import as_dim, dim
from luminal.dtype import bool_, i64
from luminal.emit_cpu.jit import Target
from luminal.passes.needed import needed_by_loop, needed_by_reduction, part_needed
from luminal.passes.place import place
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.forms import folding
from tests.kernel.regions import Builder, Size

LICENCES = frozenset({"reassociate", "contract", "distribute", "keep-wide"})
MEASURER = HostMeasurer(KernelCompiler(Target.host(), (), use_cache=False))
HEADS, WIDTH, KEYS, QUERIES = 2, 4, dim("k", min=1), dim("q", min=1)
INSIDE = [
    ("j:*", ""), ("j:* j:4", ""), ("j:*", "j:8:tile"), ("j:* j:5:partial", ""), ("j:*:masked", "j:4:lane"),
]  # fmt: skip
"""Loops and registers of a reduced index."""
NOTHING = {"sum": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}


def index(b: Builder, strides: dict[str, Size], offset: Size = 0) -> Term:
    return b.table.index(Affine.of(strides, offset))


def visible(b: Builder, offset: Size, window: int | None) -> Term:
    """Keys up to a query's place, moved by an offset, and no further back than a window."""
    row = index(b, {"i": 1}, offset)
    found = predicate(b.table, index(b, {"j": 1}), row, "le")
    if window is None:
        return found
    inside = predicate(b.table, index(b, {"i": 1}, as_dim(offset) - window), index(b, {"j": 1}))
    return b.table.apply("bits", (found, inside), "and", bool_)


def reduced(monoid: str, offset: Size, window: int | None) -> Region:
    """fold over j of x[i, j] where it is visible."""
    b = Builder()
    x = b.apply(
        "select", visible(b, offset, window), b.read(0, {"i": KEYS, "j": 1}), b.number(NOTHING[monoid])
    )
    extents: dict[str, Size] = {"i": QUERIES, "j": KEYS}
    return b.region(extents, [QUERIES * KEYS], [(b.total(x, "j", monoid=monoid), {"i": 1})])


def attention(offset: Size, window: int | None) -> Region:
    """softmax(q @ k.T where it is visible) @ v; grouped heads: k and v are those of all."""
    b = Builder()
    q = b.read(0, {"h": QUERIES * WIDTH, "i": WIDTH, "d": 1})
    k, v = (b.read(number, {"j": WIDTH, name: 1}) for number, name in ((1, "d"), (2, "e")))
    score = b.total(b.apply("mul", q, k), "d")
    score = b.apply("select", visible(b, offset, window), score, b.number(-math.inf))
    p = b.apply("exp2", b.minus(score, b.total(score, "j", monoid="max")), variant="e")
    value = b.apply("recip", b.total(b.apply("mul", p, v), "j"), b.total(p, "j"), variant="none")
    extents: dict[str, Size] = {"h": HEADS, "i": QUERIES, "j": KEYS, "d": WIDTH, "e": WIDTH}
    strides: dict[str, Size] = {"h": QUERIES * WIDTH, "i": WIDTH, "e": 1}
    return b.region(extents, [QUERIES * HEADS * WIDTH, KEYS * WIDTH, KEYS * WIDTH], [(value, strides)])


def bounded(region: Region) -> Region:
    return next(form.region for form in folding(region, LICENCES) if form.name == "folds of 64, bounded")


def loop_of(region: Region) -> Term:
    return next(term for term in region.terms() if term.op == "loop")


def attention_schedule(region: Region, rows: int) -> str:
    guard = region.numbering()[loop_of(region).guard or loop_of(region)]
    return (
        f"out0: h:*:parallel i:*:parallel jo:* i:{rows}:tile ji:64:tile e:4:tile d:4:tile; "
        f"keep %{guard} as . at kernel: jo:* ji:* e:*"
    )


def limited(function: FunctionOp) -> list[ForOp]:
    return [op for op in function.walk() if isinstance(op, ForOp) and op.limits is not None]


def interpreted(
    function: FunctionOp, region: Region, arguments: list[np.ndarray], dims: dict[str, int]
) -> np.ndarray:
    """The bits of the result."""
    (output,) = region.outputs
    result = garbage(output.dtype, output.elements.evaluate(dims))
    with np.errstate(all="ignore"):
        interpret_placed(function, [*arguments, result], dims)
    return result.view(np.uint32)


def both(region: Region, schedule: str, arguments: list[np.ndarray], dims: dict[str, int]) -> np.ndarray:
    """The bits of a kernel's result by the interpreter, which are the same without its limits."""
    function = place(region, parse_schedule(schedule), "kernel")
    function.verify()
    assert str(parsed(str(function))) == str(function)
    assert limited(function)
    found = interpreted(function, region, arguments, dims)
    for op in limited(function):
        del op.properties["limits"]
    np.testing.assert_array_equal(found, interpreted(function, region, arguments, dims))
    return found


def parsed(text: str) -> Operation:
    context = Context()
    for name, dialect in all_dialects().items():
        context.register_dialect(name, dialect)
    return Parser(context, text).parse_op()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(NOTHING)), st.integers(1, 40), st.integers(1, 90), st.integers(-30, 50),
    st.none() | st.integers(1, 40), st.sampled_from([1, 3, 8]), st.sampled_from(INSIDE),
)  # fmt: skip
def test_what_a_mask_hides_is_left_out_of_reductions(
    monoid: str, queries: int, keys: int, offset: int, window: int | None, rows: int, inside: tuple[str, str]
) -> None:
    region = reduced(monoid, offset, window)
    loops, registers = inside
    x = np.random.default_rng(keys).standard_normal(queries * keys).astype(np.float32)
    x[:: max(1, x.size // 3)] = np.inf
    schedule = f"out0: i:*:parallel {loops} i:{rows}:tile {registers}".strip()
    both(region, schedule, [x], {"q": queries, "k": keys})


@pytest.mark.parametrize(("loops", "registers"), INSIDE)
@pytest.mark.parametrize("window", [None, 9])
def test_machine_code_leaves_it_out_too(loops: str, registers: str, window: int | None) -> None:
    region = reduced("sum", 3, window)
    schedule = f"out0: i:*:parallel {loops} i:8:tile {registers}".strip()
    kernel = MEASURER.compile(region, parse_schedule(schedule), 1000)
    for queries, keys in ((1, 1), (33, 90), (90, 33)):
        x = np.random.default_rng(keys).standard_normal(queries * keys).astype(np.float32)
        wanted = both(region, schedule, [x], {"q": queries, "k": keys}).view(np.float32)
        found = np.full(queries, np.nan, np.float32)
        kernel.run([x], [found], {"q": queries, "k": keys}, 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.integers(1, 30), st.integers(1, 200), st.integers(-30, 200), st.none() | st.integers(1, 100),
    st.sampled_from([1, 8]), st.sampled_from([0.0, math.inf, math.nan]),
)  # fmt: skip
def test_blocks_that_a_mask_hides_are_left_out_of_folds(
    queries: int, keys: int, offset: int, window: int | None, rows: int, odd: float
) -> None:
    """Rows without any key too; and infinite values, hidden ones too, which the guard finds."""
    region = bounded(attention(offset, window))
    draw = np.random.default_rng(keys)
    arguments = [
        draw.standard_normal(a.elements.evaluate({"q": queries, "k": keys})).astype(np.float32)
        for a in region.arguments
    ]
    arguments[2][arguments[2].size // 2] = odd
    both(region, attention_schedule(region, rows), arguments, {"q": queries, "k": keys})


def test_the_loop_is_as_long_as_the_tile_needs() -> None:
    region = bounded(attention(as_dim(KEYS) - QUERIES, 100))
    function = place(region, parse_schedule(attention_schedule(region, 8)), "kernel")
    (loop,) = limited(function)
    assert [str(limit) for limit in loop.bounds.limits] == [
        "from 8 | k - q - 99 by 64",
        "to 8 | k - q + 8 by 64",
    ]
    assert loop.bounds.guard is not None


def test_what_is_needed_is_found() -> None:
    b = Builder()
    x, low = b.read(0, {"i": 9, "j": 1}), b.number(-math.inf)
    row, column = index(b, {"i": 1}), index(b, {"j": 1})
    before = predicate(b.table, row, column)
    flipped = b.apply("select", before, low, x)

    def found(value: Term, monoid: str = "max") -> list[str]:
        return [str(each) for each in needed_by_reduction(b.total(value, "j", monoid=monoid)).conditions]

    assert found(flipped) == ["i + (-1)*j"]
    assert found(b.apply("mul", flipped, b.number(0.5))) == ["i + (-1)*j"]
    assert found(b.apply("mul", flipped, b.number(0.0))) == []
    equal = predicate(b.table, column, row, "eq")
    assert found(b.apply("select", equal, x, low)) == ["i + (-1)*j", "(-1)*i + j"]
    one = b.table.constant(1, i64)
    ones = b.table.apply("select", (before, b.table.constant(0, i64), one), None, i64)
    allowed = predicate(b.table, ones, b.table.constant(0, i64), "eq")
    assert found(b.apply("select", allowed, low, x)) == ["i + (-1)*j"]
    moved = b.table.apply("add", (column, b.table.constant(2**64 - 3, i64)), None, i64)
    assert found(b.apply("select", predicate(b.table, moved, row), x, low)) == ["i + (-1)*j + (2)"]


NEEDED: dict[str, Callable[[Builder, Term, Term], Term]] = {
    "what is hidden is no identity": lambda b, hidden, x: b.total(
        b.apply("select", hidden, b.number(1.0), x), "j"
    ),
    "it is that of another monoid": lambda b, hidden, x: b.total(
        b.apply("select", hidden, b.number(0.0), x), "j", monoid="max"
    ),
    "a factor may be infinite": lambda b, hidden, x: b.total(
        b.apply("mul", b.apply("select", hidden, b.number(0.0), x), x), "j"
    ),
    "one addend is not hidden": lambda b, hidden, x: b.total(
        b.apply("add", b.apply("select", hidden, b.number(0.0), x), x), "j"
    ),
    "it counts": lambda b, hidden, x: b.total(b.number(1.0), "j"),
    "NaN may be hidden by a sum": lambda b, hidden, x: b.total(
        b.apply("add", x, b.apply("select", hidden, b.number(-math.inf), b.number(0.0))), "j", monoid="max"
    ),
    "the mask is memory": lambda b, hidden, x: b.total(
        b.apply("select", predicate(b.table, b.number(0.0), x), b.number(0.0), x), "j"
    ),
    "the constant might wrap around": lambda b, hidden, x: b.total(
        b.apply(
            "select",
            predicate(b.table, b.table.constant(2**63 - 1, i64), index(b, {"j": 1})),
            b.number(0.0),
            x,
        ),
        "j",
    ),
}


@pytest.mark.parametrize("name", NEEDED)
def test_everything_is_needed_where(name: str) -> None:
    b = Builder()
    hidden = predicate(b.table, index(b, {"i": 1}), index(b, {"j": 1}))
    total = NEEDED[name](b, hidden, b.read(0, {"i": 90, "j": 1}))
    assert not needed_by_reduction(total).conditions
    region = b.region({"i": 8, "j": 90}, [720], [(total, {"i": 1})])
    assert not limited(place(region, parse_schedule("out0: i:* j:*"), "kernel"))


def test_reductions_that_share_a_loop_need_what_each_needs() -> None:
    """A mean: the sum has a mask, the count has none."""
    b = Builder()
    hidden = predicate(b.table, index(b, {"i": 1}), index(b, {"j": 1}))
    x = b.read(0, {"i": 90, "j": 1})
    total = b.total(b.apply("select", hidden, b.number(0.0), x), "j")
    mean = b.apply("recip", total, b.total(x, "j"), variant="none")
    for value, count in ((mean, 0), (total, 1)):
        region = b.region({"i": 8, "j": 90}, [720], [(value, {"i": 1})])
        assert len(limited(place(region, parse_schedule("out0: i:* j:*"), "kernel"))) == count


@pytest.mark.parametrize("change", ["guard", "score", "start", "step", "factor"])
def test_a_loop_that_is_no_guarded_weighted_fold_has_no_limits(change: str) -> None:
    region = bounded(attention(0, None))
    text = region_text(region)
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines) if " = loop " in line)
    words = lines[number].split(" ")
    loop = loop_of(region)
    numbers = region.numbering()
    if change == "guard":
        lines[number] = " ".join([*words[:-3], *words[-2:]])
    if change == "start":
        words[words.index(f"%{numbers[loop.inits[0]]}")] = f"%{numbers[loop.inits[1]]}"
        lines[number] = " ".join(words)
    if change == "score":
        text = text.replace("constant 0xff800000", "constant 0xff7fffff")
    if change == "step":
        text = text.replace("constant 0xbf800000", "constant 0xbf000000")
    if change == "factor":
        text = text.replace("reduce.min [jo]", "reduce.max [jo]")
    changed = parse_region("\n".join(lines) if change in ("guard", "start") else text)
    assert region_text(changed) != region_text(region)
    assert needed_by_loop(region.table, loop).conditions
    assert not needed_by_loop(changed.table, loop_of(changed)).conditions


@pytest.mark.parametrize("what", ["around", "guard", "limits", "step"])
def test_limits_that_cannot_be_are_refused(what: str) -> None:
    region = bounded(attention(0, None))
    text = str(place(region, parse_schedule(attention_schedule(region, 8)), "kernel"))
    changes = {
        "limits": (', limits = [#kernel.limit<"to 8 | 8 by 64">]', ""),
        "around": ("to 8 | 8 by 64", "to 8, 8 | 8 by 64"),
        "step": ("to 8 | 8 by 64", "to 8 | 8 by 0"),
    }
    old, new = changes.get(what, ("", ""))
    if what != "guard":
        assert old in text
        with pytest.raises(VerifyException, match=r"kernel\.for over j"):
            parsed(text.replace(old, new)).verify()
        return
    function = place(region, parse_schedule(attention_schedule(region, 8)), "kernel")
    (loop,) = limited(function)
    loop.operands[len(loop.operands) - 1] = loop.inits[0]
    with pytest.raises(VerifyException, match="the guard of its limits is one bool"):
        function.verify()


def test_how_much_is_needed() -> None:
    causal = (Affine.of({"i": 1, "j": -1}),)
    window = (*causal, Affine.of({"j": 1, "i": -1}, 255))
    sizes = {"i": 2048, "j": 2048}
    assert part_needed(causal, "j", sizes, {}, {}) == pytest.approx(0.5, abs=0.01)
    assert part_needed(window, "j", sizes, {}, {}) == pytest.approx(0.12, abs=0.01)
    assert part_needed((), "j", sizes, {}, {}) == 1.0
