"""Ten searches of a graph, each from nothing and each timing other candidates, and the time of the plan of each.

A seed draws which of the model's first candidates of a region are timed: half of them.  Then the plans take turns.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xdsl.context import Context
from xdsl.parser import Parser

from benchmarks import attention
from benchmarks.search.choosing import chosen_by
from benchmarks.search.llama import SHAPE, SMALL, llama, token_ids
from benchmarks.search.turns import turns
from luminal.bench.report import LeftOutError, Report, Settings
from luminal.compiler import compile_module
from luminal.dialects import all_dialects
from luminal.dialects.kernel.region_text import region_text
from luminal.dialects.kernel.terms import Region
from luminal.dump import collect
from luminal.options import CompileOptions
from luminal.plan import choosers
from luminal.plan.executable import PlanExecutable
from luminal.plan.measure import HostMeasurer
from luminal.plan.native_kernels import KernelCompiler
from luminal.search.chooser import TimedChooser
from luminal.search.forms import Forms
from luminal.search.profile import Budget, LocalProfiler, Outcome, Trial

SEEDS, QUICK_SEEDS = 10, 2
BUDGET, QUICK_BUDGET = Budget(12, 60.0, 0.05), Budget(2, 60.0, 0.01)
DRAWN_FROM = 2
"""Times as many candidates as are timed."""
ROUNDS, SLICE = 9, 0.05
MOST_SPREAD = 0.05


@dataclass(frozen=True)
class Traced:
    """A graph as text, and the options that torch's compilation of it has."""

    hlo: str
    options: CompileOptions


@dataclass(frozen=True)
class Drawing:
    """A profiler that is given some of the first candidates, drawn by seed, in an order that the seed draws too."""

    profiler: LocalProfiler
    seed: int
    drawn: list[int]

    def prepare(self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int) -> None:
        """Nothing: what is drawn is not known yet."""

    def has_built(self, trial: Trial) -> bool:
        del trial
        return False

    def profile(
        self, region: Region, trials: Iterable[Trial], dims: Mapping[str, int], threads: int, budget: Budget
    ) -> list[Outcome] | None:
        first = list(islice(trials, DRAWN_FROM * budget.candidates))
        chance = random.Random(f"{self.seed} {region_text(region)}")
        chosen = chance.sample(first, min(len(first), budget.candidates))
        self.drawn.append(len(chosen))
        return self.profiler.profile(region, chosen, dims, threads, budget)


def measure(report: Report, settings: Settings) -> None:
    graphs: dict[str, Callable[[], Traced]] = {
        "attention": partial(_attention, 64 if settings.quick else 512),
        "Llama layer": partial(_llama, settings.quick),
    }
    if settings.quick:
        del graphs["Llama layer"]
    seeds = QUICK_SEEDS if settings.quick else SEEDS
    for number, (name, trace) in enumerate(graphs.items()):
        try:
            traced = trace()
        except LeftOutError:
            continue  # the measurement of compiling says what is missing
        plans: dict[str, PlanExecutable] = {}
        compiler_objects = dict[str, bytes]()
        timed: list[int] = []
        for seed in range(seeds):
            report.progress(number * seeds + seed, len(graphs) * seeds)
            budget = QUICK_BUDGET if settings.quick else BUDGET
            plan, drawn = _searched(traced, settings.seed + seed, budget, compiler_objects)
            plans[str(settings.seed + seed)] = plan
            timed.append(sum(drawn))
        inputs = _inputs(plans[str(settings.seed)])
        functions = {seed: partial(plan.run, inputs, {}) for seed, plan in plans.items()}
        rounds, seconds = (2, 0.01) if settings.quick else (ROUNDS, SLICE)
        times = turns(functions, rounds, seconds)
        medians = {seed: statistics.median(values) for seed, values in times.items()}
        spread = max(medians.values()) / min(medians.values()) - 1
        report.figure(
            f"{name}, {seeds} seeds, (slowest - fastest) / fastest",
            spread,
            "x",
            at_most=MOST_SPREAD,
            milliseconds={seed: round(1e3 * value, 4) for seed, value in medians.items()},
            candidates_timed=timed,
        )


def _searched(
    traced: Traced, seed: int, budget: Budget, objects: dict[str, bytes]
) -> tuple[PlanExecutable, list[int]]:
    """The plan that a search with a seed finds, and how many candidates it timed for each region.

    `objects`: machine code that earlier searches have made; no search takes anything else from another one.
    """
    drawn: list[int] = []

    def chooser(compiler: KernelCompiler, options: CompileOptions, forms: Forms) -> TimedChooser:
        del options
        compiler.objects = objects
        profiler = Drawing(LocalProfiler(HostMeasurer(compiler)), seed, drawn)
        return TimedChooser(choosers.host_machine(choosers.thread_count()), profiler, None, budget, forms)

    context = Context()
    for name, factory in all_dialects().items():
        context.register_dialect(name, factory)
    module = Parser(context, traced.hlo).parse_module()
    with chosen_by(chooser):
        made = compile_module(module, "cpu", replace(traced.options, cache=False))
    assert isinstance(made, PlanExecutable)
    return made, drawn


def _traced(function: Callable[..., object], inputs: tuple[Tensor, ...]) -> Traced:
    """The one graph that torch makes of a function at static sizes."""
    seen: list[CompileOptions] = []
    original = choosers.timed_chooser

    def chooser(compiler: KernelCompiler, options: CompileOptions, forms: Forms) -> TimedChooser:
        seen.append(options)
        return original(compiler, options, forms)

    torch._dynamo.reset()
    options: dict[str, Any] = {"candidates": 1, "buckets": "declared"}
    with torch.inference_mode(), collect() as levels, chosen_by(chooser):
        torch.compile(function, backend="luminal", dynamic=False, fullgraph=True, options=options)(*inputs)
    (level,) = levels
    return Traced(level["hlo"], replace(seen[0], candidates=0))


def _attention(length: int) -> Traced:
    return _traced(attention.model(), attention.inputs(length))


def _llama(is_small: bool) -> Traced:
    """A layer in the shape of SmolLM-135M with a small vocabulary."""
    shape = SMALL if is_small else {**SHAPE, "vocab_size": 1024}
    return _traced(llama(1, shape), (token_ids(shape),))


def _inputs(plan: PlanExecutable) -> list[np.ndarray]:
    """Values near one; zeros where they may be indices."""
    found: list[np.ndarray] = []
    for position, type_ in enumerate(plan.input_types):
        shape = tuple(size.evaluate({}) for size in type_.shape)
        draw = np.random.default_rng(position).uniform(0.5, 1.5, shape)
        found.append((draw if type_.dtype.is_float else np.zeros(shape)).astype(type_.dtype.numpy))
    return found
