"""The arena: no two blocks that live together overlap, at any size; it is close to the live peak."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dim import Symbol, as_dim, dim
from luminal.passes.memory_plan import ArenaPlan, Block, live_peak, plan_arena, rounded, sample_dims

B, S = dim("b", min=0, max=64), dim("s", min=0, max=512)
SYMBOLS = [Symbol("b", 0, 64), Symbol("s", 0, 512)]
POINTS = st.tuples(st.integers(0, 64), st.integers(0, 512))
SIZES = [as_dim(0), as_dim(100), B * 4, B * S * 4, B * S * S * 2, S * 12 + 8, S // 2 * 64, as_dim(4096)]


@st.composite
def block_lists(draw: st.DrawFn) -> list[Block]:
    count = draw(st.integers(0, 24))
    blocks: list[Block] = []
    for _ in range(count):
        first = draw(st.integers(0, 20))
        blocks.append(Block(draw(st.sampled_from(SIZES)), first, first + draw(st.integers(0, 8))))
    return blocks


def overlapping(plan: ArenaPlan, dims: dict[str, int]) -> list[tuple[int, int]]:
    offsets = plan.offsets(dims)
    sizes = [size.evaluate(dims) for size in plan.sizes]
    return [
        (a, b)
        for a in range(len(offsets))
        for b in range(a)
        if plan.blocks[a].meets(plan.blocks[b])
        and offsets[a] < offsets[b] + sizes[b]
        and offsets[b] < offsets[a] + sizes[a]
    ]


@settings(deadline=None, max_examples=200, derandomize=True)
@given(block_lists(), st.lists(POINTS, min_size=1, max_size=4), st.data())
def test_live_blocks_never_overlap(
    blocks: list[Block], points: list[tuple[int, int]], data: st.DataObject
) -> None:
    hint = data.draw(st.sampled_from(points))
    plan = plan_arena(blocks, sample_dims(SYMBOLS, {"b": hint[0], "s": hint[1]}))
    for b, s in points:
        dims = {"b": b, "s": s}
        assert overlapping(plan, dims) == []
        assert all(offset % 64 == 0 for offset in plan.offsets(dims))
        assert live_peak(blocks, dims) <= plan.total(dims)


def test_reuse_is_close_to_the_live_peak() -> None:
    """A chain of layers with a residual stream and two short wide values each, as in an encoder."""
    hidden, wide, scores = B * S * 384 * 4, B * S * 1536 * 4, B * S * S * 12 * 4
    blocks: list[Block] = []
    for layer in range(6):
        step = 6 * layer
        lives = [(hidden, 0, 4), (hidden, 0, 1), (scores, 1, 2), (hidden, 2, 3), (wide, 4, 5), (hidden, 3, 6)]
        blocks += [Block(size, step + first, step + last) for size, first, last in lives]
    plan = plan_arena(blocks, sample_dims(SYMBOLS, {"b": 8, "s": 40}))
    for dims in ({"b": 32, "s": 128}, {"b": 1, "s": 16}, {"b": 8, "s": 512}):
        assert plan.total(dims) <= 1.1 * live_peak(blocks, dims)


def test_random_static_lists_are_packed_well() -> None:
    draw = random.Random(5)
    excess: list[float] = []
    for _ in range(40):
        blocks: list[Block] = []
        for _ in range(40):
            first = draw.randrange(60)
            blocks.append(Block(as_dim(64 * draw.randrange(1, 200)), first, first + draw.randrange(8)))
        excess.append(plan_arena(blocks, [{}]).total({}) / live_peak(blocks, {}))
    assert sum(excess) / len(excess) < 1.05
    assert max(excess) < 1.2


def test_text_and_rounding() -> None:
    assert rounded(as_dim(1)) == 64
    assert rounded(S * 4).evaluate({"s": 17}) == 128
    plan = plan_arena([Block(as_dim(10), 0, 1), Block(as_dim(64), 1, 2), Block(as_dim(64), 2, 3)], [{}])
    assert plan.total({}) == 128
    assert "b0: 64 bytes, steps 0 to 1, on" in str(plan)


def test_the_check_finds_an_overlap() -> None:
    """The property test can fail: a plan that forgets who lies below is caught."""
    broken = ArenaPlan((Block(as_dim(64), 0, 1), Block(as_dim(64), 1, 2)), ((), ()), (0, 1))
    assert overlapping(broken, {}) == [(1, 0)]
