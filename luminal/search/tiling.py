"""How a contraction is cut into register tiles, and how its factors are read."""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dialects.kernel.terms import Term
from luminal.search.shapes import below


@dataclass(frozen=True, slots=True)
class Way:
    """How the factors of a contraction are read: `left` and `right` as they are kept or loaded.

    `computed`: vector operations that make of one vector of what is loaded one of the lane side, where that is no
    panel of its own; `sources`: what is loaded for it, if not `right`.  `group`: neighbours along the sum in each lane,
    which one instruction of so many `cycles` sums up; `is_chained`: what steps that are written out sum up is made
    wider once for all of them.
    """

    left: Term
    right: Term
    computed: int = 0
    sources: tuple[Term, ...] = ()
    group: int = 1
    cycles: float = 1.0
    is_chained: bool = False

    @property
    def shifts(self) -> frozenset[str]:
        """The indices that the lane side is computed with, beside those of what it is read by: which of the fields of a
        byte is taken, for example.  Where their loops are unrolled, shifts are by constants."""
        numbers = (term.free for term in below((self.right,), frozenset()) if term.op == "index")
        return frozenset().union(*numbers)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The lane's index, that of rows (None where there are none), vectors and rows of a register tile, tiles of a
    block; whether rows are laid out for a block; whether panels stand outside of rows (`swap`).

    `across`: the index along which vectors lie beside each other, the lane's own or that of other columns; `kept`:
    whether what is read along the lane is kept for a panel.
    """

    lane: str
    row: str | None
    vectors: int
    tile: int
    block: int
    pack_rows: bool
    swap: bool
    across: str
    kept: bool = False

    def columns(self, lanes: int) -> tuple[tuple[str, int], ...]:
        """The columns of a register tile: of each index so many, that of the lane last."""
        if self.across == self.lane:
            return ((self.lane, self.vectors * lanes),)
        return ((self.across, self.vectors), (self.lane, lanes))

    def covered(self, lanes: int) -> dict[str, int]:
        """What a register tile has of its indices."""
        rows = {} if self.row is None else {self.row: self.tile}
        return rows | dict(self.columns(lanes))
