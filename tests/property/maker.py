"""Making one random program: values with their symbolic shapes, eager results and intervals, grown step by step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from luminal.dim import Dim, dim
from luminal.errors import LuminalError
from luminal.graph import Graph
from tests.property import intervals as iv
from tests.property.data import make_input
from tests.property.intervals import Interval
from tests.property.namespaces import DTYPES, graph_names, torch_names
from tests.property.operations import OPERATIONS, UNARY
from tests.property.program import Input, Program, Size, Step, values_of
from tests.property.rules import Context

LARGEST = 4000
"""Elements of a value."""
LARGEST_RANK = 5
RUN_TIME = ("out of bounds", "out of range", "ZeroDivisionError", "index out", "INDICES element")
"""What PyTorch's messages say of errors that depend on data."""


ROUNDED_INSIDE = (
    "pow",
    "softmax",
    "sum",
    "mean",
    "log",
    "var",
    "std",
    "layer",
    "rms",
    "group",
    "attention",
    "prod",
    "cum",
    "scatter",
    "index_put",
    "conv",
)
"""Operations in which eager rounds parts to f16 or bf16, and Luminal does not."""


def eager_margin(bound: Interval, result: torch.Tensor, loose: bool) -> torch.Tensor:
    """Where eager is near enough to its interval: a few hundredths where `loose`, else a few units of rounding."""
    size = torch.maximum(bound.low.abs(), bound.high.abs())
    size = torch.where(torch.isfinite(size), size, 0.0)
    wide = iv.compute_dtype(result.dtype)
    margin = 8 * iv.UNITS[wide] * size + 2 * torch.finfo(wide).tiny
    if result.dtype != wide:
        margin = margin + torch.finfo(result.dtype).eps * size
    if loose and size.numel():
        margin = 0.05 * size.amax() + 1e-3
    found = result.double()
    return torch.isnan(found) & bound.may | ((bound.low - margin <= found) & (found <= bound.high + margin))


CANCELLING = ("layer", "rms", "group")
"""Operations that eager spells as x * a + b, where Luminal subtracts first."""
INEXACT_IN_EAGER = ("sqrt", "rsqrt", "std", "pow_number", *UNARY)
"""Operations of which eager's last bit is not always right, or which take subnormals for 0."""
EARLY_IN_EAGER = ("sinh", "cosh")
"""Operations that overflow in eager by way of exp, whose result is twice theirs."""
ODD_IN_EAGER = (
    "gelu",
    "std",
    "fmod",
    "remainder",
    "remainder_number",
    "remainder_reverse",
    "prod",
    "prod_all",
    "cumprod",
    "attention",
    "attention_mask",
)
"""Operations in which eager's vector code is wrong for some numbers: gelu from 1e38 on, fmod of huge quotients; std of
numbers whose squares overflow is finite in eager, partial products overflow in an order of its own, and its attention
takes a NaN for a masked score at some sizes."""


def difference(result: torch.Tensor, bound: Interval, inside: torch.Tensor) -> str:
    """The first element that is outside, for a message."""
    first = tuple(int(n) for n in (~inside).nonzero()[0])
    low, high = bound.low[first].item(), bound.high[first].item()
    count = int((~inside).sum())
    found = result[first].item()
    expected = f"{low} to {high}{' or NaN' * bool(bound.may[first])}"
    return f"{found} at {first}, expected {expected}; {count} of {inside.numel()} wrong"


class Mismatch(AssertionError):
    """Two levels differ, or one differs from PyTorch. `stage` names where, `program` is what was run."""

    def __init__(self, stage: str, message: str, program: Program) -> None:
        super().__init__(f"{stage}: {message}")
        self.stage, self.message, self.program = stage, message, program


