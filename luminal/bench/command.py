"""`luminal bench`: compares Luminal with its peers on suites of cases, in processes that take turns.

The coordinator hands out turns, compares results and prints; luminal/bench/worker.py does the work.
A suite that is a package has measurements instead of cases, and luminal/bench/measure.py runs them.
How a number comes about, and what the JSON file holds, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from luminal.bench import measure
from luminal.bench.case import BenchmarkError, Case, load_peer, load_suite, peer_file, suite_file, suite_names
from luminal.bench.peak import peak_gflops, read_gbytes
from luminal.bench.rows import cells, headings, machine, peer_names, speedup, summary, title
from luminal.bench.turns import Contender, Machine, Row, Settings, failures, run_case

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SLICE_SECONDS = 0.15
ROUNDS, QUICK_ROUNDS = 15, 3
LIMIT = 600.0
NOT_PRINTED = ("dtype", "bound by", "remarks")
"""Columns of the page and of Markdown that a terminal has no room for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--suite", default="encoder", help="names in benchmarks/, separated by commas, or a suite's file"
    )
    parser.add_argument("--json", type=Path, help="write rows, machine and settings to this file")
    parser.add_argument(
        "--html", type=Path, help="write tables and plots as one page that needs no other file"
    )
    parser.add_argument("--threads", default="1,2", help="thread counts, separated by commas (default 1,2)")
    parser.add_argument(
        "--peers",
        default="eager,inductor",
        help="names in benchmarks/peers/ or files, separated by commas; eager is always in",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="only cases, or measurements, whose name contains this text or matches it, with * and ?",
    )
    parser.add_argument("--rounds", type=int, help=f"slices of each contender (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="few cases, few rounds, small sizes")
    parser.add_argument("--tiny", action="store_true", help="cases at sizes where only results mean anything")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, help=f"seconds to prepare a case in (default {LIMIT:g})"
    )
    parser.add_argument(
        "--samples", type=int, default=10_000, help="candidates that suite search compares (default: 10000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of what suite search draws (default: 0)")


def run(options: argparse.Namespace) -> int:
    """The subcommand: runs the suites, prints tables, writes the files; 1 where Luminal failed on a case.

    BenchmarkError where a suite, a peer or a case is not known.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    files = [suite_file(name) for name in options.suite.split(",")]
    if any(file.name == "__init__.py" for file in files):
        if len(files) > 1 or options.html is not None:
            raise BenchmarkError(
                f"a suite of measurements runs alone and has no page; given: {options.suite}"
            )
        return measure.run(options, files[0], cast(Any, load_suite(files[0])).MEASUREMENTS)
    cases = [(file, case) for file in files for case in _chosen(file, options)]
    if not cases:
        known = f"suites: {', '.join(suite_names())}"
        raise BenchmarkError(f"no case of {options.suite} contains or matches {options.only!r}; {known}")
    console = Console()
    console.width = max(console.width, 140)
    peers, left_out = _peers(options.peers)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    settings = Settings(rounds, SLICE_SECONDS, options.limit, options.tiny)
    thread_counts = [int(text) for text in options.threads.split(",")]
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars, tempfile.TemporaryDirectory() as name:
        task = bars.add_task("starting", total=len(cases) * len(thread_counts))
        for threads in thread_counts:
            bars.update(task, description=f"{threads} threads, the machine's peak and bandwidth")
            here = Machine(threads, peak_gflops(threads), read_gbytes(threads))
            contenders = [Contender(peer, file, threads, Path(name)) for peer, file in peers.items()]
            try:
                for file, case in cases:

                    def tell(what: str, start: str = f"{threads} threads, {file.stem}, {case.name}") -> None:
                        bars.update(task, description=f"{start}: {what}")

                    row = run_case(file, case, contenders, here, settings, tell)
                    rows.append(row)
                    if row["failed"]:
                        bars.console.print(f"{title(row)}\n{failures(row)}", markup=False, highlight=False)
                    bars.advance(task)
                    _write(options, rows, left_out, settings)
            finally:
                for contender in contenders:
                    contender.close()
    names = peer_names(rows)
    for file in files:
        console.print(_table([row for row in rows if row["suite"] == file.stem], file.stem, names))
    _report(console, summary(rows), left_out)
    return 1 if any("luminal" in row["failed"] for row in rows) else 0


def _chosen(file: Path, options: argparse.Namespace) -> list[Case]:
    return [
        case
        for case in load_suite(file).CASES
        if (case.quick or not options.quick)
        and (options.only in case.name or fnmatchcase(case.name, options.only))
    ]


def _peers(text: str) -> tuple[dict[str, Path], dict[str, str]]:
    """The files of the contenders that can run, eager first and Luminal last, and why others are left out."""
    names = ["eager", *(name for name in text.split(",") if name not in ("", "eager", "luminal")), "luminal"]
    files = {Path(name).stem if name.endswith(".py") else name: peer_file(name) for name in names}
    why = {name: load_peer(file).missing() for name, file in files.items()}
    return (
        {name: file for name, file in files.items() if not why[name]},
        {name: reason for name, reason in why.items() if reason},
    )


def _write(
    options: argparse.Namespace, rows: Sequence[Row], left_out: dict[str, str], settings: Settings
) -> None:
    """After every case, so that a run that is broken off keeps what it has."""
    from luminal.bench.page import page

    content = {
        "rows": rows,
        "left_out": left_out,
        "summary": summary(rows),
        "settings": asdict(settings),
        "machine": machine(),
    }
    if options.json is not None:
        _replace(options.json, json.dumps(content, indent=1) + "\n")
    if options.html is not None:
        _replace(options.html, page(content))


def _replace(file: Path, text: str) -> None:
    partial = file.with_suffix(file.suffix + ".partial")
    partial.write_text(text)
    partial.replace(file)


def _table(rows: Sequence[Row], suite: str, peers: Sequence[str]) -> Table:
    from rich.table import Table

    what = f"{suite}: milliseconds a call; speed-up: the best peer's time over Luminal's"
    table = Table(title=what, title_justify="left")
    shown = [place for place, heading in enumerate(headings(peers)) if heading not in NOT_PRINTED]
    for place in shown:
        table.add_column(headings(peers)[place], justify="right" if place else "left", no_wrap=not place)
    for row in rows:
        ratio, texts = speedup(row), cells(row, peers)
        table.add_row(*(texts[place] for place in shown), style="red" if ratio is None or ratio < 1 else "")
    return table


def _report(console: Console, totals: dict[str, Any], left_out: dict[str, str]) -> None:
    if totals["geometric_mean"] is not None:
        console.print(f"Geometric mean against the best peer: {totals['geometric_mean']:.2f}")
    for name, value in totals["by_setting"].items():
        console.print(f"  {name}: {value:.2f}", markup=False)
    for word in ("slower", "failed"):
        console.print(f"{word.capitalize()} in: {'; '.join(totals[word]) or 'none'}", markup=False)
    for name, reason in left_out.items():
        console.print(f"Left out: {name}: {reason}", markup=False)
