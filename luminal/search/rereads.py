"""How often a region reads memory again because one reduction over an index needs another one over the same.

    sum_j (x[j] - mean)^2, where mean = sum_j x[j] / n: x is read twice, and once more where results have j too.

A second pass costs memory only where what lies between the two, a row, does not fit the cache.
"""

from __future__ import annotations

from collections.abc import Callable

from luminal.dialects.kernel.terms import Region, Term
from luminal.search.shapes import Shapes


def bytes_read_again(shapes: Shapes, cache: int) -> int:
    """Bytes of arguments that passes after the first read, at representative sizes; `cache`: bytes of one core's."""
    region = shapes.region
    folded = {index for term in region.terms() for index in _indices(term)}
    return sum(_by_index(shapes, whole, cache) for whole in sorted({region.whole(i)[0] for i in folded}))


def _indices(term: Term) -> tuple[str, ...]:
    return (term.loop.index,) if term.op == "loop" else term.reduced


def _passes_over(region: Region, parts: frozenset[str]) -> Callable[[Term], bool]:
    """Whether a term is a pass over an index: a loop over its blocks is one, with all that it does to a block."""
    loops = any(term.op == "loop" and term.loop.index in parts for term in region.terms())

    def is_pass(term: Term) -> bool:
        over = [index for index in _indices(term) if index in parts]
        return bool(over) and (
            term.op == "loop" or (not loops and any(region.whole(i)[1] == 1 for i in over))
        )

    return is_pass


def _by_index(shapes: Shapes, whole: str, cache: int) -> int:
    region = shapes.region
    parts = frozenset(index for index in region.extents if region.whole(index)[0] == whole)
    is_pass = _passes_over(region, parts)
    turn: dict[Term, int] = {}
    """In which pass a term can be computed, the first being 0."""
    reads: dict[Term, frozenset[Term]] = {}
    """The loads that a term reads beside what passes before it have found."""
    read_in: dict[Term, set[int]] = {}

    def note(term: Term, free: frozenset[str]) -> None:
        for load in reads[term]:
            row = shapes.volume(load.free) // shapes.volume(load.free & (free - parts))
            if row * load.dtype.size_bytes > cache:
                read_in.setdefault(load, set()).add(turn[term])

    for term in region.terms():
        turn[term] = max((turn[o] + is_pass(o) for o in term.operands), default=0)
        new = frozenset({term}) if term.op == "load" and term.free & parts else frozenset[Term]()
        reads[term] = new.union(*(reads[o] for o in term.operands if not is_pass(o)))
        if is_pass(term):
            note(term, term.free)
    for output in region.outputs:
        if output.indices & parts:
            note(output.term, output.indices)
    return sum((len(found) - 1) * shapes.bytes_of(load) for load, found in read_in.items())
