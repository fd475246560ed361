"""Panels of images and of their windows, kept while the rows pass by: which are suggested, and that they are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import Stage, parse_factors
from luminal.dialects.kernel.terms import Region
from luminal.emit_cpu.jit import Target
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.candidates import legal_candidates
from luminal.search.generate import Candidate
from luminal.search.kept_panels import across, written_out
from luminal.search.machine import Machine
from luminal.search.samples import Samples
from luminal.search.shapes import Contraction, Shapes, find_contraction
from luminal.search.steps import ENTERING_SECONDS, WALKING_SECONDS, Steps
from luminal.search.streams import Streams
from luminal.search.tiling import Tiling, Way
from luminal.search.trial import Trials

HOST = Machine(8, 16, l1=1024)
LICENCES = ("contract", "reassociate")
WINDOWS = """\
index i0 = 12
index i1 = {results}
index i2 = {results}
index r0 = 5
index r1 = 3
index r2 = 3
argument 0 = f32 [500]
argument 1 = f32 [540] constant
%0 = constant 0x1 : i64
%1 = index [({stride})*i2 + r2] : i64
%2 = less_than.le %0 %1 : bool
%3 = constant 0xb : i64
%4 = less_than.lt %1 %3 : bool
%5 = bits.and %2 %4 : bool
%6 = index [({stride})*i1 + r1] : i64
%7 = less_than.le %0 %6 : bool
%8 = bits.and %5 %7 : bool
%9 = less_than.lt %6 %3 : bool
%10 = bits.and %8 %9 : bool
%11 = load 0 [({row})*i1 + ({stride})*i2 + (100)*r0 + (10)*r1 + r2 + (-11)] guarded %10 : f32
%12 = load 1 [(45)*i0 + (9)*r0 + (3)*r1 + r2] : f32
%13 = mul %11 %12 : f32
%14 = reduce.sum [r0 r1 r2] %13 : f32
output 0 = %14 at [({image})*i0 + ({results})*i1 + i2] of [{elements}] over [i0 i1 i2]
"""


def windows(stride: int = 1) -> Region:
    """A convolution of five images of 10 x 10, with a border of zeros, by windows of 3 x 3."""
    size = 10 // stride
    text = WINDOWS.format(
        results=size, stride=stride, row=10 * stride, image=size * size, elements=12 * size * size
    )
    return parse_region(text.replace("(1)*", ""))


def product(rows: int, columns: int, addends: int, constant: int = 1) -> Region:
    """w @ x, of images whose pixels are one index."""
    arguments = [f"f32 [{rows * addends}]", f"f32 [{addends * columns}]"]
    region = parse_region(f"""\
