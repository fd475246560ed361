"""`luminal bench`: compares eager, Inductor and Luminal on a suite, in processes that take turns.

The coordinator here only hands out turns, compares results and prints; luminal/bench_worker.py does the work.
A suite that is a package has measurements instead of cases, and luminal/bench_measure.py runs them.
How a number comes about, and what the JSON file holds, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from luminal.errors import LuminalError

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor, nn

CONTENDERS = ("eager", "inductor", "luminal")
SUITES = Path(__file__).resolve().parent.parent / "benchmarks"
SLICE_SECONDS = 0.15
ROUNDS = 15
QUICK_ROUNDS = 3


class BenchmarkError(LuminalError, RuntimeError):
    """A suite is missing, a contender failed or one gave a wrong result."""


@dataclass(frozen=True)
class Case:
    """One input size of a suite; `dynamic`: compiled for all sizes, or for this one alone."""

    name: str
    dynamic: bool
    dtype: str
    sizes: dict[str, int]


class Suite(Protocol):
    """What a suite's file defines."""

    CASES: list[Case]
    QUICK_CASES: list[Case]
    TOLERANCE: float

    def model(self) -> nn.Module: ...
    def inputs(self, sizes: dict[str, int]) -> tuple[Tensor, ...]: ...
    def gflop(self, sizes: dict[str, int]) -> float: ...


def suite_file(name: str) -> Path:
    """The file of a suite, by its name in benchmarks/ or by its path: of a package, its `__init__.py`."""
    if (SUITES / name / "__init__.py").is_file():
        return SUITES / name / "__init__.py"
    path = Path(name) if name.endswith(".py") else SUITES / f"{name}.py"
    if not path.is_file():
        files = {entry.stem for entry in SUITES.glob("[!_]*.py")}
        packages = {entry.parent.name for entry in SUITES.glob("*/__init__.py")}
        known = ", ".join(sorted(files | packages)) or "none is installed"
        raise BenchmarkError(f"no suite {name!r}: there is no file {path}. Known by name: {known}")
    return path


