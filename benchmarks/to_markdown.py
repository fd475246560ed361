"""Prints the JSON file of `luminal bench` as a table in Markdown: python benchmarks/to_markdown.py encoder.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from luminal.bench import most_speedup, speedup, summary


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


def table(content: dict[str, Any]) -> str:
    rows: list[dict[str, Any]] = content["rows"]
    peers = list(rows[0]["peers"])
    headings = [
        "case",
        "threads",
        *(f"{peer}, ms" for peer in peers),
        "Luminal, ms",
        "speed-up",
        "at peak",
        "error / eager's",
    ]
    lines = [
        f"| {' | '.join(headings)} |",
        "|---" * len(headings) + "|",
    ]
    for row in rows:
        error = row["error_f64"]["luminal"] / max(row["error_f64"]["eager"], 1e-300)
        times = " | ".join(f"{row['peers'][peer]:.3f}" for peer in peers)
        lines.append(
            f"| {row['case']} | {row['threads']} | {times} | {row['luminal_ms']:.3f} "
            f"| {speedup(row):.2f} | {most_speedup(row):.2f} | {error:.2f} |"
        )
    totals = summary(rows)
    settings = ", ".join(f"{name} {value:.2f}" for name, value in totals["by_setting"].items())
    machine = content["machine"]
    where = f"{machine['processor']}, {machine['cores']} cores, torch {machine['versions']['torch']}."
    slower = "; ".join(totals["slower"]) or "none"
    end = f"Geometric mean {totals['geometric_mean']:.2f} ({settings}); slower in: {slower}."
    peaks = sorted({(row["threads"], row["peak_gflops"]) for row in rows})
    peak = ", ".join(f"{gflops:.0f} GFLOP/s on {threads}" for threads, gflops in peaks)
    start = f"{where} Speed-up is the best peer's time over Luminal's; at peak: over that of the case's"
    start += f" multiply-adds alone at the machine's peak ({peak}), geometric mean {totals['at_peak']:.2f}."
    return "\n".join([start, "", *lines, "", end])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    read = json.loads(Path(sys.argv[1]).read_text())
    print(figures(read) if "measurements" in read else table(read))
