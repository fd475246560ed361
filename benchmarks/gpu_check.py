"""A GPU in eight minutes: is everything that Luminal generates right on it, and how fast is it beside torch?

    python -m benchmarks.gpu_check --json gpu.json      on the device
    python -m benchmarks.gpu_check --dry                anywhere: tiny sizes, kernels in Triton's interpreter

Each section is a process with a time limit of its own: one that fails, hangs or takes the device down with it
is reported, and the others go on.  benchmarks/README.md says what a machine without a network needs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_bench import Bench, Row, relative_error
from benchmarks.gpu_kinds import kinds
from benchmarks.gpu_models import LLAMA, WEIGHTS, DecoderLayer, causal, plain_attention, token
from benchmarks.gpu_traffic import MOST_TRAFFIC, token_traffic

ROOT = Path(__file__).resolve().parents[1]
TOTAL = 465.0
"""Seconds of all sections together."""
CANDIDATES = 12
"""As many of a product as descriptors are among."""


# ---- what is checked -------------------------------------------------------------------------------------------


def copy(bench: Bench) -> Iterator[Row]:
    """What this device's memory gives."""
    source = torch.empty(bench.size(4 << 30, 1 << 16), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    yield bench.row("copy", "torch", lambda: target.copy_(source), {"bytes": 2.0 * source.numel()})


def attentions(bench: Bench) -> Iterator[Row]:
    b, h, s, d = bench.size(4, 1), bench.size(32, 2), bench.size(2048, 32), bench.size(128, 16)
    q, k, v = (bench.randn(b, h, s, d) for _ in range(3))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    work = {"flop": 4.0 * b * h * s * s * d, "bytes": 8.0 * b * h * s * d}
    half = {**work, "flop": work["flop"] / 2}
    size = f"bf16 {b}x{h}x{s}x{d}"
    yield from bench.compare(
        f"attention {size}", plain_attention, (q, k, v), 3e-2, work, {"sdpa": lambda: sdpa(q, k, v)}
    )
    yield from bench.compare(
        f"causal attention {size}",
        causal,
        (q, k, v),
        3e-2,
        half,
        {"sdpa": lambda: sdpa(q, k, v, is_causal=True)},
    )


def products(bench: Bench) -> Iterator[Row]:
    for m, n, k in ((4096, 4096, 4096), (8192, 14336, 4096), (16, 4096, 4096)):
        m, n, k = (bench.size(size, min(size, 32)) for size in (m, n, k))
        inputs = bench.randn(m, k), bench.randn(n, k)
        work = {"flop": 2.0 * m * n * k, "bytes": 2.0 * (m * k + n * k + m * n)}
        yield from bench.compare(f"product bf16 {m}x{n}x{k}", torch.nn.functional.linear, inputs, 2e-2, work)


def described(bench: Bench) -> Iterator[Row]:
    """A product among whose candidates are those with descriptors, which the default leaves out: do they run?"""
    m, n, k = (bench.size(4096, 32) for _ in "mnk")
    x, w = bench.randn(m, k), bench.randn(n, k)
    run = bench.luminal(torch.nn.functional.linear, candidates=CANDIDATES)
    case = f"product bf16 {m}x{n}x{k}, {CANDIDATES} candidates"
    error = relative_error(run(x, w), torch.nn.functional.linear(x, w))
    row = bench.row(case, "luminal", lambda: run(x, w), {"flop": 2.0 * m * n * k})
    yield row | {"error": error, "ok": row["ok"] and error <= 2e-2}


def narrow_products(bench: Bench) -> Iterator[Row]:
    """Both factors in e4m3, summed in f32."""
    size, eight = bench.size(4096, 32), torch.float8_e4m3fn
    x, w = (bench.randn(size, size, dtype=torch.float32).to(eight) for _ in range(2))
    one = torch.ones((), device=bench.device)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.float() @ w.float().t()).to(torch.bfloat16)

    def scaled() -> torch.Tensor:
        return torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16)

    work = {"flop": 2.0 * size**3, "bytes": 4.0 * size**2}
    peers = {} if bench.dry else {"torch._scaled_mm": scaled}
    yield from bench.compare(f"product e4m3 {size}x{size}x{size}", function, (x, w), 2e-2, work, peers)


def norms(bench: Bench) -> Iterator[Row]:
    rows, width = bench.size(16384, 8), bench.size(4096, 64)
    x, w, b = bench.randn(rows, width), bench.randn(width), bench.randn(width)
    functional = torch.nn.functional
    cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "layer norm": (lambda x, w, b: functional.layer_norm(x, (width,), w, b), (x, w, b)),
        "rms norm": (lambda x, w: functional.rms_norm(x, (width,), w), (x, w)),
        "softmax": (lambda x: x.softmax(-1), (x,)),
    }
    for name, (function, inputs) in cases.items():
        yield from bench.compare(
            f"{name} bf16 {rows}x{width}", function, inputs, 2e-2, {"bytes": 4.0 * x.numel()}
        )


def decode(bench: Bench, weights: str) -> Iterator[Row]:
    """A layer of Llama 3 8B, one token behind a cache of 2048."""
    sizes = LLAMA if not bench.dry else (64, 128, 4, 2, 16)
    with torch.device(bench.device):
        layer = DecoderLayer(WEIGHTS[weights], *sizes).eval()
        inputs = token(*sizes)
    work = {"bytes": float(layer.bytes)}
    case = f"Llama 3 8B layer {weights}, decode at {sizes[-1]}"
    yield from bench.compare(case, layer, inputs, 3e-2, work)


