"""A rewrite rule of the hlo level as data: what it finds in a graph, what that equals, and under which guards.

A rule names two sides in its text and has a function for each: `find` gives the places of the left side, `build` writes
the right side.  A guard is a sentence and the test of it.  Every rule brings a graph that it must match and near misses
that it must not; the tests run all of them against the hlo interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from xdsl.ir import Operation, SSAValue

from luminal.dialects.graph_op import GraphOp
from luminal.dialects.hlo import HloBuilder
from luminal.dialects.hlo.table import HloOp
from luminal.dialects.tensor_type import TensorType
from luminal.passes.fold_constants import constant_values
from luminal.passes.value_graph import Interface
from luminal.search.hlo_rules.sketch import Sketch

Example = Callable[[Sketch], Sequence[SSAValue]]


@dataclass(frozen=True)
class View:
    """A graph as rules see it."""

    graph: GraphOp

    @cached_property
    def constants(self) -> frozenset[SSAValue]:
        """The values that are computed once, when parameters are bound."""
        interface = Interface.of(self.graph)
        return frozenset(constant_values(self.graph, [self.graph.block.args[n] for n in interface.constants]))

    @cached_property
    def places(self) -> dict[Operation, int]:
        """Where each operation stands."""
        return {op: place for place, op in enumerate(self.graph.block.ops)}

    def ops(self, name: str) -> list[HloOp]:
        return [op for op in self.places if isinstance(op, HloOp) and op.name == name]

    def reader(self, value: SSAValue) -> HloOp | None:
        """The operation that alone reads a value, and reads it once."""
        uses = list(value.uses)
        found = uses[0].operation if len(uses) == 1 else None
        return found if isinstance(found, HloOp) else None


@dataclass(frozen=True)
class Site:
    """A place that a rule matches: the values that it replaces, and the others that it names, by name."""

    replaced: tuple[SSAValue, ...]
    named: Mapping[str, tuple[SSAValue, ...]] = field(default_factory=dict[str, tuple[SSAValue, ...]])

    def moved(self, values: Mapping[SSAValue, SSAValue]) -> Site:
        """The same place of a copy of the graph, whose values these are."""
        named = {name: tuple(values[value] for value in group) for name, group in self.named.items()}
        return Site(tuple(values[value] for value in self.replaced), named)

    def key(self, view: View) -> tuple[object, ...]:
        """What equal places share: types, and what is constant."""
        values = [(name, value) for name, group in sorted(self.named.items()) for value in group]
        kinds = [(name, value.type, value in view.constants) for name, value in values]
        return *(value.type for value in self.replaced), *kinds


@dataclass(frozen=True)
class Guard:
    """A condition of a rule: in words, and as a test of a place."""

    text: str
    holds: Callable[[Site, View], bool]


@dataclass(frozen=True)
class HloRule:
    """before -> after.

    `licences` are all that its rounding needs, none for a rule that changes no bit; `holds` says why both sides are
    equal, and for what; `misses` has a near miss for each guard, by the guard's text, and others.
    """

    name: str
    licences: tuple[str, ...]
    before: str
    after: str
    holds: str
    find: Callable[[View], Iterator[Site]]
    build: Callable[[HloBuilder, Site], Sequence[SSAValue]]
    matches: Example
    misses: Mapping[str, Example]
    guards: tuple[Guard, ...] = ()

    def sites(self, view: View) -> list[Site]:
        """The places of a graph where the rule holds and is licensed."""
        if not set(self.licences) <= set(view.graph.licences):
            return []
        return [site for site in self.find(view) if all(guard.holds(site, view) for guard in self.guards)]


def tensor_of(value: SSAValue) -> TensorType:
    return cast(TensorType, value.type)


def made_by(value: SSAValue, name: str) -> HloOp | None:
    """The operation that makes a value, if it has this name."""
    owner = value.owner
    return owner if isinstance(owner, HloOp) and owner.name == name else None
