"""kernel.region: regions become IR, print, parse, verify and come back unchanged; placing works on parsed text."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.graph_op import LUMINAL
from luminal.dialects.kernel.dialect import KERNEL
from luminal.dialects.kernel.placed_loops import FunctionOp
from luminal.dialects.kernel.region_ops import RegionOp, region_of, region_operation
from luminal.dialects.kernel.region_text import region_text
from luminal.errors import ScheduleError
from luminal.passes.kernel_passes import place_regions
from luminal.search.generate import Generator
from luminal.search.machine import Machine
from luminal.search.shapes import Shapes
from tests.kernel.test_place import CASES


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, KERNEL, LUMINAL):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


@pytest.mark.parametrize("name", CASES)
def test_round_trip_and_place(name: str) -> None:
    region, dims = CASES[name]
    schedule = Generator(region, Machine(4, 16), Shapes(region, dims)).candidates()[-2].schedule
    module = ModuleOp([region_operation(region, "kernel", schedule)])
    module.verify()
    again = parse(str(module))
    again.verify()
    assert str(again) == str(module)
    op = again.body.block.first_op
    assert isinstance(op, RegionOp)
    assert region_text(region_of(op)) == region_text(region)
    place_regions(again)
    again.verify()
    assert isinstance(again.body.block.first_op, FunctionOp)


def test_a_type_that_lies_is_refused() -> None:
    region, _ = CASES["softmax"]
    text = str(ModuleOp([region_operation(region, "kernel")])).replace('"f32 [i]"', '"f32 [j]"')
    with pytest.raises(VerifyException, match="its type is"):
        parse(text).verify()


def test_a_term_that_is_none_is_refused() -> None:
    region, _ = CASES["softmax"]
    text = str(ModuleOp([region_operation(region, "kernel")])).replace("reduce.max [j]", "reduced.max [j]")
    with pytest.raises(VerifyException, match="no line of a region"):
        parse(text).verify()


def test_placing_needs_a_schedule() -> None:
    region, _ = CASES["softmax"]
    with pytest.raises(ScheduleError, match="no schedule"):
        place_regions(ModuleOp([region_operation(region, "kernel")]))
