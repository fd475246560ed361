"""Runs torch's operator database through the Luminal backend and compares with eager PyTorch.

    python tests/torch/operator_database.py                     every entry that operator_exclusions.py leaves in
    python tests/torch/operator_database.py softmax index_put   these
    python tests/torch/operator_database.py --dtypes f32 i64 --samples 8 --json FILE

Prints one line for each entry that is not perfect, and how many passed, and passed without a fallback. Ends with 1 if
any value was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch.testing import assert_close
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

sys.path.insert(0, os.path.dirname(__file__))

from operator_exclusions import exclusion_reason

from luminal.torch.backend import Backend
from luminal.torch.extern import FALLBACKS

# Samples would each look through the whole stack for a test of torch's own.
common_utils.extract_test_fn = lambda: None

DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
PREFERRED = (torch.float32, torch.int64, torch.bool, torch.float64, torch.float16, torch.complex64)
FREE_ORDER = ("sort", "argsort", "topk", "kthvalue")
"""Entries that may name any one of equal elements: their indices are right if they lead to the same values."""
TOLERANCES = {torch.float16: (5e-3, 5e-4), torch.bfloat16: (4e-2, 1e-3)}
"""Relative and absolute, where not every step is rounded as eager rounds it (the licence keep-wide)."""


def name_of(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def sensible_entries() -> list[Any]:
    """The entries that a tensor compiler is asked for, in the database's order."""
    return [entry for entry in op_db if exclusion_reason(name_of(entry)) is None]


@dataclass
class Result:
    """What became of one entry. `error` is the first one that was raised, `wrong` the first wrong value."""

    name: str
    samples: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter[str])
    error: str | None = None
    wrong: str | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.error is None and self.wrong is None

    @property
    def whole(self) -> bool:
        """Passed, and nothing was left to torch."""
        return self.passed and not self.fallbacks

    def __str__(self) -> str:
        if self.wrong is not None:
            return f"WRONG     {self.name}: {self.wrong}"
        if self.error is not None:
            return f"error     {self.name}: {self.error}"
        return f"fallback  {self.name}: {', '.join(self.fallbacks)}"


def dtype_for(entry: Any) -> torch.dtype | None:
    supported = entry.supported_dtypes("cpu")
    return next((dtype for dtype in PREFERRED if dtype in supported), None)


def run_entry(
    entry: Any,
    backend: Any,
    dtypes: Iterable[torch.dtype] | None = None,
    samples: int = 4,
    dynamic: bool = False,
) -> Result:
    """Compile and compare up to `samples` samples in each dtype; None is the first of PREFERRED that the entry has."""
    result = Result(name_of(entry))
    start = time.perf_counter()
    supported = entry.supported_dtypes("cpu")
    chosen = [d for d in dtypes if d in supported] if dtypes is not None else [dtype_for(entry)]
    before = Counter(FALLBACKS)
    for dtype in chosen:
        if dtype is None:
            continue
        torch.manual_seed(0)
        for sample in itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=False), samples):
            _run_sample(entry, sample, backend, result, dtype, dynamic)
            if not result.passed:
                break
    result.fallbacks.update(Counter(FALLBACKS) - before)
    result.seconds = time.perf_counter() - start
    return result


def _run_sample(
    entry: Any, sample: Any, backend: Any, result: Result, dtype: torch.dtype, dynamic: bool
) -> None:
    arguments = (sample.input, sample.args, sample.kwargs)

    def call(given: Any) -> Any:
        first, args, kwargs = given
        return entry.op(first, *args, **kwargs)

    try:
        with torch.no_grad():
            expected = call(_fresh(arguments))
    except Exception:
        return  # not a sample that eager PyTorch runs
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    result.samples += 1
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = torch.compile(call, backend=backend, dynamic=dynamic, options={"candidates": 1})
            found = run(_fresh(arguments))
    except Exception as error:
        inner = getattr(error, "inner_exception", None) or error
        result.error = f"{dtype}: {type(inner).__name__}: {' '.join(str(inner).split())[:300]}"
        return
    for reason in torch._dynamo.utils.counters["graph_break"]:
        result.fallbacks[f"graph break ({' '.join(reason.split())[:60]})"] += 1
    source = sample.input if entry.name in FREE_ORDER else None
    message = _compare(found, expected, lambda: _in_f64(call, arguments), source)
    if message is not None:
        result.wrong = f"{dtype}, sample {result.samples}: {message}"


def _fresh(arguments: Any) -> Any:
    return pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, arguments)


def _in_f64(call: Any, arguments: Any) -> Any:
    """The result in f64, as the judge between two roundings; None where the op does not run so."""
    wider = pytree.tree_map(
        lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x, arguments
    )
    try:
        with torch.no_grad():
            return call(wider)
    except Exception:
        return None


