"""Choosing one e-node of each e-class: the program with the fewest passes over its indices."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from luminal.search.egraph import Classes, Node

Picks = Mapping[int, "Node"]
FOLDS = ("weighted", "moment")
"""Operations of e-nodes that a carried loop computes."""
PASS = 8.0
"""What a step of a reduction costs against one of elementwise code, or of a fold: it is a loop over data of its own,
while folds share one."""
TYPICAL = 64.0
"""Values of an index."""


def extract(classes: Classes, refused: Collection[int] = ()) -> Picks | None:
    """The cheapest e-node of each class that a program needs; None where there is no program.

    No fold is picked for the classes of `refused`.

    An index counts as `TYPICAL` values, so that the program depends on no sizes.  Costs are those of trees: a value
    that is used twice counts twice.  Source: D. Knuth, A generalization of Dijkstra's algorithm, 1977.
    """
    best: dict[int, float] = {}
    picks: dict[int, Node] = {}
    changed = True
    while changed:
        changed = False
        for number, nodes in classes.nodes.items():
            for node in nodes:
                if any(operand not in best for operand in node.operands):
                    continue
                if node.op in FOLDS and number in refused:
                    continue
                cost = _own_cost(classes, node, number)
                cost += sum(best[operand] for operand in node.operands)
                if cost < best.get(number, math.inf):
                    best[number], picks[number], changed = cost, node, True
    if any(root not in picks for root in classes.roots):
        return None
    return reachable(picks, classes.roots)


def _own_cost(classes: Classes, node: Node, number: int) -> float:
    if node.op in ("leaf", "constant", "empty"):
        return 0.0
    bound = node.bits if node.op in ("reduce", *FOLDS) else 0
    steps = TYPICAL ** (classes.free[number] | bound).bit_count()
    return PASS * steps if node.op == "reduce" else steps


def reachable(picks: Picks, roots: tuple[int, ...]) -> Picks:
    """What the roots need of some picks, operands first."""
    found: dict[int, Node] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        number, expanded = stack.pop()
        if expanded:
            found.setdefault(number, picks[number])
        elif number not in found:
            stack.append((number, True))
            stack += [(operand, False) for operand in reversed(picks[number].operands)]
    return found
