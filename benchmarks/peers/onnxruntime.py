"""ONNX Runtime on its CPU provider, all optimisations, inputs and results bound; from torch.onnx.export."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from luminal.bench.case import Case, LeftOutError, Prepared, Program, absent


def missing() -> str:
    return absent("onnxruntime", "onnx", "onnxscript")


def prepare(program: Program, case: Case, threads: int) -> Prepared:
    if program.training:
        raise LeftOutError("the CPU packages of ONNX Runtime do not train")
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.onnx")
        exported: Any = torch.onnx.export(
            program.module, program.inputs, dynamo=True, external_data=True, verbose=False
        )
        exported.save(file, external_data=True)
        session = runtime.InferenceSession(file, options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    for described, value in zip(session.get_inputs(), program.inputs, strict=True):
        if value.dtype is torch.bfloat16:
            raise LeftOutError("ONNX Runtime takes no bf16 from NumPy")
        array = np.ascontiguousarray(value.numpy())
        binding.bind_ortvalue_input(described.name, runtime.OrtValue.ortvalue_from_numpy(array))
    for described in session.get_outputs():
        binding.bind_output(described.name)
    session.run_with_iobinding(binding)
    # results keep the memory of the first run: a call allocates nothing
    results = binding.get_outputs()
    for described, value in zip(session.get_outputs(), results, strict=True):
        binding.bind_ortvalue_output(described.name, value)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return results

    return Prepared(call, lambda values: [value.numpy() for value in values])
