"""Kinds of kernels by dtypes and targets: run by the interpreter, and what their machine code is.

    python -m tests.emit_triton.kinds [--kinds KIND ...] [--targets TARGET ...] [--write]

`--write` puts the rows into docs/gpu.md, for all targets.  Each kind is a graph of a size: a small one is built and run
step by step in Triton's interpreter and compared with the interpreter of primitives, a large one is compiled.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from luminal.dialects.primitive.interpreter import interpret
from luminal.dtype import DType, bf16, f8e4m3fn, f16, f32, i64
from luminal.emit_triton.resources import refusal
from luminal.errors import LuminalError
from luminal.graph import Graph
from luminal.passes.lower_hlo import lower_hlo
from luminal.plan.gpu_build import GpuProgram, build_for_gpu
from luminal.runtimes.reference import graph_of
from luminal.tensor import Tensor
from tests.emit_triton import quantised

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"
BLOCK = re.compile(r"(<!-- table: kinds -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")
MATRIX = {
    "sm_80": {"mma.sync"}, "sm_90": {"wgmma", "mma.sync"}, "sm_100": {"tcgen05", "mma.sync"}, "sm_120": {"mma.sync"},
    "gfx942": {"mfma"}, "gfx950": {"mfma"},
}  # fmt: skip
"""The matrix instructions of a target: the first one of its own, and that for smaller tiles."""
TOLERANCE = {f32: 1e-4, f16: 1e-2, bf16: 3e-2, f8e4m3fn: 3e-2}
Array = np.ndarray[Any, Any]
FLOATS = (f32, f16, bf16)


@dataclass(frozen=True)
class Kind:
    """`make(dtype, size)` builds a graph; the two sizes are run and compiled.  `multiplies`: by matrix units, where its
    dtype has 16 bits or less."""

    make: Callable[[DType, int], ModuleOp]
    small: int = 32
    large: int = 2048
    dtypes: tuple[DType, ...] = FLOATS
    multiplies: bool = False


def _graph(body: Callable[[Graph, DType, int], Tensor]) -> Callable[[DType, int], ModuleOp]:
    def make(dtype: DType, n: int) -> ModuleOp:
        cx = Graph()
        body(cx, dtype, n).output()
        return cx.module()

    return make


def _quantised(name: str, rows: int | None = None, left: str = "") -> Callable[[DType, int], ModuleOp]:
    return lambda dtype, n: quantised.product(name, rows or n, max(n, 512), n, left)


def _attention(cx: Graph, dtype: DType, n: int) -> Tensor:
    q, k, v = (cx.tensor((4, n, 64), dtype=dtype) for _ in "qkv")
    return (q.matmul(k.transpose(1, 2)) * 0.125).softmax(dim=2).matmul(v)


def _causal(cx: Graph, dtype: DType, n: int) -> Tensor:
    q, k, v = (cx.tensor((heads, n, 64), dtype=dtype) for heads in (4, 2, 2))
    return cx.emit("attention", [q, k, v, None], {"causal": True, "scale": None})[0]


def _short(cx: Graph, dtype: DType, n: int) -> Tensor:
    x, w = (cx.tensor((n, n), dtype=dtype).cast(bf16) for _ in "xw")
    return x.matmul(w.transpose(0, 1))


KINDS: dict[str, Kind] = {
    "elementwise": Kind(_graph(lambda cx, t, n: (cx.tensor((n, n), dtype=t) * 2 + 1).gelu())),
    "softmax": Kind(_graph(lambda cx, t, n: cx.tensor((n, n), dtype=t).softmax(dim=1))),
    "layer norm": Kind(_graph(lambda cx, t, n: cx.tensor((n, n), dtype=t).layer_norm((n,)))),
    "long sum": Kind(_graph(lambda cx, t, n: cx.tensor((n * n,), dtype=t).sum(dim=0))),
    "argmax": Kind(_graph(lambda cx, t, n: cx.tensor((n, n), dtype=t).argmax(dim=1))),
    "running sum": Kind(_graph(lambda cx, t, n: cx.tensor((n, n), dtype=t).cumsum(1)), dtypes=(f32, bf16)),
    "sort": Kind(
        _graph(lambda cx, t, n: cx.tensor((n, n), dtype=t).sort(1)[0]), large=512, dtypes=(f32, bf16)
    ),
    "gather": Kind(
        _graph(lambda cx, t, n: cx.tensor((n,), dtype=i64).embedding(cx.tensor((n, n), dtype=t))),
    ),
    "scatter-add": Kind(
        _graph(
            lambda cx, t, n: cx.tensor((n, n), dtype=t).scatter_add(
                0, cx.tensor((n, n), dtype=i64), cx.tensor((n, n), dtype=t)
            )
        ),
    ),
    "product": Kind(
        _graph(lambda cx, t, n: cx.tensor((n, n), dtype=t).matmul(cx.tensor((n, n), dtype=t)).relu()),
        multiplies=True,
    ),
    "vector's product": Kind(
        _graph(lambda cx, t, n: cx.tensor((1, n), dtype=t).matmul(cx.tensor((n, n), dtype=t))),
    ),
    "attention": Kind(_graph(_attention), multiplies=True),
    "causal, grouped": Kind(_graph(_causal), multiplies=True),
    "product of e4m3": Kind(_graph(_short), dtypes=(f8e4m3fn,), multiplies=True),
    "product with Q8_0": Kind(_quantised("Q8_0"), dtypes=(bf16,), multiplies=True),
    "product with Q4_0": Kind(_quantised("Q4_0"), dtypes=(bf16,), multiplies=True),
    "product with Q4_K": Kind(_quantised("Q4_K"), dtypes=(bf16,), multiplies=True),
    "product with Q6_K": Kind(_quantised("Q6_K"), dtypes=(bf16,), multiplies=True),
    "a vector with Q8_0": Kind(_quantised("Q8_0", 1), dtypes=(bf16,)),
    "a vector with Q4_0": Kind(_quantised("Q4_0", 1), dtypes=(bf16,)),
    "product of mxfp8": Kind(_quantised("mxfp8", None, "mxfp8"), dtypes=(bf16,), multiplies=True),
    "product of mxfp4": Kind(_quantised("mxfp4", None, "mxfp4"), dtypes=(bf16,), multiplies=True),
    "product of nvfp4": Kind(_quantised("nvfp4", None, "nvfp4"), dtypes=(bf16,), multiplies=True),
}


def inputs_of(module: ModuleOp) -> list[Array]:
    """Numbers near one; indices below the first size of a tensor; small patterns for bytes."""
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for value in graph_of(module).block.args:
        shape = [size.constant for size in value.type.shape]
        dtype = value.type.dtype
        if dtype.is_float:
            found.append(rng.standard_normal(shape).astype(np.float32).astype(dtype.numpy))
        else:
            found.append(rng.integers(0, 32, shape).astype(dtype.numpy))
    return found


def error_of(kind: Kind, dtype: DType) -> float:
    """The largest difference of a small graph in Triton's interpreter, as a part of the largest number."""
    from tests.emit_triton.programs import run_program

    module = kind.make(dtype, kind.small)
    inputs = inputs_of(module)
    found = run_program(build_for_gpu(module, "sm_90"), inputs, {})
    lower_hlo(module)
    wanted: Sequence[Array] = interpret(graph_of(module), inputs)
    errors = [
        np.abs(x.astype(np.float64) - y.astype(np.float64)).max()
        / max(np.abs(y.astype(np.float64)).max(), 1e-9)
        for x, y in zip(found, wanted, strict=True)
    ]
    return float(max(errors))


