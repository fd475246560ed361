"""The runtime of a target that a plug-in brings (see `luminal.plugins`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from luminal.options import CompileOptions
from luminal.plugins import find_backend
from luminal.runtimes.protocol import Executable, Runtime


class PluginRuntime(Runtime):
    """`cx.build_search_space(PluginRuntime)`, then `cx.search(PluginRuntime("c"), 1)`."""

    options = ("mode", "cache", "hint")

    def __init__(self, target: str) -> None:
        """UnsupportedTargetError where no plug-in offers the target."""
        super().__init__()
        self.target = target
        self._backend = find_backend(target)

    def compile(self, module: ModuleOp, candidates: int, options: Mapping[str, Any]) -> Executable:
        """What the plug-in makes of the module; how many candidates it times is its own business."""
        return self._backend.compile(module, CompileOptions.of(options))