def traffic(bench: Bench) -> Iterator[Row]:
    """Bytes that the plans of such tokens move, beside the least, by their own account; at full size everywhere."""
    for weights in WEIGHTS:
        ratio = token_traffic(weights, "h200" if bench.dry else torch_target())
        case = f"Llama 3 8B layer {weights}, bytes moved of the least"
        yield {"case": case, "what": "luminal", "ratio": ratio, "ok": ratio <= MOST_TRAFFIC}


def product(bench: Bench) -> Iterator[Row]:
    """Built ahead of time, loaded, and called: no search and no Triton."""
    import luminal as lm
    from luminal.cli import main

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "model.py").write_text(PRODUCT)
        target = "sm_90" if bench.dry else torch_target()
        if main(["build", str(folder / "model.py"), "--target", target, "--out", str(folder / "out")]):
            raise RuntimeError("luminal build has failed")
        x = torch.linspace(-1, 1, 5 * 64).view(5, 64).to(bench.device)
        names: dict[str, Any] = {}
        exec(PRODUCT, names)
        run = lm.load(folder / "out")
        error = relative_error(run(x), names["model"].to(bench.device)(x))
        yield {"case": "a product that is loaded", "what": "luminal", "error": error, "ok": error < 1e-4}


PRODUCT = """import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).requires_grad_(False)
example_inputs = (torch.ones(5, 64),)
"""


def torch_target() -> str:
    from luminal.runtimes.gpu_targets import current_target

    return current_target(torch.cuda.current_device())


@dataclass(frozen=True)
class Section:
    """`seconds`: when it is stopped."""

    run: Callable[[Bench], Iterator[Row]]
    seconds: float


SECTIONS = {
    "kinds": Section(kinds, 100),
    "copy": Section(copy, 15),
    "decode": Section(partial(decode, weights="bf16"), 75),
    "attention": Section(attentions, 65),
    "products": Section(products, 65),
    "q8": Section(partial(decode, weights="Q8_0"), 50),
    "narrow products": Section(narrow_products, 35),
    "norms": Section(norms, 40),
    "fp8": Section(partial(decode, weights="fp8"), 50),
    "descriptors": Section(described, 40),
    "product": Section(product, 25),
    "traffic": Section(traffic, 60),
}
"""Those that tell most come first: the time may end before the last."""


# ---- running ---------------------------------------------------------------------------------------------------


def run_section(name: str, dry: bool) -> None:
    """Print a section's rows, each as a line of JSON when it is known."""
    if dry:
        import pytest

        from tests.emit_triton.double import Double, use_double

        use_double(pytest.MonkeyPatch(), Double())
    torch.manual_seed(0)
    with torch.no_grad():
        bench = Bench(dry)
        for row in itertools.chain(SECTIONS[name].run(bench), (make() for make in bench.later)):
            print(json.dumps(row), flush=True)


def section_rows(name: str, dry: bool, seconds: float) -> list[Row]:
    """The rows of a section in a process of its own; the last says why it ended early, where it did."""
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--section", name, *(["--dry"] if dry else [])]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=said,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        why = ""
        try:
            status = process.wait(seconds)
            why = f"ended with status {status}" if status else ""
        except subprocess.TimeoutExpired:
            why = f"stopped after {seconds:.0f} s"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        rows = [row for line in _lines(said) if (row := _row_of(line)) is not None]
        if why:
            last = next((line for line in reversed(_lines(errors)) if line.strip()), "")
            rows.append({"case": name, "what": "section", "ok": False, "failed": f"{why}; {last[:300]}"})
        return [{"section": name, **row} for row in rows]


def _lines(file: Any) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").splitlines()


def _row_of(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def table(rows: list[Row]) -> str:
    """One line a row."""
    lines = [f"{'case':44} {'what':22} {'us':>10} {'TFLOP/s':>8} {'GB/s':>7}  error"]
    for row in rows:
        numbers = f"{row['us']:10.1f} {row['tflops']:8.1f} {row['gbytes']:7.0f}" if "us" in row else " " * 27
        error = f"{row['error']:.1e}" if "error" in row else f"{row['ratio']:.3f}" if "ratio" in row else ""
        verdict = "" if row["ok"] else f"  WRONG {row.get('failed', '')}"
        lines.append(f"{row['case'][:44]:44} {row['what']:22} {numbers}  {error}{verdict}")
    return "\n".join(lines)


def machine(dry: bool) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Any] = {"torch": torch.__version__, "dry": dry}
    for package in ("triton", "xdsl", "egglog", "llvmlite"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    if not dry:
        found["device"] = torch.cuda.get_device_name()
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--dry", action="store_true", help="tiny sizes, in Triton's interpreter")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows there")
    parser.add_argument(
        "--only", action="append", choices=list(SECTIONS), help="only this section; repeat for more"
    )
    parser.add_argument("--section", choices=list(SECTIONS), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.section:
        run_section(chosen.section, chosen.dry)
        return 0
    end, rows = time.monotonic() + TOTAL, list[Row]()
    for name in chosen.only or SECTIONS:
        left = end - time.monotonic()
        if left < 5:
            rows.append(
                {"section": name, "case": name, "what": "section", "ok": False, "failed": "no time was left"}
            )
            continue
        rows += section_rows(name, chosen.dry, left if chosen.dry else min(left, SECTIONS[name].seconds))
        if chosen.json is not None:  # what is known is kept, whatever happens next
            chosen.json.write_text(json.dumps({"machine": machine(chosen.dry), "rows": rows}, indent=1))
    print(table(rows))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
