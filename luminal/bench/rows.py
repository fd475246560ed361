"""What rows of a benchmark say: speed-ups, distance from what the machine can do, means; as cells of a table."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
PACKAGES = (
    "torch", "numpy", "llvmlite", "xdsl", "luminal", "onnxruntime", "jax", "tinygrad", "llama_cpp_python",
)  # fmt: skip
HEADINGS = ("spread", "of the roof", "bound by", "error / eager's", "rms / eager's", "remarks")


def best_peer(row: Row) -> str | None:
    return min(row["peers"], key=lambda name: row["peers"][name], default=None)


def speedup(row: Row) -> float | None:
    """The best peer's time over Luminal's: above 1 Luminal is faster. None where one of them has no time."""
    best = best_peer(row)
    return row["peers"][best] / row["luminal_ms"] if best and row["luminal_ms"] else None


def roof(row: Row) -> tuple[float, str]:
    """The least ms that the case takes on this machine, and what bounds it: its multiply-adds at the f32 peak, or its
    bytes at the read bandwidth of memory. 0 where it has neither."""
    arithmetic = 1e3 * row["gflop"] / row["peak_gflops"]
    memory = row["mbytes"] / row["read_gbytes"]
    return (arithmetic, "arithmetic") if arithmetic > memory else (memory, "memory")


def roof_fraction(row: Row, milliseconds: float | None) -> float | None:
    """1 where a contender is as fast as the roof; above 1 caches held what memory was counted for, or it multiplied
    in narrower types than f32."""
    return roof(row)[0] / milliseconds if milliseconds else None


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def peer_names(rows: Sequence[Row]) -> list[str]:
    """All that any row has a time of, in order."""
    return list(dict.fromkeys(name for row in rows for name in row["peers"]))


def remarks(row: Row) -> str:
    """Who failed, in a phrase each, and what contenders noted."""
    failed = [f"{name} failed: {_phrase(reason)}" for name, reason in row["failed"].items()]
    return "; ".join([*failed, *(f"{name}: {note}" for name, note in row["notes"].items())])


def _phrase(reason: str) -> str:
    """The first line of an error that says anything, cut where it is long."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    first = lines[0] if lines else "for no reason that it says"
    return first if len(first) <= 120 else f"{first[:117]}..."


def cells(row: Row, peers: Sequence[str]) -> list[str]:
    """A row as text: case, dtype, threads, the peers' ms, Luminal's, speed-up, and HEADINGS."""
    bound = roof(row)
    fraction = roof_fraction(row, row["luminal_ms"])
    largest, rms = (
        errors["luminal"] / max(errors["eager"], 1e-300) if "luminal" in errors else None
        for errors in (row["error_f64"], row["rms_f64"])
    )
    return [
        row["case"],
        row["dtype"],
        str(row["threads"]),
        *(number(row["peers"].get(peer), "{:.3f}") for peer in peers),
        number(row["luminal_ms"], "{:.3f}"),
        number(speedup(row), "{:.2f}"),
        f"{max(row['spread'].values(), default=0.0):.0%}",
        number(fraction if bound[0] else None, "{:.2f}"),
        bound[1] if bound[0] else "",
        number(largest, "{:.2f}"),
        number(rms, "{:.2f}"),
        remarks(row),
    ]


def headings(peers: Sequence[str]) -> list[str]:
    return [
        "case", "dtype", "threads", *(f"{peer}, ms" for peer in peers), "Luminal, ms", "speed-up", *HEADINGS,
    ]  # fmt: skip


def number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means of the speed-up, overall, by suite and by threads; the cases where a peer is faster, the worst
    first; those that Luminal failed on."""
    known = [(row, ratio) for row in rows if (ratio := speedup(row)) is not None]
    groups: dict[str, list[float]] = {}
    for row, ratio in known:
        for name in (f"{row['threads']} threads", "dynamic" if row["dynamic"] else "static", row["suite"]):
            groups.setdefault(name, []).append(ratio)
    slower = sorted((pair for pair in known if pair[1] < 1), key=lambda pair: pair[1])
    return {
        "geometric_mean": round(geometric_mean(ratio for _, ratio in known), 3) if known else None,
        "by_setting": {name: round(geometric_mean(values), 3) for name, values in sorted(groups.items())},
        "slower": [f"{title(row)}: {ratio:.2f}" for row, ratio in slower],
        "failed": [
            f"{title(row)}: {_phrase(row['failed']['luminal'])}" for row in rows if "luminal" in row["failed"]
        ],
    }


def title(row: Row) -> str:
    return f"{row['suite']}, {row['case']}, {row['threads']} threads"


def machine() -> dict[str, Any]:
    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.is_file():
        models = [
            line.partition(":")[2].strip()
            for line in information.read_text().splitlines()
            if "model name" in line
        ]
        name = models[0] if models else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {package: found for package in PACKAGES if (found := _version(package))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
