"""Writes that may meet keep their order; columns that never meet are in vectors and on several threads."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.emit_cpu.jit import Target
from luminal.errors import ScheduleError
from luminal.passes.ordered_writes import check_order, columns_of
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.candidates import legal_candidates
from luminal.search.machine import Machine
from luminal.search.samples import sample_sizes

ROWS, COLUMNS, TARGETS = 50, 40, 7
SCATTER = """\
index i0 = {rows}
index i1 = {columns}
argument 0 = f32 [{given}]
argument 1 = i64 [{rows}]
argument 2 = f32 [{result}]
%0 = load 0 [({columns})*i0 + i1] : f32
%1 = load 1 [i0] : i64
%2 = constant {multiple:#x} : i64
%3 = mul %1 %2 : i64
output 0 = %0 at [i1] of [{result}] over [i0 i1] dynamic %3 combine {combine} alias 2
"""


def scatter(multiple: int = COLUMNS, combine: str = "add") -> str:
    return SCATTER.format(
        rows=ROWS, columns=COLUMNS, given=ROWS * COLUMNS, result=TARGETS * COLUMNS, multiple=multiple, combine=combine
    )  # fmt: skip


LEGAL = [
    "i0:* i1:*",
    "i0:* i1:* i1:2:tile i1:16:lane",
    "i1:*:parallel i0:* i1:16:lane",
    "i1:* i0:* i0:4:tile i1:8:lane",
    "i0:* i1:* i0:8:lane",
]
ILLEGAL = {
    "i0:*:parallel i1:* i1:16:lane": "parallel, but writes along i0 may meet",
}


@pytest.mark.parametrize("schedule", LEGAL)
@pytest.mark.parametrize("combine", ["set", "add"])
@pytest.mark.parametrize("threads", [1, 2])
def test_legal_schedules_give_what_the_order_says(schedule: str, combine: str, threads: int) -> None:
    rng = np.random.default_rng(3)
    given = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    where = rng.integers(0, TARGETS, ROWS)
    wanted = np.zeros((TARGETS, COLUMNS), np.float32)
    for row, place in zip(given, where, strict=True):
        wanted[place] = row if combine == "set" else wanted[place] + row
    measurer = HostMeasurer(KernelCompiler(Target.host(), (), use_cache=False))
    kernel = measurer.compile(
        parse_region(scatter(combine=combine)), parse_schedule(f"out0: {schedule}"), 10**6
    )
    result = np.zeros(TARGETS * COLUMNS, np.float32)
    kernel.run([given.reshape(-1), where, result], [result], {}, threads)
    assert result.tolist() == wanted.reshape(-1).tolist()


@pytest.mark.parametrize("schedule", ILLEGAL)
def test_an_order_that_changes_is_refused(schedule: str) -> None:
    with pytest.raises(ScheduleError, match=ILLEGAL[schedule]):
        check_order(parse_region(scatter()), parse_schedule(f"out0: {schedule}"))


def test_columns_that_may_meet_are_no_columns() -> None:
    """Rows that begin anywhere overlap: one's second element is another one's first."""
    whole, shifted = parse_region(scatter()), parse_region(scatter(multiple=COLUMNS - 1))
    assert columns_of(whole, whole.outputs[0]) == {"i1"}
    assert not columns_of(shifted, shifted.outputs[0])
    for schedule, message in {
        "i1:* i0:*": "run in that order",
        "i0:* i1:* i1:2:tile i1:16:lane": "in registers",
        "i0:* i1:*:parallel": "parallel",
    }.items():
        with pytest.raises(ScheduleError, match=message):
            check_order(shifted, parse_schedule(f"out0: {schedule}"))


def test_the_search_proposes_vectors_and_threads_for_columns() -> None:
    region = parse_region(scatter())
    found = [
        str(c.schedule)
        for c, _ in legal_candidates(region, Machine(16, 32, threads=2), sample_sizes((), {}, ()))
    ]
    assert any("i1:16:lane" in text and "parallel" not in text for text in found)
    assert any("i1:*:parallel i0:*" in text for text in found)
