"""From a primitive graph and its cuts to a graph of regions, which the plan and the search work on.

Each root that the cuts leave becomes a step with one region; sort and extern are steps of their own; a scatter is the
copy of its base, where nothing proves that it may be updated in place, and a region that combines values into it.
Indices and divisors that may be wrong are checked by regions that run before what depends on them, and before anything
that the user can see is overwritten.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

from luminal.dialects.graph_op import GraphOp
from luminal.dim import Dim
from luminal.dtype import DType, bool_
from luminal.errors import CompileError
from luminal.passes.cut_choices import initial_cuts, instances
from luminal.passes.cuts import Cuts, Partition
from luminal.passes.in_place import reads_where_it_writes
from luminal.passes.region_former import Instance
from luminal.passes.region_graph import CheckStep, OpaqueStep, RegionGraph, RegionStep, RegionValue, Step
from luminal.passes.value_graph import (
    DATA,
    INPUT,
    SPLATS,
    Value,
    checked_operands,
    contiguous_strides,
    memory_elements,
    sources_of,
)

Key = int | tuple[str, int]
"""A value while steps are drafted: the number of one of the graph's, or what it is for and a number."""
_MESSAGES = {
    "index": "an index is out of bounds",
    "division": "ZeroDivisionError: an integer is divided by zero",
}


@dataclass(eq=False)
class _Draft:
    """A step before values are numbered.  `after`: drafts that must run before it, beside those that it reads from."""

    kind: str
    arguments: list[Key]
    outputs: list[Key]
    rank: tuple[int, int]
    instance: Instance | None = None
    value: Value | None = None
    aliases: dict[int, int] = field(default_factory=dict[int, int])
    after: set[_Draft] = field(default_factory=set["_Draft"])


def form_regions(graph: GraphOp | Partition, cuts: Cuts | None = None) -> RegionGraph:
    """The region graph of a primitive graph under `cuts`, by default the first ones.

    Memory at the border is as the graph's attributes say (`Interface`).  A search passes one `Partition` many times.
    """
    partition = graph if isinstance(graph, Partition) else Partition.of(graph)
    return _Forming(partition, initial_cuts(partition) if cuts is None else cuts).finish()


