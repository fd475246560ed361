"""Running a program at every level and comparing each output with the interval that PyTorch's values give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from luminal.errors import LuminalError
from tests.property import intervals as iv
from tests.property.data import make_input
from tests.property.intervals import Interval
from tests.property.levels import PREPARE, SLOW, Built, Run, build
from tests.property.maker import EAGER_ERRORS, EagerError, Mismatch, bound_step, corrected, difference
from tests.property.namespaces import torch_names
from tests.property.operations import UNARY
from tests.property.program import Program, Step, torch_values, values_of

SMALL = 3000
"""Elements of all values of a program that the slow levels still run."""


@dataclass
class Trace:
    """What eager gives at some sizes: inputs, and for each output its value and interval; or the error raised."""

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    bounds: list[Interval] = field(default_factory=list[Interval])
    error: str | None = None
    may_fail: bool = False
    """Whether any step raises: one that no output needs may be left out with its error."""
    refuses: bool = False
    """Whether eager refuses what a compiler need not: tensors without elements, a copy into what it reads."""
    work: int = 0
    updated: dict[int, tuple[torch.Tensor, Interval]] = field(
        default_factory=dict[int, tuple[torch.Tensor, Interval]]
    )
    """By input: what it holds at the end."""


@dataclass
class Report:
    """What was compared: elements, and those of which something was known."""

    runs: int = 0
    elements: int = 0
    informative: int = 0
    points: int = 0
    errors: int = 0


def trace(program: Program, sizes: Mapping[str, int]) -> Trace:
    inputs = [make_input(program, number, sizes) for number in range(len(program.inputs))]
    names = {**torch_names(), **sizes}
    values, bounds = list(inputs), [iv.exact(x) for x in inputs]
    found = Trace(inputs)
    for step, live in zip(program.steps, program.live, strict=True):
        given = [values[n] for n in step.operands], [bounds[n] for n in step.operands]
        try:
            results, made = bound_step(program, step, *given, names)
        except EagerError as error:
            found.may_fail = True
            results = (
                _empty_results(program, step, given[0], names) if live else [torch.empty(0)] * step.results
            )
            if results is None:
                found.error = str(error)
                found.refuses = any(not x.numel() for x in given[0])
                return found
            made = list(map(iv.exact, results))
        values += [corrected(result, bound) for result, bound in zip(results, made, strict=True)]
        bounds += made
        found.work += sum(x.numel() for x in (*results, *given[0]))
        if step.operation in ("matmul", "attention", "attention_mask", "convolution"):
            found.work += sum(x.numel() for x in results) * max(x.shape[-1] for x in given[0])
    if program.updates:
        _update(program, names, found, values, bounds)
    found.outputs = [values[n] for n in program.outputs]
    found.bounds = [bounds[n] for n in program.outputs]
    return found


def _update(
    program: Program,
    names: Mapping[str, Any],
    found: Trace,
    values: list[torch.Tensor],
    bounds: list[Interval],
) -> None:
    """The updates in their order; what is a view of an input holds afterwards what the input holds."""
    real = torch_values(program, found.inputs, names)
    views = {n: viewed for n, x in enumerate(real) if (viewed := shared(x, found.inputs)) and x.numel()}
    for target, number in program.updates:
        if target in views.get(number, ()) and not real[number].is_set_to(found.inputs[target]):
            found.refuses = True
            return
        dtype = found.inputs[target].dtype
        values[target], bounds[target] = values[number].to(dtype), iv.convert(bounds[number], dtype)
        found.updated[target] = values[target], bounds[target]
        for n, step in zip(program.first_results, program.steps, strict=True):
            if target in views.get(n, ()):
                given = [values[x] for x in step.operands], [bounds[x] for x in step.operands]
                (values[n],), (bounds[n],) = bound_step(program, step, *given, names)


def shared(x: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[int]:
    """The inputs in whose memory a tensor lies."""
    address = x.untyped_storage().data_ptr()
    return [
        n for n, other in enumerate(inputs) if other.numel() and other.untyped_storage().data_ptr() == address
    ]


def _empty_results(
    program: Program, step: Step, operands: Sequence[torch.Tensor], names: Mapping[str, Any]
) -> list[torch.Tensor] | None:
    """What a step gives that reads no element, whatever its indices; None for any other step.

    Eager complains of a wrong index into an empty tensor; a compiler that computes no element need not see it.
    """
    if all(x.numel() for x in operands):
        return None
    valid = [x if x.is_floating_point() else torch.zeros_like(x) for x in operands]
    try:
        results = list(values_of(program, step, valid, names))
    except EAGER_ERRORS:
        return None
    return None if any(x.numel() for x in results) else results


EXACT_FUNCTIONS = ("sqrt", "rsqrt", "reciprocal")
APPROXIMATE = (
    *(name for name in UNARY if name not in EXACT_FUNCTIONS), "silu", "gelu", "softplus",
    "pow", "pow_number", "pow_reverse",
    "atan2", "logsumexp", "softmax", "log_softmax", "attention", "attention_mask",
)  # fmt: skip
"""Operations of which several results are right, whatever the licences: elementary functions."""


def is_strict(program: Program) -> bool:
    """Whether every level must give the same bits: no licence, and no function that is rounded as one likes."""
    return program.licences == () and not any(step.operation in APPROXIMATE for step in program.steps)


def check(program: Program, levels: Sequence[str] = tuple(PREPARE)) -> Report:
    """Mismatch at the first level, in the order of the descent, that gives what it may not give."""
    report = Report()
    built = _guarded("build", program, lambda: build(program))
    traces = [trace(program, sizes) for sizes in program.sizes]
    strict: dict[int, list[torch.Tensor]] = {}
    for level in levels:
        if level in SLOW and traces[0].work > SMALL:
            continue
        run: Run = _guarded(level, program, lambda level=level: PREPARE[level](built, program))
        for number, (sizes, expected) in enumerate(zip(program.sizes, traces, strict=True)):
            if level in SLOW and expected.work > SMALL:
                continue
            used = {name: size for name, size in sizes.items() if name in built.graph.symbols}
            found = _run(level, program, run, used, expected, report, built)
            if level != "hlo" and found is not None and is_strict(program):
                _same_bits(level, program, found, strict.setdefault(number, found), expected.bounds)
    return report


def _same_bits(
    level: str,
    program: Program,
    found: Sequence[torch.Tensor],
    primitive: Sequence[torch.Tensor],
    bounds: Sequence[Interval],
) -> None:
    """Mismatch unless both levels give the same numbers. (The sign of a zero is the intervals' business, and so are
    integers of which nothing is known, as the bits of a NaN.)"""
    for number, (result, expected, bound) in enumerate(zip(found, primitive, bounds, strict=True)):
        equal = (result == expected) | ((result != result) & (expected != expected))
        if not result.dtype.is_floating_point and result.dtype != torch.bool:
            limits = torch.iinfo(result.dtype)
            equal = equal | ((bound.low == limits.min) & (bound.high == limits.max))
        if not bool(equal.all()):
            first = tuple(int(n) for n in (~equal).nonzero()[0])
            message = f"output {number} is {result[first].item()!r} at {first}, "
            message += f"without licences {expected[first].item()!r}"
            raise Mismatch(level, message, program)


def _guarded(level: str, program: Program, make: Any) -> Any:
    try:
        return make()
    except Mismatch:
        raise
    except Exception as error:
        raise Mismatch(level, f"{type(error).__name__}: {error}", program) from error


def _run(
    level: str,
    program: Program,
    run: Run,
    sizes: Mapping[str, int],
    expected: Trace,
    report: Report,
    built: Built,
) -> list[torch.Tensor] | None:
    """What the level gives; None where it raises, as eager does."""
    at = f" at {dict(sizes)}" if sizes else ""
    try:
        for condition in built.graph._conditions.values():
            condition.check(sizes)
        given = run(expected.inputs, sizes)
        found = [given[n] for n in built.outputs]
    except LuminalError as error:
        if not expected.may_fail:
            raise Mismatch(level, f"{type(error).__name__}{at}: {error}", program) from error
        report.errors += 1
        return None
    except Exception as error:
        raise Mismatch(level, f"{type(error).__name__}{at}: {error}", program) from error
    if expected.refuses:
        return None
    if expected.error is not None:
        raise Mismatch(level, f"no error{at}, where eager has {expected.error}", program)
    report.runs += 1
    compare(level, program, found, expected, report, at)
    return found


def compare(
    level: str, program: Program, found: Sequence[torch.Tensor], expected: Trace, report: Report, at: str = ""
) -> None:
    """Mismatch unless every output has eager's shape and dtype and lies in its interval."""
    if len(found) != len(expected.outputs):
        raise Mismatch(level, f"{len(found)} outputs{at}, expected {len(expected.outputs)}", program)
    for number, (result, eager, bound) in enumerate(
        zip(found, expected.outputs, expected.bounds, strict=True)
    ):
        name = f"output {number} (v{program.outputs[number]}){at}"
        compare_one(level, program, name, result, eager, bound, report)


def compare_one(
    level: str,
    program: Program,
    name: str,
    result: torch.Tensor,
    eager: torch.Tensor,
    bound: Interval,
    report: Report,
) -> None:
    """The same for one tensor."""
    if result.shape != eager.shape or result.dtype != eager.dtype:
        message = f"{name} is {result.dtype}{list(result.shape)}, in eager {eager.dtype}{list(eager.shape)}"
        raise Mismatch(level, message, program)
    inside = bound.contains(result)
    if not bool(inside.all()):
        raise Mismatch(level, f"{name} is {difference(result, bound, inside)}", program)
    report.elements += result.numel()
    report.points += int(bound.is_point.sum())
    vague = iv.unknown(bound.shape, bound.dtype)
    report.informative += int((~(iv.same(bound.low, vague.low) & iv.same(bound.high, vague.high))).sum())
