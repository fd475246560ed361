"""Sums of products of narrow numbers: their schedules are right to the bit, packed narrow, and in groups where the
processor has an instruction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from luminal.dialects.kernel.terms import Region, postorder
from luminal.dim import dim
from luminal.dtype import bf16, f16, f32, i8, i16, i32, u8
from luminal.emit_cpu.dots import available
from luminal.emit_cpu.emit import emit_function
from luminal.emit_cpu.jit import Target, assembly
from luminal.passes.place import place
from luminal.plan.measure import HostMeasurer, host_machine
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.candidates import coarse_candidates, legal_candidates, refusal
from luminal.search.forms import forms
from luminal.search.generate import Candidate
from luminal.search.machine import Dot, Machine
from luminal.search.offset import region_with_offsets
from luminal.search.samples import Samples
from luminal.search.verify import first_mismatch, sample_output
from tests.kernel.products import blocks, fields, inputs, product

LICENCES = ("contract", "distribute", "reassociate")
ARM = Target("aarch64-unknown-linux-gnu", "generic", "+neon,+dotprod,+i8mm", 128, 32)
DOTS = (Dot(u8, i8, i32, 4), Dot(bf16, bf16, f32, 2), Dot(i16, i16, i32, 2, 2.0))
MACHINE = Machine(8, 16, dots=DOTS)
S = dim("s", min=1)
REGIONS: dict[str, tuple[Region, Mapping[str, int]]] = {
    "u8": (product(5, 40, 36, (u8, i8), i32, constant=True), {}),
    "u8 symbolic": (product(S, 40, 21, (u8, i8), i32, transposed=True), {"s": 9}),
    "i8": (product(6, 33, 64, (i8, i8), i32, transposed=True, constant=True), {}),
    "i8 vector": (product(1, 48, 64, (i8, i8), i32, constant=True), {}),
    "bf16": (product(7, 40, 66, (bf16, bf16), f32, constant=True), {}),
    "bf16 transposed": (product(S, 40, 65, (bf16, bf16), f32, transposed=True), {"s": 4}),
    "f16": (product(7, 40, 66, (f16, f16), f32, transposed=True, constant=True), {}),
    "bf16 vector": (product(1, 40, 66, (bf16, bf16), f32, transposed=True, constant=True), {}),
    "f16 vector": (product(1, 40, 66, (f16, f16), f32, transposed=True, constant=True), {}),
    "blocks": (blocks(3, 40, 4, 32), {}),
    "blocks, one row": (blocks(1, 40, 4, 32), {}),
    "blocks of nibbles, one row": (blocks(1, 40, 4, 32, nibbles=True), {}),
    "blocks of u8": (blocks(S, 32, 3, 16, u8), {"s": 5}),
    "blocks of nibbles": (blocks(2, 40, 4, 32, nibbles=True), {}),
    "fields of two bytes": (fields(2, 40, 3, 16), {}),
}


def candidates(
    region: Region, machine: Machine, dims: Mapping[str, int]
) -> Iterator[tuple[Candidate, Region]]:
    every = list(forms(region, frozenset(LICENCES)))
    return legal_candidates(region, machine, Samples(dict(dims)), every)


def first_with(
    word: str, region: Region, dims: Mapping[str, int], machine: Machine = MACHINE, form: str | None = None
) -> tuple[Candidate, Region]:
    for candidate, of in candidates(region, machine, dims):
        if word in str(candidate.schedule) and form in (None, candidate.form):
            return candidate, of
    raise AssertionError(f"no schedule with {word!r}")


@pytest.mark.parametrize("name", REGIONS)
def test_schedules_are_right(name: str) -> None:
    region, dims = REGIONS[name]
    arguments = inputs(region, dims)
    measurer = HostMeasurer(KernelCompiler(Target.host(), LICENCES, use_cache=False))
    seen: dict[object, tuple[Candidate, Region]] = {}
    for candidate, of in candidates(region, MACHINE, dims):
        grouped = "group" in str(candidate.schedule)
        kind = (candidate.form, grouped, candidate.kind, len(candidate.schedule.kept))
        seen.setdefault(kind, (candidate, of))
    assert any("group" in str(each.schedule) for each, _ in seen.values()) == (not name.startswith("f16"))
    sample = sample_output(region, 0, arguments, dims)
    assert sample is not None
    for candidate, of in seen.values():
        size = region.outputs[0].elements.evaluate(dims)
        result = np.full(size, 77).astype(region.outputs[0].dtype.numpy)
        kernel = measurer.compile(of, candidate.schedule, candidate.cost)
        kernel.run(arguments, [result], dims, 1)
        mismatch = first_mismatch(sample, result)
        assert mismatch is None, f"{candidate.form} {candidate.schedule}: {mismatch}"


def test_instructions_that_saturate_are_for_small_products() -> None:
    """Of six bits each product is small enough, of whole bytes it is not."""
    machine = Machine(8, 16, dots=(Dot(u8, i8, i32, 4, 2.5, 16383),))
    for name in ("fields of two bytes", "blocks of u8"):
        region, dims = REGIONS[name]
        found = any(":4:group" in str(each.schedule) for each, _ in candidates(region, machine, dims))
        assert found == (name == "fields of two bytes")


def test_instructions_that_saturate_are_not_offered_beside_those_that_do_not() -> None:
    region, dims = REGIONS["fields of two bytes"]
    whole, small = Dot(u8, i8, i32, 4), Dot(u8, i8, i32, 4, 2.5, 16383)
    one, both = (
        [str(each.schedule) for each, _ in candidates(region, Machine(8, 16, dots=dots), dims)]
        for dots in ((whole,), (whole, small))
    )
    assert both == one


def test_no_candidate_is_refused() -> None:
    for region, dims in REGIONS.values():
        for candidate in coarse_candidates(region, MACHINE, Samples(dict(dims))):
            assert refusal(region, candidate) is None, candidate


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("u8", "packed j:* k:* j:8 k:4"),
        ("bf16", "packed j:* k:* j:8 k:2"),
        ("f16", "packed j:* k:* j:8 "),
        ("f16 vector", "packed j:* k:* j:8 "),
        ("blocks of u8", "packed j:* b:* l:* j:8 l:4"),
        ("blocks of u8", "packed j:* b:* j:8"),
        ("blocks of nibbles", "packed j:* b:* l:* j:8 l:4"),
        ("fields of two bytes", "packed j:* b:* h:* l:* j:8 l:4"),
        ("fields of two bytes", "packed j:* b:* l:* j:8 l:4"),
    ],
)
def test_constants_are_packed_as_narrow_as_they_are(name: str, packed: str) -> None:
    region, dims = REGIONS[name]
    candidate, of = first_with(packed, region, dims)
    kept = [stage for stage in candidate.schedule.kept if packed in str(stage)]
    assert of.terms()[kept[0].targets[0].term].op == "load"


def test_loops_over_fields_of_a_byte_are_unrolled_inside_those_over_bytes() -> None:
    """So that shifts are by constants, and what is loaded for one field serves the others."""
    candidate, _ = first_with("l:4:group", *REGIONS["fields of two bytes"])
    (root,) = candidate.schedule.roots
    sums = [(factor.index, factor.role) for factor in root.factors if factor.index in "bghl"]
    assert sums[:3] == [("b", "loop"), ("g", "unroll"), ("h", "unroll")]


def test_signed_bytes_have_an_offset_whose_sums_are_known_before_the_columns() -> None:
    region, dims = REGIONS["blocks"]
    candidate, of = first_with("l:4:group", region, dims, form="offset")
    kept = [(stage.at, of.terms()[stage.targets[0].term]) for stage in candidate.schedule.kept]
    ((at, correction),) = (each for each in kept if each[1].op != "load")
    assert at is None and correction.op == "mul" and correction.free == {"i", "b"}
    assert correction.operands[0].op == "reduce"
    assert region_with_offsets(REGIONS["u8"][0]) is None


def test_sums_of_a_group_start_from_what_is_added_to_them() -> None:
    """The correction of an offset takes no instruction of its own, and no column computes it."""
    candidate, of = first_with("l:4:group", *REGIONS["blocks"], form="offset")
    assert "add" in {term.op for term in of.terms()}
    assert 'op = "add"' not in str(place(of, candidate.schedule, "kernel"))
    plain, of = first_with("lane", *REGIONS["blocks"], replace(MACHINE, dots=()), "offset")
    assert 'op = "add"' in str(place(of, plain.schedule, "kernel"))


@pytest.mark.parametrize("name", ["blocks", "blocks of nibbles"])
def test_other_processors_give_the_same(name: str) -> None:
    """Groups whose sums start from something: with the instruction of another processor, and without one."""
    region, dims = REGIONS[name]
    candidate, of = first_with("l:4:group", region, dims, replace(MACHINE, lanes=4, registers=32))
    function = place(of, candidate.schedule, "kernel", LICENCES)
    assert "usdot" in assembly(emit_function(function, ARM).text, ARM)
    if Target.host().is_arm:
        return
    candidate, of = first_with("l:4:group", region, dims)
    arguments, result = inputs(region, dims), np.zeros(region.outputs[0].elements.evaluate(dims), np.float32)
    measurer = HostMeasurer(KernelCompiler(Target.avx2(), LICENCES, use_cache=False))
    measurer.compile(of, candidate.schedule, candidate.cost).run(arguments, [result], dims, 1)
    sample = sample_output(region, 0, arguments, dims)
    assert sample is not None and first_mismatch(sample, result) is None


@pytest.mark.parametrize("name", ["blocks of nibbles", "fields of two bytes"])
def test_shifts_are_no_values_that_are_kept(name: str) -> None:
    candidate, of = first_with("l:4:group", *REGIONS[name])
    for stage in candidate.schedule.kept:
        assert any(term.op == "load" for term in postorder([of.terms()[stage.targets[0].term]]))


def test_what_a_cache_does_not_hold_is_read_once() -> None:
    """Of many rows and more columns, the loop over panels of columns is outside that over rows, or over blocks."""
    region = product(256, 8192, 2048, (u8, i8), i32, transposed=True, constant=True)
    first, _ = next(candidates(region, MACHINE, {}))
    factors = [f for f in first.schedule.roots[0].factors if f.role in ("parallel", "loop")]
    rows = math.prod(f.extent or 1 for f in factors if f.index == "i")
    assert factors[0].name == "panel" or rows >= 4


def test_a_machine_without_instructions_has_no_groups() -> None:
    for name in ("u8", "blocks", "bf16"):
        region, dims = REGIONS[name]
        found = [str(each.schedule) for each, _ in candidates(region, replace(MACHINE, dots=()), dims)]
        assert found
        assert not any("group" in schedule for schedule in found)


def test_an_instruction_is_priced_by_what_it_multiplies() -> None:
    """Four products at a time take a quarter of the time of one at a time, or less."""
    region = product(64, 256, 256, (u8, i8), i32, constant=True)
    fast, slow = (first_with("panel", region, {}, replace(MACHINE, dots=dots))[0] for dots in (DOTS, ()))
    assert "group" in str(fast.schedule)
    assert fast.estimate.computing < 0.4 * slow.estimate.computing


def test_the_machine_has_the_instructions_of_its_processor() -> None:
    target = Target.host()
    wanted = {(dot.left, dot.group) for dot in available(target) if dot.bits == target.vector_bits}
    assert {(dot.left, dot.group) for dot in host_machine(1).dots} == wanted
    assert not available(replace(target, features=""))


def test_placed_text_says_which_axis_is_a_group() -> None:
    region, dims = REGIONS["u8"]
    candidate, of = first_with("group", region, dims)
    text = str(place(of, candidate.schedule, "kernel"))
    assert "k:4*1:group" in text
