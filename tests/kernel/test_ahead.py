"""Fetching the next panel of a packed constant: what each step asks for, and what has no panels that come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from luminal.dialects.graph_op import LUMINAL
from luminal.dialects.kernel.dialect import KERNEL
from luminal.dialects.kernel.placed import PrefetchOp
from luminal.dialects.kernel.placed_interpreter import interpret_placed
from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dialects.kernel.terms import Region
from luminal.dim import Dim, as_dim, dim
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target
from luminal.errors import ScheduleError
from luminal.passes.ahead import STREAM_BYTES
from luminal.passes.place import place
from luminal.search.candidates import legal_candidates
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from tests.emit_cpu.native_kernel import compile_function
from tests.kernel.regions import Builder

PANELS_OUTSIDE = (
    "out0: j:*@panel i:*@rows k:* k:4:unroll i:4:tile j:8:lane; keep %1 ahead j:* k:* j:8 at kernel: ."
)


def product(rows: Dim | int, columns: int, inner: Dim | int) -> Region:
    """out[i, j] = sum over k of x[i, k] * w[j, k], where w is a constant."""
    b = Builder()
    value = b.total(b.apply("mul", b.read(0, {"i": inner, "k": 1}), b.read(1, {"j": inner, "k": 1})), "k")
    sizes = [as_dim(rows) * inner, as_dim(columns) * inner]
    region = b.region({"i": rows, "j": columns, "k": inner}, sizes, [(value, {"i": columns, "j": 1})])
    x, w = region.arguments
    return replace(region, arguments=[x, replace(w, constant=True)])


def fetches(function: FunctionOp) -> list[PrefetchOp]:
    return [op for op in function.walk() if isinstance(op, PrefetchOp)]


def test_each_step_asks_for_a_part_of_the_next_panel_and_the_text_parses_back() -> None:
    function = place(product(16, 64, 32), parse_schedule(PANELS_OUTSIDE), "probe")
    function.verify()
    (fetch,) = fetches(function)
    # a panel has 32 * 8 elements, of which a step reads 32; a turn asks for a quarter of the next panel
    assert str(fetch.address.data) == "256, 8 |  | 256"
    assert fetch.parts is not None and fetch.part is not None
    assert (fetch.parts.data, fetch.part.data, fetch.elements.data) == (4, 64, 8)
    context = Context()
    for dialect in (Builtin, KERNEL, LUMINAL):
        context.load_dialect(dialect)
    again = Parser(context, str(function)).parse_op()
    assert str(again) == str(function)


@pytest.mark.parametrize("rows", [1, 3, 16, 37])
def test_what_is_fetched_changes_nothing(rows: int) -> None:
    """Of the last panel too, whose next lies behind what there is."""
    region = product(dim("m"), 24, 12)
    plain = parse_schedule(PANELS_OUTSIDE.replace("ahead", "packed"))
    ahead = parse_schedule(PANELS_OUTSIDE)
    rng = np.random.default_rng(rows)
    x = rng.integers(-4, 5, rows * 12).astype(np.float32)
    w = rng.integers(-4, 5, 24 * 12).astype(np.float32)
    packed = np.ascontiguousarray(w.reshape(3, 8, 12).transpose(0, 2, 1)).ravel()
    expected = (x.reshape(rows, 12) @ w.reshape(24, 12).T).ravel()
    for schedule in (plain, ahead):
        function = place(region, schedule, "probe")
        assert bool(fetches(function)) == (schedule is ahead)
        outputs = [np.empty(rows * 24, np.float32) for _ in range(2)]
        interpret_placed(function, [x, packed, outputs[0]], {"m": rows})
        pointers = [array.ctypes.data for array in (x, packed, outputs[1])]
        assert compile_function(function).run(pointers, {"m": rows}) == 0
        assert all(np.array_equal(output, expected) for output in outputs)


def test_lines_are_asked_for_once_for_all_unrolled_steps() -> None:
    text = emit_function(
        place(product(16, 64, 256), parse_schedule(PANELS_OUTSIDE), "probe"), Target.host()
    ).text
    assert text.count("call void @llvm.prefetch") == 1


ROW = "out0: j:*@panel k:* k:4:unroll j:8:lane; keep %1 ahead j:* k:* j:8 at kernel: ."


@pytest.mark.parametrize(
    ("rows", "schedule"), [(1, ROW), (16, PANELS_OUTSIDE.replace("j:*@panel i:*@rows", "i:*@rows j:*@panel"))]
)
def test_what_is_read_once_is_a_stream_fetched_some_way_ahead(rows: int, schedule: str) -> None:
    (fetch,) = fetches(place(product(rows, 64, 32), parse_schedule(schedule), "probe"))
    assert fetch.turn is None
    assert str(fetch.address.data) == f"256, 32 |  | {STREAM_BYTES // 4}"
    assert fetch.elements.data == 32


@pytest.mark.parametrize(
    ("inner", "schedule", "message"),
    [
        (dim("k") * 4, PANELS_OUTSIDE, "its panels are of symbolic size"),
        (4, "out0: i:* k:4:unroll j:8:lane; keep %1 ahead k:4 j:8 at kernel: .", "no loop reads on in it"),
    ],
)
def test_what_cannot_be_fetched_ahead_is_refused(inner: Dim | int, schedule: str, message: str) -> None:
    region = product(16, 8, inner)
    place(region, parse_schedule(schedule.replace("ahead", "packed")), "probe")
    with pytest.raises(ScheduleError, match=message):
        place(region, parse_schedule(schedule), "probe")


def test_it_comes_first_where_memory_takes_as_long_as_the_products_and_not_where_it_is_nothing() -> None:
    host = Machine(8, 16, multiply_adds=2)
    few, many = (next(legal_candidates(product(m, 1536, 384), host, Samples({})))[0] for m in (16, 4096))
    assert " ahead " in str(few.schedule)
    one = next(legal_candidates(product(1, 4096, 4096), host, Samples({})))[0]
    assert " ahead " in str(one.schedule)
    assert " ahead " not in str(many.schedule)
    plain = [
        c
        for c, _ in legal_candidates(product(16, 1536, 384), host, Samples({}))
        if "ahead" not in str(c.schedule)
    ]
    assert few.estimate.core_seconds < min(each.estimate.core_seconds for each in plain)
