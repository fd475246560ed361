"""What the tensors of a call must be, where no guard of torch's has looked at them: dtypes, ranks and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sympy
import torch

from luminal.errors import DTypeError, OptionError, ShapeError
from luminal.torch.symbols import linear_parts


@dataclass(frozen=True)
class _Input:
    """A tensor that is expected as argument `number`; sizes are ints, symbols and expressions of symbols."""

    number: int
    name: str
    dtype: torch.dtype
    sizes: tuple[Any, ...]


class Signature:
    """The inputs of a program: number of the argument, its name, and a fake tensor; what is no tensor is not looked
    at."""

    def __init__(self, inputs: Iterable[tuple[int, str, object]]) -> None:
        self._inputs = [
            _Input(number, name, fake.dtype, tuple(map(_expression, fake.shape)))
            for number, name, fake in inputs
            if isinstance(fake, torch.Tensor)
        ]
        self._multiples = [
            (expected.number, axis, *parts)
            for expected in self._inputs
            for axis, size in enumerate(expected.sizes)
            if not isinstance(size, int) and (parts := linear_parts(size)) is not None
        ]
        """Where sizes such as 2*s + 1 stand: number, axis, and the parts of `linear_parts`."""

    def check(self, arguments: Sequence[object]) -> None:
        """OptionError for an argument that is no tensor, DTypeError and ShapeError for one that is another than the
        program's."""
        symbols: dict[sympy.Symbol, int] = {}
        for expected in self._inputs:
            given = check_tensor(arguments[expected.number], expected.name, expected.dtype, expected.sizes)
            for have, want in zip(given.shape, expected.sizes, strict=True):
                if isinstance(want, sympy.Symbol):
                    symbols.setdefault(want, have)
        for number, axis, symbol, factor, offset in self._multiples:
            symbols.setdefault(symbol, (cast(torch.Tensor, arguments[number]).shape[axis] - offset) // factor)
        for expected in self._inputs:
            given = arguments[expected.number]
            assert isinstance(given, torch.Tensor)
            if any(
                _value(want, symbols) != have for have, want in zip(given.shape, expected.sizes, strict=True)
            ):
                known = {str(symbol): size for symbol, size in symbols.items()}
                where = f" with {known}" if any(not isinstance(size, int) for size in expected.sizes) else ""
                raise ShapeError(
                    f"{expected.name} has shape {list(given.shape)}, expected {sizes_text(expected.sizes)}{where}"
                )


def check_tensor(given: object, name: str, dtype: torch.dtype, sizes: Sequence[object]) -> torch.Tensor:
    """An argument, which is a tensor of a dtype and rank: OptionError, DTypeError or ShapeError else."""
    if not isinstance(given, torch.Tensor):
        raise OptionError(f"{name} is a {type(given).__name__}, expected a tensor")
    if given.dtype != dtype:
        raise DTypeError(f"{name} has dtype {given.dtype}, expected {dtype}")
    if given.ndim != len(sizes):
        raise ShapeError(f"{name} has shape {list(given.shape)}, expected {sizes_text(sizes)}")
    return given


def sizes_text(sizes: Sequence[object]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _expression(size: int | torch.SymInt) -> Any:
    return size if isinstance(size, int) else size.node.expr


def _value(size: Any, symbols: Mapping[sympy.Symbol, int]) -> Any:
    if isinstance(size, int):
        return size
    return symbols[size] if isinstance(size, sympy.Symbol) else size.subs(symbols)
