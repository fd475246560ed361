"""Placement: generated and random schedules, illegal ones included, give the reference's result or a ScheduleError."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Block
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.graph_op import LUMINAL
from luminal.dialects.kernel.dialect import KERNEL
from luminal.dialects.kernel.placed import ContractOp
from luminal.dialects.kernel.placed_base import tile_of
from luminal.dialects.kernel.placed_interpreter import garbage, interpret_placed
from luminal.dialects.kernel.placed_loops import ForOp
from luminal.dialects.kernel.placed_types import Tile, TileAxis, TileType
from luminal.dialects.kernel.schedule import Buffer, Factor, Schedule, Stage, Target, parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import dim
from luminal.dtype import f32
from luminal.errors import ScheduleError
from luminal.passes.place import place
from luminal.search.generate import Generator
from luminal.search.machine import Machine
from luminal.search.shapes import Shapes
from luminal.search.verify import agrees, sample_output
from tests.kernel import regions

M, N, S = dim("m"), dim("n"), dim("s")
CASES: dict[str, tuple[Region, Mapping[str, int]]] = {
    "matmul": (regions.matmul(8, 16, 8), {}),
    "matmul ragged": (regions.matmul(M, 24, 6), {"m": 13}),
    "matmul symbolic": (regions.matmul(M, N, S), {"m": 5, "n": 7, "s": 3}),
    "softmax": (regions.softmax(5, 32), {}),
    "softmax symbolic": (regions.softmax(M, N), {"m": 3, "n": 11}),
    "layer norm": (regions.layer_norm(M, 24), {"m": 3}),
    "attention": (regions.attention(2, S, 4), {"s": 9}),
    "attention unmerged": (regions.attention(2, 8, 4, merged=False), {}),
    "transposed sum": (regions.transposed_sum(M, 12), {"m": 9}),
    "cumulative": (regions.cumulative(M, N), {"m": 4, "n": 9}),
    "argmax": (regions.argmax(M, N), {"m": 4, "n": 9}),
    "convolution": (regions.convolution(M, 4, 8), {"m": 7}),
    "folded": (regions.folded(M, 9), {"m": 6}),
    "empty rows": (regions.softmax(M, N), {"m": 0, "n": 5}),
    "one element": (regions.softmax(M, N), {"m": 1, "n": 1}),
}


def run_and_compare(
    region: Region, schedule: Schedule, dims: Mapping[str, int], reference: Region | None = None
) -> None:
    """Place and interpret; raises ScheduleError where placement refuses, AssertionError where the result is wrong.

    `reference`: the region whose values are right, where this one is a form of it.
    """
    function = place(region, schedule, "kernel", ["contract", "reassociate"])
    function.verify()
    generator = np.random.default_rng(0)
    arguments = [
        generator.uniform(-1, 1, a.elements.evaluate(dims)).astype(a.dtype.numpy) for a in region.arguments
    ]
    outputs = [garbage(o.dtype, o.elements.evaluate(dims)) for o in region.outputs]
    interpret_placed(function, [*arguments, *outputs], dims)
    for number, output in enumerate(outputs):
        if "j" not in region.extents or region.extents["j"].evaluate(dims):
            sample = sample_output(reference or region, number, arguments, dims)
            assert sample is None or agrees(sample, output), f"wrong result of {schedule}"
        assert not np.isnan(output.astype(np.float64)).any(), f"unwritten output of {schedule}"


@pytest.mark.parametrize("name", CASES)
def test_generated_schedules_are_right(name: str) -> None:
    region, dims = CASES[name]
    candidates = Generator(region, Machine(4, 16), Shapes(region, dims)).candidates()
    legal = 0
    for candidate in [*candidates[:: max(1, len(candidates) // 8)], candidates[-2], candidates[-1]]:
        assert parse_schedule(str(candidate.schedule)) == candidate.schedule
        try:
            run_and_compare(region, candidate.schedule, dims)
            legal += 1
        except ScheduleError:
            continue
    assert legal, "no generated schedule is legal"


def random_schedule(region: Region, draw: random.Random) -> Schedule:
    """Any factors in any order with any roles, and any terms kept anywhere."""
    indices = sorted(region.extents)
    names: list[str] = []

    def factors(some: list[str]) -> tuple[Factor, ...]:
        loops: list[Factor] = []
        inner: list[Factor] = []
        lane = draw.choice([*some, None]) if some else None
        for index in some:
            if draw.random() < 0.3:
                inner.append(Factor(index, draw.choice([2, 3, 4]), draw.choice(["tile", "block"])))
            if index == lane:
                inner.append(Factor(index, 4, "lane"))
            chain = [None] if draw.random() < 0.9 else [draw.choice([4, 9])]
            while draw.random() < 0.3:
                chain.append(draw.choice([2, 3, 4]))
            for extent in chain:
                name = f"l{len(names)}" if draw.random() < 0.7 else None
                if name:
                    names.append(name)
                roles = ["unroll", "partial", *["loop"] * 6] if extent is not None else ["loop"]
                role = draw.choice(roles)
                loops.append(Factor(index, extent, role, name, draw.random() < 0.2))
        if draw.random() < 0.5:
            position = {index: rank for rank, index in enumerate(draw.sample(some, len(some)))}
            loops.sort(key=lambda factor: position[factor.index])
        inner.sort(key=lambda factor: factor.role == "lane")
        if loops and draw.random() < 0.3:
            first = loops[0]
            loops[0] = Factor(first.index, first.extent, "parallel", first.name)
        return (*loops, *inner)

    roots = tuple(
        Stage((Target(output=n),), factors(draw.sample(indices, len(indices))))
        for n in range(len(region.outputs))
    )
    kept: list[Stage] = []
    terms = region.terms()
    for number, term in enumerate(terms):
        if draw.random() > 0.2 or term.op in ("constant", "loop", "carry"):
            continue
        at = draw.choice([None, *names])
        own = draw.sample(sorted(term.free), len(term.free))
        digits = [(index, None) for index in own if draw.random() > 0.1]
        digits += [(index, 4) for index in own if draw.random() < 0.3]
        reduced = sorted({i for t in terms if t.op == "reduce" for i in t.reduce.indices} - term.free)
        stage_factors = factors([*own, *reduced]) if draw.random() < 0.8 else factors(own)
        kept.append(Stage((Target(term=number, buffer=Buffer(tuple(digits), at)),), stage_factors, at))
    return Schedule(roots, tuple(kept))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", CASES)
def test_random_schedules_are_right_or_refused(name: str, seed: int) -> None:
    region, dims = CASES[name]
    draw = random.Random(f"{name} {seed}")
    for _ in range(12):
        schedule = random_schedule(region, draw)
        assert parse_schedule(str(schedule)) == schedule
        try:
            run_and_compare(region, schedule, dims)
        except ScheduleError:
            continue
        except Exception as error:
            raise AssertionError(f"schedule {schedule}") from error


def test_placed_text_parses_back() -> None:
    context = Context()
    for dialect in (Builtin, KERNEL, LUMINAL):
        context.load_dialect(dialect)
    for name, (region, dims) in CASES.items():
        schedule = Generator(region, Machine(4, 16), Shapes(region, dims)).candidates()[-2].schedule
        function = place(region, schedule, "kernel", ["contract", "keep-wide"])
        again = Parser(context, str(function)).parse_op()
        again.verify()
        assert str(again) == str(function), name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out0: i:* j:* k:*; keep %9 as . at kernel: .", "no such term"),
        ("out0: q:* i:* j:* k:*", "no index 'q'"),
        ("keep %0 as i:* k:* at kernel: i:* k:*", r"no stage computes outputs \[0\]"),
        ("out0: i:* j:*", "k"),
        ("out0: i:4 j:* k:*", "does not cover"),
        ("out0: i:* j:* j:4:partial k:*", "not one of a reduction"),
        ("out0: i:*:tile j:* k:*", "constant extent"),
        ("out0: i:* j:*:parallel k:*", "not outermost"),
        ("out0: i:4:lane j:4:lane k:*", "lane"),
        ("out0: i:* j:* k:*; keep %0 as i:* k:* from z at z: i:* k:*", "outside of that loop"),
        ("out0: i:*@a i:4 j:* k:*; keep %0 as i:2 k:* from a at a: i:4 k:*", "too small"),
        ("out0: i:* j:* k:*; keep %0 as k:* at kernel: i:* k:*", "buffer as k:\\*: no digit holds index i"),
        ("out0: i:* j:* k:*; keep %0 as . at kernel: i:* k:*", "buffer as .: no digit holds index i"),
        ("out0: i:*@a i:4 j:* k:*; keep %0 as k:* from a at a: i:4 k:*", "no digit holds index i"),
        ("out0: i:*@a i:4:tile j:* k:*; keep %0 as k:* from a at a: k:* i:4:tile", "no digit holds index i"),
    ],
)
def test_illegal_schedules_say_why(text: str, message: str) -> None:
    region = regions.matmul(8, 16, 8)
    with pytest.raises(ScheduleError, match=message):
        run_and_compare(region, parse_schedule(text), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'TARGETS: FACTORS'"),
        (": i:*", "expected 'TARGETS: FACTORS'"),
        ("out²: i:*", "expected outNUMBER"),
        ("keep %0 at kernel: i:*", "expected 'as DIGITS'"),
        ("out0: i", "expected index:extent"),
        ("out0: i:*:sideways", "the role is one of"),
    ],
)
def test_texts_that_are_no_schedule_say_why(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(text)


def test_a_scan_does_not_begin_anew_in_a_loop_over_its_own_index() -> None:
    """out[i, j] = the running sum over j, kept anew for each j: every one would be its first element."""
    region, dims = CASES["cumulative"]
    scan = next(n for n, term in enumerate(region.terms()) if term.op == "scan")
    schedule = parse_schedule(f"out0: j:* i:*@a; keep %{scan} as i:* j:* from a at a: i:* j:*")
    with pytest.raises(ScheduleError, match="inside a loop over its own index"):
        run_and_compare(region, schedule, dims)


@pytest.mark.parametrize(
    "steps", ["k:* k:2:partial", "k:* k:2:partial k:2:partial", "k:4:partial", "k:* k:4:partial k:2:tile"]
)
def test_partial_sums_are_added_up(steps: str) -> None:
    """Sums of 2, 4 or 8 products, whole ones and one that is cut off."""
    for size in (16, 13, 3):
        region = regions.matmul(8, 16, size)
        if steps.startswith("k:4:") and size > 4:
            continue
        run_and_compare(region, parse_schedule(f"out0: i:* j:* {steps} i:2:tile j:4:lane"), {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("matmul", "out0: i:* j:* k:* i:2:block j:4:lane k:4:block"),
        ("matmul ragged", "out0: i:* j:* k:* i:4:block j:8:block k:4:block"),
        ("matmul symbolic", "out0: i:* j:* k:* k:2:partial k:2:tile i:4:block j:8:block k:4:block"),
        ("softmax symbolic", "out0: i:* j:* i:2:block j:4:block"),
        ("softmax", "out0: i:* i:2:block j:32:block"),
        ("layer norm", "out0: i:* j:* i:2:block j:16:block"),
        ("argmax", "out0: i:* j:* i:2:block j:4:block"),
        ("convolution", "out0: n:* o:* r:* n:2:block o:4:block r:2:block c:4:block"),
        ("attention", "out0: h:* i:* j:* i:4:block e:4:block j:4:block d:4:block"),
    ],
)
def test_blocks_are_combined_at_once(name: str, text: str) -> None:
    """What a reduction carries has no axis of a block of its index."""
    region, dims = CASES[name]
    schedule = parse_schedule(text)
    run_and_compare(region, schedule, dims)
    reduced = {index for term in region.terms() if term.op == "reduce" for index in term.reduce.indices}
    factors = schedule.roots[0].factors
    blocks = {(f.index, f.extent) for f in factors if f.role == "block" and f.index in reduced}
    for op in place(region, schedule, "kernel").walk():
        if isinstance(op, ForOp) and op.loop.data.index in reduced:
            carried = {(a.index, a.extent) for value in op.carried for a in tile_of(value).axes}
            assert not {pair for pair in carried & blocks if pair[0] == op.loop.data.index}


def test_a_block_on_which_nothing_depends_counts() -> None:
    """A sum over k of what k does not change: each of its values counts."""
    for size in (4, 6):
        for factor in ("add", "mul"):
            b = regions.Builder()
            value = b.apply(factor, b.read(0, {"i": 1}), b.read(1, {"j": 1}))
            region = b.region({"i": 2, "j": 2, "k": size}, [2, 2], [(b.total(value, "k"), {"i": 2, "j": 1})])
            run_and_compare(region, parse_schedule("out0: i:* j:* k:* i:2:block k:4:block"), {})


def test_a_partial_maximum_keeps_its_place() -> None:
    region, dims = CASES["argmax"]
    run_and_compare(region, parse_schedule("out0: i:* j:* j:2:partial j:2:unroll"), dims)


@pytest.mark.parametrize(
    "text", ["out0 i:*", "out0: i:0", "out0: i", "keep 3 as . at x: .", "out0: i:*:wrong"]
)
def test_malformed_schedules_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(text)


def test_carried_loop_in_memory() -> None:
    region = regions.folded(M, 9)
    loop = next(n for n, t in enumerate(region.terms()) if t.op == "loop")
    nexts = region.terms()[loop].operands[2:]
    numbers = [region.terms().index(term) for term in nexts]
    constants = [region.terms().index(term) for term in region.terms()[loop].operands[:2]]
    text = (
        f"out0: i:*@i; loop %{loop} at i: j:*@j {{carry as . from i; carry as . from i; "
        f"init keep %{constants[0]} as . at i: .; init keep %{constants[1]} as . at i: .; "
        f"step keep %{numbers[1]} as ., %{numbers[0]} as . at j: .}}"
    )
    schedule = parse_schedule(text)
    assert str(schedule) == text
    run_and_compare(region, schedule, {"m": 6})
    assert f32 == region.outputs[0].dtype


def test_carries_in_memory_begin_with_their_initial_value_everywhere() -> None:
    """Carries of all rows live in one buffer, which is used again for each block of rows."""
    region = regions.folded(24, 9)
    terms = region.terms()
    loop = next(n for n, t in enumerate(terms) if t.op == "loop")
    low, zero, *nexts = (terms.index(term) for term in terms[loop].operands)
    row, carry = "i:2 i:4:lane", "as i:8 from block"
    schedule = parse_schedule(
        f"out0: i:*@block {row}; loop %{loop} at block: j:*@j {{carry {carry}; carry {carry}; "
        f"init keep %{low} as i:8 at block: {row}; init keep %{zero} as i:8 at block: {row}; "
        f"step keep %{nexts[1]} as i:8, %{nexts[0]} as i:8 at j: {row}}}"
    )
    run_and_compare(region, schedule, {})


def test_chains_of_any_length_are_placed() -> None:
    b = regions.Builder()
    value = b.read(0, {"i": 1})
    for _ in range(2000):
        value = b.apply("add", value, b.number(1))
    region = b.region({"i": 8}, [8], [(value, {"i": 1})])
    run_and_compare(region, parse_schedule("out0: i:*"), {})


def test_a_contract_sums_over_no_lanes() -> None:
    """A lane is combined after the loop, by kernel.reduce."""
    lanes = TileAxis("k", 4, 1, lane=True)
    block = Block(arg_types=[TileType(Tile(f32)), TileType(Tile(f32, (lanes,)))])
    op = ContractOp.of(block.args[0], block.args[1], block.args[1], None)
    with pytest.raises(VerifyException, match="sums over no lanes"):
        op.verify()
    plain = TileAxis("k", 4)
    block = Block(arg_types=[TileType(Tile(f32)), TileType(Tile(f32, (plain,)))])
    op = ContractOp.of(block.args[0], block.args[1], block.args[1], None)
    op.verify()
    assert op.summed == (plain,)
