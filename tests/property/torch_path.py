"""Programs through torch.compile: inputs that are not contiguous, and dynamic shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch._dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.property.check import Report, Trace, compare, trace
from tests.property.levels import schedules
from tests.property.maker import Mismatch
from tests.property.namespaces import torch_names
from tests.property.program import Program


def check_torch(program: Program) -> Report:
    """Mismatch where torch.compile(backend="luminal") gives what it may not give: values, dtypes, shapes, strides."""
    report = Report()
    torch._dynamo.reset()
    eager = program.function(torch_names())
    dynamic = bool(program.symbols)
    compiled: Any = torch.compile(eager, backend="luminal", dynamic=dynamic, options={"cache": False})
    with schedules(program.seed):
        for sizes in program.sizes:
            _run(program, compiled, trace(program, sizes), report, f" at {dict(sizes)}" if sizes else "")
    return report


def _run(program: Program, compiled: Any, expected: Trace, report: Report, at: str) -> None:
    inputs = expected.inputs
    kept = [x.clone() for x in inputs]
    try:
        with torch.no_grad():
            found: Sequence[torch.Tensor] = compiled(*inputs)
    except Exception as error:
        if expected.error is not None:
            report.errors += 1
            return
        raise Mismatch("torch", f"{type(error).__name__}{at}: {str(error)[:2000]}", program) from error
    if expected.error is not None:
        raise Mismatch("torch", f"no error{at}, where eager has {expected.error}", program)
    report.runs += 1
    compare("torch", program, found, expected, report, at)
    _check_strides(program, inputs, found, at)
    for number, (before, after) in enumerate(zip(kept, inputs, strict=True)):
        same = (
            torch.equal(before.nan_to_num(), after.nan_to_num())
            if before.is_floating_point()
            else torch.equal(before, after)
        )
        if not same:
            raise Mismatch("torch", f"input {number} was changed{at}", program)


def _check_strides(
    program: Program, inputs: list[torch.Tensor], found: Sequence[torch.Tensor], at: str
) -> None:
    """Strides are eager's, or those that torch.compile itself expects where its meta functions differ from eager."""
    function = program.function(torch_names())
    eager = function(*inputs)
    try:
        with FakeTensorMode() as mode:
            expected = function(*map(mode.from_tensor, inputs))
    except RuntimeError:  # a shape that depends on data
        expected = eager
    for number, (result, real, fake) in enumerate(zip(found, eager, expected, strict=True)):
        if strides_of(result) not in (strides_of(real), strides_of(fake)):
            message = f"output {number}{at} has strides {result.stride()}, in eager {real.stride()}"
            raise Mismatch("torch strides", message, program)


def strides_of(x: torch.Tensor) -> list[int]:
    """The strides that matter: of axes of more than one element, in a tensor that has any."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1] if x.numel() else []
