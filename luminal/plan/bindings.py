"""Constants that a plan has taken in and laid out: those bound lately, which of them a thread uses, and when they are
out of date."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from luminal.errors import UnsetInputError
from luminal.plan.constants import Constant, Epoch

_numbers = itertools.count()
MOST_BOUND = 64
"""Sets of constants whose layouts are kept: of as many layers of a model that are compiled as one."""


class Bound:
    """Constants of a plan that are laid out: what goes into every call's slots, and the memory behind it: data of the
    graph, and what is `packed`.  `number` tells it from all others of the process."""

    def __init__(
        self,
        constants: tuple[Constant, ...],
        slots: list[int],
        data: list[Any],
        packed: list[Any],
        epoch: int,
    ) -> None:
        self.constants, self.slots, self.data, self.packed, self.epoch = constants, slots, data, packed, epoch
        self.number = next(_numbers)

    def is_of(self, constants: Sequence[Constant]) -> bool:
        """Whether it is what these constants are now; those without an owner may have changed."""
        return self.epoch == Epoch.current and all(
            new.owner is not None
            and new.owner is old.owner
            and (new.address, new.version) == (old.address, old.version)
            for new, old in zip(constants, self.constants, strict=True)
        )


class Bindings:
    """The constants at `positions`, laid out by `lay_out`; instances of one model may share an executable."""

    def __init__(self, positions: tuple[int, ...], lay_out: Callable[[tuple[Constant, ...]], Bound]) -> None:
        self.positions, self._lay_out = positions, lay_out
        self._recent: OrderedDict[tuple[tuple[int, int], ...], Bound] = OrderedDict()
        """What was bound lately, by owners and addresses."""
        self._lock = threading.Lock()
        self._of_thread = threading.local()
        self.last: Bound | None = None

    def bind(self, constants: Mapping[int, Constant]) -> None:
        """Use constants for the calls of this thread, and of threads that have bound none; UnsetInputError where one is
        missing."""
        require_constants(self.positions, constants)
        wanted = tuple(constants[position] for position in self.positions)
        key = tuple((id(constant.owner), constant.address) for constant in wanted)
        with self._lock:
            bound = self._recent.get(key)
            if bound is None or not bound.is_of(wanted):
                bound = self._recent[key] = self._lay_out(wanted)
            self._recent.move_to_end(key)
            if len(self._recent) > MOST_BOUND:
                self._recent.popitem(last=False)
        self._use(bound)

    def forget(self) -> None:
        """Keep nothing but what was bound last."""
        with self._lock:
            for key in [key for key, bound in self._recent.items() if bound is not self.last]:
                del self._recent[key]

    def _use(self, bound: Bound) -> None:
        self._of_thread.bound = self.last = bound

    def in_use(self) -> Bound | None:
        """What this thread has bound, as it was then."""
        return getattr(self._of_thread, "bound", self.last)

    def current(self) -> Bound:
        """What this thread has bound; laid out anew where parameters have changed unseen.  UnsetInputError."""
        bound = self.in_use()
        if bound is None:
            if self.positions:
                raise UnsetInputError(f"constant inputs {list(self.positions)} were never bound")
            self.bind({})
            return self.current()
        if bound.epoch != Epoch.current:
            bound = self._lay_out(bound.constants)
            self._use(bound)
        return bound


def require_constants(positions: Sequence[int], constants: Mapping[int, Constant]) -> None:
    """UnsetInputError where a constant input has no data."""
    missing = [position for position in positions if position not in constants]
    if missing:
        raise UnsetInputError(f"constant inputs {missing} have no data")
