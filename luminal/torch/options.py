"""What `torch.compile(..., mode=..., options=...)` and `lm.compile(...)` accept, checked before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any

from luminal.errors import OptionError
from luminal.options import MODES, CompileOptions, check_buckets, check_search


@dataclass(frozen=True)
class TorchOptions:
    """The options of one compilation; `parse_options` makes one of what a user states."""

    freeze: bool = False
    """Parameters and buffers never change after the first call: nothing is checked per call."""
    strict: bool = False
    """An ATen op without a lowering is an error instead of a fallback to torch."""
    licences: tuple[str, ...] | None = None
    """Names of the licences that rewrites may use; None is the default set."""
    target: str | None = None
    """The target, or None for the one that serves the inputs' device."""
    cache: bool = True
    """Compiled code may be read from the user's cache folder and kept there."""
    candidates: int = 0
    """How many schedules of a kernel are timed at most; 0 for as many as the mode says."""
    buckets: str = "auto"
    """"auto": sizes may be split between programs where that pays; "declared": one program for all."""
    config: str = ""
    """What an earlier search found, as text or as the path of a file: what it knows is not searched."""
    budget: float = 0.0
    """Seconds for which cuts and candidates of a graph are searched; 0 for as long as the mode says."""
    seed: int = 0
    """Of what that search draws."""
    timeout: float = 0.0
    """Seconds that one run of a candidate may take beside what is expected; 0 for the usual."""
    verify: str = "full"
    """Candidates are compared with the reference on hostile data too ("full"), or on "ordinary" data alone."""
    mode: str = "default"

    def of_search(self) -> dict[str, Any]:
        """Those that `CompileOptions` has too, by name."""
        shared = {entry.name for entry in fields(CompileOptions)}
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name in shared}


_NAMES: dict[str, type] = {
    "freeze": bool,
    "strict": bool,
    "licences": tuple,
    "target": str,
    "cache": bool,
    "candidates": int,
    "buckets": str,
    "config": str,
    "budget": float,
    "seed": int,
    "timeout": float,
    "verify": str,
}


def parse_options(mode: str | None, options: Mapping[str, Any] | None) -> TorchOptions:
    """Options from a mode name and a mapping.

    >>> parse_options(None, {"freeze": True}).freeze
    True

    Raises OptionError for an unknown mode or option, and for a value of the wrong type.
    """
    if mode is not None and mode not in MODES:
        raise OptionError(f"mode {mode!r} is not known; modes are {', '.join(map(repr, MODES))}")
    given = dict(options or {})
    for name, value in given.items():
        if name not in _NAMES:
            raise OptionError(f"option {name!r} is not known; options are {', '.join(map(repr, _NAMES))}")
        if name == "licences" and isinstance(value, (list, set, frozenset)):
            given[name] = value = tuple(sorted(value))
        if name == "config" and isinstance(value, PathLike):
            given[name] = value = fspath(value)
        if _NAMES[name] is float and type(value) is int:
            given[name] = value = float(value)
        if not isinstance(value, _NAMES[name]):
            raise OptionError(f"option {name!r} must be a {_NAMES[name].__name__}, not {value!r}")
    found = TorchOptions(mode=mode or "default", **given)
    check_buckets(found.buckets)
    check_search(found.budget, found.seed, found.timeout, found.verify)
    return found


assert {entry.name for entry in fields(TorchOptions)} == {*_NAMES, "mode"}
