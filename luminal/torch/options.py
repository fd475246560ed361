"""What `torch.compile(..., mode=..., options=...)` and `lm.compile(...)` accept, checked before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any

from luminal.errors import OptionError
from luminal.options import SearchOptions


@dataclass(frozen=True, slots=True)
class TorchOptions(SearchOptions):
    """The options of one compilation; `parse_options` makes one of what a user states."""

    freeze: bool = False
    """Parameters and buffers never change after the first call: nothing is checked per call."""
    strict: bool = False
    """An ATen op without a lowering is an error instead of a fallback to torch."""
    licences: tuple[str, ...] | None = None
    """Names of the licences that rewrites may use; None is the default set."""
    target: str | None = None
    """The target, or None for the one that serves the inputs' device."""

    def of_search(self) -> dict[str, Any]:
        """Those of the search, by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(SearchOptions)}


_KINDS: dict[str, type] = {
    **{entry.name: type(entry.default) for entry in fields(TorchOptions)},
    "licences": tuple,
    "target": str,
}
_NAMES = [name for name in _KINDS if name != "mode"]


def parse_options(mode: str | None, options: Mapping[str, Any] | None) -> TorchOptions:
    """Options from a mode name and a mapping.

    >>> parse_options(None, {"freeze": True}).freeze
    True

    Raises OptionError for an unknown mode or option, and for a value of the wrong type.
    """
    given = dict(options or {})
    for name, value in given.items():
        if name not in _NAMES:
            raise OptionError(f"option {name!r} is not known; options are {', '.join(map(repr, _NAMES))}")
        if name == "licences" and isinstance(value, (list, set, frozenset)):
            given[name] = value = tuple(sorted(value))
        if name == "config" and isinstance(value, PathLike):
            given[name] = value = fspath(value)
        if _KINDS[name] is float and type(value) is int:
            given[name] = value = float(value)
        if not isinstance(value, _KINDS[name]):
            raise OptionError(f"option {name!r} must be a {_KINDS[name].__name__}, not {value!r}")
    return TorchOptions(mode=mode or "default", **given)
