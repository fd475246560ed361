"""Equal forms of a region: what the e-graph finds of it, and what is kept instead of computed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from luminal.dialects.kernel.terms import Region, Term, postorder
from luminal.dim import product, typical
from luminal.search.extract import FOLDS
from luminal.search.folds import FoldSpeller, fold_picks
from luminal.search.offset import region_with_offsets
from luminal.search.parts import part_sizes, region_in_parts

if TYPE_CHECKING:
    from luminal.search.rules.rule import Rule

BLOCKS = (64, 128)
"""Sizes of the blocks of an index that a loop carries a fold over."""
LONG_BLOCK, LONG_BLOCKS = 1024, 16
"""And one for an index that has at least so many of them."""
LONG = 1 << 16
"""Values that do not fit the first caches."""
COSTLY = frozenset({"exp2", "log2", "sin", "sqrt", "recip", "reduce"})
"""Terms that are worth a buffer where they would be computed more than once."""


@dataclass(frozen=True)
class Form:
    """An equal form of a region, with the same arguments and outputs; `name` says how to find it again; forms of one
    `family`, if they have one, differ in the size of their blocks or parts alone."""

    name: str
    region: Region
    family: str = ""


class EGraphSize(NamedTuple):
    """How large the e-graph of a region became, in how many rounds, and whether nothing was left to find."""

    classes: int
    nodes: int
    rounds: int
    is_saturated: bool


def forms(
    region: Region,
    licences: frozenset[str],
    rules: Sequence[Rule] | None = None,
    sizes: list[EGraphSize] | None = None,
) -> Iterator[Form]:
    """The forms of a region beside its own: those that keep a value, those that multiply bytes with an offset, those
    that reduce an index in parts, and those that fold over an index in one pass; `sizes` receives that of its e-graph,
    if there is one."""
    licences = frozenset[str]() if region.is_strict else licences
    yield from keeping(region)
    signed = region_with_offsets(region)
    if signed is not None:
        yield Form("offset", signed)
    parts = region_in_parts(region, licences)
    if parts is not None:
        yield Form("in parts", parts)
    yield from folding(region, licences, rules, sizes)


def keeping(region: Region) -> Iterator[Form]:
    """Forms that keep a factor of a sum of products, which another index of the product would compute anew:

    sum_j exp(c[j] - m) * v[j, e]   ->   w[j] = exp(c[j] - m), kept; sum_j w[j] * v[j, e]
    """
    if region.inner or region.parents or len(region.outputs) != 1 or region.outputs[0].alias >= 0:
        return
    numbers = region.numbering()
    for term in dict.fromkeys(_recomputed(region)):
        yield Form(f"keeps {numbers[term]}", replace(region, inner=[term]))


def _recomputed(region: Region) -> Iterator[Term]:
    for term in region.terms():
        if term.op in ("loop", "scan"):
            return
        if term.op != "reduce" or term.reduce.monoid != "sum" or term.operands[0].op != "mul":
            continue
        sums = frozenset(term.reduce.indices)
        left, right = term.operands[0].operands
        for factor, other in ((left, right), (right, left)):
            costly = [each for each in postorder([factor]) if each.op in COSTLY and each.free & sums]
            if costly and other.free - factor.free - sums:
                yield costly[-1]


def folding(
    region: Region,
    licences: frozenset[str],
    rules: Sequence[Rule] | None = None,
    sizes: list[EGraphSize] | None = None,
) -> Iterator[Form]:
    """Forms that fold over an index in one pass, one for each size of block; and one more, *bounded*, where blocks that
    a mask hides may be left out if everything that is summed up is known to be finite; and those that fold each part of
    an index on its own, where there are few results.

    `rules`: those of the e-graph, None for all of TERM_RULES.

    A region that updates an argument has none: its loops would read what they have overwritten.  Nor has one whose
    e-graph does not come to an end within its budget: what was found by then could be another thing the next time.
    `sizes` takes down how large the e-graph became, if there was one.
    """
    if not may_fold(region) or any(output.alias >= 0 for output in region.outputs):
        return
    # most programs have nothing to fold, and egglog takes a while to import
    from luminal.search import rules as tables
    from luminal.search.egraph import Budget, EGraph, EGraphLimitError

    try:
        classes = EGraph(region, tables.TERM_RULES if rules is None else rules, licences).saturate(Budget())
    except EGraphLimitError:
        return
    if sizes is not None:
        nodes = sum(map(len, classes.nodes.values()))
        sizes.append(EGraphSize(len(classes.nodes), nodes, classes.rounds, classes.is_saturated))
    picks = fold_picks(classes) if classes.is_saturated else None
    if picks is None or not any(node.op in FOLDS for node in picks.values()):
        return
    folded = {index for node in picks.values() if node.op in FOLDS for index in classes.names(node.bits)}
    longest = max(typical(region.extents[index]) for index in folded)
    is_long = longest >= LONG_BLOCKS * LONG_BLOCK
    for block in (*BLOCKS, LONG_BLOCK) if is_long else BLOCKS:
        speller = FoldSpeller(region, classes, picks, block)
        yield Form(f"folds of {block}", speller.region(), "folds")
        if speller.leaves_out:
            bounded = FoldSpeller(region, classes, picks, block, bounded=True)
            yield Form(f"folds of {block}, bounded", bounded.region(), "bounded folds")
    results = max(
        typical(product(region.extents[index] for index in classes.names(classes.free[score] & ~node.bits)))
        for node in picks.values()
        if node.op in FOLDS
        for score in node.operands[:1]
    )
    for size in part_sizes(longest, results):
        speller = FoldSpeller(region, classes, picks, size, in_parts=True)
        yield Form(f"in parts of {size}", speller.region(), "parts")


def last_of_each(forms: Iterable[Form]) -> list[Form]:
    """Of each family the last one alone, with the largest blocks."""
    return list({form.family or form.name: form for form in forms}.values())


def may_fold(region: Region) -> bool:
    """Whether a region has what every fold begins with: a sum over an index that needs a maximum over the same, or,
    where a second pass over the index would read memory again, another sum."""
    terms = region.terms()
    if region.parents or any(term.op in ("loop", "scan") for term in terms):
        return False
    needs: dict[Term, frozenset[tuple[str, tuple[str, ...]]]] = {}
    for term in terms:
        needs[term] = frozenset().union(*(needs[operand] for operand in term.operands))
        if term.op != "reduce":
            continue
        indices = term.reduce.indices
        is_long = typical(product(region.extents[index] for index in indices)) >= LONG
        if (
            term.reduce.monoid == "sum"
            and {("max", indices), *([("sum", indices)] if is_long else [])} & needs[term]
        ):
            return True
        needs[term] |= {(term.reduce.monoid, indices)}
    return False


class Forms:
    """The forms of the regions of one compilation under its licences, each found once."""

    def __init__(self, licences: Iterable[str] = ()) -> None:
        self.licences = frozenset(licences)
        self._known: dict[str, tuple[Form, ...]] = {}
        self._sizes: dict[str, list[EGraphSize]] = {}

    def of(self, region: Region, key: str) -> tuple[Form, ...]:
        """The forms of a region beside its own; `key` says which region it is."""
        if key not in self._known:
            self._known[key] = tuple(forms(region, self.licences, sizes=self._sizes.setdefault(key, [])))
        return self._known[key]

    def size(self, key: str) -> EGraphSize | None:
        """The size of a region's e-graph; None where it needed none, or has not been asked for its forms."""
        return next(iter(self._sizes.get(key, ())), None)

    def find(self, region: Region, key: str, name: str) -> Region | None:
        """The form of a region with this name, "" being its own; None where there is none."""
        if not name:
            return region
        return next((form.region for form in self.of(region, key) if form.name == name), None)
