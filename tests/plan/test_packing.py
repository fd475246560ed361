"""Packed layouts hold what the kernel expects, and are shared, kept and thrown away as promised."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dialects.kernel.schedule import Buffer, parse_schedule
from luminal.dialects.kernel.terms import Affine, Argument, Output, Region, TermTable
from luminal.dim import as_dim
from luminal.dtype import f32
from luminal.errors import ScheduleError, UnsetInputError
from luminal.passes.packed_loads import PackedLoad, packed_loads
from luminal.passes.place import place
from luminal.plan.assemble import interpreted_kernel
from luminal.plan.constants import Constant, invalidate, packed_array
from luminal.plan.packing import pack, packed_elements, packing_of
from luminal.plan.plan import Storage
from luminal.search.generate import Generator
from luminal.search.machine import Machine
from luminal.search.shapes import Shapes
from tests.kernel import regions
from tests.plan.helpers import D0, S, executable, graph_of, step, value

ROWS, COLUMNS = 5, 7


def product_region(constant: bool = True) -> Region:
    """out[i] = sum over k of a[i, k] * w[k] where w is read backwards from a constant."""
    table = TermTable()
    a = table.read(0, Affine.of({"i": COLUMNS, "k": 1}), f32)
    w = table.read(1, Affine.of({"k": 2}, 1), f32)
    total = table.reduce("sum", ["k"], (table.apply("mul", (a, w), None, f32),))
    return Region(
        table,
        {"i": D0, "k": as_dim(COLUMNS)},
        [Argument(f32, D0 * COLUMNS), Argument(f32, as_dim(2 * COLUMNS), constant)],
        [Output(total, D0, Affine.of({"i": 1}), indices=frozenset({"i"}))],
    )


SCHEDULE = parse_schedule("out0: i:* k:*:loop k:4; keep %1 packed k:* k:4 at kernel: k:* k:4")


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.data())
def test_digits_place_every_element_and_pad_with_zeros(data: st.DataObject) -> None:
    sizes = {"i": data.draw(st.integers(1, 9)), "j": data.draw(st.integers(1, 9))}
    strides = {"i": data.draw(st.sampled_from([1, 9, 20])), "j": data.draw(st.sampled_from([1, 10, 3]))}
    offset = data.draw(st.integers(0, 3))
    digits = [(name, data.draw(st.sampled_from([2, 3, 4]))) for name in data.draw(st.permutations("iijj"))]
    outermost: set[str] = set()
    open_digits: list[tuple[str, int | None]] = []
    for name, extent in digits:
        open_digits.append((name, extent if name in outermost else None))
        outermost.add(name)
    table = TermTable()
    load = table.read(0, Affine.of(strides, offset), f32)
    total = offset + sum((sizes[n] - 1) * strides[n] for n in sizes) + 1
    extents = {name: as_dim(size) for name, size in sizes.items()}
    output = Output(load, as_dim(81), Affine.of({"i": 9, "j": 1}), indices=frozenset("ij"))
    region = Region(table, extents, [Argument(f32, as_dim(total), True)], [output])
    packing = packing_of(region, PackedLoad(Buffer(tuple(open_digits)), load), Storage("input", 0), {})
    source = np.arange(1, total + 1, dtype=np.uint32)
    result = np.full(packed_elements(packing), 77, np.uint32)
    pack(source, packing, result)
    expected = np.zeros([extent for _, extent, _, _ in packing.digits], np.uint32)
    for corner in np.ndindex(*expected.shape):
        index = {"i": 0, "j": 0}
        for digit, (name, _, weight, _) in zip(corner, packing.digits, strict=True):
            index[name] += digit * weight
        if all(index[name] < sizes[name] for name in index):
            expected[corner] = source[offset + sum(index[n] * strides[n] for n in index)]
    assert np.array_equal(result.reshape(expected.shape), expected)


def graph(input_kind: str = "constant") -> Any:
    values = [value(0, "input", S * COLUMNS, 0), value(1, input_kind, as_dim(2 * COLUMNS), 1)]
    values += [value(2, "output", S, 0)]
    return graph_of(values, [step(product_region(), "product", (0, 1), (2,))], (2,))


def test_a_kernel_reads_the_packed_constant() -> None:
    run = executable(graph(), {"product": SCHEDULE})
    assert "packed 0: input 1 as f32 k:2 k:4" in str(run.plan)
    a = np.arange(3 * COLUMNS, dtype=np.float32)
    w = np.arange(2 * COLUMNS, dtype=np.float32)
    expected = a.reshape(3, COLUMNS) @ w[1::2]
    assert np.array_equal(run.run([a, w], {"s": 3})[0], expected)
    assert run.stats["packed_bytes"] == 8 * 4
    # constants are laid out once: a change is not seen until it is told
    w += 1
    assert np.array_equal(run.run([a, w], {"s": 3})[0], expected)
    invalidate()
    assert np.array_equal(run.run([a, w], {"s": 3})[0], a.reshape(3, COLUMNS) @ w[1::2])
    other = np.ones_like(w)
    assert np.array_equal(run.run([a, other], {"s": 3})[0], a.reshape(3, COLUMNS) @ other[1::2])


def test_a_reference_to_a_packed_constant_has_the_padding_of_its_layout() -> None:
    """A panel of 8 columns for a matrix of 4: the kernel reads all 8 of each row, unguarded."""
    region = regions.matmul(4, 4, 4)
    a, b, bias = region.arguments
    region = replace(region, arguments=[a, replace(b, constant=True), bias])
    number = region.terms().index(next(t for t in region.terms() if t.op == "load" and t.load.argument == 1))
    schedule = parse_schedule(
        f"out0: i:*:parallel j:* k:* i:8:tile j:8:lane; keep %{number} packed j:* k:* j:8 at kernel: ."
    )
    kernel = interpreted_kernel(region, schedule, "padded")
    assert [elements.constant for _, elements in kernel.references] == [16, 32, 4, 16]
    left, right = (np.arange(16, dtype=np.float32).reshape(4, 4) + n for n in range(2))
    panel, result = np.zeros((4, 8), np.float32), np.zeros(16, np.float32)
    panel[:, :4] = right
    kernel.run([left.ravel(), panel.ravel(), np.zeros(4, np.float32), result], {})
    assert np.array_equal(result.reshape(4, 4), left @ right)


def test_constants_must_be_bound() -> None:
    run = executable(graph(), {"product": SCHEDULE})
    with pytest.raises(UnsetInputError, match=r"\[1\] were never bound"):
        run.run_pointers([0], [0], [0])
    with pytest.raises(UnsetInputError, match=r"\[1\] have no data"):
        run.bind_constants({})
    assert run.call_inputs == (0,)


def test_layouts_of_one_parameter_are_shared_while_somebody_holds_them() -> None:
    run = executable(graph(), {"product": SCHEDULE})
    packing = run.plan.packings[0]
    owner = np.arange(2 * COLUMNS, dtype=np.float32)
    constant = Constant(owner.ctypes.data, owner)
    first = packed_array(constant, owner.view(np.uint32), packing)
    assert packed_array(constant, owner.view(np.uint32), packing) is first
    changed = packed_array(Constant(owner.ctypes.data, owner, version=1), owner.view(np.uint32), packing)
    assert changed is not first
    address = id(first)
    del first
    gc.collect()
    again = packed_array(constant, owner.view(np.uint32), packing)
    assert np.array_equal(again, changed)
    assert address is not None


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("out0: i:* k:*; keep %2 packed k:* at kernel: k:*", "no load of a constant"),
        ("out0: i:* k:*; keep %0 packed k:* i:4 at kernel: k:*", "no load of a constant"),
    ],
)
def test_what_cannot_be_packed(schedule: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        packed_loads(product_region(), parse_schedule(schedule))


def square_region() -> Region:
    """x @ x, of a constant."""
    table = TermTable()
    left, right = (table.read(0, Affine.of(strides), f32) for strides in ({"i": 8, "k": 1}, {"k": 8, "j": 1}))
    total = table.reduce("sum", ["k"], (table.apply("mul", (left, right), None, f32),))
    return Region(
        table,
        dict.fromkeys("ijk", as_dim(8)),
        [Argument(f32, as_dim(64), constant=True)],
        [Output(total, as_dim(64), Affine.of({"i": 8, "j": 1}), indices=frozenset("ij"))],
    )


def test_a_constant_that_is_read_in_two_ways_is_not_packed() -> None:
    """The other factor of x @ x would be read from the packed layout."""
    region = square_region()
    schedule = parse_schedule("out0: i:* j:* k:*; keep %1 packed k:* j:* at kernel: .")
    with pytest.raises(ScheduleError, match="read in two ways"):
        place(region, schedule, "kernel")
    found = Generator(region, Machine(4, 16), Shapes(region, {})).candidates()
    assert any(candidate.kind == "contraction" for candidate in found)
    assert not any("packed" in str(candidate.schedule) for candidate in found)


def test_a_layout_lacks_an_index_or_has_a_symbolic_size() -> None:
    region = product_region()
    load = region.terms()[0]
    with pytest.raises(ScheduleError, match="lacks the indices"):
        packing_of(region, PackedLoad(Buffer((("k", None),)), load), Storage("input", 0), {})
    with pytest.raises(ScheduleError, match="not constant"):
        packing_of(region, PackedLoad(Buffer((("i", None), ("k", None))), load), Storage("input", 0), {})
