"""A plan as data: storage for every value, steps in order, and the text and JSON of both.

    plan main [b in 0 to inf, s in 1 to 4096]
    inputs  %0 f32[b*s*384] ...
    arena   b0: 1536*b*s bytes, steps 0 to 2, on the floor
    step 0  kernel 3f9c... (%0, %4 -> %7) d0 = s, d1 = b; workspace b5      model.py:12 in forward

Steps between two library steps form a *segment*, which is one native call.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, Symbol, parse_dim
from luminal.dtype import DType, dtype_of
from luminal.passes.fold_constants import Fold
from luminal.passes.memory_plan import ArenaPlan, Block
from luminal.passes.region_graph import Requirement

THREADS = Symbol("threads_of_call", 1, None)
"""The number of threads of a call, which sizes of workspaces depend on."""
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a value lies: `kind` input, output, data (of the graph itself) or arena, and its number among those."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"b{self.number}" if self.kind == "arena" else f"{self.kind} {self.number}"


@dataclass(frozen=True, slots=True)
class PlanValue:
    """A tensor in flat memory; `strides` in elements, `elements` what the memory holds."""

    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    elements: Dim
    storage: Storage

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}] in {self.storage}"


@dataclass(frozen=True, slots=True)
class Packing:
    """A constant input, or data of the graph, laid out anew when it is bound.

    `digits` are (index, extent, weight, stride of the source in elements) from the outermost on; `sizes` gives every
    index its size, beyond which the layout holds zeros.
    """

    source: Storage
    dtype: DType
    digits: tuple[tuple[str, int, int, int], ...]
    sizes: tuple[tuple[str, int], ...]
    offset: int

    def __str__(self) -> str:
        digits = " ".join(f"{index}:{extent}" for index, extent, _, _ in self.digits)
        return f"{self.source} as {self.dtype} {digits}"


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A native kernel: `arguments` number the values (or packings, see `packed`) that its references are, in order.

    `dims` are the sizes of the kernel's symbols; `workspace` is a block of the arena or -1.  Where `check` is a kind of
    error ("index", "division"), the last argument is a bool, and where that is true the call fails with `message`.
    """

    kernel: str
    arguments: tuple[int, ...]
    packed: tuple[int, ...]
    dims: tuple[Dim, ...]
    workspace: int = -1
    check: str = ""
    message: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """An operation that Python runs between native segments: "sort" or "extern", with the primitive's attributes."""

    op: str
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: tuple[tuple[str, object], ...]
    sources: tuple[str, ...] = ()


PlanStep = KernelStep | LibraryStep


