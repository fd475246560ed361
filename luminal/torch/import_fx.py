"""An FX graph of ATen ops becomes an hlo module, with what is needed to call it: how inputs and outputs lie in memory,
where symbols come from, and which outputs are written into inputs.

Symbolic sizes are `Dim`s and never data; an integer that is data (`x + s`) becomes an hlo `dim_value`.
"""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
import torch.fx
from torch._higher_order_ops.effects import with_effects
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from luminal.dialects.graph_op import DEFAULT_LICENCES, build_graph, finish_graph
from luminal.dialects.hlo.builder import HloBuilder
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim, Symbol, as_dim, known_unequal
from luminal.dtype import dtype_of, u8
from luminal.errors import CompileError, ShapeError, UnsupportedOpError
from luminal.torch.aten_table import COMPLEX, FUNCTIONS, LOWERINGS
from luminal.torch.extern import CARRIERS, Call, carried_type, encode_call, to_carrier
from luminal.torch.laid_over import INPUT, storage_of
from luminal.torch.layout import Layout, in_memory_order, layout_of, plain_layout
from luminal.torch.lowering import Lowering, Value, type_of
from luminal.torch.scalars import lower_scalar
from luminal.torch.source import source_of
from luminal.torch.symbols import SymbolBinding, SymbolTable

_LOG = logging.getLogger(__name__)
INLINE_ELEMENTS = 64
"""Constant tensors of the graph up to this size are written into it; larger ones become inputs that never change."""
ASSERTIONS = ("_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range")
"""Ops whose truth was established when tracing."""
OF_MEMORY = ("as_strided", "as_strided_copy", "as_strided_scatter")
"""Ops whose result depends on how their argument lies in memory: they cannot run through torch on a copy of it."""
TOKEN = u8


@dataclass(frozen=True)
class InputSlot:
    """One input of the hlo graph: argument `argument` of the call, or the constant tensor `constant`."""

    argument: int
    layout: Layout
    constant: torch.Tensor | None = None


@dataclass(frozen=True)
class OutputSlot:
    """One output of the FX graph, by `kind`:

    "computed": result `number` of the hlo graph, in `layout`, at `offset` of its storage if that counts; "hidden": the
    same, but nobody wants it; "part": `layout` laid over result `number` at `offset`; "argument": argument `number`
    itself; "view": `layout` laid over the storage of argument `number` at `offset`; "size": the integer `size`; "none".
    """

    kind: str
    number: int = -1
    layout: Layout | None = None
    offset: Dim | None = None
    size: Dim | None = None

    @property
    def symbols(self) -> set[Symbol]:
        """The symbols that the place and size of the output depend on."""
        layout = self.layout
        dims = [*layout.shape, *layout.strides] if layout is not None else []
        dims += [dim for dim in (self.offset, self.size) if dim is not None]
        return {symbol for dim in dims for symbol in dim.symbols()}


@dataclass
class ImportedGraph:
    """An hlo module and how it is called. `updates` are pairs (hlo output, hlo input) that share memory."""

    module: ModuleOp
    inputs: list[InputSlot]
    outputs: list[OutputSlot]
    result_types: list[TensorType]
    updates: list[tuple[int, int]]
    bindings: list[SymbolBinding]
    hints: dict[str, int]
    fallbacks: Counter[str]
    conditions: Sequence[SymbolBinding] = ()
    """What the trace took for granted of sizes, by its text: 1 where it holds; none where Dynamo looks at it."""


@dataclass
class _State:
    values: dict[torch.fx.Node, Any] = field(default_factory=dict[torch.fx.Node, Any])
    inputs: list[InputSlot] = field(default_factory=list[InputSlot])
    placeholders: list[torch.fx.Node] = field(default_factory=list[torch.fx.Node])
    written: dict[torch.fx.Node, Value] = field(default_factory=dict[torch.fx.Node, Value])
    token: Value | None = None
    externs: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter[str])


