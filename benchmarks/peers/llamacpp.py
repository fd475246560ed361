"""llama.cpp's matrix products and models, from the library in llama-cpp-python; build that with
CMAKE_ARGS="-DGGML_NATIVE=ON"."""

from __future__ import annotations

from luminal.bench.case import Case, LeftOutError, Prepared, Program, absent


def missing() -> str:
    return absent("llama_cpp")


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    from benchmarks.ggml import product
    from benchmarks.llama_library import runner

    if program.stored is not None:
        return Prepared(runner(program.stored, threads), lambda logits: [logits.copy()])
    held = program.quantised
    if held is None:
        raise LeftOutError("it has no quantised weight")
    call = product(held.format, held.blocks, program.inputs[0].numpy(), threads)
    return Prepared(call, lambda values: [values.copy()])
