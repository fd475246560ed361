"""The hlo table: what a row says, and the operation class that is made from it.

A row names an op, its operands and attributes, and three functions over the same signature, operands by position and
attributes by keyword: `infer` (types to types), `decompose` (`Expression`s of the primitive level to `Expression`s)
and `interpret` (NumPy arrays to arrays, written on its own). The signature is one line of text:

    "x weight? bias? | axes:ints epsilon:float=1e-5"

An operand ending in `?` may be absent (None), one ending in `*` stands for any number (a list). An attribute's kind is
a key of `KINDS`, and `?` after the kind allows None.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

from xdsl.ir import Dialect, Operation, SSAValue

from luminal.dialects.table_op import SOURCE, TableOp, Value
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, as_dim, dims
from luminal.dtype import dtype_of
from luminal.errors import LuminalError, OptionError

ABSENT = "absent"
"""The attribute that names the optional operands which an operation does not have."""


def _check(kinds: type | tuple[type, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is int):
            raise TypeError
        return value

    return check


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(_check(int)(v) for v in value)


def _constant(value: Any) -> Any:
    return value.constant if isinstance(value, Dim) and value.constant is not None else value


KINDS: dict[str, Callable[[Any], Any]] = {
    "int": lambda v: _check(int)(_constant(v)),
    "ints": lambda v: _integers(map(_constant, v)),
    "bool": _check(bool),
    "float": lambda v: float(_check((int, float))(v)),
    "number": _check((bool, int, float)),
    "str": _check(str),
    "bytes": _check(bytes),
    "dim": as_dim,
    "dims": dims,
    "dtype": dtype_of,
    "types": lambda v: tuple((dtype_of(t[0]), *dims(t[1:])) for t in v),
}
"""Attribute kinds: the function that makes the canonical value, or raises TypeError or a LuminalError. "types" are
tuples (dtype, size, size ...)."""


@dataclass(frozen=True)
class OperandSpec:
    """One operand: `form` is "" for exactly one, "?" for at most one, "*" for any number."""

    name: str
    form: str


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute; `required` where it has no default. None is a value of it where `optional`."""

    name: str
    kind: str
    optional: bool
    required: bool
    default: Any

    def canonical(self, given: Mapping[str, Any]) -> Any:
        """The value among the given ones, or the default. OptionError for a missing one or one of another kind."""
        value = given.get(self.name, self.default)
        if value is None and (self.optional or (self.name not in given and not self.required)):
            return None
        if value is None:
            raise OptionError(f"the attribute {self.name} is missing")
        try:
            return KINDS[self.kind](value)
        except (TypeError, AttributeError):
            raise OptionError(f"the attribute {self.name} is {value!r}, expected {self.kind}") from None


Infer = Callable[..., "TensorType | Sequence[TensorType]"]


