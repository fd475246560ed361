"""Builds for GPUs: which candidate is taken, what the plan holds, and that its steps give what the graph means."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from luminal.dim import dim
from luminal.dtype import bf16
from luminal.emit_triton.resources import Resources
from luminal.emit_triton.targets import GpuTarget
from luminal.errors import CompilationError, OptionError, UnsupportedTargetError
from luminal.graph import Graph
from luminal.plan import gpu_build
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from luminal.plan.gpu_product import Border, manifest
from luminal.plan.plan import KernelStep
from tests.emit_triton.programs import run_program


def layer() -> Graph:
    """relu(x @ w + b), each row divided by its sum."""
    cx = Graph()
    s = dim("s", min=1, max=4096)
    x, w, b = cx.tensor((s, 24), name="x"), cx.tensor((24, 40), name="w"), cx.tensor((40,), name="b")
    (x.matmul(w) + b).relu().softmax(dim=1).output()
    return cx


def made(refuse: Callable[[int], str | None], monkeypatch: pytest.MonkeyPatch) -> GpuProgram:
    """The layer, where the n-th kernel that is judged is refused for a reason, or not."""
    numbers: Iterator[int] = iter(range(1 << 20))

    def refusal(resources: Resources, target: GpuTarget) -> str | None:
        return refuse(next(numbers))

    monkeypatch.setattr(gpu_build, "refusal", refusal)
    monkeypatch.setattr(gpu_build.os, "cpu_count", lambda: 1)
    return build_for_gpu(layer().module(), "sm_90")


def test_the_steps_give_what_the_graph_means() -> None:
    told: list[str] = []
    program = build_for_gpu(layer().module(), "sm_90", hint={"s": 512}, progress=told.append)
    assert told[0] == "lowering" and told[-1].startswith("kernel ")
    rng = np.random.default_rng(0)
    for rows in (1, 5, 33):
        x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 24), (24, 40), (40,)))
        (result,) = run_program(program, (x, w, b), {"s": rows})
        value = np.exp(np.maximum(x @ w + b, 0))
        np.testing.assert_allclose(result, value / value.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_narrow_values_are_kept_narrow_and_multiplied_so() -> None:
    """Between two products in bf16 there is no f32 in memory, and each reads both of its operands as they lie there."""
    cx = Graph()
    s = dim("s", min=1, max=4096)
    x, v, w = (cx.tensor(shape, dtype=bf16) for shape in ((s, 256), (256, 256), (256, 256)))
    x.matmul(v).relu().matmul(w).output()
    program = build_for_gpu(cx.module(), "sm_90", hint={"s": 4096})
    assert {value.dtype for value in program.plan.values} == {bf16}
    texts = [kernel.source for each in program.functions.values() for kernel in each.kernels]
    dots = [line for text in texts for line in text.splitlines() if "tl.dot(" in line]
    assert len(dots) == 2 and not any("ieee" in line for line in dots)
    rng = np.random.default_rng(0)
    shapes = ((5, 256), (256, 256), (256, 256))
    given = [(rng.standard_normal(shape) / 16).astype(bf16.numpy) for shape in shapes]
    (result,) = run_program(program, given, {"s": 5})
    a, b, c = (array.astype(np.float32) for array in given)
    wanted = np.maximum(a @ b, 0) @ c
    np.testing.assert_allclose(result.astype(np.float32), wanted, rtol=2e-2, atol=2e-2)


def test_a_build_is_the_same_twice() -> None:
    one, two = (build_for_gpu(layer().module(), "sm_90") for _ in range(2))
    assert str(one.plan) == str(two.plan)
    for name, function in one.functions.items():
        assert [k.source for k in function.kernels] == [k.source for k in two.functions[name].kernels]


def test_what_is_refused_is_passed_over_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = made(lambda number: None, monkeypatch)
    found = made(lambda number: "it is too large" if number == 0 else None, monkeypatch)
    first = next(iter(found.functions.values()))
    assert len(first.refused) == 1 and first.refused[0].endswith(": it is too large")
    assert str(first.candidate) != str(plain.functions[first.name].candidate)
    assert first.refused[0].startswith(str(plain.functions[first.name].candidate))


def test_where_all_are_refused_the_last_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(lambda number: "it spills", monkeypatch)
    for function in found.functions.values():
        assert "block" not in str(function.candidate.schedule) and len(function.refused) > 2


def test_where_none_can_be_compiled_that_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise CompilationError("kernel", "h100", "no", "log")

    monkeypatch.setattr(gpu_build, "compile_kernel", fails)
    with pytest.raises(CompilationError, match="no; all that was said"):
        build_for_gpu(layer().module(), "sm_90")


def test_memory_between_two_launches_is_the_plan_s() -> None:
    cx = Graph()
    cx.tensor((1 << 22,), name="x").sum(dim=0).output()
    program = build_for_gpu(cx.module(), "sm_90")
    (function,), (step,) = program.functions.values(), program.plan.steps
    assert isinstance(step, KernelStep) and step.workspace >= 0 and len(function.kernels) == 2
    needed = function.kernels[0].parameters[2]
    assert needed.is_workspace and needed.elements is not None
    assert function.workspace_bytes.constant == -(-4 * (needed.elements.constant or 0) // 256) * 256
    assert program.plan.arena.blocks[step.workspace].size == function.workspace_bytes
    x = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32)
    (result,) = run_program(program, [x], {})
    np.testing.assert_allclose(result, x.sum(), rtol=1e-4)


def test_mistakes() -> None:
    module = layer().module()
    with pytest.raises(UnsupportedTargetError, match="'cpu' is not known"):
        build_for_gpu(module, "cpu")
    program = build_for_gpu(module, "sm_90")
    with pytest.raises(OptionError, match="the graph has 3 inputs, not 0"):
        manifest(program, Border((), ()))
