"""The printed form of a region, one term a line, which parses back; its hash is the region's key.

symbols d0 in 1 to 4096
index i0 = d0
index r0 = 384
argument 0 = f32 [384*d0]
argument 1 = f32 [384] constant
%0 = load 0 [(384)*i0 + r0] : f32
%1 = load 1 [r0] : f32
%2 = mul %0 %1 : f32
%3 = reduce.sum [r0] %2 : f32
output 0 = %3 at [i0] of [d0] over [i0]
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from luminal.dialects.kernel.terms import (
    ELEMENTWISE,
    Affine,
    Argument,
    LoadAttribute,
    LoopAttribute,
    Output,
    ReduceAttribute,
    Region,
    ScanAttribute,
    Term,
    TermTable,
)
from luminal.dim import Dim, Symbol, as_dim, collect_symbols, parse_dim
from luminal.dtype import DTYPES
from luminal.errors import VerifyError


def region_key(region: Region) -> str:
    """A key that equal regions share, in every process."""
    return hashlib.sha256(region_text(region).encode()).hexdigest()[:24]


def region_text(region: Region) -> str:
    """The region as text; `parse_region` reads it back."""
    numbers = region.numbering()
    lines: list[str] = []
    symbols = collect_symbols(region.dims())
    if symbols:
        lines.append("symbols " + ", ".join(symbol.range_text() for symbol in symbols.values()))
    lines += [f"index {name} = {size}" for name, size in region.extents.items()]
    lines += [f"part {part} = {weight} of {whole}" for part, (whole, weight) in region.parents.items()]
    if region.is_strict:
        lines.append("strict")
    if region.factors is not None:
        lines.append(f"factors {region.factors}")
    for number, argument in enumerate(region.arguments):
        constant = " constant" if argument.constant else ""
        lines.append(f"argument {number} = {argument.dtype} [{argument.elements}]{constant}")
    for term, number in numbers.items():
        operands = "".join(f" %{numbers[operand]}" for operand in term.operands)
        lines.append(f"%{number} = {_head(term)}{operands} : {term.dtype}")
    lines += [_output_text(number, output, numbers) for number, output in enumerate(region.outputs)]
    if region.inner:
        lines.append("inner" + "".join(f" %{numbers[term]}" for term in region.inner))
    return "\n".join(lines) + "\n"


def natural_key(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts i2 before i10."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part)


def _names(indices: Iterable[str]) -> str:
    return "[" + " ".join(sorted(indices, key=natural_key)) + "]"


def _head(term: Term) -> str:
    match term.attribute:
        case LoadAttribute() as load:
            flags = (" dynamic" if load.dynamic else "") + (" guarded" if load.guarded else "")
            return f"load {load.argument} [{load.address}]{flags}"
        case ReduceAttribute(monoid, indices):
            return f"reduce.{monoid} {_names(indices)}"
        case ScanAttribute(monoid, index):
            return f"scan.{monoid} [{index}]"
        case LoopAttribute() as loop:
            return f"loop {loop.identifier} [{loop.index}] " + " ".join(map(_names, loop.carries))
        case Affine() as affine:
            return f"index [{affine}]"
        case Dim() as value:
            return f"dimension [{value}]"
        case (identifier, position) if term.op == "carry":
            return f"carry {identifier} {position} {_names(term.free)}"
        case int() as number:
            return f"{term.op} {number:#x}"
        case None:
            return term.op
        case variant:
            return f"{term.op}.{variant}"


def _output_text(number: int, output: Output, numbers: Mapping[Term, int]) -> str:
    text = f"output {number} = %{numbers[output.term]} at [{output.address}] of [{output.elements}]"
    text += f" over {_names(output.indices)}"
    text += "" if output.dynamic is None else f" dynamic %{numbers[output.dynamic]}"
    text += "" if output.guard is None else f" guard %{numbers[output.guard]}"
    text += "" if output.combine == "set" else f" combine {output.combine}"
    return text + ("" if output.alias < 0 else f" alias {output.alias}")


_TERM = re.compile(
    r"%(?P<number>\d+) = (?P<op>[a-z_0-9]+)(?:\.(?P<variant>\w+))?(?P<rest>.*) : (?P<dtype>\w+)"
)
_OUTPUT = re.compile(
    r"%(\d+) at \[(.*)\] of \[(.*)\] over \[(.*?)\](?: dynamic %(\d+))?(?: guard %(\d+))?"
    r"(?: combine (\w+))?(?: alias (\d+))?"
)
_ARGUMENT = re.compile(r"(\w+) \[(.*)\]( constant)?")
_RANGE = re.compile(r"(\w+) in (-?\d+) to (-?\d+|inf)")
_SUMMAND = re.compile(r"(?:\((?P<stride>[^;]*?)\)\*)?(?P<name>[A-Za-z_]\w*)$|\((?P<offset>[^;]*)\)$")


def parse_region(text: str) -> Region:
    """The region that printed as `text`; VerifyError names a line that is none."""
    region = Region(TermTable(), {}, [], [])
    symbols: dict[str, Symbol] = {}
    terms: list[Term] = []
    readers: dict[str, Callable[[str, str], None]] = {}

    def dim_of(source: str) -> Dim:
        return parse_dim(source, symbols)

    def term_of(number: str | None) -> Term | None:
        return None if number is None else terms[int(number)]

    def read_output(_: str, body: str) -> None:
        found = cast("re.Match[str]", _OUTPUT.fullmatch(body))
        number, address, elements, over, dynamic, guard, combine, alias = found.groups()
        region.outputs.append(
            Output(
                terms[int(number)], dim_of(elements), _affine(address, dim_of), term_of(dynamic), term_of(guard),
                combine or "set", -1 if alias is None else int(alias), frozenset(over.split()),
            )
        )  # fmt: skip

    def read_argument(_: str, body: str) -> None:
        dtype, elements, constant = cast("re.Match[str]", _ARGUMENT.fullmatch(body)).groups()
        region.arguments.append(Argument(DTYPES[dtype], dim_of(elements), constant is not None))

    def read_index(name: str, body: str) -> None:
        region.extents[name] = dim_of(body)

    def read_part(name: str, body: str) -> None:
        weight, _, whole = body.partition(" of ")
        region.parents[name] = (whole, int(weight))

    readers = {"output": read_output, "argument": read_argument, "index": read_index, "part": read_part}
    for line in text.strip().splitlines():
        kind, _, rest = line.partition(" ")
        name, _, body = rest.partition(" = ")
        try:
            if kind == "symbols":
                for symbol, low, high in cast("list[tuple[str, str, str]]", _RANGE.findall(rest)):
                    symbols[symbol] = Symbol(symbol, int(low), None if high == "inf" else int(high))
            elif kind == "inner":
                region.inner = [terms[int(word[1:])] for word in rest.split()]
            elif line == "strict":
                region.is_strict = True
            elif kind == "factors":
                region.factors = DTYPES[rest]
            elif kind in readers:
                readers[kind](name, body)
            else:
                terms.append(_read_term(line, region.table, terms, dim_of))
        except (AttributeError, KeyError, IndexError, ValueError) as error:
            raise VerifyError(f"no line of a region: {line!r}") from error
    return region


def _affine(source: str, dim_of: Callable[[str], Dim]) -> Affine:
    """'(d0 + 2)*i0 + i1 + (3)' -> an affine expression."""
    strides: dict[str, Dim] = {}
    offset = as_dim(0)
    for summand in _summands(source):
        found = cast("re.Match[str]", _SUMMAND.fullmatch(summand))
        if found["offset"] is not None:
            offset = dim_of(found["offset"])
        else:
            strides[found["name"]] = dim_of(found["stride"] or "1")
    return Affine.of(strides, offset)


def _summands(source: str) -> list[str]:
    """The text at ' + ' outside of parentheses."""
    parts, depth, start = list[str](), 0, 0
    for place, letter in enumerate(source):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and source.startswith(" + ", place):
            parts.append(source[start:place])
            start = place + 3
    return [*parts, source[start:]]


def _read_term(line: str, table: TermTable, terms: list[Term], dim_of: Callable[[str], Dim]) -> Term:
    found = cast("re.Match[str]", _TERM.fullmatch(line))
    op, variant, rest, dtype = found["op"], found["variant"], found["rest"], DTYPES[found["dtype"]]
    brackets = re.findall(r"\[(.*?)\]", rest)
    words = re.sub(r"\[.*?\]", "", rest).split()
    operands = tuple(terms[int(word[1:])] for word in words if word.startswith("%"))
    plain = [word for word in words if not word.startswith("%")]
    free = frozenset().union(*(operand.free for operand in operands))
    attribute: object = variant
    match op:
        case "load":
            attribute = LoadAttribute(
                int(plain[0]), _affine(brackets[0], dim_of), "dynamic" in plain, "guarded" in plain
            )
            free |= attribute.address.indices
        case "reduce":
            attribute = ReduceAttribute(variant, tuple(sorted(brackets[0].split())))
            free -= set(attribute.indices)
        case "scan":
            attribute = ScanAttribute(variant, brackets[0])
            free |= {brackets[0]}
        case "loop":
            carries = tuple(frozenset(names.split()) for names in brackets[1:])
            attribute, free = LoopAttribute(brackets[0], int(plain[0]), carries), frozenset().union(*carries)
        case "carry":
            attribute, free = (int(plain[0]), int(plain[1])), frozenset(brackets[0].split())
        case "project":
            attribute = int(plain[0], 16)
            free = operands[0].loop.carries[attribute]
        case "index":
            attribute = _affine(brackets[0], dim_of)
            free = attribute.indices
        case "dimension":
            attribute = dim_of(brackets[0])
        case "constant":
            attribute = int(plain[0], 16)
        case _ if op in ELEMENTWISE and len(operands) == ELEMENTWISE[op]:
            pass
        case _:
            raise ValueError(op)
    return table.make(op, operands, attribute, dtype, free)
