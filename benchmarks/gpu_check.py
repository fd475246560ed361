"""A GPU in eight minutes: is everything that Luminal generates right on it, and how fast is it beside torch?

    python -m benchmarks.gpu_check --json gpu.json      on the device
    python -m benchmarks.gpu_check --dry                anywhere: tiny sizes, kernels in Triton's interpreter

Each section is a process with a time limit of its own: one that fails, hangs or takes the device down with it
is reported, and the others go on.  benchmarks/README.md says what a machine without a network needs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_models import DecoderLayer, attention, causal, plain_attention

ROOT = Path(__file__).resolve().parents[1]
TOTAL = 465.0
"""Seconds of all sections together."""
RUNS, FLUSH_BYTES = 20, 512 << 20
Row = dict[str, Any]


@dataclass
class Bench:
    """Where a section runs, and how it times."""

    dry: bool

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda"

    def size(self, real: int, dry: int) -> int:
        return dry if self.dry else real

    def randn(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, device=self.device).to(dtype)

    def luminal(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """The function through Luminal; options are those of its backend."""
        from luminal.torch.backend import Backend

        backend = Backend("luminal_gpu_check", "sm_90" if self.dry else None)
        chosen = {"strict": True, **({"candidates": 1} if self.dry else {}), **options}
        return torch.compile(function, backend=backend, dynamic=False, fullgraph=True, options=chosen)

    def seconds(self, run: Callable[[], Any]) -> float:
        """The median of some calls, each with cold caches."""
        run()
        run()
        if self.dry:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        taken: list[float] = []
        for _ in range(RUNS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            run()
            end.record()
            end.synchronize()
            taken.append(start.elapsed_time(end) / 1e3)
        return statistics.median(taken)

    def compare(
        self,
        case: str,
        function: Callable[..., Any],
        inputs: tuple[Any, ...],
        tolerance: float,
        work: dict[str, float],
        peers: dict[str, Callable[[], Any]] | None = None,
        inductor: bool = True,
    ) -> Iterator[Row]:
        """Rows of Luminal, checked against eager, of eager, of Inductor at its best, and of others.

        `work`: "flop" and "bytes" of one call.
        """
        torch._dynamo.reset()
        wanted = function(*inputs)
        begin = time.perf_counter()
        ours = self.luminal(function)
        found = ours(*inputs)
        compiling = time.perf_counter() - begin
        error = relative_error(found, wanted)
        yield self._row(case, "luminal", lambda: ours(*inputs), work) | {
            "compile_seconds": compiling,
            "error": error,
            "ok": error <= tolerance,
        }
        yield self._row(case, "eager", lambda: function(*inputs), work)
        for name, run in (peers or {}).items():
            yield self._row(case, name, run, work)
        if inductor and not self.dry:
            torch._dynamo.reset()
            best = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
            yield self._row(case, "inductor max-autotune", lambda: best(*inputs), work)

    def _row(self, case: str, what: str, run: Callable[[], Any], work: dict[str, float]) -> Row:
        try:
            seconds = self.seconds(run)
        except Exception as error:
            return {"case": case, "what": what, "ok": False, "failed": one_line(error)}
        rates = {
            "tflops": work.get("flop", 0.0) / seconds / 1e12,
            "gbytes": work.get("bytes", 0.0) / seconds / 1e9,
        }
        return {"case": case, "what": what, "ok": True, "us": seconds * 1e6, **rates}


def relative_error(found: Any, wanted: Any) -> float:
    """The largest difference of two results, over the largest value; infinite where only one has a NaN."""
    pairs = zip(flat(found), flat(wanted), strict=True)
    return max((_error(one.double(), other.double()) for one, other in pairs), default=0.0)


def _error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    if found.shape != wanted.shape or not torch.equal(found.isnan(), wanted.isnan()):
        return float("inf")
    if not wanted.numel():
        return 0.0
    same = found == wanted  # infinities, too
    difference = torch.where(same, 0.0, (found - wanted).abs()).nan_to_num(0.0, float("inf"))
    finite = torch.where(wanted.isfinite(), wanted.abs(), 0.0)
    return float(difference.max() / finite.max().clamp(min=1e-6))


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [each for part in value for each in flat(part)]


def one_line(error: BaseException) -> str:
    inner = getattr(error, "inner_exception", None) or error
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    return f"{type(inner).__name__}: {' | '.join(lines[:3])[:400]}"


# ---- what is checked -------------------------------------------------------------------------------------------


def kinds(bench: Bench) -> Iterator[Row]:
    """Every kind of kernel once, one candidate of each, against eager."""
    n, m = bench.size(1000, 20), bench.size(513, 9)

    def f32(*shape: int) -> torch.Tensor:
        return bench.randn(*shape, dtype=torch.float32)

    def positions(count: int, below: int) -> torch.Tensor:
        return torch.randint(0, below, (count,), device=bench.device)

    half, narrow = torch.float16, torch.bfloat16
    x, y, square = f32(n, m), f32(n, m), bench.size(256, 16)
    cases: dict[str, tuple[Callable[..., Any], tuple[Any, ...], float]] = {
        "elementwise": (lambda a, b: torch.sin(a) * torch.exp(b) + torch.tanh(a).abs().sqrt(), (x, y), 1e-5),
        "integers": (lambda a: (a * 3 // 2 % 7, a >> 1, a ^ 5), (positions(n, 1000),), 0.0),
        "comparisons and select": (lambda a, b: torch.where(a > b, a, -b), (x, y), 0.0),
        "sum of rows": (lambda a: a.sum(1), (x,), 1e-5),
        "sum of columns": (lambda a: a.sum(0), (x,), 1e-5),
        "sum of everything": (lambda a: a.sum(), (x.abs(),), 1e-5),
        "maximum with NaN": (lambda a: a.amax(1), (x.index_fill(1, positions(1, m), float("nan")),), 0.0),
        "argmax": (lambda a: a.argmax(1), (x,), 0.0),
        "cumulative sum": (lambda a: a.cumsum(1), (x,), 1e-4),
        "softmax": (lambda a: a.softmax(1), (x,), 1e-5),
        "softmax with rows of -inf": (lambda a: a.softmax(1), (x.index_fill(0, positions(1, n), -float("inf")),), 1e-5),
        "layer norm": (lambda a: torch.nn.functional.layer_norm(a, (m,)), (x,), 1e-4),
        "rms norm": (lambda a: torch.nn.functional.rms_norm(a, (m,)), (x,), 1e-4),
        "product f32": (torch.matmul, (f32(square, m), f32(m, square)), 1e-4),
        "product f16": (torch.matmul, (bench.randn(square, 64, dtype=half), bench.randn(64, square, dtype=half)), 4e-3),
        "product bf16": (torch.matmul, (bench.randn(square, 64), bench.randn(64, square)), 2e-2),
        "product bf16, odd sizes": (torch.matmul, (bench.randn(7, 33), bench.randn(33, 5)), 2e-2),
        "batched product": (torch.matmul, (bench.randn(3, square, 32), bench.randn(3, 32, square)), 2e-2),
        "matrix and vector": (torch.matmul, (f32(n, m), f32(m)), 1e-4),
        "product and what follows": (
            lambda a, b, c: torch.nn.functional.gelu(a @ b + c),
            (bench.randn(square, 64), bench.randn(64, square), bench.randn(square)),
            2e-2,
        ),
        "attention": (attention, tuple(bench.randn(2, 2, square, 64) for _ in range(3)), 2e-2),
        "causal attention f32": (causal, tuple(f32(1, 2, square, 32) for _ in range(3)), 1e-4),
        "convolution": (torch.nn.functional.conv2d, (f32(2, 3, 16, 16), f32(4, 3, 3, 3)), 1e-4),
        "embedding": (lambda w, i: w[i], (x, positions(17, n)), 0.0),
        "scatter": (lambda a, i, b: a.index_add(0, i, b), (x, positions(5, n), f32(5, m)), 1e-5),
        "views": (lambda a: (a.t()[1:, ::2].flip(0) + 1.0, torch.cat([a, a], 1)), (x,), 0.0),
        "sort": (lambda a: a.sort(1), (x,), 0.0),
        "casts": (lambda a: (a.to(half), a.to(narrow), a.to(torch.int32)), (x,), 0.0),
    }  # fmt: skip
    for case, (function, inputs, tolerance) in cases.items():
        torch._dynamo.reset()
        begin = time.perf_counter()
        try:
            run = bench.luminal(function, candidates=1)
            error = max(
                relative_error(run(*inputs), function(*inputs)) for _ in range(3)
            )  # launched, then replayed
            row: Row = {"error": error, "ok": error <= tolerance}
        except Exception as failure:
            row = {"ok": False, "failed": one_line(failure)}
            if "DriverError" in row["failed"]:
                yield {"case": case, "what": "luminal", **row}
                return  # the device is lost to this process
        yield {"case": case, "what": "luminal", **row, "compile_seconds": time.perf_counter() - begin}
    yield _index_error(bench, x)


def _index_error(bench: Bench, x: torch.Tensor) -> Row:
    run = bench.luminal(lambda a, i: a[i], candidates=1)
    row: Row = {"case": "an index out of range", "what": "luminal", "ok": False}
    try:
        run(x, torch.tensor([0, x.shape[0]], device=bench.device))
    except IndexError:
        return row | {"ok": True}
    except Exception as failure:
        return row | {"failed": one_line(failure)}
    return row | {"failed": "no error"}


def copy(bench: Bench) -> Iterator[Row]:
    """What this device's memory gives."""
    source = torch.empty(bench.size(4 << 30, 1 << 16), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    yield bench._row("copy", "torch", lambda: target.copy_(source), {"bytes": 2.0 * source.numel()})


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


def decode(bench: Bench) -> Iterator[Row]:
    """A layer of Llama 3 8B, bf16, one token behind a cache of 2048."""
    width, hidden = bench.size(4096, 32), bench.size(14336, 64)
    heads, kept, longest = bench.size(32, 4), bench.size(8, 2), bench.size(2048, 16)
    layer = DecoderLayer(width, hidden, heads, kept, longest).to(bench.device, torch.bfloat16).eval()
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    position = torch.tensor([longest - 2], device=bench.device)
    inputs = bench.randn(1, 1, width), position, bench.randn(2, width // heads)
    read = sum(p.numel() for p in layer.parameters()) + 2 * kept * longest * (width // heads)
    work = {"bytes": 2.0 * read, "flop": 2.0 * read}
    yield from bench.compare(f"Llama 3 8B layer, decode at {longest}", layer, inputs, 3e-2, work)


def fp8(bench: Bench) -> Iterator[Row]:
    """Weights in fp8 with one scale a row, widened where they are read."""
    n, k = bench.size(14336, 32), bench.size(4096, 64)
    weights = bench.randn(n, k, dtype=torch.float32).to(torch.float8_e4m3fn)
    scales = torch.rand(n, 1, device=bench.device, dtype=torch.bfloat16)

    def function(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x @ (w.to(torch.bfloat16) * s).t()

    inputs = bench.randn(1, k), weights, scales
    yield from bench.compare(f"fp8 weights 1x{n}x{k}", function, inputs, 2e-2, {"bytes": 1.0 * n * k})


def q8(bench: Bench) -> Iterator[Row]:
    """Weights of Q8_0: blocks of 32 signed bytes with a scale in f16."""
    n, k = bench.size(14336, 32), bench.size(4096, 64)
    quants = torch.randint(-127, 128, (n, k // 32, 32), device=bench.device, dtype=torch.int8)
    scales = torch.rand(n, k // 32, 1, device=bench.device, dtype=torch.float16)

    def function(x: torch.Tensor, q: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x @ (q * s).to(torch.bfloat16).view(n, k).t()

    inputs = bench.randn(1, k), quants, scales
    yield from bench.compare(f"Q8_0 weights 1x{n}x{k}", function, inputs, 2e-2, {"bytes": 34 / 32 * n * k})


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
    "copy": Section(copy, 20),
    "decode": Section(decode, 100),
    "attention": Section(attentions, 70),
    "products": Section(products, 70),
    "norms": Section(norms, 45),
    "product": Section(product, 25),
    "fp8": Section(fp8, 25),
    "q8": Section(q8, 25),
}


# ---- running ---------------------------------------------------------------------------------------------------


def run_section(name: str, dry: bool) -> None:
    """Print a section's rows, each as a line of JSON when it is known."""
    if dry:
        import pytest

        from tests.emit_triton.double import Double, use_double

        use_double(pytest.MonkeyPatch(), Double())
    torch.manual_seed(0)
    with torch.no_grad():
        for row in SECTIONS[name].run(Bench(dry)):
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
        error = f"{row['error']:.1e}" if "error" in row else ""
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
