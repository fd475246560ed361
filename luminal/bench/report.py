"""One measurement of a suite in a process of its own: what it is told, and how it says what it found.

It is asked nothing and says one JSON object a line (luminal/bench/process.py).  Started by luminal/bench/measure.py as
`python -m luminal.bench.report MODULE NAME SETTINGS`; the module has `measure(report, settings)`.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from luminal.bench.case import LeftOutError, absent
from luminal.bench.process import speaker


@dataclass(frozen=True)
class Settings:
    """What a measurement is told: its suite and name, threads, whether sizes are to be small, how many candidates are
    sampled, and the seed of all that is drawn."""

    suite: str
    measurement: str
    threads: int
    quick: bool = False
    samples: int = 10_000
    seed: int = 0


@dataclass(frozen=True)
class Report:
    """Where a measurement says what it finds; `write` receives each line."""

    settings: Settings
    write: Callable[[Mapping[str, Any]], None]

    def figure(
        self,
        case: str,
        value: float,
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        **detail: Any,
    ) -> None:
        """A figure, and what it should be: "x" for a ratio, "s", "MB" or the name of what is counted."""
        met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
        wanted = " and ".join(
            f"{word} {limit:g}"
            for word, limit in (("at least", at_least), ("at most", at_most))
            if limit is not None
        )
        row = {
            "measurement": self.settings.measurement,
            "case": case,
            "threads": self.settings.threads,
            "value": value,
            "unit": unit,
            "wanted": wanted,
            "met": met if wanted else None,
            "detail": detail,
        }
        self.write({"figure": row})

    def times(
        self, case: str, dtype: str, luminal_ms: float, peers: Mapping[str, float], **more: Any
    ) -> None:
        """A row of times as the model suites have them."""
        row = {
            "suite": self.settings.suite,
            "case": case,
            "dtype": dtype,
            "threads": self.settings.threads,
            "luminal_ms": luminal_ms,
            "peers": dict(peers),
            **more,
        }
        self.write({"times": row})

    def progress(self, done: int, total: int) -> None:
        self.write({"progress": [done, total]})


def needed(package: str) -> None:
    """LeftOutError where a package is not installed."""
    if reason := absent(package):
        raise LeftOutError(reason)


def main(arguments: list[str]) -> int:
    module, settings = arguments[0], Settings(**json.loads(arguments[1]))
    write = speaker()
    try:
        importlib.import_module(module).measure(Report(settings, write), settings)
    except LeftOutError as error:
        write({"left_out": str(error)})
    return 0


if __name__ == "__main__":
    # the class that measurements raise is that of the module they import, not of this __main__
    from luminal.bench.report import main as imported_main

    sys.exit(imported_main(sys.argv[1:]))
