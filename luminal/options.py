"""Options of one compilation, and the settings that come from the environment."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TextIO, cast

from luminal.errors import OptionError

_PROCESSORS = os.cpu_count() or 1
"""Asked for once: the system answers slowly."""
MODES = ("default", "max-autotune")
BUCKETS = ("auto", "declared")
PROFILING = ("workers", "local")
VERIFY = ("full", "ordinary")


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What a user may say of how a program is searched for.

    `mode` is how long schedules are searched for, and `candidates` how many of a kernel are timed at most, 0 for as
    many as the mode says. `cache`: compiled code may be read from the user's cache folder and kept there. `buckets`:
    "declared" for those of the dims alone, "auto" to let the roofline advise some where no dim has any. `config` is
    what an earlier search found (`luminal/search/config.py`), as text or as the path of a file: what it knows is not
    searched.

    `budget`: seconds for which library kernels are timed, the cuts of a graph and the candidates of its regions
    searched together, and the rest is searched, all in all; 0 for as long as the mode says; `seed` of what that search
    draws; `timeout`: seconds that one run of a candidate may take beside what is expected, before its process is
    killed, 0 for the usual; `verify`: whether candidates are compared with the reference on hostile data too ("full"),
    or on "ordinary" data alone.
    """

    mode: str = "default"
    candidates: int = 0
    cache: bool = True
    buckets: str = "auto"
    config: str = ""
    budget: float = 0.0
    seed: int = 0
    timeout: float = 0.0
    verify: str = "full"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise OptionError(f"mode {self.mode!r} is not known; modes are {', '.join(map(repr, MODES))}")
        check_buckets(self.buckets)
        check_search(self.budget, self.seed, self.timeout, self.verify)
        if self.candidates < 0:
            raise OptionError(f"candidates must be 0 or more, not {self.candidates}")
        if self.config:
            from luminal.search.config import config_text

            # the text, so that it is what a compiled graph is kept under
            object.__setattr__(self, "config", config_text(self.config))


@dataclass(frozen=True, slots=True)
class CompileOptions(SearchOptions):
    """What `compile_module` may be told; all of it is part of the key of the compiled graph.

    `constants` are positions of inputs that do not change from call to call (parameters): they are bound once, what
    depends on them alone is computed then, and they may be laid out anew. `updates` are pairs (output, input): that
    output is written into the memory of that input. `hint` gives sizes that are expected, as pairs (dim, size).
    """

    constants: tuple[int, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    hint: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        SearchOptions.__post_init__(self)
        positions = self.constants
        if not isinstance(positions, tuple) or not all(type(p) is int and p >= 0 for p in positions):  # pyright: ignore
            raise OptionError(
                f"constants must be a tuple of positions of inputs, from 0 on, not {positions!r}"
            )
        if len({given for given, _ in self.updates}) != len(self.updates):
            raise OptionError(f"an output can update one input only; updates are {self.updates}")

    @staticmethod
    def of(options: CompileOptions | Mapping[str, object] | None) -> CompileOptions:
        """Options from a mapping; OptionError for a name that is not known."""
        if isinstance(options, CompileOptions):
            return options
        given = dict(options or {})
        known = [entry.name for entry in fields(CompileOptions)]
        for name in given:
            if name not in known:
                raise OptionError(f"option {name!r} is not known; options are {', '.join(map(repr, known))}")
        hint = given.get("hint")
        if isinstance(hint, Mapping):
            given["hint"] = tuple(sorted(hint.items()))
        if isinstance(given.get("constants"), list):
            given["constants"] = tuple(cast("list[int]", given["constants"]))
        return replace(CompileOptions(), **given)

    @property
    def key(self) -> str:
        """The part of the options that changes what is compiled, as text."""
        return repr(replace(self, cache=True, timeout=0.0, verify=VERIFY[0]))


def check_buckets(name: str) -> None:
    """OptionError for what is none of BUCKETS."""
    if name not in BUCKETS:
        raise OptionError(f"buckets {name!r} is not known; known are {', '.join(map(repr, BUCKETS))}")


def check_search(budget: float, seed: int, timeout: float, verify: str) -> None:
    """OptionError for seconds, a seed or a level of verification that cannot be."""
    for name, seconds in (("budget", budget), ("timeout", timeout)):
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds < math.inf:
            raise OptionError(f"{name} must be a number of seconds, 0 or more, not {seconds!r}")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise OptionError(f"seed must be a whole number, not {seed!r}")
    if verify not in VERIFY:
        raise OptionError(f"verify {verify!r} is not known; known are {', '.join(map(repr, VERIFY))}")


def thread_count() -> int:
    """Threads of a call: `LUMINAL_THREADS`, else torch's setting where torch is loaded, else the processors."""
    return thread_counter()()


def thread_counter() -> Callable[[], int]:
    """What says the threads of a call, at once: the environment is read here. OptionError."""
    given = os.environ.get("LUMINAL_THREADS")
    if given:
        if not given.isdigit() or int(given) < 1:
            raise OptionError(f"LUMINAL_THREADS={given!r} must be a whole number from 1 on")
        number = int(given)
        return lambda: number
    return getattr(sys.modules.get("torch"), "get_num_threads", _threads_of_torch)


def _threads_of_torch() -> int:
    """Torch may have been loaded since."""
    return getattr(sys.modules.get("torch"), "get_num_threads", lambda: _PROCESSORS)()


def progress_wanted(stream: TextIO) -> bool:
    """Whether a stream shows how a search goes on: a terminal does, unless `LUMINAL_PROGRESS=0`."""
    return os.environ.get("LUMINAL_PROGRESS") != "0" and stream.isatty()


def profiles_in_workers() -> bool:
    """Whether kernels are timed in processes of their own: `LUMINAL_PROFILE` is "workers", the default, or "local"."""
    given = os.environ.get("LUMINAL_PROFILE", PROFILING[0])
    if given not in PROFILING:
        raise OptionError(
            f"LUMINAL_PROFILE={given!r} is not known; it is one of {', '.join(map(repr, PROFILING))}"
        )
    return given == "workers" and os.name == "posix"


def dump_directory() -> Path | None:
    """Where `LUMINAL_DUMP` asks for every level of what is compiled; None where it is not set."""
    given = os.environ.get("LUMINAL_DUMP")
    return Path(given) if given else None