class _Forming:
    def __init__(self, partition: Partition, cuts: Cuts) -> None:
        self.partition, self.graph, self.former = partition, partition.graph, partition.former
        self.memory = partition.memory(partition.groups(cuts))
        self.drafts: list[_Draft] = []
        self.values: dict[Key, RegionValue] = {}
        self.shares: dict[Key, Key] = {}
        self.outputs: dict[int, Key] = {position: number for number, position in partition.home.items()}
        self._add_border()
        self._add_roots(cuts)
        self._add_opaque()
        self._add_checks()
        self._add_copies()
        self._place_scatters()
        self._place_destinations()

    def _define(
        self, key: Key, dtype: DType, shape: tuple[Dim, ...], strides: tuple[Dim, ...], source: str
    ) -> None:
        elements = memory_elements(shape, strides)
        self.values[key] = RegionValue(-1, dtype, shape, strides, elements, "intermediate", source=source)

    def _define_value(self, value: Value) -> None:
        strides = self.memory.get(value.number) or self.partition.strides(value)
        self._define(value.number, value.dtype, value.shape, strides, value.source)

    # ---- drafts

    def _add_border(self) -> None:
        for value in self.graph.values:
            if value.op == INPUT:
                self._define_value(value)
                kind = "constant" if value.number in self.former.constants else "input"
                self.values[value.number] = replace(
                    self.values[value.number], kind=kind, position=value.number
                )
            elif value.op == DATA:
                self._define_value(value)
                data = value.attributes["data"]
                assert isinstance(data, bytes)
                self.values[value.number] = replace(self.values[value.number], kind="constant", data=data)
            elif value.is_empty and (value.is_stored or value.number in self.partition.required):
                self._define_value(value)

    def _draft(self, kind: str, instance: Instance, outputs: list[Key], rank: int) -> _Draft:
        made = _Draft(kind, list(instance.arguments), outputs, (1, rank), instance)
        self.drafts.append(made)
        return made

    def _add_roots(self, cuts: Cuts) -> None:
        for group, instance in instances(self.partition, cuts):
            self._draft("region", instance, list(group.roots), group.roots[-1])
            for number in group.roots:
                self._define_value(self.graph.values[number])

    def _add_opaque(self) -> None:
        for value in self.graph.values:
            if value.op == "scatter" and not value.is_empty:
                instance = self.former.scattered(value, self.memory[value.number], self.memory)
                draft = self._draft("scatter", instance, [value.number], value.number)
                draft.value = value
                self._define_value(value)
            elif value.op in ("sort", "extern") and value is value.siblings[0]:
                made = _Draft(
                    "opaque", [o.number for o in value.operands], [], (1, value.number), value=value
                )
                made.outputs = [sibling.number for sibling in value.siblings]
                self.drafts.append(made)
                for sibling in value.siblings:
                    self._define_value(sibling)

    def _add_checks(self) -> None:
        """A check runs before every step that evaluates what it checks."""
        users: dict[int, list[_Draft]] = {}

        def note(draft: _Draft) -> None:
            inside = draft.instance.computed if draft.instance else frozenset[int]()
            for number in inside | (
                {draft.value.number} if draft.kind == "scatter" and draft.value else set()
            ):
                users.setdefault(number, []).append(draft)

        for draft in self.drafts:
            note(draft)
        known: dict[object, _Draft] = {}
        checks: list[tuple[Value, _Draft]] = []
        for value in self.graph.values:
            instance = self.former.checked(value, self.memory) if checked_operands(value) else None
            if instance is None:
                continue
            key = (instance.formed.key, instance.arguments)
            if key not in known:
                draft = known[key] = self._draft("check", instance, [("check", value.number)], value.number)
                draft.value, draft.rank = value, (0, value.number)
                self._define(("check", value.number), bool_, (), (), value.source)
                note(draft)
            checks.append((value, known[key]))
        for value, check in checks:
            for draft in users.get(value.number, ()):
                if draft is not check:
                    draft.after.add(check)

    def _copy(self, value: Value, source: Key, target: Key, strides: tuple[Dim, ...]) -> _Draft:
        """A region that copies a value, which lies at `source` if in memory at all, to memory of its own."""
        memory = self.memory
        if value.op not in SPLATS:
            memory = {**memory, value.number: self.values[source].strides}
        instance = self.former.copied(value, strides, memory)
        draft = self._draft("region", instance, [target], value.number)
        draft.arguments = [source if key == value.number else key for key in draft.arguments]
        self._define(target, value.dtype, value.shape, strides, value.source)
        return draft

    def _add_copies(self) -> None:
        """Outputs that are inputs, constants or other outputs.

        One that shall end in an input's memory is copied there last; an input that is overwritten itself is copied to
        an intermediate value before.
        """
        destinations = self.partition.interface.destinations
        overwritten = {self.graph.inputs[target].number for target in destinations.values()}
        for position, value in enumerate(self.graph.outputs):
            if position in self.outputs:
                continue
            strides = self.partition.output_strides(position)
            strides = contiguous_strides(value.shape) if strides is None else strides
            key: Key = ("output", position)
            stays = position in destinations and value is self.graph.inputs[destinations[position]]
            if stays or value.is_empty:
                self._define(key, value.dtype, value.shape, strides, value.source)
                if stays:
                    self.shares[key] = value.number
            elif position not in destinations:
                self._copy(value, value.number, key, strides)
            elif value.number in overwritten:
                key = ("moved", position)
                self._copy(value, value.number, key, strides)
            else:
                key = value.number
            self.outputs[position] = key

    # ---- what is updated in place

    def _readers(self, key: Key) -> list[_Draft]:
        return [draft for draft in self.drafts if key in draft.arguments]

    def _place_scatters(self) -> None:
        """Give each scatter the memory that it updates: its base's, where nothing else reads that, or a copy's."""
        scatters = [(draft, draft.value) for draft in self.drafts if draft.kind == "scatter" and draft.value]
        destinations = self.partition.interface.destinations
        wanted: dict[int, int] = {}
        for _, value in reversed(scatters):
            home = self.partition.home.get(value.number, -1)
            target = destinations.get(home, wanted.get(value.number, -1))
            wanted[value.number] = target
            if self._is_own(value.operands[0], value):
                wanted[value.operands[0].number] = target
        for draft, value in scatters:
            base = value.operands[0]
            alias: Key = base.number
            # a scatter that reads elements of its base otherwise needs them as they were
            is_destination = (
                base.op == INPUT
                and wanted[value.number] == base.number
                and base.number not in draft.arguments
            )
            if not self._is_own(base, value) and not (is_destination and self._overwrite(draft, base.number)):
                alias = ("base", value.number)
                strides = self.memory[value.number]
                self._copy(base, base.number, alias, strides).rank = draft.rank
            draft.arguments.append(alias)
            self.shares[value.number] = alias

    def _is_own(self, base: Value, scatter: Value) -> bool:
        """Whether a scatter's base is an intermediate value that only the scatter reads, in the result's layout."""
        if base.op in (INPUT, DATA) or base.op in SPLATS or base in self.graph.outputs:
            return False
        others = [user for user in scatter.operands[0].users if user is not scatter and user.op == "scatter"]
        is_base_of_others = any(user.operands[0] is base for user in others)
        same_layout = self.values[base.number].strides == self.memory[scatter.number]
        return not is_base_of_others and not self._readers(base.number) and same_layout

    def _overwrite(self, draft: _Draft, key: Key) -> bool:
        """Let a draft write into an input's memory after all that reads its old content and after all checks; False
        where one of these depends on the draft."""
        before = {d for d in self.drafts if d is not draft and (d.kind == "check" or key in d.arguments)}
        if before & self._followers(draft):
            return False
        draft.after |= before
        draft.rank = (2, draft.rank[1])
        return True

    def _followers(self, draft: _Draft) -> set[_Draft]:
        """The drafts that can run only after one."""
        following = self._edges()
        found: set[_Draft] = set()
        stack = [draft]
        while stack:
            new = following.get(stack.pop(), set()) - found
            found |= new
            stack += new
        return found

    def _edges(self) -> dict[_Draft, set[_Draft]]:
        makers = {key: draft for draft in self.drafts for key in draft.outputs}
        following: dict[_Draft, set[_Draft]] = {}
        for draft in self.drafts:
            for maker in [*(makers[key] for key in draft.arguments if key in makers), *draft.after]:
                following.setdefault(maker, set()).add(draft)
        return following

    def _place_destinations(self) -> None:
        """Outputs that end in an input's memory: written there by the step that computes them, or copied at the end."""
        for position, target in sorted(self.partition.interface.destinations.items()):
            value, key = self.graph.outputs[position], self.outputs[position]
            given = self.graph.inputs[target].number
            if self._memory_of(key) == given:
                continue
            is_home = self.partition.home.get(value.number) == position
            if value.is_empty or (is_home and self._computed_in_place(value, given)):
                self.shares[key] = given
                continue
            final: Key = ("output", position)
            draft = self._copy(value, key, final, self.values[given].strides)
            if not self._overwrite(draft, given):
                raise CompileError(f"output {position} cannot be moved into the memory of input {target}")
            self.shares[final] = given
            self.outputs[position] = final

    def _memory_of(self, key: Key) -> Key:
        while key in self.shares:
            key = self.shares[key]
        return key

    def _computed_in_place(self, value: Value, given: int) -> bool:
        """Whether the step that computes a value may write into an input; it does from then on."""
        draft = next(draft for draft in self.drafts if value.number in draft.outputs)
        if draft.kind != "region" or draft.instance is None:
            return False
        region = draft.instance.formed.region
        number = draft.outputs.index(value.number)
        if given in draft.arguments:
            argument = draft.arguments.index(given)
            if not reads_where_it_writes(region, argument, region.outputs[number]):
                return False
            if not self._overwrite(draft, given):
                return False
            draft.aliases[number] = argument
            return True
        return self._overwrite(draft, given)

    # ---- the graph

    def finish(self) -> RegionGraph:
        """Steps in an order in which they may run, and numbered values."""
        drafts = self._ordered()
        keys: dict[Key, int] = {}
        for key in (*self.values, *(key for draft in drafts for key in draft.outputs)):
            keys.setdefault(key, len(keys))
        graph = RegionGraph([], [], (), ())
        homes = {key: position for position, key in self.outputs.items()}
        for key, number in keys.items():
            value = replace(
                self.values[key], number=number, shares=keys[self.shares[key]] if key in self.shares else -1
            )
            if key in homes:
                value = replace(value, kind="output", position=homes[key])
            graph.values.append(value)
        graph.inputs = tuple(keys[value.number] for value in self.graph.inputs)
        graph.outputs = tuple(keys[self.outputs[position]] for position in range(len(self.graph.outputs)))
        for draft in drafts:
            graph.steps.append(self._step(draft, keys, graph))
        graph.requirements = self.partition.requirements
        return graph

    def _ordered(self) -> list[_Draft]:
        """Checks as early and writes into the user's memory as late as may be, else in the graph's order."""
        following = self._edges()
        waiting = dict.fromkeys(self.drafts, 0)
        for followers in following.values():
            for draft in followers:
                waiting[draft] += 1
        heap = [(draft.rank, number) for number, draft in enumerate(self.drafts) if not waiting[draft]]
        heapq.heapify(heap)
        numbers = {draft: number for number, draft in enumerate(self.drafts)}
        order: list[_Draft] = []
        while heap:
            draft = self.drafts[heapq.heappop(heap)[1]]
            order.append(draft)
            for follower in following.get(draft, ()):
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(heap, (follower.rank, numbers[follower]))
        if len(order) != len(self.drafts):
            raise CompileError("the steps of a region graph depend on each other in a circle")
        return order

    def _step(self, draft: _Draft, keys: dict[Key, int], graph: RegionGraph) -> Step:
        arguments, outputs = (
            tuple(map(keys.__getitem__, draft.arguments)),
            tuple(map(keys.__getitem__, draft.outputs)),
        )
        if draft.instance is None:
            assert draft.value is not None
            return OpaqueStep(
                draft.value.op, arguments, outputs, draft.value.attributes, sources_of([draft.value])
            )
        formed = draft.instance.formed
        key, region = formed.key, formed.region
        if draft.aliases:
            key += "".join(f" in place {o}:{a}" for o, a in sorted(draft.aliases.items()))
            changed = [replace(o, alias=draft.aliases.get(n, o.alias)) for n, o in enumerate(region.outputs)]
            region = replace(region, outputs=changed)
        region = graph.regions.setdefault(key, region)
        sources = draft.instance.sources
        if draft.kind != "check":
            return RegionStep(region, key, arguments, outputs, formed.symbols, sources)
        assert draft.value is not None
        error = "index" if draft.value.op in ("gather", "scatter") else "division"
        sources = sources_of([draft.value])
        return CheckStep(region, key, arguments, outputs, formed.symbols, error, _MESSAGES[error], sources)