class FxImporter:
    """Imports one graph module; `strict` makes an op without a lowering an error."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        *,
        shape_env: ShapeEnv | None = None,
        promised: Mapping[Any, Any] | None = None,
        strict: bool = False,
        licences: Sequence[str] | None = None,
        name: str = "main",
    ) -> None:
        self.module, self.strict, self.name = module, strict, name
        self.licences = tuple(DEFAULT_LICENCES if licences is None else licences)
        self.symbols = SymbolTable(shape_env, promised)
        self.state = _State()
        self._of_inputs: set[int] = set()
        """Storages of inputs, and of what is copied into them."""

    def run(self) -> ImportedGraph:
        """The imported graph.

        Raises UnsupportedOpError in strict mode for an op without a lowering (it names the op and the user's line),
        and DTypeError for a tensor of a dtype that cannot pass through a graph.
        """
        nodes = list(self.module.graph.nodes)
        self._collect_inputs(nodes)
        types = [slot.layout.stored for slot in self.state.inputs]
        names = [node.name for node in self._tensor_nodes]
        graph, block = build_graph(self.name, self._all_symbols(nodes), types, self.licences, names)
        self.block, self.b = block, HloBuilder(block)
        for node, slot, argument in zip(self._tensor_nodes, self.state.inputs, block.args, strict=True):
            self.b.source = source_of(node)
            self.state.values[node] = slot.layout.to_logical(self.b, argument)
        for node in nodes:
            if node.op == "call_function":
                self._call(node)
        outputs, results = self._outputs(nodes[-1])
        if self.state.token is not None:  # what only has effects happens because the graph returns its token
            outputs.append(OutputSlot("hidden", len(results), plain_layout(type_of(self.state.token))))
            results.append(self.state.token)
        updates = self._updates(results, block)
        finish_graph(block, results)
        fakes = [node.meta.get("val") for node in self.state.placeholders]
        names = sorted(
            {symbol.name for symbol in graph.symbols} | {s.name for slot in outputs for s in slot.symbols}
        )
        module = ModuleOp([graph])
        graph.verify()
        return ImportedGraph(
            module,
            self.state.inputs,
            outputs,
            [type_of(value) for value in results],
            updates,
            self.symbols.bindings(fakes, names),
            self.symbols.hints(),
            self.state.fallbacks,
            self.symbols.conditions(fakes),
        )

    # ---- inputs ------------------------------------------------------------------------------------------------

    def _collect_inputs(self, nodes: Iterable[torch.fx.Node]) -> None:
        self._tensor_nodes: list[torch.fx.Node] = []
        for node in nodes:
            if node.op == "placeholder":
                number = len(self.state.placeholders)
                self.state.placeholders.append(node)
                fake = node.meta.get("val")
                if isinstance(fake, torch.Tensor) and not _is_read(node):
                    self.state.values[node] = None
                elif isinstance(fake, torch.Tensor):
                    self._add_input(node, InputSlot(number, layout_of(fake, self.symbols)))
                elif isinstance(fake, (int, torch.SymInt)) and not isinstance(fake, bool):
                    self.state.values[node] = self.symbols.size(fake)
                else:
                    self.state.values[node] = fake
            elif node.op == "get_attr":
                self._add_attribute(node)

    def _add_input(self, node: torch.fx.Node, slot: InputSlot) -> None:
        self._tensor_nodes.append(node)
        self.state.inputs.append(slot)

    def _add_attribute(self, node: torch.fx.Node) -> None:
        found: Any = self.module
        for part in cast(str, node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor) or found.numel() <= INLINE_ELEMENTS:
            self.state.values[node] = found
            return
        constant = to_carrier(found.detach()).contiguous()
        self._add_input(node, InputSlot(-1, layout_of(constant, self.symbols), constant))
        node.meta.setdefault("val", found)

    def _all_symbols(self, nodes: Iterable[torch.fx.Node]) -> list[Symbol]:
        """Every symbol of a size in the graph: the hlo graph declares them all."""
        found: set[Symbol] = set()
        for node in nodes:
            fakes = node.meta.get("val")
            for fake in fakes if isinstance(fakes, (list, tuple)) else (fakes,):
                for size in fake.shape if isinstance(fake, torch.Tensor) else (fake,):
                    if isinstance(size, torch.SymInt):
                        found |= _symbols_of(self.symbols, size)
        return sorted(found, key=lambda symbol: symbol.name)

    # ---- calls -------------------------------------------------------------------------------------------------

    def _call(self, node: torch.fx.Node) -> None:
        self.b.source = source_of(node)
        fake, values = node.meta.get("val"), self.state.values
        target = node.target
        if isinstance(fake, torch.SymInt):
            try:
                values[node] = self.symbols.size(fake)
            except UnsupportedOpError:
                values[node] = None
            return
        if target is operator.getitem:
            source = values[cast(torch.fx.Node, node.args[0])]
            values[node] = source[cast(int, node.args[1])]
            return
        is_op = isinstance(target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator))
        if isinstance(fake, (int, float, bool, torch.SymFloat, torch.SymBool)) or (
            fake is None and not is_op
        ):
            values[node] = lower_scalar(self.b, self.symbols, node, self._argument)
            return
        if _is_aten(node) and _name_of(node).split(".")[0] in ASSERTIONS:
            return
        if _is_aten(node) and _name_of(node) == "copy_.default":
            self._write(node)
            return
        if target is with_effects:
            values[node] = self._with_effects(node)
            return
        values[node] = self._lower(node)

    def _lower(self, node: torch.fx.Node) -> Any:
        rule = self._rule(node)
        if rule is not None:
            low = Lowering(self.b, self.symbols, node)
            last = self.block.last_op
            try:
                result = rule(
                    low,
                    *[self._argument(a) for a in node.args],
                    **{key: self._argument(value) for key, value in node.kwargs.items()},
                )
                return self._checked(node, result)
            except (UnsupportedOpError, ShapeError) as error:
                _erase_after(self.block, last)
                reason = str(error)
        else:
            reason = f"{node.target} has no lowering"
        return self._fall_back(node, reason)

    def _rule(self, node: torch.fx.Node) -> Any:
        function = FUNCTIONS.get(cast(Any, node.target))
        if function is not None:
            return function
        if not _is_aten(node):
            return None
        name = _name_of(node)
        if _has_carried_dtype(node):
            return COMPLEX.get(name)
        return LOWERINGS.get(name) or LOWERINGS.get(name.split(".")[0])

    def _fall_back(self, node: torch.fx.Node, reason: str) -> Any:
        if _is_aten(node) and _name_of(node).split(".")[0] in OF_MEMORY:
            raise UnsupportedOpError(f"{reason}: it reads memory, of which torch would be given a copy")
        self._note_fallback(node, str(node.target), reason)
        return self._extern(Call(node.target, node.args, node.kwargs, node.meta.get("val")))

    def _note_fallback(self, node: torch.fx.Node, name: str, reason: str) -> None:
        where = source_of(node)
        if self.strict:
            raise UnsupportedOpError(f"{reason}, and strict is set" + (f" (at {where})" if where else ""))
        _LOG.info("%s runs through torch: %s (at %s)", name, reason, where)
        self.state.fallbacks[name] += 1

    def _extern(self, call: Call) -> Any:
        """The results of a call of torch, as the op gives them: one, or a tuple with None for what is no tensor."""
        self.state.externs += 1
        lay_out = partial(in_memory_order, self.b)
        payload, operands = encode_call(call, self._tensor_or_size, lay_out, self.state.externs)
        types = [carried_type(fake, self.symbols) for fake in call.results]
        if not types:
            # it takes the last such call's token and gives a new one, which keeps their order
            before = [] if self.state.token is None else [self.state.token]
            self.state.token = self._emit_extern(call, [*operands, *before], payload, [(TOKEN, 1)])
            return None
        results = self._emit_extern(call, operands, payload, [(t.dtype, *t.shape) for t in types])
        if not isinstance(call.fakes, (list, tuple)):
            return results
        found = iter(results if isinstance(results, tuple) else (results,))
        return tree_map(lambda fake: next(found) if isinstance(fake, torch.Tensor) else None, call.fakes)

    def _emit_extern(self, call: Call, operands: Sequence[Value], payload: str, types: Sequence[Any]) -> Any:
        return self.b.emit("extern", operands, target=str(call.target), payload=payload, types=types)

    def _with_effects(self, node: torch.fx.Node) -> tuple[Any, ...]:
        """with_effects(token, op, ...): PyTorch's own order of effects, which the order of the graph gives already."""
        _, op, *arguments = node.args
        fakes = cast("Sequence[Any]", node.meta["val"])
        self._note_fallback(node, str(op), "it has effects")
        inner = fakes[1] if len(fakes) == 2 else fakes[1:]
        result = self._extern(Call(op, arguments, node.kwargs, inner))
        token = self.b.full(value=0.0, shape=(0,), dtype=dtype_of(torch.float32))
        return (token, *result) if isinstance(result, tuple) and len(fakes) > 2 else (token, result)

    def _tensor_or_size(self, node: torch.fx.Node) -> Any:
        value = self.state.values[node]
        return self._constant(value) if isinstance(value, torch.Tensor) else value

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return self._tensor_or_size(value)
        if isinstance(value, (list, tuple)):
            return [self._argument(entry) for entry in value]
        return value

    def _constant(self, tensor: torch.Tensor) -> Value:
        plain = to_carrier(tensor.detach()).contiguous()
        kind = dtype_of(plain.dtype)
        data = plain.reshape(-1).view(torch.uint8).cpu().numpy().tobytes() if plain.numel() else b""
        return self.b.constant(data=data, shape=tuple(map(as_dim, plain.shape)), dtype=kind)

    def _checked(self, node: torch.fx.Node, result: Any) -> Any:
        """The result, after a comparison with the traced one: a lowering that differs is a mistake of ours."""
        fakes = node.meta["val"]
        pairs = [(result, fakes)] if not isinstance(fakes, (list, tuple)) else zip(result, fakes, strict=True)
        for value, fake in pairs:
            if value is None or not isinstance(fake, torch.Tensor):
                continue
            found, expected = type_of(value), carried_type(fake, self.symbols)
            if found == expected:
                continue
            fits = found.rank == expected.rank and not any(map(known_unequal, found.shape, expected.shape))
            if not fits or found.dtype != expected.dtype:
                raise CompileError(f"{node.target} was lowered to {found}, PyTorch gives {expected}")
        return result

    def _write(self, node: torch.fx.Node) -> None:
        """copy_(placeholder, value): the placeholder's memory becomes the value."""
        target, source = cast("tuple[torch.fx.Node, Any]", node.args[:2])
        if target.op != "placeholder":
            raise CompileError(f"{node.format_node()} writes into {target}, which is no input of the graph")
        low = Lowering(self.b, self.symbols, target)
        value = low.broadcast(low.operand(self._argument(source), low.dtype), low.shape)
        self.state.written[target] = value
        self.state.values[node] = value

    # ---- outputs -----------------------------------------------------------------------------------------------

    def _outputs(self, node: torch.fx.Node) -> tuple[list[OutputSlot], list[Value]]:
        results: list[Value] = []
        known: dict[Any, int] = {}
        entries = cast("Sequence[Any]", node.args[0])
        copies = [copy for copy in self.module.graph.nodes if copy.target is torch.ops.aten.copy_.default]
        written = (copy.args[1] for copy in copies)
        self._of_inputs |= set(map(storage_of, (*self.state.placeholders, *written))) - {0}
        bases = self._shared_bases(entries)
        slots = [self._output(entry, results, known, bases) for entry in entries]
        for base in dict.fromkeys(bases.values()):
            if base in known and base not in entries:
                slots.append(OutputSlot("hidden", known[base], layout_of(base.meta["val"], self.symbols)))
        return slots, results

    def _shared_bases(self, entries: Sequence[Any]) -> dict[int, torch.fx.Node]:
        """By storage that several outputs are views of: the node that made it, whose memory they share as in eager."""
        sharing = Counter(map(storage_of, dict.fromkeys(entries)))
        wanted = {storage for storage, count in sharing.items() if count > 1 and storage} - self._of_inputs
        bases: dict[int, torch.fx.Node] = {}
        for node in self.module.graph.nodes:
            if (storage := storage_of(node)) in wanted:
                bases.setdefault(storage, node)
        return {storage: base for storage, base in bases.items() if self._is_whole(base)}

    def _is_whole(self, base: torch.fx.Node) -> bool:
        """Whether a node's tensor is all of its storage."""
        fake = base.meta["val"]
        plain = isinstance(self.state.values[base], SSAValue) and fake.dtype not in CARRIERS
        return plain and fake.storage_offset() == 0 and layout_of(fake, self.symbols).dense

    def _result(self, node: torch.fx.Node, results: list[Value], known: dict[Any, int]) -> int:
        """The number of the hlo result that is the node's value as it is stored."""
        if node not in known:
            known[node] = len(results)
            layout = layout_of(node.meta["val"], self.symbols)
            results.append(layout.to_stored(self.b, self.state.values[node]))
        return known[node]

    def _output(
        self, entry: Any, results: list[Value], known: dict[Any, int], bases: dict[int, torch.fx.Node]
    ) -> OutputSlot:
        if entry is None:
            return OutputSlot("none")
        if not isinstance(entry, torch.fx.Node):
            return OutputSlot("size", size=as_dim(entry))
        fake, value = cast(Any, entry.meta.get("val")), self._tensor_or_size(entry)
        if isinstance(value, Dim):
            return OutputSlot("size", size=value)
        if not isinstance(value, SSAValue):
            return OutputSlot("none")
        if entry.op == "placeholder" and entry not in self.state.written:
            return OutputSlot("argument", self.state.placeholders.index(entry))
        layout = layout_of(fake, self.symbols)
        updated = entry.meta.get(INPUT)
        base = self._viewed_input(fake) if updated is None else self.state.placeholders.index(updated)
        if base is not None:
            offset = self.symbols.size(fake.storage_offset())
            return OutputSlot("view", base, layout, offset)
        owner = bases.get(storage_of(entry), entry)
        number = self._result(owner, results, known)
        if owner is not entry:
            return OutputSlot("part", number, layout, self.symbols.size(fake.storage_offset()))
        if storage_of(entry) in self._of_inputs:  # AOTAutograd lays it over the input, at this offset
            return OutputSlot("computed", number, layout, self.symbols.size(fake.storage_offset()))
        return OutputSlot("computed", number, layout)

    def _viewed_input(self, fake: torch.Tensor) -> int | None:
        """The argument whose memory the fake is a view of, if nothing writes to that."""
        storage = fake.untyped_storage()._cdata
        for number, node in enumerate(self.state.placeholders):
            other = node.meta.get("val")
            if isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == storage:
                return None if node in self.state.written else number
        return None

    def _updates(self, results: list[Value], block: Block) -> list[tuple[int, int]]:
        updates: list[tuple[int, int]] = []
        for node, value in self.state.written.items():
            number = self._tensor_nodes.index(node)
            layout = self.state.inputs[number].layout
            if value is self.state.values[node]:
                continue
            updates.append((len(results), number))
            results.append(layout.to_stored(self.b, value))
        return updates


def _erase_after(block: Block, last: Operation | None) -> None:
    """Take back what a lowering emitted before it gave up."""
    while (op := block.last_op) is not None and op is not last:
        op.detach()
        op.erase()


def _is_read(node: torch.fx.Node) -> bool:
    """Whether anything needs the placeholder's data: tokens of effects, for which None is passed, have none."""
    return any(user.target is not with_effects or node in user.args[1:] for user in node.users)


def _is_aten(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "prims")


def _name_of(node: torch.fx.Node) -> str:
    target = cast(torch._ops.OpOverload, node.target)
    return f"{target._opname}.{target._overloadname}"


def _has_carried_dtype(node: torch.fx.Node) -> bool:
    """Whether an argument or result has a dtype that only passes through."""
    fakes = node.meta.get("val")
    seen = list(fakes) if isinstance(fakes, (list, tuple)) else [fakes]
    seen += [argument.meta.get("val") for argument in node.all_input_nodes]
    return any(isinstance(fake, torch.Tensor) and fake.dtype in CARRIERS for fake in seen)


def _symbols_of(symbols: SymbolTable, size: torch.SymInt) -> frozenset[Symbol]:
    try:
        return symbols.size(size).symbols()
    except UnsupportedOpError:
        return frozenset()
