"""`luminal explain --html`: the descent and the search of some graphs as one page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from luminal.dump import LEVELS, Levels
from luminal.explain_charts import kernel_curve, outer_curve, roofline, search_curve
from luminal.search.record import OuterRecord
from luminal.search.report import KernelReport, SearchReport
from luminal.search.report_text import (
    DEFINITION,
    SOURCES,
    bytes_text,
    egraph_text,
    enumeration,
    figures,
    outer_text,
    rivals,
    shown_moves,
    time_text,
)

MEANINGS = {
    "hlo": "what was meant: named operations on whole tensors",
    "primitive": "one exact meaning: a closed set of operations, and views",
    "regions": "terms over indices; each region becomes a kernel",
    "schedules": "where each part of a region runs, a line each",
    "placed": "explicit loops over tiles",
    "llvm": "LLVM IR for this machine",
    "triton": "Triton's text for a GPU, a function each launch",
    "plan": "what a call runs, in order, and where values lie",
    "search": "the search as text",
    "config": "given as the option config, nothing is searched",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f2f4f7; --line: #ccd3db; --mark: #0b62c4;
  --good: #12743b; --bad: #a3341f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --paper: #14171b; --soft: #1f242b; --line: #3a424d;
  --mark: #6db3ff; --good: #63d08d; --bad: #ff9c85; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
pre { background: var(--soft); padding: .7rem; overflow-x: auto; font: 13px/1.45 ui-monospace, monospace;
  border-radius: 4px; }
details { border: 1px solid var(--line); border-radius: 4px; margin: .5rem 0; padding: .3rem .8rem; }
summary { cursor: pointer; font-weight: 600; }
summary span { font-weight: 400; opacity: .75; }
table { border-collapse: collapse; margin: .6rem 0; }
th, td { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:first-child { white-space: nowrap; } td { overflow-wrap: anywhere; }
.chosen { color: var(--good); font-weight: 600; } .rejected td:first-child { color: var(--bad); }
figure { margin: .6rem 0; max-width: 44rem; } figcaption { opacity: .75; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 11px; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--line); } svg .roof { stroke: var(--bad); stroke-width: 2; fill: none; }
svg .curve { stroke: var(--mark); stroke-width: 2; fill: none; } svg .dot { fill: var(--mark); }
svg .point circle { fill: var(--mark); stroke: var(--mark); } svg .modelled circle { fill: none; }
"""


def page(found: Sequence[Levels], flops: float, bandwidth: float) -> str:
    """The page of some compilations; `flops` and `bandwidth` of this machine, a second."""
    parts = [
        part for number, levels in enumerate(found, 1) for part in _graph(number, levels, flops, bandwidth)
    ]
    body = "\n".join(parts or ["<p>Nothing was compiled.</p>"])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>luminal explain</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>luminal explain</h1>\n{body}\n</body></html>\n"
    )


def _graph(number: int, levels: Levels, flops: float, bandwidth: float) -> Iterator[str]:
    name = f": {escape(levels.reports[0].name)}" if levels.reports else ""
    yield f"<h2>Graph {number}{name}</h2>"
    for report in levels.reports:
        if not report.kernels:
            continue
        yield from _overview(report, flops, bandwidth)
        if report.outer is not None:
            yield from _outer(report.outer)
        yield f"<h3>Kernels</h3>\n<p>{escape(DEFINITION)}</p>"
        yield from (_kernel(place, kernel) for place, kernel in enumerate(report.kernels, 1))
    yield "<h3>The descent, level by level</h3>"
    for level in LEVELS:
        if level in levels:
            yield _folded(level, MEANINGS[level], f"<pre>{escape(levels[level])}</pre>")


def _overview(report: SearchReport, flops: float, bandwidth: float) -> Iterator[str]:
    total = sum(kernel.launches * kernel.seconds for kernel in report.kernels)
    yield (
        f"<p>{len(report.kernels)} different kernels, {time_text(total)} a call by their sum; "
        f"cuts: <code>{escape(report.cuts)}</code>. This machine, measured on {report.threads} threads: "
        f"{flops / 1e9:.0f} GFLOP/s and {bandwidth / 1e9:.0f} GB/s.</p>"
    )
    rows = [
        [
            str(number),
            str(kernel.launches),
            time_text(kernel.seconds),
            f"{100 * kernel.launches * kernel.seconds / max(total, 1e-12):.1f} %",
            time_text(max(kernel.operations / flops, kernel.bytes / bandwidth)),
            SOURCES[kernel.source],
        ]
        for number, kernel in enumerate(report.kernels, 1)
    ]
    yield _table(["kernel", "launches", "time", "share", "roofline bound", "schedule"], rows)
    yield roofline(report.kernels, flops, bandwidth)
    yield search_curve(report)


def _outer(outer: OuterRecord) -> Iterator[str]:
    """What a long search of the cuts did: its figures, the moves that it measured, and its curve."""
    yield f"<h3>The outer search</h3>\n<p>{escape(outer_text(outer))}.</p>"
    kinds = ["chosen" if move.is_made else "rejected" for move in shown_moves(outer)]
    rows = [
        ["made" if move.is_made else "refused", time_text(move.before), time_text(move.after), move.what]
        for move in shown_moves(outer)
    ]
    if rows:
        yield _table(["", "before", "after", "move"], rows, kinds)
    yield outer_curve(outer)


def _kernel(number: int, kernel: KernelReport) -> str:
    memory = [
        [name, type_, f"{passes.loops:.3g}", f"{passes.memory:.3g}", bytes_text(passes.bytes)]
        for (name, type_), passes in zip(kernel.memory, kernel.passes, strict=True)
    ]
    schedule = (f"[{kernel.form}] " if kernel.form else "") + kernel.schedule
    content = [
        f"<pre>{escape(kernel.math)}</pre>\n<p>{escape(figures(kernel))}</p>",
        _table(["memory", "type", "passes", "from memory", "bytes"], memory),
        f"<p>Schedule, {SOURCES[kernel.source]}:</p>\n<pre>{escape(schedule)}</pre>",
        f"<p>{escape(egraph_text(kernel.egraph))}; {escape(enumeration(kernel.considered))}.</p>",
        _rivals(kernel),
        kernel_curve(kernel),
    ]
    if kernel.considered.refused:
        refused = [[str(count), reason] for reason, count in kernel.considered.refused]
        content.append(_table(["refused", "reason"], refused))
    title = f"region {kernel.key}, {kernel.launches} x {time_text(kernel.seconds)}"
    return _folded(f"Kernel {number}", title, "\n".join(content), is_open=number == 1)


def _rivals(kernel: KernelReport) -> str:
    """The candidates that were run, the fastest first."""
    rows = [
        (each.verdict, [each.verdict, each.time, each.model, each.family, each.schedule])
        for each in rivals(kernel)
    ]
    heads = ["", "time", "model", "family", "schedule"]
    return _table(heads, [row for _, row in rows], [kind for kind, _ in rows]) if rows else ""


def _folded(title: str, more: str, content: str, is_open: bool = False) -> str:
    mark = " open" if is_open else ""
    return f"<details{mark}><summary>{escape(title)} <span>{escape(more)}</span></summary>\n{content}\n</details>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str] = ()) -> str:
    """A table; `kinds` are the classes of its rows."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    lines = [f"<tr>{head}</tr>"]
    for number, row in enumerate(rows):
        kind = f' class="{kinds[number]}"' if kinds else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>")
    return "<table>" + "\n".join(lines) + "</table>"
