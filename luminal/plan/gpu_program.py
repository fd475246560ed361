"""The program of a product for a GPU, read without Triton."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from luminal.plan.gpu_code import code_from_json
from luminal.plan.gpu_executable import GpuExecutable
from luminal.plan.plan import plan_from_json
from luminal.plan.product_folder import without_folds
from luminal.runtimes.gpu_device import find_device
from luminal.stats import Stats


def read_program(folder: Path, manifest: Mapping[str, Any]) -> GpuExecutable:
    """The program of a product, whose device is looked for: NoDeviceError."""
    architecture = manifest["target"]["architecture"]
    codes = {
        name: code_from_json(function, lambda file: (folder / file).read_bytes())
        for name, function in manifest["functions"].items()
    }
    plan = without_folds(plan_from_json((folder / "plan.json").read_text()))
    stats = Stats(kernels=len(plan.kernels), launches=len(plan.steps))
    return GpuExecutable(plan, codes, architecture, stats, find_device(architecture))
