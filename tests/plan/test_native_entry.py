"""The sizes that native code computes are those of `Dim.evaluate`."""

from __future__ import annotations

import ctypes

from hypothesis import given, settings
from hypothesis import strategies as st

from luminal.dim import Dim, Symbol, as_dim, dim_max, dim_min, symbol_dim
from luminal.emit_cpu.jit import Target, compile_object, load_object
from luminal.emit_cpu.text import Module
from luminal.plan.native_entry import DimEmitter, unpack_status
from luminal.plan.native_kernels import LONG_ENTRY, KernelCompiler

A, B = symbol_dim(Symbol("a", -50, 50)), symbol_dim(Symbol("b", 1, 40))


@st.composite
def sizes(draw: st.DrawFn, depth: int = 3) -> Dim:
    if depth == 0:
        return draw(st.sampled_from([A, B, as_dim(3), as_dim(-7), as_dim(16)]))
    left, right = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    kind = draw(st.sampled_from(["+", "-", "*", "//", "%", "max", "min"]))
    if kind in ("//", "%"):
        divisor = draw(st.sampled_from([B, B + 2, -B, as_dim(8), as_dim(5), as_dim(-3)]))
        return left // divisor if kind == "//" else left % divisor
    return {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "max": dim_max(left, right),
        "min": dim_min(left, right),
    }[kind]


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.lists(sizes(), min_size=4, max_size=8), st.integers(-50, 50), st.integers(1, 40), st.booleans())
def test_sizes_in_native_code(dims: list[Dim], a: int, b: int, quickly: bool) -> None:
    module = Module()
    with module.function("sizes", [("ptr", "out"), ("i64", "a"), ("i64", "b")]) as function:
        emitter = DimEmitter(function, {"a": function.parameters["a"], "b": function.parameters["b"]})
        for slot, size in enumerate(dims):
            value = function.operand(emitter.value(size), "i64")
            function.store(value, function.offset(function.parameters["out"], "i64", slot))
        function.ret()
    library = load_object(compile_object(module.text(), Target.host(), quickly), ["sizes"])
    out = (ctypes.c_int64 * len(dims))()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library["sizes"])
    run(ctypes.addressof(out), a, b)
    assert list(out) == [size.evaluate({"a": a, "b": b}) for size in dims]


def test_status_names_the_step() -> None:
    assert unpack_status(7 << 32 | 2) == (7, 2)


def test_long_entries_are_compiled_quickly() -> None:
    host, compiler = Target.host(), KernelCompiler(Target.host(), use_cache=False)

    def text(stores: int) -> str:
        module = Module()
        with module.function("start", [("ptr", "frame")], "i64") as function:
            for slot in range(stores):
                place = function.offset(function.parameters["frame"], "i64", slot)
                function.store(function.load("i64", place), function.offset(place, "i64", stores))
            function.ret(function.operand(0, "i64"))
        return module.text()

    short, long = text(4), text(LONG_ENTRY // 150)
    assert len(short) < LONG_ENTRY < len(long)
    assert compiler.entry(short)[1] == compile_object(short, host) != compile_object(short, host, True)
    assert compiler.entry(long)[1] == compile_object(long, host, True)
