"""Random programs as data: inputs, steps and outputs, which print as Python source and run in torch and in a Graph.

A step is an operation of `operations.OPERATIONS` on earlier values. Its text is the same for PyTorch and for the Graph
API; only the names that it uses (`namespaces.py`) differ. Sizes are text over the symbols: "s", "2*s + 1".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tests.property.namespaces import DTYPES, torch_names


class Size(str):
    """A size expression: written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Name(str):
    """A name of the namespaces, such as a dtype."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Input:
    """An input: `layout` says how its memory lies (for the torch path). `data` replaces the random data."""

    dtype: str
    shape: tuple[str, ...]
    layout: str = "contiguous"
    data: torch.Tensor | None = None


@dataclass(frozen=True)
class Step:
    """`results` values made by `operation` of the values `operands` (numbers of values), with attributes by name."""

    operation: str
    operands: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    results: int = 1

    @property
    def values(self) -> dict[str, Any]:
        return dict(self.attributes)


@dataclass(frozen=True)
class Program:
    """`symbols` gives each symbol's range, `sizes` the values that it is run with, the first being the generator's."""

    symbols: tuple[tuple[str, int, int], ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    sizes: tuple[Mapping[str, int], ...]
    kind: str = "float"
    licences: tuple[str, ...] | None = None
    seed: int = 0
    updates: tuple[tuple[int, int], ...] = ()
    """Pairs (input, value): at the end the value is copied into the input, through torch alone."""

    @property
    def first_results(self) -> list[int]:
        """The number of the first value of each step."""
        number, found = len(self.inputs), list[int]()
        for step in self.steps:
            found.append(number)
            number += step.results
        return found

    @property
    def live(self) -> list[bool]:
        """For each step, whether an output or an update needs it: the others need not run, nor raise."""
        needed = {*self.outputs, *(number for _, number in self.updates)}
        found: list[bool] = []
        for step, first in zip(reversed(self.steps), reversed(self.first_results), strict=True):
            found.append(not needed.isdisjoint(range(first, first + step.results)))
            needed |= set(step.operands) if found[-1] else set()
        return found[::-1]

    def source(self, name: str = "program", shapes: bool = True, dead: bool = True) -> str:
        """The program as a function of its inputs; `shapes` reads the symbols off them; without `dead` the steps that
        are not live are left out."""
        from tests.property.operations import OPERATIONS

        arguments = ", ".join(f"v{n}" for n in range(len(self.inputs)))
        lines = [f"def {name}({arguments}):"]
        if shapes:
            for symbol, _, _ in self.symbols:
                place = self.place_of(symbol)
                if place is not None:
                    lines.append(f"    {symbol} = v{place[0]}.shape[{place[1]}]")
        for step, first, live in zip(self.steps, self.first_results, self.live, strict=True):
            if not live and not dead:
                continue
            targets = ", ".join(f"v{first + n}" for n in range(step.results))
            names = [f"v{number}" for number in step.operands]
            values = {key: _text(key, value) for key, value in step.attributes}
            text = OPERATIONS[step.operation].text.format(*names, all=", ".join(names), **values)
            lines.append(f"    {targets} = {text}")
        lines += [f"    v{target}.copy_(v{number})" for target, number in self.updates]
        results = "".join(f"v{number}, " for number in self.outputs)
        lines.append(f"    return ({results.strip()})" if results else "    return ()")
        return "\n".join(lines) + "\n"

    def place_of(self, symbol: str) -> tuple[int, int] | None:
        """An input and an axis whose size is just the symbol."""
        for number, one in enumerate(self.inputs):
            if symbol in one.shape:
                return number, one.shape.index(symbol)
        return None

    def function(
        self, names: Mapping[str, Any], shapes: bool = True, dead: bool = True
    ) -> Callable[..., tuple[Any, ...]]:
        """The function that `source` defines, over these names."""
        scope = dict(names)
        exec(
            compile(self.source(shapes=shapes, dead=dead), f"<program {self.kind} {self.seed}>", "exec"),
            scope,
        )
        return scope["program"]

    def shape_of(self, number: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(
            int(eval(size, {"min": min, "max": max}, dict(sizes))) for size in self.inputs[number].shape
        )

    def __str__(self) -> str:
        """What a report shows: ranges, inputs, the source."""
        lines = [f"# kind {self.kind}, licences {self.licences}, sizes {list(map(dict, self.sizes))}"]
        lines += [f"# {name} in {low} to {high}" for name, low, high in self.symbols]
        for number, one in enumerate(self.inputs):
            lines.append(f"# v{number}: {one.dtype}[{', '.join(one.shape)}] {one.layout}")
        return "\n".join([*lines, self.source()])


def _text(key: str, value: object) -> str:
    """An attribute as source; a size beside an operator in parentheses."""
    return f"({value})" if key == "other" and isinstance(value, Size) else repr(value)


def values_of(
    program: Program, step: Step, operands: Sequence[Any], names: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The results of one step on operands that live in the world of `names`."""
    alone = replace(
        program,
        symbols=(),
        inputs=tuple(Input("f32", ()) for _ in operands),
        steps=(replace(step, operands=tuple(range(len(operands)))),),
        outputs=tuple(len(operands) + n for n in range(step.results)),
        updates=(),
    )
    return alone.function(names, shapes=False)(*operands)


def torch_values(
    program: Program, inputs: Sequence[torch.Tensor], sizes: Mapping[str, int]
) -> list[torch.Tensor]:
    """Every value of the program in eager PyTorch, inputs included."""
    values = list(inputs)
    names = {**torch_names(), **sizes}
    for step in program.steps:
        values.extend(values_of(program, step, [values[n] for n in step.operands], names))
    return values


def dtype_name(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)
