"""Regions as IR: `kernel.region` holds a region's terms as operations, and a schedule as an attribute.

    kernel.region @name { ... schedule = "out0: i:*:parallel j:*" } ({
      %0 = kernel.term "load 0 [(64)*i + j]" : !kernel.value<"f32 [i j]">
      kernel.output %0 "at [(64)*i + j] of [64*m] over [i j]"
    })

Terms are the same thing in memory; `region_operation` and `region_of` convert both ways without loss.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue, TypeAttribute
from xdsl.ir import Region as BodyRegion
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsolatedFromAbove, NoTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from luminal.dialects.kernel.placed_types import QuotedData
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.schedule import Schedule, parse_schedule
from luminal.dialects.kernel.terms import Region, Term
from luminal.errors import LuminalError


@irdl_attr_definition
class ValueType(QuotedData[str], TypeAttribute):
    """!kernel.value<"f32 [i j]">: a value for each combination of its free indices."""

    name = "kernel.value"
    read = str

    @staticmethod
    def of(term: Term) -> ValueType:
        return ValueType(f"{term.dtype} [{' '.join(sorted(term.free))}]")


@irdl_op_definition
class TermOp(IRDLOperation):
    """One term: `what` is its operation and attribute as in the printed region."""

    name = "kernel.term"
    inputs = var_operand_def(ValueType)
    what = prop_def(StringAttr)
    result = result_def(ValueType)
    traits = traits_def(Pure())
    assembly_format = "$what (`(` $inputs^ `)`)? attr-dict `:` functional-type($inputs, results)"


@irdl_op_definition
class OutputOp(IRDLOperation):
    """What is written where: the value, then the dynamic address and the guard if `where` names them."""

    name = "kernel.output"
    inputs = var_operand_def(ValueType)
    where = prop_def(StringAttr)


@irdl_op_definition
class RegionOp(IRDLOperation):
    """A region: `header` are its lines for symbols, indices, parts and arguments; `inner` numbers terms of the body."""

    name = "kernel.region"
    sym_name = prop_def(StringAttr)
    header = prop_def(ArrayAttr[StringAttr])
    inner = prop_def(ArrayAttr[IntAttr])
    schedule = opt_prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), NoTerminator())

    def verify_(self) -> None:
        """The text of the body is a region, its types are those of its terms, and its schedule parses."""
        try:
            region = region_of(self)
            if self.schedule is not None:
                parse_schedule(self.schedule.data)
        except LuminalError as error:
            raise VerifyException(f"kernel.region {self.sym_name.data}: {error}") from error
        made = [op for op in self.body.block.ops if isinstance(op, TermOp)]
        for op, term in zip(made, region.terms(), strict=True):
            if op.result.type != ValueType.of(term):
                raise VerifyException(
                    f"kernel.term {op.what.data}: its type is {ValueType.of(term)}, not {op.result.type}"
                )


def region_operation(region: Region, name: str, schedule: Schedule | None = None) -> RegionOp:
    """The region as IR."""
    header: list[Attribute] = []
    block = Block()
    values: dict[int, SSAValue] = {}
    terms = region.terms()
    for line in region_text(region).splitlines():
        kind, _, rest = line.partition(" ")
        if kind.startswith("%"):
            number = int(kind[1:])
            head, _, _ = rest.removeprefix("= ").rpartition(" : ")
            words = head.split(" ")
            operands = [values[int(word[1:])] for word in words if word.startswith("%")]
            what = " ".join(word for word in words if not word.startswith("%"))
            term = TermOp.build(
                operands=[operands],
                properties={"what": StringAttr(what)},
                result_types=[ValueType.of(terms[number])],
            )
            block.add_op(term)
            values[number] = term.result
        elif kind == "output":
            _, _, body = rest.partition(" = ")
            words = body.split(" ")
            operands = [values[int(word[1:])] for word in words if word.startswith("%")]
            where = " ".join("%" if word.startswith("%") else word for word in words)
            block.add_op(OutputOp.build(operands=[operands], properties={"where": StringAttr(where)}))
        elif kind != "inner":
            header.append(StringAttr(line))
    numbers = region.numbering()
    return RegionOp.create(
        properties={
            "sym_name": StringAttr(name),
            "header": ArrayAttr(header),
            "inner": ArrayAttr([IntAttr(numbers[term]) for term in region.inner]),
            **({"schedule": StringAttr(str(schedule))} if schedule is not None else {}),
        },
        regions=[BodyRegion(block)],
    )


def region_of(op: RegionOp) -> Region:
    """The region that an operation holds; VerifyError where its text is none."""
    lines = [line.data for line in op.header]
    numbers: dict[SSAValue, int] = {}
    outputs = 0
    for inner in op.body.block.ops:
        if isinstance(inner, TermOp):
            operands = "".join(f" %{numbers[value]}" for value in inner.inputs)
            dtype = inner.result.type.data.split(" ")[0]
            lines.append(f"%{len(numbers)} = {inner.what.data}{operands} : {dtype}")
            numbers[inner.result] = len(numbers)
        elif isinstance(inner, OutputOp):
            given = iter(inner.inputs)
            words = inner.where.data.split(" ")
            text = " ".join(f"%{numbers[next(given)]}" if word == "%" else word for word in words)
            lines.append(f"output {outputs} = {text}")
            outputs += 1
        else:
            raise VerifyException(f"kernel.region holds terms and outputs, not {inner.name}")
    if len(op.inner):
        lines.append("inner" + "".join(f" %{number.data}" for number in op.inner))
    return parse_region("\n".join(lines))


REGION_OPERATIONS: Sequence[type[Operation]] = (RegionOp, TermOp, OutputOp)
REGION_ATTRIBUTES: Sequence[type[Attribute]] = (ValueType,)
