"""What the benchmarks call the most that memory gives is given by reading every element, and each once."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from luminal.bench import peak
from luminal.emit_cpu.jit import Target, compile_object, load_object


@pytest.mark.parametrize("blocks", [0, 1, 50])
def test_a_reader_reads_each_element_once(blocks: int) -> None:
    target = Target.host()
    lanes = target.vector_bits // 32
    library = load_object(compile_object(peak.reading(lanes), target), ["read"])
    read = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library["read"])
    data = np.zeros(blocks * peak.ACCUMULATORS * lanes, np.float32)
    data[::lanes] = np.arange(blocks * peak.ACCUMULATORS)  # the sums of the first lane are what is returned
    assert read(data.ctypes.data, blocks, 1) == data.sum()
    assert read(data.ctypes.data, blocks, 3) == 3 * data.sum()
