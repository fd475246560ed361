"""`luminal bench` on a suite of measurements: each runs in a process of its own, with an empty cache folder.

Such a suite is a package with a table MEASUREMENTS; luminal/bench/report.py is the other end of the processes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luminal.bench.case import BenchmarkError
from luminal.bench.process import Process
from luminal.bench.report import Settings
from luminal.bench.rows import machine

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Measurement:
    """A row of MEASUREMENTS: the module that measures, and whether it does so for each number of threads, or for the
    largest alone."""

    module: str
    by_threads: bool = False


@dataclass
class Found:
    """What the processes have said so far; `left_out` and `failed` say why, by measurement."""

    figures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    times: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


def run(options: argparse.Namespace, file: Path, measurements: Mapping[str, Measurement]) -> int:
    """Run a suite's measurements, print what they find and write the JSON file; 1 where one of them broke off.

    `file`: the package's `__init__.py`.  BenchmarkError where no measurement has the wanted name.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    thread_counts = [int(text) for text in options.threads.split(",")]
    jobs = [
        (name, threads)
        for name, measurement in measurements.items()
        if options.only in name
        for threads in (thread_counts if measurement.by_threads else [max(thread_counts)])
    ]
    if not jobs:
        raise BenchmarkError(
            f"no measurement of {options.suite} contains {options.only!r}; known: {', '.join(measurements)}"
        )
    console, found = Console(), Found()
    console.width = max(console.width, 100)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        whole, part = bars.add_task("measurements", total=len(jobs)), bars.add_task("starting", total=None)
        for name, threads in jobs:
            bars.reset(part, description=f"{name}, {threads} threads", total=None)
            settings = Settings(file.parent.name, name, threads, options.quick, options.samples, options.seed)
            _measure(
                measurements[name].module,
                settings,
                file.parents[2],
                found,
                lambda done, total: bars.update(part, completed=done, total=total),
            )
            bars.advance(whole)
            _write(options.json, found, options)
    console.print(figure_table(found.figures))
    for name, why in found.left_out.items():
        console.print(f"Left out: {name}: {why}")
    for name, why in found.failed.items():
        console.print(f"Broken off: {name}:\n{why}", markup=False)
    return 1 if found.failed else 0


def _measure(
    module: str, settings: Settings, root: Path, found: Found, progress: Callable[[int, int], None]
) -> None:
    """One measurement in one process, to its end."""
    with tempfile.TemporaryDirectory(prefix="luminal-bench-") as folder:
        process = Process(
            "luminal.bench.report",
            [module, json.dumps(asdict(settings))],
            settings.threads,
            Path(folder) / "log",
            LUMINAL_CACHE_DIR=str(Path(folder) / "cache"),
            PYTHONPATH=os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH", "")))),
        )
        try:
            for message in process.lines():
                for kind, content in message.items():
                    if kind == "figure":
                        found.figures.append(content)
                    elif kind == "times":
                        found.times.append(content)
                    elif kind == "left_out":
                        found.left_out[settings.measurement] = content
                    else:
                        progress(*content)
        except BaseException:
            process.process.kill()
            raise
        status = process.close()
        if status:
            found.failed[settings.measurement] = f"status {status}\n{process.last_words()}"


def figure_table(figures: Sequence[Mapping[str, Any]]) -> Table:
    """The figures, those that are not what they should be in red."""
    from rich.table import Table

    table = Table(title="What was measured, and what it should be")
    for heading in ("measurement", "case"):
        table.add_column(heading)
    for heading in ("threads", "value", "wanted"):
        table.add_column(heading, justify="right")
    for row in figures:
        colour = {True: "[green]", False: "[red]", None: ""}[row["met"]]
        value = f"{colour}{row['value']:.4g} {row['unit']}"
        table.add_row(row["measurement"], row["case"], str(row["threads"]), value, row["wanted"])
    return table


def _write(file: Path | None, found: Found, options: argparse.Namespace) -> None:
    """After every measurement, so that a run that is broken off keeps what it has."""
    if file is None:
        return
    content = {
        "rows": found.times,
        "measurements": found.figures,
        "left_out": found.left_out,
        "failed": found.failed,
        "settings": {"quick": options.quick, "samples": options.samples, "seed": options.seed},
        "machine": machine(),
    }
    partial = file.with_suffix(file.suffix + ".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(file)
