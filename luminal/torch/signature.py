"""What the tensors of a call must be, where no guard of torch's has looked at them: dtypes, ranks and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import sympy
import torch

from luminal.errors import DTypeError, OptionError, ShapeError


class Signature:
    """The inputs of a program as fake tensors; `names` are those of their arguments. What is no tensor is not looked
    at."""

    def __init__(self, names: Sequence[str], fakes: Sequence[object]) -> None:
        self._expected = [
            (number, name, fake)
            for number, (name, fake) in enumerate(zip(names, fakes, strict=True))
            if isinstance(fake, torch.Tensor)
        ]

    def check(self, arguments: Sequence[object]) -> None:
        """OptionError for an argument that is no tensor, DTypeError and ShapeError for one that is another than the
        program's."""
        sizes: dict[sympy.Symbol, int] = {}
        for number, name, fake in self._expected:
            given = arguments[number]
            if not isinstance(given, torch.Tensor):
                raise OptionError(f"{name} is a {type(given).__name__}, expected a tensor")
            if given.dtype != fake.dtype:
                raise DTypeError(f"{name} has dtype {given.dtype}, expected {fake.dtype}")
            if given.ndim != fake.ndim:
                raise ShapeError(f"{name} has shape {list(given.shape)}, expected {_text(fake)}")
            for have, want in zip(given.shape, fake.shape, strict=True):
                expression = _expression(want)
                if isinstance(expression, sympy.Symbol):
                    sizes.setdefault(expression, have)
        for number, name, fake in self._expected:
            given = cast(torch.Tensor, arguments[number])
            if any(
                _expression(want).subs(sizes) != have
                for have, want in zip(given.shape, fake.shape, strict=True)
            ):
                known = {str(symbol): size for symbol, size in sizes.items()}
                where = f" with {known}" if any(isinstance(size, torch.SymInt) for size in fake.shape) else ""
                raise ShapeError(f"{name} has shape {list(given.shape)}, expected {_text(fake)}{where}")


def _expression(size: int | torch.SymInt) -> Any:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


def _text(fake: torch.Tensor) -> str:
    return f"[{', '.join(str(size) for size in fake.shape)}]"
