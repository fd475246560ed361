"""The user's source line behind an FX node: what errors and IR carry as provenance."""

from __future__ import annotations

import os
import re
from functools import cache

import torch
import torch.fx

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def source_of(node: torch.fx.Node) -> str | None:
    """ "model.py:12 in forward": the innermost frame outside torch, or the innermost at all; None where unknown."""
    return _source_of_trace(node.meta.get("stack_trace") or "")


@cache
def _source_of_trace(trace: str) -> str | None:
    frames: list[tuple[str, str, str]] = _FRAME.findall(trace)
    if not frames:
        return None
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH_FOLDER)]
    path, line, function = (outside or frames)[-1]
    return f"{path}:{line} in {function}"