@dataclass(frozen=True, slots=True)
class Plan:
    """What runs.

    `constants` are positions of inputs that are bound once; `updates` are pairs (output, input) where the output is the
    input's own memory; `data` are the graph's own constants.  `folds` compute the last inputs, which are constants that
    no caller gives.
    """

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[int, ...]
    updates: tuple[tuple[int, int], ...]
    values: tuple[PlanValue, ...]
    packings: tuple[Packing, ...]
    arena: ArenaPlan
    steps: tuple[PlanStep, ...]
    conditions: tuple[Requirement, ...] = ()
    data: tuple[bytes, ...] = ()
    folds: tuple[Fold, ...] = ()

    @property
    def given(self) -> int:
        """How many inputs callers give."""
        return len(self.inputs) - len(self.folds)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Ranges of steps [first, last) that are native; every library step is a range of its own."""
        ranges: list[tuple[int, int]] = []
        for number, step in enumerate(self.steps):
            joins = ranges and isinstance(step, KernelStep) and self.is_native(ranges[-1][0])
            if joins:
                ranges[-1] = (ranges[-1][0], number + 1)
            else:
                ranges.append((number, number + 1))
        return ranges

    def is_native(self, step: int) -> bool:
        return isinstance(self.steps[step], KernelStep)

    @property
    def kernels(self) -> list[str]:
        """The different kernels, in order of first use."""
        return list(dict.fromkeys(step.kernel for step in self.steps if isinstance(step, KernelStep)))

    def __str__(self) -> str:
        return "\n".join(_lines(self)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    symbols = ", ".join(symbol.range_text() for symbol in plan.symbols)
    yield f"plan {plan.name} [{symbols}]"
    for number, type_ in enumerate(plan.inputs):
        yield f"input {number}: {type_}" + (" constant" if number in plan.constants else "")
    for number, fold in enumerate(plan.folds, plan.given):
        yield f"input {number} folded from {', '.join(f'input {source}' for source in fold.sources)}"
    for number, packing in enumerate(plan.packings):
        yield f"packed {number}: {packing}"
    updated = dict(plan.updates)
    for number, type_ in enumerate(plan.outputs):
        yield f"output {number}: {type_}" + (f" in input {updated[number]}" if number in updated else "")
    for number, value in enumerate(plan.values):
        yield f"%{number}: {value}"
    for number, data in enumerate(plan.data):
        yield f"data {number}: {len(data)} bytes"
    for condition in plan.conditions:
        unless = "" if condition.unless is None else f" unless {condition.unless} = 0"
        yield f"require {condition.least} >= 0{unless}: {condition.message}"
    if plan.arena.blocks:
        yield str(plan.arena)
    for number, step in enumerate(plan.steps):
        yield f"step {number}: {_step_text(step)}"


def _step_text(step: PlanStep) -> str:
    source = f"  // {', '.join(step.sources)}" if step.sources else ""
    if isinstance(step, LibraryStep):
        attributes = ", ".join(f"{key} = {value}" for key, value in step.attributes)
        arguments, outputs = (
            ", ".join(f"%{n}" for n in numbers) for numbers in (step.arguments, step.outputs)
        )
        return f"library {step.op}({arguments}) -> {outputs} {{{attributes}}}{source}"
    packed = dict(enumerate(step.packed))
    arguments = ", ".join(
        f"%{n}" if packed.get(k, -1) < 0 else f"packed {packed[k]}" for k, n in enumerate(step.arguments)
    )
    dims = f" [{', '.join(map(str, step.dims))}]" if step.dims else ""
    workspace = f" workspace b{step.workspace}" if step.workspace >= 0 else ""
    check = f" or {step.check} error {step.message!r}" if step.check else ""
    return f"kernel {step.kernel}({arguments}){dims}{workspace}{check}{source}"


# ---- JSON ------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    symbols: dict[str, Symbol] = field(default_factory=dict[str, Symbol])
    dims: dict[str, Dim] = field(default_factory=dict[str, Dim])

    def dim(self, text: str) -> Dim:
        found = self.dims.get(text)
        if found is None:
            found = self.dims[text] = parse_dim(text, self.symbols)
        return found

    def shape(self, texts: Sequence[str]) -> tuple[Dim, ...]:
        return tuple(map(self.dim, texts))

    def type(self, data: Sequence[Any]) -> TensorType:
        return tensor_type(self.shape(data[1]), data[0])


def _texts(values: Sequence[Dim]) -> list[str]:
    return [str(value) for value in values]


def _step_data(step: PlanStep) -> list[Any]:
    if isinstance(step, LibraryStep):
        attributes = [[key, _attribute_data(value)] for key, value in step.attributes]
        return ["library", step.op, step.arguments, step.outputs, attributes, step.sources]
    dims = _texts(step.dims)
    check = [step.check, step.message]
    return ["kernel", step.kernel, step.arguments, step.packed, dims, step.workspace, check, step.sources]


def _attribute_data(value: object) -> Any:
    if isinstance(value, Dim):
        return {"dim": str(value)}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return [_attribute_data(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"attribute {value!r} cannot be kept in a plan")


def _read_attribute(reader: _Reader, data: Any) -> object:
    if isinstance(data, list):
        return tuple(_read_attribute(reader, item) for item in data)
    if isinstance(data, Mapping):
        return reader.dim(data["dim"]) if "dim" in data else dtype_of(data["dtype"])
    return data


def _read_step(reader: _Reader, data: Sequence[Any]) -> PlanStep:
    if data[0] == "library":
        _, op, arguments, outputs, attributes, sources = data
        read = tuple((key, _read_attribute(reader, value)) for key, value in attributes)
        return LibraryStep(op, tuple(arguments), tuple(outputs), read, tuple(sources))
    _, kernel, arguments, packed, dims, workspace, check, sources = data
    return KernelStep(
        kernel,
        tuple(arguments),
        tuple(packed),
        reader.shape(dims),
        workspace,
        check[0],
        check[1],
        tuple(sources),
    )


def plan_to_json(plan: Plan) -> str:
    """The plan as one line of JSON."""
    data = {
        "format": FORMAT,
        "name": plan.name,
        "symbols": [[s.name, s.minimum, s.maximum] for s in plan.symbols],
        "inputs": [[t.dtype.name, _texts(t.shape)] for t in plan.inputs],
        "outputs": [[t.dtype.name, _texts(t.shape)] for t in plan.outputs],
        "constants": plan.constants,
        "updates": plan.updates,
        "values": [
            [
                v.dtype.name,
                _texts(v.shape),
                _texts(v.strides),
                str(v.elements),
                v.storage.kind,
                v.storage.number,
            ]
            for v in plan.values
        ],
        "packings": [
            [p.source.kind, p.source.number, p.dtype.name, p.digits, p.sizes, p.offset] for p in plan.packings
        ],
        "blocks": [[str(b.size), b.first, b.last] for b in plan.arena.blocks],
        "below": plan.arena.below,
        "order": plan.arena.order,
        "steps": [_step_data(step) for step in plan.steps],
        "conditions": [
            [str(c.least), c.message, None if c.unless is None else str(c.unless), c.source]
            for c in plan.conditions
        ],
        "data": [base64.b64encode(data).decode() for data in plan.data],
        "folds": [[fold.text, fold.sources] for fold in plan.folds],
    }
    return json.dumps(data, separators=(",", ":"))


def plan_from_json(text: str) -> Plan:
    """The plan that `plan_to_json` wrote; ValueError, KeyError or TypeError for anything else."""
    data = json.loads(text)
    if data["format"] != FORMAT:
        raise ValueError(f"plan format {data['format']}, expected {FORMAT}")
    symbols = tuple(Symbol(*entry) for entry in data["symbols"])
    reader = _Reader({symbol.name: symbol for symbol in (*symbols, THREADS)})
    return Plan(
        data["name"],
        symbols,
        tuple(map(reader.type, data["inputs"])),
        tuple(map(reader.type, data["outputs"])),
        tuple(data["constants"]),
        tuple((output, given) for output, given in data["updates"]),
        tuple(
            PlanValue(dtype_of(d), reader.shape(s), reader.shape(t), reader.dim(e), Storage(kind, number))
            for d, s, t, e, kind, number in data["values"]
        ),
        tuple(
            Packing(Storage(kind, given), dtype_of(d), _tuples(digits), _tuples(sizes), offset)
            for kind, given, d, digits, sizes, offset in data["packings"]
        ),
        ArenaPlan(
            tuple(Block(reader.dim(size), first, last) for size, first, last in data["blocks"]),
            _tuples(data["below"]),
            tuple(data["order"]),
        ),
        tuple(_read_step(reader, step) for step in data["steps"]),
        tuple(
            Requirement(reader.dim(least), message, None if unless is None else reader.dim(unless), source)
            for least, message, unless, source in data["conditions"]
        ),
        tuple(map(base64.b64decode, data["data"])),
        tuple(Fold(text, tuple(sources)) for text, sources in data["folds"]),
    )


def _tuples(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(map(tuple, rows))
