"""The backend `loops`: a toy emitter that writes a graph of primitives as nested loops, and runs them.

The loops are Python's, since that runs everywhere, but each line would be a line of C: one nest for each
operation, one buffer for each value, sizes as variables. It knows enough for matmul, softmax, norms and activations,
and says so where an operation is missing. A real backend starts from the kernel level instead, where fusion has been
decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from luminal.dialects.bind import bind_inputs
from luminal.dialects.graph_op import GraphOp
from luminal.dialects.primitive.ops import PrimitiveOp
from luminal.dialects.tensor_type import TensorType
from luminal.dim import Dim
from luminal.dtype import DType, from_bits
from luminal.errors import UnsupportedTargetError
from luminal.options import CompileOptions
from luminal.passes.lower_hlo import lower_hlo

Array = np.ndarray[Any, Any]

# One element of the result by operation or (operation, variant), in terms of the operands' elements.
ELEMENTWISE = {
    "add": "{0} + {1}",
    "mul": "{0} * {1}",
    ("recip", "none"): "{0} / {1}",
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "sqrt": "np.sqrt({0})",
    ("exp2", "e"): "np.exp({0})",
    ("exp2", "2"): "np.exp2({0})",
    ("log2", "e"): "np.log({0})",
    ("log2", "2"): "np.log2({0})",
    ("less_than", "lt"): "{0} < {1}",
    ("less_than", "le"): "{0} <= {1}",
    ("less_than", "eq"): "{0} == {1}",
    ("less_than", "ne"): "{0} != {1}",
    "select": "{1} if {0} else {2}",
    ("sin", "sin"): "np.sin({0})",
    ("sin", "cos"): "np.cos({0})",
    ("bits", "and"): "{0} & {1}",
    ("bits", "or"): "{0} | {1}",
    ("bits", "xor"): "{0} ^ {1}",
    ("cast", "none"): "{0}.astype({dtype})",
    ("cast", "bits"): "{0}.view({dtype})",
    ("cast", "floor"): "np.floor({0})",
    ("cast", "ceil"): "np.ceil({0})",
    ("cast", "trunc"): "np.trunc({0})",
    ("cast", "even"): "np.rint({0})",
}
# The value that a reduction starts from (for floats) and how it takes one element in.
REDUCTIONS = {
    ("sum_reduce", "sum"): ("0.0", "{0} + {1}"),
    ("sum_reduce", "prod"): ("1.0", "{0} * {1}"),
    ("max_reduce", "max"): ("-np.inf", "np.maximum({0}, {1})"),
    ("max_reduce", "min"): ("np.inf", "np.minimum({0}, {1})"),
}
VARIANTS = ("base", "phase", "rounding", "predicate", "monoid", "kind", "sign")


def dtype_text(dtype: DType) -> str:
    return "np.bool_" if dtype.is_bool else f"np.{np.dtype(dtype.numpy).name}"


def row(op: PrimitiveOp) -> Any:
    """The key under which the tables know an operation: its short name, with its variant where it has one."""
    name = op.name.removeprefix("primitive.")
    variants = [op.text(key) for key in VARIANTS if op.value(key) is not None]
    return (name, variants[0]) if variants else name


class Emitter:
    """Writes one function, a line at a time."""

    def __init__(self, graph: GraphOp) -> None:
        self.graph = graph
        self.lines: list[str] = []
        self.names: dict[SSAValue, str] = {}

    def text(self) -> str:
        """The whole function: `main(dims, inputs...) -> outputs`."""
        inputs = [self.name(argument) for argument in self.graph.block.args]
        self.lines.append(f"def main({', '.join(['dims', *inputs])}):")
        self.lines += [f"    {symbol.name} = dims[{symbol.name!r}]" for symbol in self.graph.symbols]
        for op in self.graph.block.ops:
            if isinstance(op, PrimitiveOp):
                self.operation(op)
        self.lines.append(f"    return [{', '.join(self.name(value) for value in self.graph.outputs)}]")
        return "\n".join(self.lines) + "\n"

    def name(self, value: SSAValue) -> str:
        return self.names.setdefault(value, f"value_{len(self.names)}")

    def operation(self, op: PrimitiveOp) -> None:
        result = op.result_tensors[0]
        key = row(op)
        target = self.name(op.results[0])
        if key in REDUCTIONS:
            start, step = REDUCTIONS[key]
            self.allocate(target, result, start)
            source = op.operand_tensors[0]
            kept = [axis for axis in range(source.rank) if axis not in op.integers("axes")]
            element = f"{target}[{indices(kept)}]"
            operand = f"{self.name(op.operands[0])}[{indices(range(source.rank))}]"
            self.nest(source.shape, f"{element} = {step.format(element, operand)}")
            return
        self.allocate(target, result, "0")
        here = indices(range(result.rank))
        if key in ELEMENTWISE:
            elements = [f"{self.name(operand)}[{here}]" for operand in op.operands]
            value = ELEMENTWISE[key].format(*elements, dtype=dtype_text(result.dtype))
        else:
            value = self.moved(op, result)
        self.nest(result.shape, f"{target}[{here}] = {value}")

    def moved(self, op: PrimitiveOp, result: TensorType) -> str:
        """The element of an operation that computes nothing: a constant, a position or another element."""
        axes = [f"axis_{axis}" for axis in range(result.rank)]
        match op.name.removeprefix("primitive."):
            case "const" if op.value("bits") is not None:
                return repr(from_bits(op.integer("bits"), result.dtype).item()).replace("inf", "np.inf")
            case "const":
                data = cast(bytes, op.value("data"))
                return f"np.frombuffer({data!r}, {dtype_text(result.dtype)})[{flat(axes, result.shape)}]"
            case "iota":
                return axes[op.integer("axis")]
            case "dim_value":
                return str(op.value("dim"))
            case "permute":
                order = op.integers("order")
                source = [axes[order.index(axis)] for axis in range(result.rank)]
            case "expand":
                sizes = op.operand_tensors[0].shape
                source = ["0" if size == 1 else axis for axis, size in zip(axes, sizes, strict=True)]
            case "slice":
                moves = zip(op.dims("starts"), op.integers("steps"), axes, strict=True)
                source = [f"{start} + {step} * {axis}" for start, step, axis in moves]
            case "flip":
                flipped = op.integers("axes")
                source = [
                    f"{n} - 1 - {a}" if k in flipped else a
                    for k, (n, a) in enumerate(zip(result.shape, axes, strict=True))
                ]
            case "window":
                source = axes[:-1]
                source[op.integer("axis")] = (
                    f"{op.integer('step')} * {source[op.integer('axis')]} + {axes[-1]}"
                )
            case "reshape":
                return f"{self.name(op.operands[0])}.flat[{flat(axes, result.shape)}]"
            case _:
                raise UnsupportedTargetError(f"the target 'loops' has no {op.name} {row(op)[1:]}")
        return f"{self.name(op.operands[0])}[{', '.join(source) or '()'}]"

    def allocate(self, name: str, type_: TensorType, start: str) -> None:
        sizes = "".join(f"{size}, " for size in type_.shape)
        self.lines.append(f"    {name} = np.full(({sizes}), {start}, {dtype_text(type_.dtype)})")

    def nest(self, shape: Sequence[Dim], body: str) -> None:
        for axis, size in enumerate(shape):
            self.lines.append(f"{'    ' * (axis + 1)}for axis_{axis} in range({size}):")
        self.lines.append(f"{'    ' * (len(shape) + 1)}{body}")


def indices(axes: Sequence[int]) -> str:
    return ", ".join(f"axis_{axis}" for axis in axes) or "()"


def flat(axes: Sequence[str], shape: Sequence[Dim]) -> str:
    """The row-major position: ((axis_0) * n + axis_1) ..."""
    position = "0"
    for axis, size in zip(axes, shape, strict=True):
        position = f"({position}) * ({size}) + {axis}"
    return position


@dataclass
class LoopsExecutable:
    """The text and what it was made from; `run` is what the runtimes and torch call."""

    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    text: str
    stats: dict[str, Any]

    def run(self, inputs: Sequence[Array], dims: Mapping[str, int] | None = None) -> list[Array]:
        """One array for each output; sizes that `dims` leaves out are read off the inputs."""
        scope: dict[str, Any] = {"np": np}
        exec(self.text, scope)
        return scope["main"](bind_inputs(self.input_types, inputs, dims), *inputs)


class LoopsBackend:
    """What the entry point names."""

    def compile(self, module: ModuleOp, options: CompileOptions) -> LoopsExecutable:
        del options
        lower_hlo(module)
        graph = next(op for op in module.ops if isinstance(op, GraphOp))
        text = Emitter(graph).text()
        return LoopsExecutable(graph.input_types, graph.output_types, text, {"lines": text.count("\n")})


backend = LoopsBackend()
