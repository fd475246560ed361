"""The most that this machine does: fused multiply-adds on registers alone, and bytes between cores and memory."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from luminal.emit_cpu.jit import Target, compile_object, load_object

ACCUMULATORS = 12
"""Independent chains: more than latency times throughput of any processor at hand, and with the factor no more than the
16 registers of AVX2."""
STREAMS = 4
"""Places from which one core reads at once: hardware looks ahead along a stream as far as a page goes, so that one
alone waits at the end of each."""
PASSES = 7
SECONDS = 0.05
COPIED = 64 << 20
"""Bytes that each core copies: more than caches hold."""
READS = 8
"""How often a reader reads its arrays in one call, so that starting its threads counts for little."""


def peak_gflops(threads: int) -> float:
    """GFLOP/s in f32 of `threads` cores that do nothing else: the best of several short passes, all cores at once.

    What it gives is what the machine gave at that moment, with its clock and its neighbours.
    """
    target = Target.host()
    lanes = target.vector_bits // 32
    library = load_object(compile_object(_text(lanes), target), ["multiply_adds"])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(library["multiply_adds"])
    rounds = 1 << 10
    while _seconds(function, rounds, 1) < SECONDS:
        rounds *= 2
    best = min(_seconds(function, rounds, threads) for _ in range(PASSES))
    return 2.0 * lanes * ACCUMULATORS * rounds * threads / best / 1e9


def memory_gbytes(threads: int) -> float:
    """GB/s that `threads` cores read and write together while each copies memory of its own; the best of several."""
    arrays = iter([(np.ones(COPIED, np.uint8), np.ones(COPIED, np.uint8)) for _ in range(threads)] * PASSES)

    def copy(_: int) -> None:
        target, source = next(arrays)
        np.copyto(target, source)

    best = min(_seconds(copy, 1, threads) for _ in range(PASSES))
    return 2.0 * COPIED * threads / best / 1e9


def read_gbytes(threads: int) -> float:
    """GB/s that `threads` cores read together from memory, in huge pages if there are any; the best of several."""
    array = np.ones(threads * COPIED, np.float32)
    read = reader([array], threads)
    best = min(_seconds(lambda _: read(), 1, 1) for _ in range(PASSES))
    return READS * array.nbytes / best / 1e9


def reader(arrays: Sequence[NDArray[np.float32]], threads: int) -> Callable[[], None]:
    """A function that reads all of some arrays in turn, READS times, where they lie, a part of each by each of
    `threads` cores.

    Nothing but loads and additions: no kernel that needs these bytes takes less time.
    """
    target = Target.host()
    lanes = target.vector_bits // 32
    library = load_object(compile_object(reading(lanes), target), ["read"])
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library["read"]
    )
    step = lanes * ACCUMULATORS
    parts = [
        [
            (array.ctypes.data + n * (array.size // threads) * array.itemsize, array.size // threads // step)
            for array in arrays
        ]
        for n in range(threads)
    ]

    def part(number: int) -> None:
        for _ in range(READS):
            for address, blocks in parts[number]:
                function(address, blocks, 1)

    def read() -> None:
        # the library must live as long as the function
        assert library
        workers = [threading.Thread(target=part, args=(number,)) for number in range(1, threads)]
        for worker in workers:
            worker.start()
        part(0)
        for worker in workers:
            worker.join()

    return read


def _seconds(function: Callable[[int], object], rounds: int, threads: int) -> float:
    workers = [threading.Thread(target=function, args=(rounds,)) for _ in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - started


def _begins(vector: str, again: str) -> str:
    """Accumulators %a0 ... at the head of a loop, %b0 ... at its end, the block `again`."""
    return "\n".join(
        f"  %a{n} = phi {vector} [ zeroinitializer, %entry ], [ %b{n}, %{again} ]"
        for n in range(ACCUMULATORS)
    )


def _sums(vector: str) -> str:
    """All accumulators in one, the last of %s0 ..."""
    return "\n".join(
        f"  %s{n} = fadd {vector} %b{n}, {f'%s{n - 1}' if n else 'zeroinitializer'}"
        for n in range(ACCUMULATORS)
    )


def _text(lanes: int) -> str:
    """float multiply_adds(i64 rounds): each round is one multiply-add in each chain."""
    vector = f"<{lanes} x float>"
    chains = range(ACCUMULATORS)
    begins = _begins(vector, "loop")
    steps = "\n".join(
        f"  %b{n} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{n}, {vector} %factor, {vector} %factor)"
        for n in chains
    )
    sums = _sums(vector)
    # the factor depends on an argument, so that nothing is computed while compiling
    return f"""
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define float @multiply_adds(i64 %rounds) {{
entry:
  %number = uitofp i64 %rounds to float
  %small = fmul float %number, 0x3810000000000000
  %first = insertelement {vector} poison, float %small, i32 0
  %factor = shufflevector {vector} %first, {vector} poison, <{lanes} x i32> zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{begins}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %rounds
  br i1 %more, label %loop, label %done
done:
{sums}
  %result = extractelement {vector} %s{ACCUMULATORS - 1}, i32 0
  ret float %result
}}
"""


def reading(lanes: int) -> str:
    """float read(ptr data, i64 blocks, i64 rounds): a block is one vector for each accumulator, as many of each of
    STREAMS parts of the data."""
    vector = f"<{lanes} x float>"
    chains = range(ACCUMULATORS)
    each = ACCUMULATORS // STREAMS
    begins = _begins(vector, "block")
    steps = "\n".join(
        f"  %p{n} = getelementptr {vector}, ptr %data, i64 %v{n}\n"
        f"  %x{n} = load {vector}, ptr %p{n}, align 4\n"
        f"  %b{n} = fadd {vector} %a{n}, %x{n}"
        for n in chains
    )
    starts = "\n".join(f"  %start{s} = mul i64 %blocks, {each * s}" for s in range(STREAMS))
    numbers = "\n".join(
        f"  %w{n} = add i64 %base, {n % each}\n  %v{n} = add i64 %w{n}, %start{n // each}" for n in chains
    )
    sums = _sums(vector)
    return f"""
define float @read(ptr %data, i64 %blocks, i64 %rounds) {{
entry:
  %total = mul i64 %blocks, %rounds
  %none = icmp eq i64 %total, 0
{starts}
  br i1 %none, label %empty, label %block
block:
  %i = phi i64 [ 0, %entry ], [ %next, %block ]
  %at = phi i64 [ 0, %entry ], [ %after, %block ]
{begins}
  %base = mul i64 %at, {each}
{numbers}
{steps}
  %next = add i64 %i, 1
  %beside = add i64 %at, 1
  %ends = icmp eq i64 %beside, %blocks
  %after = select i1 %ends, i64 0, i64 %beside
  %more = icmp ult i64 %next, %total
  br i1 %more, label %block, label %done
done:
{sums}
  %result = extractelement {vector} %s{ACCUMULATORS - 1}, i32 0
  ret float %result
empty:
  ret float 0.0
}}
"""
