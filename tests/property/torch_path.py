"""Programs through torch.compile: inputs that are not contiguous, and dynamic shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.exc import TorchRuntimeError
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.property.check import Report, Trace, compare, compare_one, shared, trace
from tests.property.intervals import exact
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
    inputs = again(expected.inputs)
    try:
        with torch.no_grad():
            found: Sequence[torch.Tensor] = compiled(*inputs)
    except Exception as error:
        if expected.may_fail:
            report.errors += 1
            _check_inputs(program, inputs, replace(expected, updated={}), report, at)
            return
        if isinstance(error, TorchRuntimeError):
            return  # PyTorch's own functions for shapes refuse what its kernels compute
        raise Mismatch("torch", f"{type(error).__name__}{at}: {str(error)[:2000]}", program) from error
    if expected.refuses:
        return
    if expected.error is not None:
        raise Mismatch("torch", f"no error{at}, where eager has {expected.error}", program)
    report.runs += 1
    compare("torch", program, found, expected, report, at)
    _check_inputs(program, inputs, expected, report, at)
    _check_memory(program, inputs, found, expected, at)


def again(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of the same data in the same layout."""
    copies: list[torch.Tensor] = []
    for x in inputs:
        reach = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride())) if x.numel() else 0
        memory = torch.empty(reach, dtype=x.dtype)
        copy = memory.as_strided(x.shape, x.stride()) if x.numel() else x.clone()
        if 0 in x.stride():
            memory.as_strided(x.shape, x.stride()).copy_(x) if x.numel() == reach else _fill(memory, x)
        else:
            copy.copy_(x)
        copies.append(copy)
    return copies


def _fill(memory: torch.Tensor, x: torch.Tensor) -> None:
    """The memory of a tensor with axes of stride 0, of which every element along them is the same."""
    narrow = tuple(slice(0, 1) if step == 0 else slice(None) for step in x.stride())
    part = x[narrow]
    memory.as_strided(part.shape, part.stride()).copy_(part)


def _check_inputs(
    program: Program, inputs: Sequence[torch.Tensor], expected: Trace, report: Report, at: str
) -> None:
    """Inputs hold what they held, or after a run without an error what the program copied into them."""
    for number, (result, before) in enumerate(zip(inputs, expected.inputs, strict=True)):
        eager, bound = before, exact(before)
        if number in expected.updated:
            eager, bound = expected.updated[number]
        compare_one("torch", program, f"input {number} afterwards{at}", result, eager, bound, report)


def _check_memory(
    program: Program, inputs: Sequence[torch.Tensor], found: Sequence[torch.Tensor], expected: Trace, at: str
) -> None:
    """Outputs share memory with inputs as eager's do; strides are eager's, or those that torch.compile itself expects
    where its meta functions differ from eager."""
    function = program.function(torch_names(), dead=False)
    given = again(expected.inputs)
    eager = function(*given)
    traced = again(expected.inputs)
    try:
        with FakeTensorMode() as mode:
            expected_by_torch = function(*map(mode.from_tensor, traced))
    except RuntimeError:  # a shape that depends on data
        expected_by_torch = eager
    for number, (result, real, fake) in enumerate(zip(found, eager, expected_by_torch, strict=True)):
        if strides_of(result) not in (strides_of(real), strides_of(fake)):
            message = f"output {number}{at} has strides {result.stride()}, in eager {real.stride()}"
            raise Mismatch("torch strides", message, program)
        ours, theirs = (
            shared(x, [*xs, *ys]) for x, xs, ys in ((result, inputs, found), (real, given, eager))
        )
        if result.numel() and ours != theirs:
            message = f"output {number}{at} shares memory with inputs and outputs {ours}, in eager {theirs}"
            raise Mismatch("torch aliases", message, program)


def strides_of(x: torch.Tensor) -> list[int]:
    """The strides that matter: of axes of more than one element, in a tensor that has any."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1] if x.numel() else []