@dataclass(frozen=True)
class Row:
    """One op of the table.

    `elementwise`: operands broadcast, and `decompose` sees them at the result's shape. `wide`: f16 and bf16 operands
    reach `decompose` and `interpret` as f32, and float results are rounded once to the narrow dtype at the end, as
    PyTorch's fused kernels do. `creates`: `decompose` takes the `Emitter` before its operands, of which there may be
    none.
    """

    name: str
    operands: tuple[OperandSpec, ...]
    attributes: tuple[AttributeSpec, ...]
    infer_types: Infer
    decompose: Callable[..., Any]
    interpret: Callable[..., Any]
    elementwise: bool
    wide: bool
    creates: bool

    @cached_property
    def attribute_names(self) -> frozenset[str]:
        optional = (ABSENT,) if any(spec.form == "?" for spec in self.operands) else ()
        return frozenset((*(spec.name for spec in self.attributes), *optional))

    def infer(self, groups: Sequence[Any], values: Mapping[str, Any]) -> list[TensorType]:
        """Result types for operand types grouped as the signature says."""
        types = self.infer_types(*groups, **values)
        return [types] if isinstance(types, TensorType) else list(types)

    def group(self, flat: Sequence[Any], absent: Sequence[str]) -> list[Any]:
        """Flat operands as the signature's arguments: one, one or None, or a list."""
        here = sum(spec.name not in absent for spec in self.operands if spec.form != "*")
        variadic = len(flat) - here
        if variadic < 0 or (variadic > 0 and all(spec.form != "*" for spec in self.operands)):
            raise OptionError(f"it was given {len(flat)} operands, expected {here}")
        groups: list[Any] = []
        rest = iter(flat)
        for spec in self.operands:
            if spec.form == "*":
                groups.append([next(rest) for _ in range(variadic)])
            else:
                groups.append(None if spec.form == "?" and spec.name in absent else next(rest))
        return groups

    def canonical(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All attributes in canonical form; OptionError for a missing, unknown or unfitting one."""
        for name in given:
            if name not in self.attribute_names:
                known = ", ".join(spec.name for spec in self.attributes) or "none"
                raise OptionError(f"it has no attribute {name}; it has {known}")
        return {spec.name: spec.canonical(given) for spec in self.attributes}


TABLE: dict[str, Row] = {}
"""Every op by its name, without the prefix `hlo.`; filled by the modules beside this one, and by plug-ins, whose names
carry the name of their own dialect: "wave.mix"."""

OPERATIONS: dict[str, type[HloOp]] = {}
"""The operation class of each row, by the same name."""


class HloOp(TableOp):
    """Base of every operation made from a row."""

    row: ClassVar[Row]

    @property
    def given(self) -> dict[str, Any]:
        """The attributes that the operation carries, without the source."""
        return {key: self.value(key) for key in self.properties if key != SOURCE and key != ABSENT}

    @property
    def values(self) -> dict[str, Any]:
        """All attributes of the row as Python values."""
        return self.row.canonical(self.given)

    def group(self, flat: Sequence[Any]) -> list[Any]:
        """What belongs to the operands one by one, grouped as the row's signature says."""
        return self.row.group(flat, cast("tuple[str, ...]", self.value(ABSENT, ())))

    def check(self) -> None:
        expected = self.row.infer(self.group(self.operand_tensors), self.values)
        if expected != list(self.result_tensors):
            found = ", ".join(str(t) for t in self.result_types)
            raise OptionError(f"the result types are {found}, expected {', '.join(map(str, expected))}")


def _parse_attribute(word: str) -> AttributeSpec:
    found = re.fullmatch(r"(\w+):(\w+)(\??)(?:=(.*))?", word)
    if found is None or found[2] not in KINDS:
        raise ValueError(f"no attribute specification: {word!r}")
    name, kind, optional, default = found.groups()
    value = None if default is None else ast.literal_eval(default)
    return AttributeSpec(name, kind, bool(optional), default is None and not optional, value)


def define(
    name: str,
    signature: str,
    infer: Infer,
    decompose: Callable[..., Any],
    interpret: Callable[..., Any],
    *,
    elementwise: bool = False,
    wide: bool = False,
    creates: bool = False,
) -> None:
    """Add a row to the table and make its operation class, `hlo.<name>`, or `<name>` where that names a dialect.

    Raises OptionError where the table has an op of that name.
    """
    if name in TABLE:
        raise OptionError(f"there is an op {name} already")
    operand_text, _, attribute_text = signature.partition("|")
    operands = tuple(
        OperandSpec(word.rstrip("?*"), word[-1] if word[-1] in "?*" else "") for word in operand_text.split()
    )
    attributes = tuple(_parse_attribute(word) for word in attribute_text.split())
    row = Row(name, operands, attributes, infer, decompose, interpret, elementwise, wide, creates)
    class_name = "".join(part.capitalize() for part in re.split(r"[_.]", name)) + "Op"
    full_name = name if "." in name else f"hlo.{name}"
    members = {"name": full_name, "row": row, "attribute_names": row.attribute_names, "__module__": __name__}
    TABLE[name] = row
    OPERATIONS[name] = cast("type[HloOp]", type(class_name, (HloOp,), members))


def create(name: str, groups: Sequence[Any], given: Mapping[str, Any], source: str | None) -> HloOp:
    """A detached operation; `groups` are SSA values grouped as the row's signature says.

    Raises OptionError for an unknown op or attribute, and what the row's `infer` raises, with the op's name in front.
    """
    row = TABLE.get(name)
    if row is None:
        raise OptionError(f"hlo has no op {name}")
    try:
        values = row.canonical(given)
        types = [
            [v.type for v in g] if isinstance(g, list) else None if g is None else g.type for g in groups
        ]
        results = row.infer(types, values)
    except LuminalError as error:
        raise type(error)(f"{name}: {error}") from None
    flat: list[SSAValue] = []
    for group in groups:
        flat.extend(group if isinstance(group, list) else () if group is None else (group,))
    properties: dict[str, Value] = {spec.name: values[spec.name] for spec in row.attributes}
    absent = tuple(spec.name for spec, group in zip(row.operands, groups, strict=True) if group is None)
    properties[ABSENT] = absent or None
    properties[SOURCE] = source
    return cast(HloOp, OPERATIONS[name].make(flat, results, properties))


def dialect(name: str = "hlo") -> Dialect:
    """The dialect of that name with its operations of the table."""
    members = [operation for operation in OPERATIONS.values() if operation.name.startswith(f"{name}.")]
    return Dialect(name, cast("list[type[Operation]]", members), [])