@dataclass(frozen=True, eq=False)
class Value:
    """`loose`: eager computes it, or what it is made of, less exactly than Luminal."""

    number: int
    eager: torch.Tensor
    shape: tuple[Dim, ...]
    interval: Interval
    loose: bool = False

    @property
    def dtype(self) -> str:
        return next(name for name, known in DTYPES.items() if known == self.eager.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether every element has one right value."""
        return bool(self.interval.is_point.all())

    @property
    def is_float(self) -> bool:
        return self.eager.is_floating_point()


EAGER_ERRORS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)
"""What PyTorch raises."""


class EagerError(Exception):
    """PyTorch raised this error."""


def bound_step(
    program: Program,
    step: Step,
    operands: Sequence[torch.Tensor],
    bounds: Sequence[Interval],
    names: Mapping[str, Any],
) -> tuple[list[torch.Tensor], list[Interval]]:
    """Eager's results of a step, and the intervals of what any level may give. EagerError."""
    try:
        results = list(values_of(program, step, operands, names))
    except EAGER_ERRORS as error:
        raise EagerError(f"{step.operation}: {type(error).__name__}: {error}") from error

    def apply(*tensors: torch.Tensor) -> Any:
        found = values_of(program, step, tensors, names)
        return found[0] if len(found) == 1 else found

    values = {key: _known(value, names) for key, value in step.attributes}
    try:
        found = OPERATIONS[step.operation].rule(Context(operands, results, values, apply), bounds)
    except Exception as error:
        raise Mismatch("rule", f"{step.operation}: {type(error).__name__}: {error}", program) from error
    return results, [found] if isinstance(found, Interval) else list(found)


def corrected(result: torch.Tensor, bound: Interval) -> torch.Tensor:
    """Eager's result with the right value where there is but one and eager has another (see `INEXACT_IN_EAGER`)."""
    if not result.is_floating_point() or bound.shape != result.shape:
        return result
    wrong = bound.is_point & ~bound.contains(result)
    if not bool(wrong.any()):
        return result
    made = result.clone()
    made[wrong] = bound.centre()[wrong]
    return made


def _known(value: Any, names: Mapping[str, Any]) -> Any:
    return int(eval(value, {"min": min, "max": max}, dict(names))) if isinstance(value, Size) else value


def agree(*values: Value) -> bool:
    """Whether shapes are known to broadcast, to no more than the largest size."""
    for axis in range(1, 1 + max(value.rank for value in values)):
        sizes = [value.shape[-axis] for value in values if axis <= value.rank]
        wide = [size for size in sizes if not bool(size == 1)]
        if any(not bool(size == wide[0]) for size in wide):
            return False
    return math.prod(torch.broadcast_shapes(*(value.eager.shape for value in values))) <= LARGEST


class Maker:
    """Grows a program; `sizes` are the values of the symbols while it does."""

    def __init__(
        self,
        chance: random.Random,
        kind: str,
        symbols: Sequence[tuple[str, int, int]],
        sizes: Mapping[str, int],
        seed: int,
        licences: tuple[str, ...] | None = None,
    ) -> None:
        self.chance, self.kind, self.sizes = chance, kind, dict(sizes)
        self.graph = Graph()
        self.symbols = {name: dim(name, low, high) for name, low, high in symbols}
        self.values: list[Value] = []
        self.tensors: list[Any] = []
        self.program = Program(tuple(symbols), (), (), (), (dict(sizes),), kind, licences, seed)
        self.torch_names = {**torch_names(), **self.sizes}
        self.graph_names = {**graph_names(self.graph), **self.symbols}
        self.raises = False

    # ---- growing ---------------------------------------------------------------------------------------------------

    def input(self, dtype: str, shape: Sequence[str], layout: str = "contiguous") -> Value:
        made = Input(dtype, tuple(shape), layout)
        number = len(self.program.inputs)
        self.program = replace(self.program, inputs=(*self.program.inputs, made))
        sizes = [eval(size, dict(self.graph_names)) for size in shape]
        tensor = self.graph.tensor(sizes, self.graph_names[dtype], f"v{number}")
        data = make_input(self.program, number, self.sizes)
        return self._keep(tensor, data, iv.exact(data))

    def _keep(self, tensor: Any, eager: torch.Tensor, interval: Interval, loose: bool = False) -> Value:
        value = Value(len(self.values), eager, tuple(tensor.shape), interval, loose)
        self.values.append(value)
        self.tensors.append(tensor)
        return value

    def add(
        self, operation: str, *operands: Value, results: int = 1, **attributes: Any
    ) -> tuple[Value, ...] | None:
        """A step, if PyTorch takes it and the kind of program does; Mismatch where the Graph API and PyTorch differ."""
        if self.raises:
            return None
        step = Step(operation, tuple(v.number for v in operands), tuple(attributes.items()), results)
        tried = replace(self.program, steps=(*self.program.steps, step))
        tried = replace(tried, outputs=tuple(len(self.values) + n for n in range(results)))
        eager, bounds, problem = self._eager(step, operands, tried)
        if problem is not None and not any(text in problem for text in RUN_TIME):
            return None
        if problem is None and not all(
            self._is_wanted(result, bound) for result, bound in zip(eager, bounds)
        ):
            return None
        try:
            made = values_of(self.program, step, [self.tensors[v.number] for v in operands], self.graph_names)
        except LuminalError as error:
            if problem is not None:
                return None
            raise Mismatch("refused", f"{type(error).__name__}: {error}", tried) from error
        except Exception as error:
            raise Mismatch("builder", f"{type(error).__name__}: {error}", tried) from error
        if problem is not None:
            self.raises = True
            self.program = tried
            return None
        kept: list[Value] = []
        loose = any(v.loose for v in operands)
        for tensor, result, bound in zip(made, eager, bounds, strict=True):
            found = self._check(tensor, result, bound, tried, loose)
            kept.append(self._keep(tensor, corrected(result, bound), bound, loose or found))
        self.program = replace(tried, outputs=())
        return tuple(kept)

    def _eager(
        self, step: Step, operands: Sequence[Value], tried: Program
    ) -> tuple[list[torch.Tensor], list[Interval], str | None]:
        """Results, intervals, and the error that PyTorch raised, if it did."""
        try:
            given = [v.eager for v in operands], [v.interval for v in operands]
            return *bound_step(tried, step, *given, self.torch_names), None
        except EagerError as error:
            return [], [], str(error)

    def _is_wanted(self, result: torch.Tensor, bound: Interval) -> bool:
        if result.numel() > LARGEST or result.ndim > LARGEST_RANK or result.dtype not in DTYPES.values():
            return False
        if self.kind in ("dyadic", "views"):
            zero = (bound.low == 0) & (bound.high == 0) & ~bound.may
            return bool((bound.is_point | zero).all())
        return True

    def _check(self, tensor: Any, result: torch.Tensor, bound: Interval, tried: Program, loose: bool) -> bool:
        """Mismatch unless shape, dtype and interval fit eager's result; True where eager is less exact than Luminal."""
        sizes = {name: self.sizes[name] for name in self.graph.symbols}
        shape = tuple(size.evaluate(sizes) for size in tensor.shape)
        if tensor.dtype.torch != result.dtype:
            raise Mismatch("dtype", f"{tensor.dtype} is {result.dtype} in PyTorch", tried)
        if shape != tuple(result.shape):
            raise Mismatch("shape", f"{tensor.shape} is {tuple(result.shape)} in PyTorch", tried)
        if bound.shape != result.shape or bound.dtype != result.dtype:
            raise Mismatch(
                "rule", f"{bound.shape} {bound.dtype}, {tuple(result.shape)} {result.dtype}", tried
            )
        inside = bound.contains(result)
        if loose or bool(inside.all()):
            return False
        operation = tried.steps[-1].operation
        rounded_inside = operation.startswith(ROUNDED_INSIDE) and result.dtype in iv.WIDE
        rounded_inside |= operation.startswith(CANCELLING)
        near = operation in INEXACT_IN_EAGER or rounded_inside
        if near and result.is_floating_point():
            inside |= eager_margin(bound, result, rounded_inside)
        if operation in EARLY_IN_EAGER:
            inside |= torch.isinf(result) & (bound.low.abs() > torch.finfo(result.dtype).max / 4)
        narrow = result.dtype in iv.WIDE
        odd = operation in ODD_IN_EAGER or (narrow and operation.startswith(CANCELLING))
        odd |= operation == "matmul" and result.dtype == torch.bfloat16  # oneDNN takes subnormals for 0
        odd |= operation == "sum_as" and narrow  # over several axes eager converts the sum, else each element
        odd |= operation.startswith("index_put") and narrow  # rounds each step: a long sum stands still
        if not bool(inside.all()) and not odd:
            raise Mismatch("eager", difference(result, bound, inside), tried)
        return True

    @property
    def positive(self) -> list[str]:
        """Symbols that are no less than 0, which may be bounds of slices."""
        return [name for name, low, _ in self.program.symbols if low >= 0]

    # ---- choosing --------------------------------------------------------------------------------------------------

    def chose(self, probability: float) -> bool:
        return self.chance.random() < probability

    def pick(self, accepts: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """A value, later ones and known ones rather than others."""
        fits = [value for value in self.values if accepts(value)]
        if not fits:
            return None
        if self.chose(0.5):
            fits = fits[-3:]
        elif self.chose(0.3):
            fits = [value for value in fits if value.is_known] or fits
        return self.chance.choice(fits)

    def floats(self, rank: int = 0) -> Value | None:
        return self.pick(lambda value: value.is_float and value.rank >= rank)

    def axis(self, value: Value) -> int:
        axis = self.chance.randrange(max(value.rank, 1))
        return axis if self.chose(0.7) else axis - max(value.rank, 1)

    def axes(self, value: Value) -> tuple[int, ...]:
        axes = [axis for axis in range(value.rank) if self.chose(0.5)]
        self.chance.shuffle(axes)
        return tuple(axis if self.chose(0.8) else axis - value.rank for axis in axes)

    def broadcastable(
        self, value: Value, *others: Value, accepts: Callable[[Value], bool] = lambda v: True
    ) -> Value | None:
        """A value whose shape broadcasts with those of one or more, as far as is known."""

        return self.pick(lambda other: agree(value, *others, other) and accepts(other))

    def one(self, operation: str, *operands: Value, **attributes: Any) -> Value | None:
        made = self.add(operation, *operands, **attributes)
        return made[0] if made else None
