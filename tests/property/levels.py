"""Running one program at each level: the interpreters, native code, and torch.compile."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from xdsl.dialects.builtin import ModuleOp

from luminal.compiler import compile_module
from luminal.dialects.graph_op import DEFAULT_LICENCES
from luminal.dialects.kernel.terms import Region
from luminal.dialects.primitive.interpreter import interpret as interpret_primitive
from luminal.errors import LuminalError, ScheduleError
from luminal.graph import Graph
from luminal.passes.form_regions import form_regions
from luminal.passes.interpret_regions import interpret_regions
from luminal.passes.lower_hlo import lower_hlo
from luminal.passes.simplify import simplify
from luminal.plan.measure import host_machine
from luminal.runtimes.reference import LEVELS, graph_of
from luminal.search.candidates import generator_of, is_legal
from luminal.search.chooser import Choice, Wanted
from luminal.search.forms import Form, forms
from luminal.search.generate import Candidate
from luminal.search.profile import Budget
from luminal.search.purse import Purse
from luminal.search.record import SearchRecord
from luminal.search.samples import Samples
from tests.property.namespaces import graph_names
from tests.property.program import Program
from tests.torch_bits import as_numpy, as_torch

Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[torch.Tensor], Mapping[str, int]], list[torch.Tensor]]


class AnySchedule:
    """Chooses a legal schedule by chance; the same region and seed give the same one."""

    def __init__(self, seed: int, first: bool) -> None:
        self.seed, self.first = seed, first
        self.chosen: dict[str, str] = {}
        self.record, self.budget, self.purse = SearchRecord(), Budget(), Purse()

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """Nothing: nothing is timed."""

    def _candidates(self, form: Form, samples: Samples) -> list[Candidate]:
        generator = generator_of(form, host_machine(2), Samples(samples.expected))
        return generator.suggested() if form.name else generator.candidates()

    def choose(self, region: Region, key: str, samples: Samples) -> Choice:
        """ScheduleError where no candidate can be placed."""
        digest = hashlib.sha256(f"{self.seed} {key}".encode()).digest()
        candidates = [
            (candidate, form)
            for form in (Form("", region), *forms(region, frozenset(DEFAULT_LICENCES)))
            for candidate in self._candidates(form, samples)
        ]
        if not self.first:
            random.Random(digest).shuffle(candidates)
        for candidate, form in candidates:
            if is_legal(form.region, candidate):
                self.chosen[key] = f"{form.name} {candidate.schedule}".strip()
                return Choice(candidate.schedule, 1000, form.name)
        raise ScheduleError("the region has no legal schedule")


@dataclass
class Built:
    """A program in the Graph API."""

    graph: Graph
    module: ModuleOp
    outputs: Sequence[int]
    """The graph's output that each output of the program is: a graph has each value once."""


def build(program: Program) -> Built:
    """The program as a module of hlo."""
    from luminal.dim import dim

    graph = Graph()
    symbols = {name: dim(name, low, high) for name, low, high in program.symbols}
    names = {**graph_names(graph), **symbols}
    inputs = [
        graph.tensor([eval(size, dict(names)) for size in one.shape], names[one.dtype], f"v{number}")
        for number, one in enumerate(program.inputs)
    ]
    found = program.function(names, shapes=False)(*inputs)
    for output in found:
        graph.add_output(output)
    values = [tensor.value for tensor in graph.outputs]
    outputs = [next(n for n, value in enumerate(values) if value is output.value) for output in found]
    licences = DEFAULT_LICENCES if program.licences is None else program.licences
    module = graph.module(licences)
    module.verify()
    return Built(graph, module, outputs)


def _tensors(arrays: Sequence[Array]) -> list[torch.Tensor]:
    return [as_torch(array) for array in arrays]


@contextlib.contextmanager
def schedules(seed: int) -> Iterator[AnySchedule]:
    """Inside, regions get legal schedules by chance: the model's best for even seeds."""
    chooser = AnySchedule(seed, first=seed % 2 == 0)
    with (
        mock.patch("luminal.plan.choosers.timed_chooser", lambda *given: chooser),
        mock.patch("luminal.plan.choosers.PlainChooser", lambda *given: chooser),
    ):
        yield chooser


def _compiled(target: str) -> Callable[[Built, Program], Run]:
    def prepare(built: Built, program: Program) -> Run:
        options = {"cache": False, "hint": dict(program.sizes[0]), **interface(built, program)}
        with schedules(program.seed):
            executable = compile_module(built.module, target, options)

        def run(inputs: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> list[torch.Tensor]:
            arrays = [as_numpy(x).copy() for x in inputs]
            try:
                return _tensors(executable.run(arrays, sizes))
            except LuminalError as error:
                if any(array.tobytes() != as_numpy(x).tobytes() for array, x in zip(arrays, inputs)):
                    raise RuntimeError("an input was overwritten before the error") from error
                raise

        return run

    return prepare


def interface(built: Built, program: Program) -> dict[str, object]:
    """For some programs inputs that are constants, whose memory may be laid out anew, and outputs that are written into
    the memory of an input."""
    chance = random.Random(program.seed)
    inputs = [(tensor.shape, tensor.dtype) for tensor in built.graph.inputs]
    static = [n for n, (shape, _) in enumerate(inputs) if all(size.constant is not None for size in shape)]
    constants = [n for n in static if chance.random() < 0.2]
    updates: dict[int, int] = {}
    for output, tensor in enumerate(built.graph.outputs):
        fits = [n for n, one in enumerate(inputs) if one == (tensor.shape, tensor.dtype)]
        free = [n for n in fits if n not in constants and n not in updates.values()]
        if free and chance.random() < 0.3:
            updates[output] = chance.choice(free)
    return {"constants": tuple(constants), "updates": tuple(updates.items())}


def _interpreted(level: str) -> Callable[[Built, Program], Run]:
    def prepare(built: Built, program: Program) -> Run:
        run = LEVELS[level](built.module.clone())
        return lambda inputs, sizes: _tensors(run([as_numpy(x) for x in inputs], sizes))

    return prepare


def _simplified(built: Built, program: Program) -> Run:
    module = built.module.clone()
    lower_hlo(module)
    simplify(module)
    module.verify()
    graph = graph_of(module)
    return lambda inputs, sizes: _tensors(interpret_primitive(graph, [as_numpy(x) for x in inputs], sizes))


def _regions(built: Built, program: Program) -> Run:
    module = built.module.clone()
    lower_hlo(module)
    simplify(module)
    regions = form_regions(graph_of(module))
    return lambda inputs, sizes: _tensors(interpret_regions(regions, [as_numpy(x) for x in inputs], sizes))


PREPARE: dict[str, Callable[[Built, Program], Run]] = {
    "hlo": _interpreted("hlo"),
    "primitive": _interpreted("primitive"),
    "simplified": _simplified,
    "regions": _regions,
    "kernel": _compiled("kernel"),
    "cpu": _compiled("cpu"),
}
"""Each level: from a built program to what runs it on the inputs at some sizes."""
SLOW = ("regions", "kernel")
"""Levels that a large program skips."""
