"""Random primitive graphs through the whole compiler: what the primitive interpreter gives, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from xdsl.dialects.builtin import ModuleOp

from luminal.compiler import compile_module
from luminal.dialects.primitive.interpreter import interpret
from luminal.options import CompileOptions
from tests.passes.random_primitives import RandomGraph, random_graphs

EXAMPLES = int(os.environ.get("LUMINAL_TEST_GRAPHS", "60"))
"""How many graphs of each kind; the issue asks for 1,000 once, every run of the tests for fewer."""
_SETTINGS = settings(
    max_examples=EXAMPLES, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=True,
    phases=(Phase.explicit, Phase.generate),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUMINAL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("LUMINAL_THREADS", "2")
        yield


def check(case: RandomGraph, target: str, options: CompileOptions) -> None:
    expected = interpret(case.graph, case.inputs, case.dims)
    graph = case.graph.clone()
    run = compile_module(ModuleOp([graph]), target, options)
    results = run.run(case.inputs, case.dims)
    for number, (want, have) in enumerate(zip(expected, results, strict=True)):
        assert have.dtype == want.dtype
        assert have.shape == want.shape
        assert have.tobytes() == np.ascontiguousarray(want).tobytes(), (
            f"output {number} is\n{have}\nnot\n{want}"
        )


@given(random_graphs())
@_SETTINGS
def test_interpreted_kernels(case: RandomGraph) -> None:
    check(case, "kernel", CompileOptions())


@given(random_graphs())
@_SETTINGS
def test_native_kernels(case: RandomGraph) -> None:
    check(case, "cpu", CompileOptions(cache=False, candidates=2, hint=tuple(sorted(case.dims.items()))))


@given(random_graphs())
@settings(_SETTINGS, max_examples=max(1, EXAMPLES // 3))
def test_constant_inputs(case: RandomGraph) -> None:
    """Inputs of constant size as parameters, which kernels may read packed."""
    fixed = [
        n
        for n, type_ in enumerate(case.graph.input_types)
        if all(d.constant is not None for d in type_.shape)
    ]
    check(case, "cpu", CompileOptions(cache=False, candidates=2, constants=tuple(fixed)))
