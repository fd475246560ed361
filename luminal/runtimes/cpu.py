"""The native CPU runtime of the Graph API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp

from luminal.compiler import compile_module
from luminal.options import CompileOptions
from luminal.plan.programs import Compiled
from luminal.runtimes.protocol import Array, Executable, Runtime


class CPURuntime(Runtime):
    """`cx.build_search_space(CPURuntime)`, then `cx.search(CPURuntime(), 10)`: ten candidates a region are timed.


    `build_search_space(CPURuntime, constants=(1, 2))`: the inputs at these positions rarely change; what depends on
    them alone is computed when they are set.
    """

    _prepared: tuple[Sequence[Array], Callable[[], list[Array]]] | None = None

    options = ("mode", "cache", "hint", "buckets", "constants", "config")

    def compile(self, module: ModuleOp, candidates: int, options: Mapping[str, Any]) -> Executable:
        """Machine code for this machine; errors as `compile_module`."""
        return compile_module(module, "cpu", CompileOptions.of({**options, "candidates": candidates}))

    def run(self, executable: Executable, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """Run on arrays that have been checked; what the executable finds out about them it finds out once."""
        if self._prepared is None or self._prepared[0] is not inputs:
            self._prepared = inputs, cast("Compiled", executable).prepared(inputs, dims)
        return self._prepared[1]()


NativeRuntime = CPURuntime
"""The same under the name of the original examples."""
