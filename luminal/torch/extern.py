"""ATen ops without a lowering: written into the graph as `hlo.extern`, and run through torch when the plan says so.

The payload is JSON: the op's arguments with tensors as numbers of operands and symbolic sizes as text, so that a
compiled graph can be kept on disk. What JSON cannot say (a subgraph of a higher-order op) is kept in this process
under a number, and such a graph is not.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves
from xdsl.ir import SSAValue

from luminal.dialects.tensor_type import TensorType, tensor_type
from luminal.dim import Dim, as_dim
from luminal.dtype import dtype_of
from luminal.torch.symbols import SymbolTable

CARRIERS: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.complex32: (torch.float16, 2),
    torch.complex64: (torch.float32, 2),
    torch.complex128: (torch.float64, 2),
    torch.uint16: (torch.int16, 0),
    torch.uint32: (torch.int32, 0),
    torch.uint64: (torch.int64, 0),
}
"""Dtypes that Luminal does not compute with, as which they pass through a graph: another dtype of the same bits, and
the size of an added last axis (0 for none)."""

FALLBACKS: Counter[str] = Counter()
"""How often each op was compiled to an extern in this process, by name."""

LayOut = Callable[[torch.Tensor, SSAValue], tuple[SSAValue, list[int]]]

_OBJECTS: dict[int, Any] = {}
_NUMBERS = itertools.count()
_AS_IT_IS = nullcontext()
_NO_BYTES = torch.empty(0, dtype=torch.uint8)
"""What is traced where an op gives nothing at all: the notes of an LSTM for a backward pass that nobody wants."""


def carried_type(fake: torch.Tensor, symbols: SymbolTable) -> TensorType:
    """The type in which a tensor of this dtype and shape passes through a graph."""
    carrier, added = CARRIERS.get(fake.dtype, (fake.dtype, 0))
    shape = symbols.shape(fake.shape)
    return tensor_type((*shape, as_dim(added)) if added else shape, dtype_of(carrier))


def to_carrier(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as it passes through a graph, sharing its memory where it can."""
    if tensor.dtype not in CARRIERS:
        return tensor.resolve_neg() if tensor.is_neg() else tensor
    carrier, added = CARRIERS[tensor.dtype]
    return torch.view_as_real(tensor.resolve_conj()) if added else tensor.view(carrier)


def from_carrier(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor of `dtype` that `tensor` carries."""
    if dtype not in CARRIERS:
        return tensor
    return torch.view_as_complex(tensor) if CARRIERS[dtype][1] else tensor.view(dtype)


# ---- writing ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call to be written as an extern; `fakes` are the traced results: one, or a tuple, which may have tuples."""

    target: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    fakes: Any

    @property
    def results(self) -> list[torch.Tensor]:
        """The traced results that are tensors."""
        return [fake for fake in tree_leaves(self.fakes) if isinstance(fake, torch.Tensor)]

    @property
    def random(self) -> bool:
        """Whether it, or an op that it is given, draws random numbers: in the order in which operands lie in memory."""
        ops = [op for op in (self.target, *self.args) if isinstance(op, torch._ops.OpOverload)]
        return any(torch.Tag.nondeterministic_seeded in op.tags for op in ops)


def encode_call(
    call: Call, lookup: Callable[[torch.fx.Node], Any], lay_out: LayOut, serial: int
) -> tuple[str, list[SSAValue]]:
    """The payload of a call and its tensor operands.

    `lookup` gives a node's hlo value or Dim, `lay_out` a value in the order of its axes in memory, as traced, with the
    permutation back from there. `serial` tells calls apart that must not become one: two draws of random numbers.
    """
    operands: list[SSAValue] = []

    def encode(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return encode_node(value)
        if isinstance(value, (list, tuple)):
            return [encode(entry) for entry in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return {"torch": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, torch._ops.OpOverload):
            return {"op": _full_name(value)}
        _OBJECTS[number := next(_NUMBERS)] = value
        return {"object": number}

    def encode_node(value: torch.fx.Node) -> Any:
        found = lookup(value)
        if not isinstance(found, SSAValue):
            return {"dim": str(found)} if isinstance(found, Dim) else encode(found)
        operands.append(found)
        fake = value.meta["val"]
        if not isinstance(fake, torch.Tensor):
            return {"number": len(operands) - 1}
        entry: dict[str, Any] = {"tensor": len(operands) - 1}
        if fake.dtype in CARRIERS:
            entry["dtype"] = str(fake.dtype).removeprefix("torch.")
        elif call.random:
            operands[-1], entry["order"] = lay_out(fake, found)
        return entry

    content: dict[str, Any] = {
        "op": encode(call.target),
        "args": [encode(value) for value in call.args],
        "kwargs": {key: encode(value) for key, value in call.kwargs.items()},
        "results": len(call.results),
    }
    if call.random or not (isinstance(call.target, torch._ops.OpOverload) and call.results):
        content["call"] = serial
    return json.dumps(content), operands


def _full_name(op: torch._ops.OpOverload) -> str:
    return f"{op.name()}.default" if op._overloadname == "default" else op.name()


# ---- running ---------------------------------------------------------------------------------------------------


def call_extern(
    payload: str,
    tensors: Sequence[torch.Tensor],
    dims: Mapping[str, int],
    outputs: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """Run one op through torch. Results are contiguous, in the dtypes in which they pass through the graph.

    `outputs`: memory of the results; a payload that names an overload `into` has its result there.
    """
    call = _parsed(payload)

    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return [decode(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        kind, content = next(iter(value.items()))
        if kind == "tensor":
            dtype = getattr(torch, value["dtype"]) if "dtype" in value else tensors[content].dtype
            found = from_carrier(tensors[content], dtype)
            return found.permute(value["order"]) if "order" in value else found
        if kind == "number":
            return tensors[content].item()
        return _DECODE[kind](content, dims)

    function, written = decode(call["op"]), dict[str, Any]()
    if outputs and "into" in call:
        function, written = decode(call["into"]), {"out": outputs[0]}
    keywords = {key: decode(value) for key, value in call["kwargs"].items()}
    with torch.no_grad() if torch.is_grad_enabled() else _AS_IT_IS:
        result = function(*map(decode, call["args"]), **keywords, **written)
    if not call["results"]:
        return [torch.zeros(1, dtype=torch.uint8)]
    results = tree_leaves(result)
    if len(results) == call["results"]:
        results = [_NO_BYTES if tensor is None else tensor for tensor in results]
    return [
        to_carrier(tensor.detach()).contiguous() for tensor in results if isinstance(tensor, torch.Tensor)
    ]


@functools.lru_cache(4096)
def _parsed(payload: str) -> dict[str, Any]:
    """What a payload says, which must not be changed."""
    return json.loads(payload)


def _find_op(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _evaluate(text: str, dims: Mapping[str, int]) -> int:
    return int(eval(text, {"min": min, "max": max, "__builtins__": {}}, dict(dims)))


_DECODE: dict[str, Callable[[Any, Mapping[str, int]], Any]] = {
    "op": lambda content, _: _find_op(content),
    "dim": _evaluate,
    "complex": lambda content, _: complex(*content),
    "torch": lambda content, _: getattr(torch, content),
    "device": lambda content, _: torch.device(content),
    "object": lambda content, _: _OBJECTS[content],
}
