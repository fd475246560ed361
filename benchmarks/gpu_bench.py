"""Where the sections of `gpu_check.py` run, how they time, and how a result is compared with eager's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

RUNS, FLUSH_BYTES = 20, 512 << 20
Row = dict[str, Any]


@dataclass
class Bench:
    """Where a section runs, and how it times.  `later`: rows that take long to prepare, made when the others are."""

    dry: bool
    later: list[Callable[[], Row]] = field(default_factory=list)

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
    ) -> Iterator[Row]:
        """Rows of Luminal, checked against eager, of eager, and of others; later one of Inductor at its best.

        `work`: "flop" and "bytes" of one call.
        """
        torch._dynamo.reset()
        wanted = function(*inputs)
        begin = time.perf_counter()
        ours = self.luminal(function)
        try:
            found = ours(*inputs)
        except Exception as failure:
            yield {"case": case, "what": "luminal", "ok": False, "failed": one_line(failure)}
        else:
            compiling, error = time.perf_counter() - begin, relative_error(found, wanted)
            row = self.row(case, "luminal", lambda: ours(*inputs), work)
            ok = row["ok"] and error <= tolerance
            yield row | {"compile_seconds": compiling, "error": error, "ok": ok}
        yield self.row(case, "eager", lambda: function(*inputs), work)
        for name, run in (peers or {}).items():
            yield self.row(case, name, run, work)

        def inductor() -> Row:
            torch._dynamo.reset()
            best = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
            return self.row(case, "inductor max-autotune", lambda: best(*inputs), work)

        if not self.dry:
            self.later.append(inductor)

    def row(self, case: str, what: str, run: Callable[[], Any], work: dict[str, float]) -> Row:
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