def _compare(found: Any, expected: Any, in_f64: Any, source: torch.Tensor | None = None) -> str | None:
    """None where the results agree: in structure, dtype and shape, and in value within rounding, or with no more than
    twice eager's own distance from the result in f64."""
    ours, structure = pytree.tree_flatten(found)
    theirs, wanted = pytree.tree_flatten(expected)
    if structure != wanted:
        return f"structure {structure}, expected {wanted}"
    exact: list[Any] | None = None
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(other, torch.Tensor):
            if mine != other and not (mine != mine and other != other):
                return f"{mine!r}, expected {other!r}"
            continue
        rtol, atol = TOLERANCES.get(other.dtype, (None, None))
        try:
            assert_close(mine, other, equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError as error:
            if source is not None and _lead_alike(source, mine, other):
                continue
            if exact is None:
                exact = pytree.tree_leaves(in_f64()) or []
            judge = exact[number] if number < len(exact) else None
            if not _as_near(mine, other, judge):
                return " ".join(str(error).split())[:300]
    return None


def _lead_alike(source: torch.Tensor, mine: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of indices pick the same values along some axis."""
    if mine.dtype != torch.int64 or mine.shape != other.shape:
        return False
    if mine.dim() == source.dim() - 1:
        pairs = [(mine.unsqueeze(axis), other.unsqueeze(axis)) for axis in range(source.dim())]
        return any(_lead_alike(source, *pair) for pair in pairs)
    if mine.dim() != source.dim():
        return False
    for axis in range(source.dim()):
        rest = [size for i, size in enumerate(source.shape) if i != axis]
        if [size for i, size in enumerate(mine.shape) if i != axis] == rest:
            picked = [source.gather(axis, places) for places in (mine, other)]
            if torch.allclose(picked[0].double(), picked[1].double(), rtol=0, atol=0, equal_nan=True):
                return True
    return False


def _as_near(mine: torch.Tensor, other: torch.Tensor, judge: Any) -> bool:
    if not isinstance(judge, torch.Tensor) or not other.is_floating_point() or mine.shape != other.shape:
        return False
    if mine.dtype != other.dtype or judge.shape != other.shape:
        return False
    if not torch.equal(mine.isfinite(), other.isfinite()):
        return False
    known = mine.isfinite() & judge.isfinite()
    if not torch.equal(torch.nan_to_num(mine[~known]), torch.nan_to_num(other[~known])):
        return False
    errors = [(x[known].double() - judge[known]).abs() for x in (mine, other)]
    return all(e.numel() == 0 for e in errors) or bool(errors[0].max() <= 2 * errors[1].max() + 1e-12)


def summary(results: Sequence[Result]) -> str:
    passed, whole = sum(r.passed for r in results), sum(r.whole for r in results)
    wrong = sum(r.wrong is not None for r in results)
    count = max(len(results), 1)
    return (
        f"{len(results)} entries: {passed} pass ({100 * passed / count:.1f}%), {whole} without a fallback "
        f"({100 * whole / count:.1f}%), {wrong} wrong"
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="entries to run (default: all sensible ones)")
    parser.add_argument(
        "--dtypes", nargs="+", choices=list(DTYPES), help="default: the first that an entry has"
    )
    parser.add_argument("--samples", type=int, default=4, help="samples of each dtype (default 4)")
    parser.add_argument("--target", default="cpu", help="cpu (default) or reference")
    parser.add_argument("--dynamic", action="store_true", help="compile with symbolic sizes")
    parser.add_argument("--every", type=int, default=1, help="run each N-th entry only")
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args(given)
    warnings.filterwarnings("ignore")
    backend = Backend("operator_database", options.target)
    entries = [e for e in op_db if name_of(e) in options.names] if options.names else sensible_entries()
    dtypes = [DTYPES[name] for name in options.dtypes] if options.dtypes else None
    results: list[Result] = []
    for number, entry in enumerate(entries[:: options.every]):
        results.append(run_entry(entry, backend, dtypes, options.samples, options.dynamic))
        if not results[-1].whole:
            print(results[-1], flush=True)
        if sys.stderr.isatty():
            print(
                f"\r{number + 1}/{len(entries)} {results[-1].name:40.40}", end="", file=sys.stderr, flush=True
            )
    print(summary(results))
    if options.json:
        rows = [
            {
                "name": r.name,
                "passed": r.passed,
                "fallbacks": dict(r.fallbacks),
                "error": r.error,
                "wrong": r.wrong,
            }
            for r in results
        ]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"summary": summary(results), "rows": rows}, file, indent=1)
    return int(any(r.wrong is not None for r in results))


if __name__ == "__main__":
    sys.exit(main())
