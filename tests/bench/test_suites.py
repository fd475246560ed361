"""Every case of every suite at a tiny size: it builds, runs in eager, and is what its formula says elsewhere."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import networks
from luminal.bench.case import Case, LeftOutError, Peer, Program, load_peer, load_suite, peer_file, suite_file
from luminal.bench.check import TOLERANCE, error_of
from luminal.bench.torch_program import arrays, exact, in_torch, least_mbytes

OPERATIONS = ("elementwise", "rows", "gemm", "conv", "attention", "quant")
NETWORKS = ("encoder", "model", "decoder", "training")


def cases(names: tuple[str, ...]) -> list[Any]:
    return [
        pytest.param(case, id=f"{name}: {case.name}")
        for name in names
        for case in load_suite(suite_file(name)).CASES
    ]


def built(case: Case) -> Program:
    torch.manual_seed(zlib.crc32(case.name.encode()))
    try:
        return case.build(True)
    except LeftOutError as error:
        pytest.skip(str(error))


def check(case: Case, program: Program, peer: Peer) -> None:
    with torch.inference_mode(not program.training):
        eager = arrays(in_torch(program, program.module, program.module).call())
        wanted, _ = exact(program)
        try:
            prepared = peer.prepare(program, case, 1)
        except LeftOutError as error:
            pytest.skip(str(error))
        found = prepared.results(prepared.call())
    assert len(found) == len(wanted) == len(eager)
    for mine, plain, true in zip(found, eager, wanted, strict=True):
        assert mine.shape == plain.shape
        error, allowed = error_of(mine, plain, true, TOLERANCE[case.dtype])
        assert error <= allowed


@pytest.mark.parametrize("suite", [*OPERATIONS, *NETWORKS])
def test_names_are_different_and_some_are_quick(suite: str) -> None:
    found = load_suite(suite_file(suite)).CASES
    assert len({case.name for case in found}) == len(found)
    assert 0 < sum(case.quick for case in found) < len(found)


@pytest.mark.parametrize("case", cases(OPERATIONS))
def test_a_case_runs_in_eager(case: Case) -> None:
    program = built(case)
    with torch.inference_mode():
        results = arrays(program.module(*program.inputs))
        wanted, gflop = exact(program)
    assert results and all(each.size for each in results)
    for mine, true in zip(results, wanted, strict=True):
        # against f64 alone: twice eager's own error must not be what lets it pass
        error, _ = error_of(mine, np.asarray(true, mine.dtype), true, 0.0)
        assert error <= TOLERANCE[case.dtype]
    assert gflop >= 0 and least_mbytes(program, results) > 0


@pytest.mark.parametrize("case", cases(OPERATIONS))
@pytest.mark.parametrize("peer", ["jax", "tinygrad", "llamacpp"])
def test_a_formula_is_the_same_elsewhere(case: Case, peer: str) -> None:
    found = load_peer(peer_file(peer))
    if reason := found.missing():
        pytest.skip(reason)
    check(case, built(case), found)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(NETWORKS))
def test_a_network_runs_in_eager(case: Case) -> None:
    check(case, built(case), load_peer(peer_file("eager")))


def test_the_same_inputs_in_every_process() -> None:
    case = load_suite(suite_file("rows")).CASES[0]
    first, second = built(case), built(case)
    assert all(torch.equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True))


@pytest.mark.parametrize("case", cases(("decoder",)))
def test_a_stored_model_is_the_same_in_llama_cpp_and_with_activations_in_bytes(case: Case) -> None:
    found = load_peer(peer_file("llamacpp"))
    if reason := found.missing():
        pytest.skip(reason)
    program = built(case)
    check(case, program, found)
    assert program.luminal is not None
    with torch.inference_mode():
        own, plain = program.luminal(*program.inputs), program.module(*program.inputs)
    assert 0 < (own - plain).abs().max() <= TOLERANCE[case.dtype] * plain.abs().max()


def test_an_image_reaches_the_logits_of_the_whole_network() -> None:
    torch.manual_seed(0)
    network = networks.efficientnet_lite0(tiny=False)
    with torch.inference_mode():
        first, second = (network(torch.randn(1, 3, 64, 64)) for _ in range(2))
    assert (first - second).abs().max() > 1e-2
