"""The report of a search as text: the level "search" of `luminal.explain` and `LUMINAL_DUMP`, and its phrases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from luminal.search.forms import EGraphSize
from luminal.search.record import Considered, Move, OuterRecord
from luminal.search.report import KernelReport, SearchReport
from luminal.search.traffic import CACHE

NOTE = "What is timed differs from run to run: leave this level out where dumps are compared."
DEFINITION = (
    "passes: elements that the loops read (or write) over those that there are; from memory: without what a cache of "
    f"{CACHE >> 20} MB still holds"
)
SOURCES = {
    "timed": "timed now",
    "database": "found by an earlier search",
    "config": "as the config says",
    "model": "by the model alone",
    "": "not searched",
}
"""Where a schedule comes from, as `RegionRecord.source` says it."""
_MOST_REASONS = 3
_MOST_MOVES = 12


def search_text(report: SearchReport) -> str:
    """The whole report."""
    machine = f"{report.threads} threads, {report.flops / 1e9:.0f} GFLOP/s, {report.bandwidth / 1e9:.0f} GB/s"
    lines = [
        NOTE,
        DEFINITION,
        f"graph {report.digest}; cuts: {report.cuts}",
        f"machine of the model, for the bounds: {machine}",
        *outer_lines(report.outer),
    ]
    for number, kernel in enumerate(report.kernels, 1):
        lines += ["", *_kernel_lines(kernel, f"kernel {number} of {len(report.kernels)}")]
    return "\n".join(lines) + "\n"


def outer_lines(outer: OuterRecord | None) -> Iterator[str]:
    """What a long search of the cuts did; nothing without one."""
    if outer is None:
        return
    yield f"outer search: {outer_text(outer)}"
    for move in shown_moves(outer):
        verdict = "made" if move.is_made else "refused"
        yield f"  {verdict:8} {time_text(move.before)} -> {time_text(move.after)}: {move.what}"


def outer_text(outer: OuterRecord) -> str:
    """What a long search of the cuts did, in a line."""
    if not outer.states:
        return f"the cuts that an earlier one found, {time_text(outer.best)} a call in all kernels"
    return (
        f"{outer.states} ways to cut the graph, {outer.timed} candidates timed, "
        f"{outer.spent:.1f} s of {outer.budget:.3g} s; all kernels of a call {time_text(outer.best)}, "
        f"as the model alone would have it {time_text(outer.first)}; {outer.verdict}"
    )


def shown_moves(outer: OuterRecord) -> Sequence[Move]:
    """The moves that are shown: those that were made, then the best of the others."""
    return sorted(outer.moves, key=lambda move: (not move.is_made, move.after))[:_MOST_MOVES]


def _kernel_lines(kernel: KernelReport, title: str) -> Iterator[str]:
    sizes = ", ".join(f"{name} = {size}" for name, size in sorted(kernel.sizes.items()))
    launches = f"{kernel.launches} launch" + "es" * (kernel.launches > 1)
    yield f"{title}: region {kernel.key}, {launches}" + f", at {sizes}" * bool(sizes)
    if kernel.lines:
        yield f"  from {', '.join(kernel.lines)}"
    yield from (f"    {line}" for line in kernel.math.rstrip().splitlines())
    form = f"[{kernel.form}] " if kernel.form else ""
    yield f"  schedule ({SOURCES[kernel.source]}): {form}{kernel.schedule}"
    for (name, type_), passes in zip(kernel.memory, kernel.passes, strict=True):
        moved = f"passes {passes.loops:.3g}, from memory {passes.memory:.3g}, {bytes_text(passes.bytes)}"
        yield f"  {name} {type_}: {moved}"
    yield f"  {figures(kernel)}"
    yield f"  {enumeration(kernel.considered)}"
    for rival in rivals(kernel):
        yield f"    {rival.verdict:8} {rival.time:>9} (model {rival.model}) {rival.family}"
    yield from (f"    refused {count}: {why}" for why, count in kernel.considered.refused[:_MOST_REASONS])
    yield f"  {egraph_text(kernel.egraph)}"


def figures(kernel: KernelReport) -> str:
    """Work, traffic and time of one launch in a line."""
    how = "measured" if kernel.is_measured else "by the model"
    return (
        f"{kernel.operations / 1e6:.4g} MFLOP, {bytes_text(kernel.bytes)}: {kernel.intensity:.3g} FLOP a byte; "
        f"bound {time_text(kernel.bound)}, {how} {time_text(kernel.seconds)}"
    )


def enumeration(considered: Considered) -> str:
    """What was looked at, in a line."""
    if not considered.enumerated:
        return "no candidates were looked at"
    refused = sum(count for _, count in considered.refused)
    run = len(considered.tried)
    text = f"{considered.enumerated} candidates: {run} run, {refused} refused, {considered.untried} not tried"
    if considered.next_estimate is None or not considered.tried:
        return text
    factor = considered.next_estimate / min(each.estimate for each in considered.tried)
    return f"{text} (the best of them takes {factor:.2f} times the best of those, by the model)"


def egraph_text(egraph: EGraphSize | None) -> str:
    """The size of a region's e-graph in a line."""
    if egraph is None:
        return "e-graph: none was needed"
    end = "saturated" if egraph.is_saturated else "stopped by its budget"
    return f"e-graph: {egraph.classes} classes, {egraph.nodes} nodes, {egraph.rounds} rounds, {end}"


class Rival(NamedTuple):
    """A candidate that was run, in words; the verdict is "chosen" or "rejected"."""

    verdict: str
    time: str
    model: str
    family: str
    schedule: str


def rivals(kernel: KernelReport) -> Iterator[Rival]:
    """The candidates that were run, the fastest first."""
    for tried in sorted(kernel.considered.tried, key=lambda each: each.seconds or 0.0):
        is_chosen = (tried.form, tried.schedule) == (kernel.form, kernel.schedule)
        form = f"[{tried.form}] " if tried.form else ""
        yield Rival(
            "chosen" if is_chosen else "rejected",
            "not timed" if tried.seconds is None else time_text(tried.seconds),
            time_text(tried.estimate),
            f"{form}{tried.kind} {tried.family}".strip(),
            form + tried.schedule,
        )


def time_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def bytes_text(count: float) -> str:
    return f"{count / 1e6:.3g} MB" if count >= 1e5 else f"{count / 1e3:.3g} kB"
