"""The native CPU runtime of the Graph API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from luminal.compiler import compile_module
from luminal.options import CompileOptions
from luminal.runtimes.protocol import Executable, Runtime


class CPURuntime(Runtime):
    """`cx.build_search_space(CPURuntime)`, then `cx.search(CPURuntime(), 10)`: ten candidates a region are timed.


    `build_search_space(CPURuntime, constants=(1, 2))`: the inputs at these positions rarely change; what depends on
    them alone is computed when they are set.
    """

    options = ("mode", "cache", "hint", "buckets", "constants", "config")

    def compile(self, module: ModuleOp, candidates: int, options: Mapping[str, Any]) -> Executable:
        """Machine code for this machine; errors as `compile_module`."""
        return compile_module(module, "cpu", CompileOptions.of({**options, "candidates": candidates}))


NativeRuntime = CPURuntime
"""The same under the name of the original examples."""
