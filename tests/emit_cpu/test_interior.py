"""Masks of loads: what is not asked where it holds throughout changes no value, whatever the sizes and the schedule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dialects.kernel.region_text import parse_region
from luminal.dialects.kernel.schedule import parse_schedule
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target
from luminal.passes.place import place
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler
from tests.emit_cpu.kernels import TARGETS

HOST = Target.host()
MEASURER = HostMeasurer(KernelCompiler(HOST, ("contract",), use_cache=False))
OF_AVX2 = HostMeasurer(KernelCompiler(Target.avx2(), ("contract",), use_cache=False))
CONVOLUTION = """\
index c = {channels}
index y = {height}
index x = {width}
index u = {window}
index v = {window}
argument 0 = f32 [{inputs}]
argument 1 = f32 [{weights}]
%0 = constant {pad:#x} : i64
%1 = index [({step})*x + v] : i64
%2 = less_than.le %0 %1 : bool
%3 = constant {right:#x} : i64
%4 = less_than.lt %1 %3 : bool
%5 = bits.and %2 %4 : bool
%6 = index [({step})*y + u] : i64
%7 = less_than.le %0 %6 : bool
%8 = bits.and %5 %7 : bool
%9 = constant {below:#x} : i64
%10 = less_than.lt %6 %9 : bool
%11 = bits.and %8 %10 : bool
%12 = load 0 [({plane})*c + ({row})*y + ({step})*x + ({given_width})*u + v + ({first})] guarded %11 : f32
%13 = load 1 [({area})*c + ({window})*u + v] : f32
%14 = mul %12 %13 : f32
%15 = reduce.sum [u v] %14 : f32
output 0 = %15 at [({out_plane})*c + ({width})*y + x] of [{outputs}] over [c y x]
"""
SCHEDULES = [
    "c:* y:* x:* u:* v:* x:16:lane",
    "c:*:parallel y:* x:* u:* v:3:unroll x:2:tile x:16:lane",
    "c:*:parallel y:* x:*:masked u:* v:* x:16:lane",
    "c:* y:* x:* u:* v:* x:4:tile",
    "y:* x:* c:* u:* v:* x:7:tile c:16:lane",
    "c:* y:* x:* u:* v:* y:3:tile x:16:lane",
]


def convolved(
    height: int,
    width: int,
    window: int,
    pad: int,
    step: int,
    schedule: str,
    measurer: HostMeasurer = MEASURER,
) -> tuple[str, float]:
    """A depthwise convolution as a region's text, and how far its kernel is from torch at the most."""
    channels = 3
    given = torch.randn(1, channels, height, width, generator=torch.Generator().manual_seed(height * width))
    weights = torch.randn(channels, 1, window, window, generator=torch.Generator().manual_seed(window))
    wanted = torch.nn.functional.conv2d(given, weights, stride=step, padding=pad, groups=channels)
    rows, columns = wanted.shape[2:]
    text = CONVOLUTION.format(
        channels=channels, height=rows, width=columns, window=window, pad=pad, step=step, area=window * window,
        inputs=given.numel(), weights=weights.numel(), right=pad + width, below=pad + height,
        plane=height * width, row=step * width, given_width=width, first=-pad * (width + 1),
        out_plane=rows * columns, outputs=wanted.numel(),
    )  # fmt: skip
    kernel = measurer.compile(parse_region(text), parse_schedule(f"out0: {schedule}"), 1000)
    result = np.full(wanted.numel(), np.nan, np.float32)
    kernel.run([given.numpy().reshape(-1), weights.numpy().reshape(-1)], [result], {}, 1)
    difference = np.abs(result - wanted.numpy().reshape(-1))
    return text, float(difference.max())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [(14, 14), (40, 39), (5, 70)])
def test_a_padded_convolution_is_torchs(schedule: str, size: tuple[int, int]) -> None:
    assert convolved(*size, window=3, pad=1, step=1, schedule=schedule)[1] < 1e-5


@pytest.mark.skipif(Target.avx2() not in TARGETS, reason="the processor has no AVX2")
@pytest.mark.parametrize("width", [1, 4, 9])
@pytest.mark.parametrize("pad", [1, 4, 7])
def test_a_register_of_which_nothing_is_read_is_zero(width: int, pad: int) -> None:
    """Vectors of two registers, which LLVM cuts; the mask of the second one is false in every lane."""
    assert convolved(1, width, 1, pad, 1, SCHEDULES[0], OF_AVX2)[1] < 1e-5


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.integers(1, 24), st.integers(1, 60), st.integers(1, 5), st.integers(0, 4), st.integers(1, 3),
    st.sampled_from(SCHEDULES),
)  # fmt: skip
def test_any_window_pad_and_step(
    height: int, width: int, window: int, pad: int, step: int, schedule: str
) -> None:
    pad = max(pad, window - min(height, width))
    assert convolved(height, width, window, pad, step, schedule)[1] < 1e-5


def test_the_inside_is_written_without_masks() -> None:
    """Rows at the rim have masks for all that they read, the others at their ends alone, and none between."""
    region = parse_region(convolved(40, 64, window=3, pad=1, step=1, schedule=SCHEDULES[0])[0])
    text = emit_function(place(region, parse_schedule(f"out0: {SCHEDULES[0]}"), "conv"), HOST).text
    body = text[text.index("@conv") :]
    assert body.count("@llvm.masked.load") == 2
    assert body.count("load <16 x float>, ptr") == 1


def test_an_index_counts_as_known_for_the_coordinates_that_cannot_leave() -> None:
    """Of four columns that are a whole image two touch the rim: the others are read without a question."""
    schedule = "c:* y:* u:* v:* x:4:tile"
    region = parse_region(convolved(4, 4, window=3, pad=1, step=1, schedule=schedule)[0])
    text = emit_function(place(region, parse_schedule(f"out0: {schedule}"), "conv"), HOST).text
    asked = [line for line in text.splitlines() if "= select i1" in line and "@luminal_zeros" in line]
    assert len(asked) == 2 + 4  # rows inside, and at the rim


JOINED = """\
index i = {rows}
index j = {width}
argument 0 = f32 [{first}]
argument 1 = f32 [{second}]
%0 = index [j] : i64
%1 = constant {border:#x} : i64
%2 = less_than.lt %0 %1 : bool
%3 = load 0 [({border})*i + j] guarded %2 : f32
%4 = less_than.le %1 %0 : bool
%5 = load 1 [({rest})*i + j + ({back})] guarded %4 : f32
%6 = select %2 %3 %5 : f32
output 0 = %6 at [({width})*i + j] of [{elements}] over [i j]
"""


def joined(border: int, rest: int) -> str:
    """Two matrices of three rows side by side."""
    rows, width = 3, border + rest
    sizes = {"first": rows * border, "second": rows * rest, "elements": rows * width}
    return JOINED.format(rows=rows, width=width, border=border, rest=rest, back=-border, **sizes)


@pytest.mark.parametrize("borders", [(128, 64), (64, 128), (100, 77), (5, 3), (70, 1), (1, 70)])
@pytest.mark.parametrize(
    "schedule", ["j:* j:4:tile j:16:lane", "j:*:masked j:16:lane", "j:* j:4 j:8:lane", "j:* j:2:unroll"]
)
def test_matrices_side_by_side_are_numpys(borders: tuple[int, int], schedule: str) -> None:
    first, second = (np.arange(3.0 * width, dtype=np.float32) + 1 for width in borders)
    found = np.zeros(first.size + second.size, np.float32)
    kernel = MEASURER.compile(parse_region(joined(*borders)), parse_schedule(f"out0: i:* {schedule}"), 1000)
    kernel.run([first, second], [found], {}, 1)
    assert found.tolist() == np.hstack([first.reshape(3, -1), second.reshape(3, -1)]).reshape(-1).tolist()


def test_a_loop_is_cut_where_one_matrix_ends_and_the_other_begins() -> None:
    """Two loops of plain vectors; only a vector across the border, of which there is none in the first, has a mask."""
    texts: list[str] = []
    for borders in ((128, 64), (100, 92)):
        placed = place(parse_region(joined(*borders)), parse_schedule("out0: i:* j:* j:16:lane"), "joined")
        texts.append(emit_function(placed, HOST).text)
    assert ["llvm.masked.load" in text for text in texts] == [False, True]
    assert [text.count("store <16 x float>") for text in texts] == [2, 3]