def compiled(kind: Kind, dtype: DType, target: str) -> GpuProgram:
    return build_for_gpu(kind.make(dtype, kind.large), target)


def faults(kind: Kind, dtype: DType, program: GpuProgram) -> list[str]:
    """What of a kind's machine code is not as it should be."""
    launches = [each for function in program.functions.values() for each in function.compiled]
    found = [reason for each in launches if (reason := refusal(each.resources, program.target))]
    kinds = {name for each in launches for name in each.resources.instructions}
    expected = MATRIX[program.target.architecture]
    if kind.multiplies and dtype.bits <= 16 and not kinds & expected:
        found.append(f"no {' or '.join(sorted(expected))}")
    return found


def cell(program: GpuProgram) -> str:
    """The registers of the largest kernel, and the instructions that are of note."""
    launches = [each.resources for function in program.functions.values() for each in function.compiled]
    kinds = {name for each in launches for name in each.instructions} - {"barrier"}
    words = [str(max(each.registers for each in launches)), *sorted(kinds)]
    return " ".join(words)


def row(name: str, kind: Kind, dtype: DType, targets: Sequence[str]) -> tuple[str, bool]:
    """A row of the table, and whether all in it is as it should be."""
    error, is_good = error_of(kind, dtype), True
    cells = [name, str(dtype), f"{error:.0e}" if error else "equal"]
    is_good &= error <= TOLERANCE[dtype]
    for target in targets:
        try:
            program = compiled(kind, dtype, target)
        except LuminalError as failed:
            cells.append(f"**{type(failed).__name__}**")
            is_good = False
            continue
        wrong = faults(kind, dtype, program)
        cells.append(f"**{wrong[0]}**" if wrong else cell(program))
        is_good &= not wrong
    return f"| {' | '.join(cells)} |", is_good


def _merged(old: str, new: Sequence[str]) -> str:
    """A table with new rows in place of those of the same kinds and dtypes, in the order of KINDS."""
    known = {tuple(line.split("|")[1:3]): line for line in (*old.splitlines()[2:], *new[2:])}
    order = [(f" {name} ", f" {dtype} ") for name, kind in KINDS.items() for dtype in kind.dtypes]
    return "\n".join([*new[:2], *(known[key] for key in order if key in known)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="KIND")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/gpu.md")
    options = parser.parse_args(arguments)
    if options.write and set(options.targets) != set(TARGETS):
        parser.error("--write is for all targets")
    lines = [
        f"| kernel | dtype | interpreted | {' | '.join(options.targets)} |",
        "|---" * (3 + len(options.targets)) + "|",
    ]
    print(*lines, sep="\n", flush=True)
    wrong = 0
    for name in options.kinds:
        for dtype in KINDS[name].dtypes:
            text, is_good = row(name, KINDS[name], dtype, options.targets)
            print(text, flush=True)
            lines.append(text)
            wrong += not is_good
    if options.write:
        page = PAGE.read_text()
        PAGE.write_text(BLOCK.sub(lambda found: found[1] + _merged(found[2], lines) + found[3], page))
    print(f"{wrong} rows are wrong" if wrong else "all as they should be", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
