"""Chains of operations side by side, and constants as operands in memory: what is written, and what becomes of it."""

from __future__ import annotations

import ctypes
import re
from functools import partial

import numpy as np

from luminal.emit_cpu.interleave import interleaved, last_block
from luminal.emit_cpu.jit import Target, assembly, compile_object, load_object
from luminal.emit_cpu.text import Function, Lines, Module, flat
from luminal.emit_cpu.values import Value
from tests.emit_cpu.kernels import HOST

AVX2 = Target.avx2()
FIRST: Lines = ["  %a1 = load float, ptr %p", "  %a2 = fadd float %a1, %a1"]
SECOND: Lines = ["  %b1 = load float, ptr %q", "  %b2 = fadd float %b1, %b1", "  %b3 = fmul float %b2, %b2"]


def test_chains_take_turns() -> None:
    assert interleaved([FIRST, SECOND]) == [FIRST[0], SECOND[0], FIRST[1], SECOND[1], SECOND[2]]


def test_what_another_chain_defined_comes_first() -> None:
    reader: Lines = ["  %c1 = fadd float %a2, %p", "  %c2 = fmul float %c1, %c1"]
    merged = interleaved([FIRST, reader])
    assert merged == [*FIRST, *reader]


def test_code_with_branches_stays_in_order() -> None:
    branching: Lines = ["  br label %then1", "then1:", "  %d1 = load float, ptr %p"]
    assert interleaved([branching, SECOND]) == [*branching, *SECOND]
    assert interleaved([SECOND, [["  %e1 = load float, ptr %p"]]]) == [
        *SECOND,
        ["  %e1 = load float, ptr %p"],
    ]


def _tenfold(f: Function, x: Value, wanted: Value, usual: Value) -> Value:
    return f.select(wanted, f.op("fmul", x, -10.0), usual)


def test_rare_paths_of_all_chains_are_one_branch() -> None:
    module = Module()
    chains: list[Lines] = []
    with module.function("each", [("float", "x"), ("float", "y")], "float") as f:
        values: list[Value] = []
        for x in f.parameters.values():
            chains.append([])
            with f.at(chains[-1]):
                usual = f.op("fadd", x, x)
                negative = f.compare("fcmp olt", x, 0.0)
                rare = partial(_tenfold, f, x, negative, usual)
                value = f.rarely(negative, rare, usual)
                values.append(f.op("fmul", value, 3.0) if len(chains) == 1 else value)
        merged = interleaved(chains)
        f.lines += merged
        f.block = last_block(merged) or f.block
        f.ret(f.op("fadd", *values))
    assert sum(line.count("br i1") for line in flat(merged)) == 1
    library = load_object(compile_object(module.text(), HOST), ["each"])
    run = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float, ctypes.c_float)(library["each"])
    found = [run(x, y) for x in (1.0, -1.0) for y in (1.0, -1.0)]
    assert found == [6.0 + 2.0, 6.0 + 10.0, 30.0 + 2.0, 30.0 + 10.0]


def test_a_rare_path_waits_for_what_it_reads_of_another() -> None:
    """The second chain goes on from what the first one gives, so that there are two branches."""
    module = Module()
    with module.function("both", [("float", "x")], "float") as f:
        (x,) = f.parameters.values()
        chains: list[Lines] = [[], []]
        value = x
        for chain in chains:
            with f.at(chain):
                negative = f.compare("fcmp olt", value, 1.0)
                value = f.rarely(negative, partial(f.op, "fadd", value, 1.0), value)
        merged = interleaved(chains)
    assert sum(line.count("br i1") for line in flat(merged)) == 2
    assert last_block(merged) == f.block
    assert last_block(FIRST) is None


def polynomial(constants_in_memory: bool) -> str:
    """`out[n] = P(x[n])` of degree 20, eight numbers at a time."""
    module = Module(constants_in_memory)
    with module.function("loop", [("ptr", "x"), ("ptr", "out"), ("i64", "n")]) as f:
        x, out, count = f.parameters.values()
        with f.loop(0, count, 8) as loop:
            value = f.load("<8 x float>", f.offset(x, "float", loop.index))
            total = f.op("fadd", value, 0.5)
            for power in range(20):
                total = f.fma(total, value, 1 / (power + 3))
            f.store(f.op("fmul", total, -1.0), f.offset(out, "float", loop.index))
        f.ret()
    return module.text()


def test_constants_in_memory_are_operands() -> None:
    kept, in_memory = (assembly(polynomial(where), AVX2) for where in (False, True))
    operand = re.compile(r"vfn?m(?:add|sub)\w+\s+\.?\w*constant\w*\(%rip\)")
    assert len(operand.findall(in_memory)) == 20
    assert not operand.findall(kept)
    assert "vbroadcastss" in kept
    assert in_memory.count("vbroadcastss") <= 1  # the sign that a factor of -1 flips


def test_constants_in_memory_are_the_same_numbers() -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    results: list[np.ndarray] = []
    for where in (False, True):
        library = load_object(compile_object(polynomial(where), HOST), ["loop"])
        out = np.zeros_like(x)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library["loop"])
        run(x.ctypes.data, out.ctypes.data, len(x))
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert results[0].any()
