"""Where a graph is cut into regions, as data; what any cuts must leave in memory, and which regions they make.

`Cuts` is all that the search decides about regions.  A value is *kept* where it lies in memory between two steps; a
kept value may be *merged* into the region that alone reads it, where it is a stage that a schedule may keep in a
buffer; and kept values may be *joined*, computed by one region with several outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from luminal.dialects.graph_op import GraphOp
from luminal.dim import Dim
from luminal.passes.region_former import Instance, RegionFormer
from luminal.passes.region_graph import Requirement
from luminal.passes.requirements import requirements_of
from luminal.passes.value_graph import (
    DATA,
    INPUT,
    SPLATS,
    Interface,
    Value,
    ValueGraph,
    checked_operands,
    contiguous_strides,
    value_graph,
)

OTHER, CALLER = -1, -2
_REMEMBERED = 64
"""The groups of so many cuts are remembered: a search asks for them several times."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """Numbers of values: kept ones beside those that every choice keeps, merged ones among them, and joined ones."""

    kept: frozenset[int] = frozenset()
    merged: frozenset[int] = frozenset()
    joined: frozenset[tuple[int, ...]] = frozenset()

    def __str__(self) -> str:
        """One line of text, which is the same for equal cuts."""
        joined = " ".join("+".join(map(str, group)) for group in sorted(self.joined))
        parts = (f"keep {_numbers(self.kept)}", f"merge {_numbers(self.merged)}", f"join {joined}")
        return "; ".join(part.strip() for part in parts)


def parse_cuts(text: str) -> Cuts:
    """The cuts that print as `text`; ValueError for another text."""
    parts = [part.strip().partition(" ") for part in text.split(";")]
    if [name for name, _, _ in parts] != ["keep", "merge", "join"]:
        raise ValueError(f"{text!r}: expected 'keep NUMBERS; merge NUMBERS; join NUMBER+NUMBER'")
    kept, merged, joined = (
        [tuple(map(int, word.split("+"))) for word in rest.split()] for _, _, rest in parts
    )
    if any(len(word) != 1 or word[0] < 0 for word in (*kept, *merged)) or any(
        min(word) < 0 for word in joined
    ):
        raise ValueError(f"{text!r}: values are numbers from 0 on")
    return Cuts(frozenset(n for (n,) in kept), frozenset(n for (n,) in merged), frozenset(joined))


def _numbers(values: Iterable[int]) -> str:
    return " ".join(map(str, sorted(values)))


@dataclass(frozen=True, slots=True)
class Group:
    """One region: the values that it stores, and those merged into it."""

    roots: tuple[int, ...]
    inner: frozenset[int] = frozenset()


class Partition:
    """A value graph with its border; answers what given cuts mean."""

    def __init__(self, graph: ValueGraph, interface: Interface) -> None:
        self.graph, self.interface = graph, interface
        constants = {graph.inputs[position].number for position in interface.constants}
        constants |= {value.number for value in graph.values if value.op == DATA}
        self.former = RegionFormer(graph, constants)
        self.first: Cuts | None = None
        """The cuts that a search starts from, once they were asked for (cut_choices.py)."""
        self._strides: dict[int, tuple[Dim, ...]] = {}
        self._last_readers: tuple[frozenset[int], dict[int, set[int]]] | None = None
        self.home: dict[int, int] = {}
        for position, value in enumerate(graph.outputs):
            if self._has_home(value, position):
                self.home.setdefault(value.number, position)
        self.required = self._required()
        self.stored = frozenset(value.number for value in graph.values if value.is_stored)
        self._never = frozenset(v.number for v in graph.values if v.is_stored or v.op in SPLATS)
        self._empty = frozenset(value.number for value in graph.values if value.is_empty)
        self._groups: dict[Cuts, list[Group]] = {}
        self._instances: tuple[frozenset[int], dict[tuple[tuple[int, ...], frozenset[int]], Instance]] = (
            frozenset(),
            {},
        )

    @cached_property
    def requirements(self) -> list[Requirement]:
        """What the sizes of the graph must obey at run time."""
        return requirements_of(self.graph)

    @staticmethod
    def of(graph: GraphOp) -> Partition:
        """The partition of a primitive graph whose attributes describe its border."""
        return Partition(value_graph(graph), Interface.of(graph))

    # ---- the border

    def _has_home(self, value: Value, position: int) -> bool:
        """Whether an output may be the very memory that the value is computed into."""
        if value.op in (INPUT, DATA) or value.op in SPLATS:
            return False
        if value.op in ("sort", "extern"):  # what fills these is row-major
            demanded = self.output_strides(position)
            row_major = demanded is None or demanded == contiguous_strides(value.shape)
            return row_major and position not in self.interface.destinations
        return True

    def output_strides(self, position: int) -> tuple[Dim, ...] | None:
        """The strides that an output must have; None where row-major order will do."""
        target = self.interface.destinations.get(position)
        if target is not None:
            return self.strides(self.graph.inputs[target])
        given = self.interface.output_strides
        return given[position] if position < len(given) else None

    def strides(self, value: Value) -> tuple[Dim, ...]:
        """The strides of a value in memory."""
        if value.number not in self._strides:
            self._strides[value.number] = self._strides_of(value)
        return self._strides[value.number]

    def _strides_of(self, value: Value) -> tuple[Dim, ...]:
        demanded = None
        if value.op == INPUT:
            given, position = self.interface.input_strides, value.number
            demanded = given[position] if position < len(given) else None
        elif value.number in self.home:
            demanded = self.output_strides(self.home[value.number])
        return contiguous_strides(value.shape) if demanded is None else demanded

    def _required(self) -> frozenset[int]:
        """What every choice of cuts keeps: outputs, scans, and what opaque operations read or overwrite."""
        found = {
            value.number for value in self.graph.outputs if not value.is_stored and value.op not in SPLATS
        }
        bases = {value.operands[0].number for value in self.graph.values if value.op == "scatter"}
        reads = _reads(self.graph, bases)
        for value in self.graph.values:
            if value.op == "scan":
                found.add(value.number)
            elif value.op in ("sort", "extern"):
                found |= {operand.number for operand in value.operands if not operand.is_stored}
            elif value.op == "scatter":
                base, *others = value.operands
                if not base.is_stored and base.op not in SPLATS:
                    found.add(base.number)
                for other in others:  # nothing that is scattered may read what is written
                    if not other.is_stored and base.number in reads[other.number]:
                        found.add(other.number)
        return frozenset(found)

    # ---- what cuts mean

    def roots(self, cuts: Cuts) -> frozenset[int]:
        """The values that regions store, merged ones included."""
        return (self.required | (cuts.kept - self._never)) - self._empty

    def readers(self, roots: frozenset[int]) -> dict[int, set[int]]:
        """Root -> the roots whose regions read it; OTHER stands for steps of another kind, CALLER for an output.

        The result belongs to the partition, which keeps the last one: moves that merge leave the roots as they are.
        """
        if self._last_readers is not None and self._last_readers[0] == roots:
            return self._last_readers[1]
        reach: list[set[int]] = [set() for _ in self.graph.values]
        found: dict[int, set[int]] = {}
        for value in reversed(self.graph.values):
            evaluated_by = reach[value.number]
            if value.number in roots:
                found[value.number] = evaluated_by
                evaluated_by = {value.number}
            elif value.is_stored:
                evaluated_by = {OTHER}
            for operand in value.operands:
                reach[operand.number] |= evaluated_by
            for operand in checked_operands(value):
                reach[operand.number].add(OTHER)
        for value in self.graph.outputs:
            found.get(value.number, set()).add(CALLER)
        self._last_readers = roots, found
        return found

    def owners(self, cuts: Cuts, readers: dict[int, set[int]]) -> dict[int, int]:
        """Merged value -> the root of the region that holds it, which all its readers belong to."""
        owner: dict[int, int] = {}
        for number in sorted(cuts.merged & readers.keys() - self.required, reverse=True):
            regions = {owner.get(reader, reader) for reader in readers[number]}
            if len(regions) == 1 and min(regions) >= 0:
                owner[number] = regions.pop()
        return owner

    def groups(self, cuts: Cuts) -> list[Group]:
        """The regions of roots, in the order of the values that they store last."""
        if cuts not in self._groups:
            if len(self._groups) >= _REMEMBERED:
                self._groups.clear()
            self._groups[cuts] = self._grouped(cuts)
        return self._groups[cuts]

    def _grouped(self, cuts: Cuts) -> list[Group]:
        roots = self.roots(cuts)
        readers = self.readers(roots)
        owner = self.owners(cuts, readers)
        joined: dict[int, tuple[int, ...]] = {}
        for group in sorted(cuts.joined):
            members = tuple(n for n in sorted(group) if n in roots and n not in owner and n not in joined)
            wanted = {**joined, **dict.fromkeys(members, members)}
            if len(members) > 1 and self._may_join(members, readers, owner, wanted):
                joined = wanted
        inner: dict[tuple[int, ...], set[int]] = {}
        for number in roots - owner.keys():
            inner.setdefault(joined.get(number, (number,)), set())
        for number, reader in owner.items():
            inner[joined.get(reader, (reader,))].add(number)
        made = [Group(members, frozenset(values)) for members, values in inner.items()]
        return sorted(made, key=lambda group: group.roots[-1])

    def memory(self, groups: Iterable[Group]) -> dict[int, tuple[Dim, ...]]:
        """The strides of all values that lie in memory."""
        numbers = [*self.stored, *(number for group in groups for number in group.roots)]
        return {number: self.strides(self.graph.values[number]) for number in sorted(numbers)}

    def instances(self, cuts: Cuts) -> list[Instance]:
        """The regions of the groups of some cuts; where the same values are kept, merging some leaves the regions of
        others as they are."""
        if self._instances[0] is not cuts.kept and self._instances[0] != cuts.kept:
            self._instances = cuts.kept, {}
        known, groups = self._instances[1], self.groups(cuts)
        keys = [(group.roots, group.inner) for group in groups]
        fresh = [key for key in keys if key not in known]
        memory = self.memory(groups) if fresh else {}
        for roots, inner in fresh:
            values = [self.graph.values[number] for number in roots]
            known[roots, inner] = self.former.stored(values, memory, inner)
        return [known[key] for key in keys]

    def _may_join(
        self,
        members: tuple[int, ...],
        readers: Mapping[int, set[int]],
        owner: Mapping[int, int],
        joined: Mapping[int, tuple[int, ...]],
    ) -> bool:
        """Whether no region between two members would have to run after and before their own."""
        if any(self.graph.values[number].op == "scan" for number in members):
            return False
        stack, seen = list(members), set[int]()
        while stack:
            number = stack.pop()
            for reader in readers.get(number, ()):
                reader = owner.get(reader, reader)
                if reader == OTHER and number != members[-1]:
                    return False  # an opaque step might stand between
                if reader in members and number not in members:
                    return False
                for other in joined.get(reader, (reader,)):
                    if other not in seen and other not in members and other >= 0:
                        seen.add(other)
                        stack.append(other)
        return True


def _reads(graph: ValueGraph, bases: AbstractSet[int]) -> list[frozenset[int]]:
    """Which of the bases each value is, or is computed from without a step of its own between them for sure."""
    found: list[frozenset[int]] = []
    for value in graph.values:
        reached = frozenset({value.number} & bases)
        for operand in () if value.is_stored else value.operands:
            reached |= found[operand.number]
        found.append(reached)
    return found