def load_suite(path: str | Path) -> Suite:
    spec = importlib.util.spec_from_file_location(f"luminal_suite_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise BenchmarkError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Suite, module)


class Contender:
    """The coordinator's end of one worker process."""

    def __init__(self, name: str, threads: int, suite: Path, log: Path) -> None:
        self.name = name
        self.log = log
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "luminal.bench_worker", name, str(threads), str(suite)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends one request and waits for its reply; a dead worker raises BenchmarkError."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            last_words = "\n".join(self.log.read_text().splitlines()[-15:])
            raise BenchmarkError(f"the process of {self.name} ended:\n{last_words}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise BenchmarkError(f"{self.name} failed: {reply['error']}")
        return reply

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def largest_difference(result: Path, reference: Path) -> float:
    """Over all elements; NaN in one but not in the other is infinite. Shapes must be equal."""
    got, wanted = np.load(result), np.load(reference)
    if got.shape != wanted.shape:
        raise BenchmarkError(f"{result.stem} has shape {got.shape}, {reference.stem} has {wanted.shape}")
    if not np.array_equal(np.isnan(got), np.isnan(wanted)):
        return math.inf
    return float(np.nanmax(np.abs(got - wanted), initial=0.0))


def run_case(
    suite_name: str,
    case: Case,
    threads: int,
    contenders: Sequence[Contender],
    settings: Settings,
    folder: Path,
    work: Work,
) -> dict[str, Any]:
    """Compiles and checks the case in every contender, then times them in turns; returns the row."""
    files = {contender.name: folder / f"{contender.name}.npy" for contender in contenders}
    first_call: dict[str, float] = {}
    for contender in contenders:
        reply = contender.ask(
            do="prepare", dynamic=case.dynamic, sizes=case.sizes, result_file=str(files[contender.name])
        )
        first_call[contender.name] = round(reply["first_call_seconds"], 3)
    exact = folder / "f64.npy"
    contenders[0].ask(do="reference", result_file=str(exact))
    for name, file in files.items():
        difference = largest_difference(file, files["eager"])
        if difference > settings.tolerance:
            raise BenchmarkError(
                f"{name} differs from eager by {difference:.2e} on {case.name}; "
                f"{settings.tolerance:.0e} is allowed"
            )

    medians: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for turn in range(settings.rounds):
        for index in range(len(contenders)):
            contender = contenders[(turn + index) % len(contenders)]
            reply = contender.ask(do="slice", seconds=settings.slice_seconds)
            medians[contender.name].append(1e3 * reply["median_seconds"])
    times = {name: round(statistics.median(values), 4) for name, values in medians.items()}
    return {
        "suite": suite_name,
        "case": f"{case.name}, {'dynamic' if case.dynamic else 'static'}",
        "dtype": case.dtype,
        "dynamic": case.dynamic,
        "threads": threads,
        "luminal_ms": times.pop("luminal", None),
        "peers": times,
        "first_call_seconds": first_call,
        "error_f64": {name: largest_difference(file, exact) for name, file in files.items()},
        "spread": {name: spread(values) for name, values in medians.items()},
        "gflop": work.gflop,
        "peak_gflops": work.peak_gflops,
    }


def spread(values: Sequence[float]) -> float:
    """Interquartile range over median: how noisy the machine was."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4)
    return round((high - low) / middle, 3)


@dataclass(frozen=True)
class Work:
    """The multiply-adds that a case cannot do without, each counted as two, and the machine's most per second."""

    gflop: float
    peak_gflops: float


@dataclass(frozen=True)
class Settings:
    rounds: int
    slice_seconds: float
    tolerance: float


def speedup(row: dict[str, Any]) -> float:
    """The best peer's time over Luminal's: above 1 Luminal is faster."""
    return min(row["peers"].values()) / row["luminal_ms"]


def most_speedup(row: dict[str, Any]) -> float:
    """The speed-up that a program would have which did the case's multiply-adds at the peak and nothing else."""
    return min(row["peers"].values()) / (1e3 * row["gflop"] / row["peak_gflops"])


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def result_table(rows: Sequence[dict[str, Any]], peers: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(
        title="Milliseconds a call; speed-up: the best peer's time over Luminal's; at peak: over arithmetic alone"
    )
    table.add_column("case", no_wrap=True)
    for heading in ("threads", *peers, "luminal", "speed-up", "at peak", "spread", "error / eager's"):
        table.add_column(heading, justify="right")
    for row in rows:
        error = row["error_f64"]["luminal"] / max(row["error_f64"]["eager"], 1e-300)
        ratio = speedup(row)
        table.add_row(
            row["case"],
            str(row["threads"]),
            *(f"{row['peers'][peer]:.3f}" for peer in peers),
            f"{row['luminal_ms']:.3f}",
            f"[{'green' if ratio >= 1 else 'red'}]{ratio:.2f}",
            f"{most_speedup(row):.2f}",
            f"{max(row['spread'].values()):.0%}",
            f"{error:.2f}",
        )
    return table


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the speed-up, overall and by setting, and the cases where a peer is faster."""
    ratios = [speedup(row) for row in rows]
    groups: dict[str, list[float]] = {}
    for row, ratio in zip(rows, ratios, strict=True):
        groups.setdefault(f"{row['threads']} threads", []).append(ratio)
        groups.setdefault("dynamic" if row["dynamic"] else "static", []).append(ratio)
    return {
        "geometric_mean": round(geometric_mean(ratios), 3),
        "at_peak": round(geometric_mean(map(most_speedup, rows)), 3),
        "by_setting": {name: round(geometric_mean(values), 3) for name, values in sorted(groups.items())},
        "slower": [
            f"{row['case']}, {row['threads']} threads: {ratio:.2f}"
            for row, ratio in zip(rows, ratios, strict=True)
            if ratio < 1
        ],
    }


def machine() -> dict[str, Any]:
    from importlib.metadata import version

    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        models = [
            line.partition(":")[2].strip()
            for line in information.read_text().splitlines()
            if "model name" in line
        ]
        name = models[0] if models else name
    packages = ("torch", "numpy", "llvmlite", "xdsl", "luminal")
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite", default="encoder", help="a name in benchmarks/ or the path of a suite's file"
    )
    parser.add_argument("--json", type=Path, help="write rows, machine and settings to this file")
    parser.add_argument("--threads", default="1,2", help="thread counts, separated by commas (default 1,2)")
    parser.add_argument("--peers", default="eager,inductor", help="what to compare with; eager is always in")
    parser.add_argument(
        "--only", default="", help="only cases, or measurements, whose name contains this text"
    )
    parser.add_argument("--rounds", type=int, help=f"slices of each contender (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="few cases, few rounds, small sizes")
    parser.add_argument(
        "--samples", type=int, default=10_000, help="candidates that suite search compares (default: 10000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what suite search draws (default: 0)")


def run(options: argparse.Namespace) -> int:
    """The subcommand: runs the suite, prints the table, writes the JSON file. 0, or BenchmarkError."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from luminal import bench_measure
    from luminal.bench_peak import peak_gflops

    file = suite_file(options.suite)
    suite = load_suite(file)
    if file.name == "__init__.py":
        return bench_measure.run(options, file, cast(Any, suite).MEASUREMENTS)
    console = Console()
    console.width = max(console.width, 100)
    peers = ["eager", *(name for name in options.peers.split(",") if name and name != "eager")]
    unknown = [name for name in peers if name not in CONTENDERS or name == "luminal"]
    if unknown:
        raise BenchmarkError(f"unknown peer {unknown[0]!r}; known: eager, inductor")
    named = suite.QUICK_CASES if options.quick else suite.CASES
    cases = [
        case for case in named if options.only in f"{case.name}, {'dynamic' if case.dynamic else 'static'}"
    ]
    if not cases:
        raise BenchmarkError(f"no case of {options.suite} contains {options.only!r}")
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    settings = Settings(rounds, SLICE_SECONDS, suite.TOLERANCE)
    thread_counts = [int(text) for text in options.threads.split(",")]

    rows: list[dict[str, Any]] = []
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with bars, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = bars.add_task("starting", total=len(cases) * len(thread_counts))
        for threads in thread_counts:
            bars.update(task, description=f"{threads} threads, peak")
            peak = peak_gflops(threads)
            contenders = [
                Contender(contender, threads, file, folder / f"{contender}-{threads}.log")
                for contender in (*peers, "luminal")
            ]
            try:
                for case in cases:
                    bars.update(task, description=f"{threads} threads, {case.name}")
                    work = Work(suite.gflop(case.sizes), peak)
                    rows.append(run_case(Path(file).stem, case, threads, contenders, settings, folder, work))
                    bars.update(task, advance=1)
                    write(options.json, rows, settings)
            finally:
                for contender in contenders:
                    contender.close()
    console.print(result_table(rows, peers))
    report(console, summary(rows))
    return 0


def write(file: Path | None, rows: Sequence[dict[str, Any]], settings: Settings) -> None:
    """After every case, so that a run that is broken off keeps what it has."""
    if file is None:
        return
    content = {
        "rows": rows,
        "summary": summary(rows),
        "settings": {"rounds": settings.rounds, "slice_seconds": settings.slice_seconds},
        "machine": machine(),
    }
    partial = file.with_suffix(file.suffix + ".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(file)


def report(console: Any, totals: dict[str, Any]) -> None:
    console.print(
        f"Geometric mean against the best peer: {totals['geometric_mean']:.2f} "
        f"(arithmetic at the machine's peak alone: {totals['at_peak']:.2f})"
    )
    for name, value in totals["by_setting"].items():
        console.print(f"  {name}: {value:.2f}")
    console.print("Slower in: " + ("; ".join(totals["slower"]) if totals["slower"] else "none"))
