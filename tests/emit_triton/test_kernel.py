"""What an emitted kernel says of itself: parameters, grid, types of its integers; and how its text reads."""

from __future__ import annotations

from luminal.dialects.kernel.schedule import parse_schedule
from luminal.dim import dim
from luminal.dtype import f32, i32, i64
from luminal.emit_triton.emit import emit_function
from luminal.emit_triton.kernel import Options
from luminal.passes.place import place
from tests.emit_triton.support import check, emit, numbers
from tests.kernel import regions

SMALL, LARGE = dim("m", 0, 4096), dim("n")
SCHEDULE = "out0: i:*:parallel j:*:parallel k:* i:16:block k:16:block j:16:block"


def test_parameters_and_grid() -> None:
    (kernel,) = emit(regions.matmul(SMALL, LARGE, 64), SCHEDULE)
    assert [p.name for p in kernel.parameters] == ["arg0", "arg1", "arg2", "out0", "m", "n"]
    assert [p.dtype for p in kernel.parameters] == [f32] * 4 + [i32, i64]
    assert [p.is_pointer for p in kernel.parameters] == [True] * 4 + [False] * 2
    assert [p.divisor for p in kernel.parameters] == [16] * 4 + [1] * 2
    assert [str(p.elements) for p in kernel.parameters] == ["64*m", "64*n", "n", "m*n", "None", "None"]
    assert kernel.grid.evaluate({"m": 33, "n": 100}) == 3 * 7


def test_arguments_are_aligned_as_their_owner_says() -> None:
    function = place(regions.matmul(SMALL, LARGE, 64), parse_schedule(SCHEDULE), "kernel")
    (kernel,) = emit_function(function, Options(warps=8), alignment=4)
    assert [p.divisor for p in kernel.parameters[:4]] == [4, 4, 4, 16]
    assert kernel.options.warps == 8


def test_integers_have_32_bits_where_that_is_enough() -> None:
    region = regions.matmul(SMALL, 512, 64)
    (kernel,) = emit(region, SCHEDULE)
    assert "int64" not in kernel.source
    (kernel,) = emit(regions.matmul(LARGE, 512, 64), SCHEDULE)
    assert "i = tl.cast(program, tl.int64)" in kernel.source


def test_a_parallel_loop_is_the_grid_and_the_last_one_fastest() -> None:
    kernels = check(
        regions.matmul(SMALL, 40, 24),
        SCHEDULE,
        [numbers(33 * 24), numbers(24 * 40, seed=1), numbers(40, seed=2)],
        {"m": 33},
    )
    assert "j = program % 3\n    program = program // 3\n    i = program\n" in kernels[0].source


def test_unrolled_loops_are_static() -> None:
    (kernel,) = emit(regions.softmax(SMALL, 64), "out0: i:*:parallel j:4:unroll j:16:block")
    assert "for j in tl.static_range(0, 4):" in kernel.source
