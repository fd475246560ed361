"""The rows of `luminal bench` as one page that needs no other file: tables, and bars that people can read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from luminal.bench.rows import (
    Row,
    best_peer,
    cells,
    headings,
    number,
    peer_names,
    roof,
    roof_fraction,
    speedup,
    title,
)
from luminal.explain_html import STYLE

WIDTH, NAMES, STEP, TOP = 900, 380, 18, 26
"""Of a chart: its width, that of the names of its cases, the height of a bar with its gap, and of the scale."""
SCALE = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Speed-ups that the scale names; what lies outside is drawn at its ends."""
OWN_STYLE = """
body { max-width: 90rem; } td { font-variant-numeric: tabular-nums; } svg { max-width: 70rem; }
figure { max-width: 70rem; } .faster { fill: var(--good); } .slower { fill: var(--bad); } .ours { fill: var(--mark); }
.theirs { fill: var(--ink); opacity: .35; } tr.slow td { color: var(--bad); } svg .one { stroke: var(--ink); }
"""


def page(content: Mapping[str, Any]) -> str:
    """The page of a JSON file's content."""
    body = "\n".join(_body(content))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>luminal bench</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{OWN_STYLE}</style></head>\n<body>\n<h1>luminal bench</h1>\n{body}\n</body></html>\n"
    )


def _body(content: Mapping[str, Any]) -> Iterator[str]:
    rows: Sequence[Row] = content["rows"]
    machine, totals = content["machine"], content["summary"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    peaks = sorted({(row["threads"], row["peak_gflops"], row["read_gbytes"]) for row in rows})
    yield f"<p>{escape(machine['processor'])}, {machine['cores']} cores; {escape(versions)}.</p>"
    for threads, gflops, gbytes in peaks:
        yield f"<p>Measured on {threads} threads: {gflops:.0f} GFLOP/s in f32, {gbytes:.1f} GB/s read.</p>"
    mean = number(totals["geometric_mean"], "{:.2f}") or "unknown"
    yield f"<p>Speed-up is the best peer's time over Luminal's; its geometric mean is {mean}.</p>"
    yield _table(
        ["part", "geometric mean"], [[name, f"{mean:.2f}"] for name, mean in totals["by_setting"].items()]
    )
    for heading, entries in (("Failed", totals["failed"]), ("Slower than a peer", totals["slower"])):
        yield f"<h2>{heading}</h2><ul>{''.join(f'<li>{escape(entry)}</li>' for entry in entries)}</ul>"
    for name, reason in content["left_out"].items():
        yield f"<p>Left out: {escape(name)}: {escape(reason)}</p>"
    peers = peer_names(rows)
    for suite in dict.fromkeys(row["suite"] for row in rows):
        mine = [row for row in rows if row["suite"] == suite]
        yield f"<h2>{escape(suite)}</h2>"
        yield _speedups([row for row in mine if speedup(row) is not None])
        yield _roofs([row for row in mine if row["luminal_ms"] and roof(row)[0]])
        slow = [(speedup(row) or 0.0) < 1 for row in mine]
        yield _table(headings(peers), [cells(row, peers) for row in mine], slow)


def _speedups(rows: Sequence[Row]) -> str:
    """A bar for each row, to the right of 1 where Luminal is faster, on a scale of logarithms."""
    low, high = math.log(SCALE[0]), math.log(SCALE[-1])

    def across(ratio: float) -> float:
        inside = min(max(math.log(ratio), low), high)
        return NAMES + (WIDTH - NAMES - 60) * (inside - low) / (high - low)

    parts = [*_scale([(across(value), f"{value:g}", value == 1.0) for value in SCALE], len(rows))]
    for place, row in enumerate(rows):
        ratio = speedup(row) or 1.0
        start, end = sorted((across(1.0), across(ratio)))
        kind = "faster" if ratio >= 1 else "slower"
        what = f"{title(row)}: {ratio:.2f}, against {best_peer(row)}"
        parts += _bar(place, row, start, end, kind, what, f"{ratio:.2f}")
    return _chart("speed-up over the best peer of each case", parts, len(rows))


def _roofs(rows: Sequence[Row]) -> str:
    """Two bars for each row: how near Luminal, and the best peer, come to what bounds the case."""

    def across(fraction: float) -> float:
        return NAMES + (WIDTH - NAMES - 60) * min(fraction, 1.25) / 1.25

    scale = [(across(value), f"{value:.0%}", value == 1.0) for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts = [*_scale(scale, len(rows))]
    for place, row in enumerate(rows):
        peer = best_peer(row)
        ours, theirs = roof_fraction(row, row["luminal_ms"]), roof_fraction(row, row["peers"].get(peer))
        least, bound = roof(row)
        what = f"{title(row)}: {number(ours, '{:.0%}')} of what {bound} allows ({least:.3g} ms)"
        if theirs is not None:
            parts += _bar(place, row, across(0), across(theirs), "theirs", f"{peer}: {theirs:.0%}", "")
        parts += _bar(
            place, row, across(0), across(ours or 0), "ours", what, f"{number(ours, '{:.0%}')} {bound}", 6
        )
    caption = "of what the machine allows: multiply-adds at its f32 peak, or bytes at its bandwidth (grey: best peer)"
    return _chart(caption, parts, len(rows))


def _scale(marks: Sequence[tuple[float, str, bool]], count: int) -> Iterator[str]:
    for x, text, is_one in marks:
        kind = "one" if is_one else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{TOP + STEP * count}"/>'
        yield f'<text class="middle" x="{x:.1f}" y="{TOP - 10}">{text}</text>'


def _bar(
    place: int, row: Row, start: float, end: float, kind: str, what: str, label: str, height: int = STEP - 5
) -> Iterator[str]:
    """A bar with its case's name before it, a label behind it, and what it says when one points at it."""
    y = TOP + STEP * place
    yield f'<text class="end" x="{NAMES - 8}" y="{y + 11}">{escape(row["case"])}, {row["threads"]}</text>'
    yield (
        f'<rect class="{kind}" x="{start:.1f}" y="{y + (STEP - 5 - height) / 2:.1f}" '
        f'width="{max(end - start, 1):.1f}" height="{height}"><title>{escape(what)}</title></rect>'
    )
    if label:
        yield f'<text x="{end + 5:.1f}" y="{y + 11}">{escape(label)}</text>'


def _chart(caption: str, parts: Sequence[str], count: int) -> str:
    if not count:
        return ""
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {TOP + STEP * count + 6}" role="img" aria-label="{escape(caption)}">'
        f"{''.join(parts)}</svg><figcaption>{escape(caption)}</figcaption></figure>"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], slow: Sequence[bool] = ()) -> str:
    lines = [f"<tr>{''.join(f'<th>{escape(each)}</th>' for each in head)}</tr>"]
    for place, row in enumerate(rows):
        kind = ' class="slow"' if place < len(slow) and slow[place] else ""
        lines.append(f"<tr{kind}>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>")
    return f"<table>{''.join(lines)}</table>"