index i = {rows}
index j = {columns}
index k = {addends}
argument 0 = {arguments[0]}
argument 1 = {arguments[1]}
%0 = load 0 [({addends})*i + k] : f32
%1 = load 1 [j + ({columns})*k] : f32
%2 = mul %0 %1 : f32
%3 = reduce.sum [k] %2 : f32
output 0 = %3 at [({columns})*i + j] of [{rows * columns}] over [i j]
""")
    return replace(
        region, arguments=[replace(a, constant=n < constant) for n, a in enumerate(region.arguments)]
    )


def with_panels(region: Region, machine: Machine = HOST) -> list[tuple[Candidate, Stage]]:
    """The candidates that keep a panel where it is used, each with the stage that does."""
    return [
        (candidate, stage)
        for candidate, _ in legal_candidates(region, machine, Samples({}))
        for stage in candidate.schedule.kept
        if stage.at == "panel"
    ]


@pytest.mark.parametrize(
    "region", [windows(), windows(stride=2), product(12, 50, 9)], ids=["1", "2", "product"]
)
def test_kept_panels_are_right(region: Region) -> None:
    found = with_panels(region)
    alike = {(len(c.schedule.kept), tuple(f.index for f in stage.factors)): c for c, stage in found}
    assert alike
    measurer = HostMeasurer(KernelCompiler(Target.host(), LICENCES, use_cache=False))
    trials = Trials(region, {}, 1, measurer.place)
    for candidate in alike.values():
        run = measurer.compile(region, candidate.schedule, candidate.cost)
        wrong = trials.check(0, region, candidate.schedule, False, run)
        assert wrong is None, f"{candidate.schedule}: {wrong}"


def test_windows_are_kept_for_rows_of_an_image_side_by_side_and_written_out() -> None:
    texts = [str(candidate.schedule) for candidate, _ in with_panels(windows())]
    panel = "keep %11 as r0:* r1:* r2:* i1:3 i2:8 from panel at panel: r0:* r1:3:unroll r2:3:unroll i1:3:tile i2:8:lane"
    assert any(panel in text and "keep %12 packed i0:* r0:* r1:* r2:* i0:4" in text for text in texts)


def test_rows_that_are_no_parameters_are_read_as_they_lie() -> None:
    for candidate, _ in with_panels(product(12, 50, 9, constant=0)):
        assert "packed" not in str(candidate.schedule)


def test_parameters_are_laid_out_by_the_host_and_not_kept_for_panels() -> None:
    assert with_panels(product(12, 50, 9))
    assert not with_panels(product(12, 50, 9, constant=2))


def test_no_loop_inside_the_one_that_keeps_a_panel_is_shared_between_threads() -> None:
    found = with_panels(windows(), replace(HOST, threads=4))
    assert found
    for candidate, _ in found:
        (root,) = candidate.schedule.roots
        names = [factor.name for factor in root.factors]
        inside = root.factors[names.index("panel") + 1 :]
        assert all(factor.role != "parallel" for factor in inside)


def test_vectors_lie_along_another_index_only_where_they_do_not_fill_their_own() -> None:
    contraction, shapes = contraction_of(windows())
    assert across(shapes, contraction, "i2", 3, 8) == ["i1"]
    assert across(shapes, contraction, "i2", 2, 4) == ["i2", "i1"]
    assert across(shapes, contraction, "i2", 1, 8) == ["i2"]
    assert across(shapes, contraction, "i2", 5, 2) == ["i2"]


def test_as_many_loops_are_written_out_as_are_short_together() -> None:
    assert written_out(windows(), ["r0", "r1", "r2"]) == ["r1", "r2"]
    assert written_out(product(12, 50, 90), ["k"]) == []


def contraction_of(region: Region) -> tuple[Contraction, Shapes]:
    """With the parameters as rows."""
    (output,) = region.outputs
    found = find_contraction((output.term,), list(output.indices), frozenset(), frozenset())
    assert found is not None
    is_first = region.arguments[found.left.load.argument].constant
    return found if is_first else found.swapped(), Shapes(region, {})


def test_loops_are_entered_as_often_as_those_around_them_turn() -> None:
    contraction, shapes = contraction_of(windows())
    tiling = Tiling("i2", "i0", 1, 4, 1, pack_rows=True, swap=True, across="i2", kept=True)
    tiles = 3 * 10 * 2
    for text, entered in (("r0:* r1:* r2:*", 15), ("r0:* r1:3:unroll r2:3:unroll", 0)):
        seconds = Steps(shapes, contraction, HOST, parse_factors(text)).seconds(
            tiling, tiling.covered(HOST.lanes)
        )
        assert seconds == pytest.approx(ENTERING_SECONDS * tiles * entered)


@pytest.mark.parametrize(("columns", "far"), [(500, 0), (512, 64)])
def test_steps_from_page_to_page_are_waited_for(columns: int, far: int) -> None:
    contraction, shapes = contraction_of(product(8, columns, 64))
    kept = Tiling("j", "i", 2, 4, 1, pack_rows=True, swap=True, across="j", kept=True)
    panels = -(-columns // 16)
    over = parse_factors("k:*")
    once = Steps(shapes, contraction, HOST, over).seconds(kept, kept.covered(HOST.lanes))
    assert once == pytest.approx(WALKING_SECONDS * far * panels)
    small = replace(HOST, l2=1024)
    for tiling, passes in ((kept, 1), (replace(kept, kept=False, swap=False), 2)):
        again = Steps(shapes, contraction, small, over).seconds(tiling, tiling.covered(small.lanes))
        assert again == pytest.approx(WALKING_SECONDS * far * panels * passes)


def test_rows_that_no_cache_holds_come_from_memory_for_every_panel() -> None:
    region = product(512, 64, 1024)
    contraction, shapes = contraction_of(region)
    tiling = Tiling("j", "i", 2, 6, 1, pack_rows=True, swap=True, across="j", kept=True)
    way, size = Way(contraction.left, contraction.right), 512 * 1024 * 4
    small = replace(HOST, l3=size)
    assert Streams(shapes, contraction, HOST, way).row_seconds(tiling) == 0.0
    again = Streams(shapes, contraction, small, way).row_seconds(tiling)
    assert again == pytest.approx(3 * size / small.bandwidth)
