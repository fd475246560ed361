"""Mistakes that an emitter could make, planted: the interpreter of the tests finds each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from luminal.dialects.kernel.placed import LoadOp, StoreOp
from luminal.dialects.kernel.region_interpreter import evaluate
from luminal.dialects.kernel.terms import Region
from luminal.dim import dim
from luminal.dtype import bf16, f32
from luminal.emit_triton import writes
from luminal.emit_triton.blocks import BlockWriter
from luminal.emit_triton.text import Value
from luminal.emit_triton.writes import Meeting
from luminal.passes.placement_folds import FoldPlacement
from tests.emit_triton.interpreter import BoundsError, JITFunction, Memory, RaceError, base, interpreting, tl
from tests.emit_triton.support import Array, check, compare, emit, numbers, run
from tests.emit_triton.test_products import GEMM, gemm
from tests.emit_triton.test_triton_memory import ATOMIC, given, scattered
from tests.kernel import regions

M, N, S = dim("m"), dim("n"), dim("s")
ROWS = "out0: i:*:parallel j:*:parallel i:4:block j:8:block"


def product() -> tuple[Region, list[Array], dict[str, int]]:
    b = regions.Builder()
    value = b.apply("mul", b.read(0, {"i": N, "j": 1}), b.read(1, {"j": 1}))
    region = b.region({"i": M, "j": N}, [M * N, N], [(value, {"i": N, "j": 1})])
    return region, [numbers(7 * 9), numbers(9, seed=1)], {"m": 7, "n": 9}


def run_edited(
    region: Region, schedule: str, inputs: list[Array], dims: dict[str, int], old: str, new: str
) -> None:
    """Run text in which a piece is replaced, and compare."""
    kernels = emit(region, schedule)
    assert any(old in kernel.source for kernel in kernels), kernels[0].source
    edited = [replace(kernel, source=kernel.source.replace(old, new)) for kernel in kernels]
    compare(run(region, edited, inputs, dims), evaluate(region, inputs, dims), 1e-5)


def test_the_unchanged_text_is_right() -> None:
    region, inputs, dims = product()
    run_edited(region, ROWS, inputs, dims, "tl.load", "tl.load")


def unmasked(kind: type) -> Callable[[BlockWriter, LoadOp | StoreOp], Value | None]:
    right = BlockWriter._mask

    def mask(self: BlockWriter, op: LoadOp | StoreOp) -> Value | None:
        return None if isinstance(op, kind) else right(self, op)

    return mask


@pytest.mark.parametrize("kind", [LoadOp, StoreOp])
def test_a_missing_mask(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockWriter, "_mask", unmasked(kind))
    with pytest.raises((BoundsError, RaceError)):
        check(product()[0], ROWS, *product()[1:])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i_range[:, None] * n", "i_range[:, None] * (n + 1)"),
        ("i * (n * 4)", "i * (n * 3)"),
        ("j * 8 + j_range) < n", "j * 8 + j_range) <= n"),
        ("j * 8 + j_range) < n", "j * 8 + j_range) < n - 1"),
        ("arg1 + (j * 8", "arg1 + (j * 8 + 1"),
    ],
)
def test_a_stride_or_a_bound_that_is_off_by_one(old: str, new: str) -> None:
    region, inputs, dims = product()
    with pytest.raises(AssertionError):
        run_edited(region, ROWS, inputs, dims, old, new)


def test_two_programs_that_write_one_element() -> None:
    region, inputs, dims = product()
    with pytest.raises(RaceError, match="which another one has touched"):
        run_edited(region, ROWS, inputs, dims, "tl.cast(program, tl", "tl.cast(program // 2, tl")


def test_a_program_that_reads_what_another_one_writes() -> None:
    """A term kept for a second kernel, both in one."""
    region = regions.softmax(8, 16)
    largest = next(n for n, t in enumerate(region.terms()) if t.op == "reduce")
    kept = f"keep %{largest} as i:* at kernel: i:*:parallel i:4:block j:16:block"
    first, second = emit(region, f"out0: i:*:parallel i:4:block j:16:block; {kept}")
    body = second.source.partition("work0):\n")[2]
    other = body.replace("work0 + (i * 4", "work0 + ((i + 1) % 2 * 4")
    assert other != body
    joined = replace(first, source=second.source + first.source + other)
    with pytest.raises(RaceError, match="which another one has touched"):
        run(region, [joined], [numbers(128)], {})


def test_atomics_that_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_meeting", lambda op, reassociates: Meeting.NEVER)
    for schedule in ATOMIC:
        with pytest.raises(RaceError):
            check(scattered(f32, "add"), schedule, given(f32), {"m": 6})


def test_what_is_masked_off_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maximum of a cut row of negative numbers, and of its zeros beyond the edge."""
    right = FoldPlacement._reduce_blocks

    def careless(
        self: FoldPlacement, reduction: object, indices: object, values: object, mask: object
    ) -> object:
        return right(self, reduction, indices, values, None)  # type: ignore[arg-type]

    monkeypatch.setattr(FoldPlacement, "_reduce_blocks", careless)
    b = regions.Builder()
    region = b.region(
        {"i": 4, "j": N}, [N * 4], [(b.total(b.read(0, {"i": N, "j": 1}), "j", monoid="max"), {"i": 1})]
    )
    with pytest.raises(AssertionError, match="Not equal"):
        check(region, "out0: i:*:parallel j:* j:8:block", [-np.abs(numbers(36))], {"n": 9})


def test_nan_that_a_maximum_ignores() -> None:
    b = regions.Builder()
    largest = b.total(b.read(0, {"i": 16, "j": 1}), "j", monoid="max")
    region = b.region({"i": 4, "j": 16}, [64], [(largest, {"i": 1})])
    values = numbers(64)
    values[20] = np.nan
    schedule = "out0: i:*:parallel i:4:block j:16:block"
    with pytest.raises(AssertionError, match="nan location"):
        run_edited(region, schedule, [values], {}, ", propagate_nan=tl.PropagateNan.ALL", "")


def test_the_loop_of_a_product_that_stops_early() -> None:
    inputs = [numbers(32 * 40), numbers(40 * 32, seed=1), numbers(32, seed=2)]
    with pytest.raises(AssertionError, match="Not equal"):
        run_edited(gemm(32, 32, 40, f32), GEMM, inputs, {}, "for k in range(0, 3)", "for k in range(0, 2)")


def test_operands_of_two_dtypes() -> None:
    inputs = [numbers(1024, bf16), numbers(1024, bf16, 1), numbers(32, bf16, 2)]
    with pytest.raises(Exception, match="same dtype"):
        run_edited(
            gemm(32, 32, 32, bf16),
            GEMM,
            inputs,
            {},
            "tl.dot(arg0_block,",
            "tl.dot(arg0_block.to(tl.float32),",
        )


def test_nothing_is_left_of_the_interpreter() -> None:
    before = [tl.load, tl.reduce, tl.dtype.to_ir, JITFunction.__call__, base.interpreter_builder]
    region, inputs, dims = product()
    check(region, ROWS, inputs, dims)
    with pytest.raises(ZeroDivisionError), interpreting(Memory([])):
        raise ZeroDivisionError
    assert before == [tl.load, tl.reduce, tl.dtype.to_ir, JITFunction.__call__, base.interpreter_builder]
