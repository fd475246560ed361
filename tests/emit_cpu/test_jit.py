"""Compiling, loading and what a fork leaves."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import replace

import pytest

from luminal.emit_cpu.jit import Target, assembly, compile_object, load_object
from luminal.emit_cpu.text import Module
from luminal.emit_cpu.values import Value, constant, constant_bits, lane_constants

HOST = Target.host()


def adder(amount: int) -> str:
    module = Module()
    with module.function("add", [("i64", "x")], "i64") as f:
        f.ret(f.op("add", f.parameters["x"], amount))
    return module.text()


def load_adder(amount: int) -> tuple[object, object]:
    library = load_object(compile_object(adder(amount), HOST), ["add"])
    return library, ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library["add"])


def test_host_facts_agree() -> None:
    assert HOST.vector_bits in (128, 256, 512)
    assert HOST.lanes("float") == HOST.vector_bits // 32
    assert HOST.lanes("i8") == HOST.vector_bits // 8
    assert Target.host() == HOST


def test_names_tell_processors_apart() -> None:
    wider = replace(Target.avx2(), features="+avx512f")
    names = [target.name for target in (Target.avx2(), wider, Target.aarch64())]
    assert len(set(names)) == 3
    assert [name.rpartition(" ")[0] for name in names[1:]] == ["cpu x86_64 haswell", "cpu aarch64 generic"]


def test_bad_text_says_where() -> None:
    with pytest.raises(RuntimeError, match="expected"):
        compile_object("define i32 @f( {", HOST)
    with pytest.raises(RuntimeError, match="dominate"):
        compile_object("define i32 @f() {\n  %a = add i32 %b, 1\n  %b = add i32 1, 1\n  ret i32 %a\n}", HOST)


def test_imported_functions_are_called() -> None:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    callback = prototype(lambda x: x * 10)
    module = Module()
    with module.function("twice", [("i64", "x")], "i64") as f:
        once = f.external("i64", "given", f.parameters["x"])
        f.ret(f.external("i64", "given", once))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    library = load_object(compile_object(module.text(), HOST), ["twice"], {"given": address})
    assert prototype(library["twice"])(7) == 700


def test_threads_compile_at_once() -> None:
    results: dict[int, int] = {}

    def work(amount: int) -> None:
        library, add = load_adder(amount)
        results[amount] = add(1)  # type: ignore[operator]
        del library

    threads = [threading.Thread(target=work, args=(amount,)) for amount in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {amount: amount + 1 for amount in range(8)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_code_and_loads_more() -> None:
    library, add = load_adder(5)
    child = os.fork()
    if child == 0:
        fine = add(1) == 6  # type: ignore[operator]
        more, other = load_adder(7)
        fine = fine and other(1) == 8  # type: ignore[operator]
        del library, more
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert add(2) == 7  # type: ignore[operator]


def test_constants_keep_their_bits() -> None:
    """Through machine code: NaN payloads, -0.0, subnormals, and integers that wrap."""
    cases = [
        ("float", 0x7FA00001, ctypes.c_uint32),
        ("float", 0x80000000, ctypes.c_uint32),
        ("float", 0x00000001, ctypes.c_uint32),
        ("float", 0xFF800000, ctypes.c_uint32),
        ("double", 0x7FF4000000000001, ctypes.c_uint64),
        ("double", 0x8000000000000000, ctypes.c_uint64),
        ("i32", 0xFFFFFFFF, ctypes.c_uint32),
        ("i64", 1 << 63, ctypes.c_uint64),
    ]
    for element, bits, type_ in cases:
        module = Module()
        with module.function("store", [("ptr", "to")]) as f:
            f.store(constant_bits(element, bits), f.parameters["to"])
            f.ret()
        library = load_object(compile_object(module.text(), HOST), ["store"])
        out = type_(0)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library["store"])(ctypes.addressof(out))
        assert out.value == bits, (element, hex(bits))
    assert constant("i8", 300).text == "44"
    assert constant("<2 x i1>", 1).text == "splat (i1 true)"
    assert lane_constants("i32", [1, -2]) == Value("<2 x i32>", "<i32 1, i32 -2>")
    with pytest.raises(AssertionError):
        constant("i32", 1.5)


def test_loop_carries_and_branches() -> None:
    """sum of the even numbers below n, by a loop with a carry and a choice in it."""
    module = Module()
    with module.function("evens", [("i64", "n")], "i64") as f:
        with f.loop(0, f.parameters["n"], carried=[Value("i64", "0")]) as loop:
            even = f.compare("icmp eq", f.op("and", loop.index, 1), 0)
            old, index = loop.carried[0], loop.index
            loop.next += f.choose(even, lambda: [f.op("add", old, index)], lambda: [old])
        f.ret(loop.carried[0])
    library = load_object(compile_object(module.text(), HOST), ["evens"])
    evens = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library["evens"])
    assert [evens(n) for n in (-3, 0, 1, 5, 10)] == [0, 0, 0, 6, 20]


def test_assembly_is_of_the_target() -> None:
    assert "ret" in assembly(adder(1), Target.aarch64())
    assert "x0" in assembly(adder(1), Target.aarch64())
    assert "rdi" in assembly(adder(1), Target.avx2())
