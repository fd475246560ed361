"""Prints the JSON file of `luminal bench` as tables in Markdown: python benchmarks/to_markdown.py encoder.json"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from luminal.bench.rows import Row, cells, headings, number, peer_names


def figures(content: dict[str, Any]) -> str:
    """The table of a suite of measurements."""
    lines = ["| measurement | case | threads | value | wanted | |", "|---|---|---|---|---|---|"]
    for row in content["measurements"]:
        met = {True: "met", False: "not met", None: ""}[row["met"]]
        lines.append(
            f"| {row['measurement']} | {row['case']} | {row['threads']} "
            f"| {row['value']:.4g} {row['unit']} | {row['wanted']} | {met} |"
        )
    lines += ["", "| case | threads | Luminal, ms | others, ms |", "|---|---|---|---|"]
    for row in content["rows"]:
        peers = ", ".join(f"{peer} {milliseconds:.3f}" for peer, milliseconds in row["peers"].items())
        lines.append(f"| {row['case']} | {row['threads']} | {row['luminal_ms']:.3f} | {peers} |")
    return "\n".join(lines)


def tables(content: dict[str, Any]) -> str:
    """A table for each suite, with what it was measured on before them and the means behind them."""
    rows: list[Row] = content["rows"]
    totals, machine = content["summary"], content["machine"]
    peaks = sorted({(row["threads"], row["peak_gflops"], row["read_gbytes"]) for row in rows})
    measured = "; ".join(
        f"{gflops:.0f} GFLOP/s and {gbytes:.0f} GB/s on {threads}" for threads, gflops, gbytes in peaks
    )
    where = f"{machine['processor']}, {machine['cores']} cores, torch {machine['versions']['torch']}."
    meaning = (
        "Speed-up is the best peer's time over Luminal's; of the roof: the part of what this machine can do"
    )
    lines = [f"{where} {meaning} ({measured} threads)."]
    for suite in dict.fromkeys(row["suite"] for row in rows):
        lines += ["", f"### {suite}", "", *_table([row for row in rows if row["suite"] == suite])]
    mean = number(totals["geometric_mean"], "{:.2f}") or "unknown"
    settings = ", ".join(f"{name} {value:.2f}" for name, value in totals["by_setting"].items())
    lines += ["", f"Geometric mean {mean} ({settings}); slower in: {'; '.join(totals['slower']) or 'none'}."]
    lines += ["", f"Failed: {'; '.join(totals['failed']) or 'none'}."]
    lines += [f"Left out: {name}: {reason}." for name, reason in content["left_out"].items()]
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> list[str]:
    peers = peer_names(rows)
    head = headings(peers)
    body = [f"| {' | '.join(cell.replace('|', '/') for cell in cells(row, peers))} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *body]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    read = json.loads(Path(sys.argv[1]).read_text())
    print(figures(read) if "measurements" in read else tables(read))
