"""The moves from cuts of a graph to other cuts.

A move changes all regions of one signature alike, so that the layers of a model stay equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from luminal.passes.cut_choices import RESHAPES, instances
from luminal.passes.cuts import Cuts, Group, Partition
from luminal.passes.region_former import Instance
from luminal.passes.value_graph import SPLATS, VIEWS, Value


def neighbours(partition: Partition, cuts: Cuts) -> Iterator[tuple[str, Cuts]]:
    """All cuts that one move makes of some, each with what it does; cuts that change nothing are left out."""
    roots = partition.roots(cuts)
    readers = partition.readers(roots)
    owners = partition.owners(cuts, readers)
    values = partition.graph.values
    classes: dict[object, list[tuple[Group, Instance]]] = {}
    for group, instance in instances(partition, cuts):
        classes.setdefault(instance.signature, []).append((group, instance))
    optional = roots - partition.required
    for members in classes.values():
        first_group, first = members[0]
        for position, value in enumerate(first.cone):
            same = frozenset(instance.cone[position].number for _, instance in members)
            if value.number in first_group.inner:
                yield f"part {value!r}", Cuts(cuts.kept, cuts.merged - same, cuts.joined)
            elif value.number in first_group.roots:
                kept = same & optional
                if kept == same:
                    yield f"inline {value!r}", Cuts(cuts.kept - same, cuts.merged - same, cuts.joined)
                    yield from _slides(value, same, cuts, values)
                    regions = [{owners.get(reader, reader) for reader in readers[n]} for n in same]
                    if all(len(found) == 1 and min(found) >= 0 for found in regions):
                        yield f"merge {value!r}", Cuts(cuts.kept, cuts.merged | same, cuts.joined)
            elif value.number in first.computed and value.op not in SPLATS and value.op not in VIEWS:
                yield f"keep {value!r}", Cuts(cuts.kept | same, cuts.merged, cuts.joined)
    yield from _joins(partition, classes, cuts)


def _slides(
    value: Value, same: frozenset[int], cuts: Cuts, values: list[Value]
) -> Iterator[tuple[str, Cuts]]:
    """Keep a value as a view of it is, or as what it is a view of: another layout of the same elements."""
    targets: list[tuple[str, frozenset[int]]] = []
    if all(len(values[n].users) == 1 and values[n].users[0].op in RESHAPES for n in same):
        targets.append(("up", frozenset(values[n].users[0].number for n in same)))
    if value.op in RESHAPES and all(len(values[n].operands[0].users) == 1 for n in same):
        targets.append(("down", frozenset(values[n].operands[0].number for n in same)))
    for direction, target in targets:
        merged = (cuts.merged - same) | (target if same & cuts.merged else frozenset())
        yield f"slide {value!r} {direction}", Cuts((cuts.kept - same) | target, merged, cuts.joined)


def _joins(
    partition: Partition, classes: Mapping[object, list[tuple[Group, Instance]]], cuts: Cuts
) -> Iterator[tuple[str, Cuts]]:
    """Join regions that read the same value, or one that reduces nothing and what reads its result; and part those that
    are joined."""
    readers: dict[int, list[tuple[int, Group]]] = {}
    for number, members in enumerate(classes.values()):
        for group, instance in members:
            made = () if instance.formed.reductions else group.roots
            for value in dict.fromkeys((*instance.arguments, *made)):
                readers.setdefault(value, []).append((number, group))
    moves: dict[tuple[int, int], dict[int, tuple[int, ...]]] = {}
    for found in readers.values():
        for (number, group), (other, partner) in itertools.combinations(found, 2):
            pairs = moves.setdefault((number, other), {})
            together = tuple(sorted({*group.roots, *partner.roots}))
            if not pairs.keys() & set(together):
                pairs.update(dict.fromkeys(together, together))
    for pairs in moves.values():
        rest = frozenset(group for group in cuts.joined if not pairs.keys() & set(group))
        wanted = Cuts(cuts.kept, cuts.merged, rest | frozenset(pairs.values()))
        # others would have to run after and before what stands between them
        formed = frozenset(group.roots for group in partition.groups(wanted)) & frozenset(pairs.values())
        if formed:
            yield f"join {len(formed)} pairs of regions", Cuts(cuts.kept, cuts.merged, rest | formed)
    for members in classes.values():
        groups = frozenset(group.roots for group, _ in members if len(group.roots) > 1)
        if groups:
            yield f"part {len(groups)} joined regions", Cuts(cuts.kept, cuts.merged, cuts.joined - groups)
