"""Symbolic sizes: torch's sympy expressions become `Dim`s, with the ranges that Dynamo's shape environment knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy import functions as sympy_functions
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from luminal.dim import (
    Dim,
    as_dim,
    dim,
    dim_max,
    dim_min,
    known_equal,
    known_less_equal,
    known_unequal,
    product,
)
from luminal.errors import UnsupportedOpError

LOWEST = -(2**63)
"""The range of a symbol that torch does not bound below."""
SizeLike = int | torch.SymInt


@dataclass(frozen=True)
class SymbolBinding:
    """How a symbol's value is found at a call: argument `argument`, or its size `axis`, over `divisor`; or, where there
    is `code`, that Python expression of the values of `uses`."""

    name: str
    argument: int
    axis: int | None
    divisor: int = 1
    code: str = ""
    uses: tuple[SymbolBinding, ...] = ()


@dataclass
class _Facts:
    """What guards say: dims that are not negative (`s <= t` as t - s), and dims that have a shorter equal."""

    not_negative: list[Dim]
    same: dict[Dim, Dim]


class SymbolTable:
    """Translates the sizes of one FX graph.

    Where the shape environment has proven that a symbol is a multiple of m, the symbol is written as m times a new
    one, so that `s // m * m` and `s` are one polynomial.  `promised`: the ranges that an exported program has been
    given, which go before those of its trace; nothing looks at guards of such a program, so none can be made.
    """

    def __init__(
        self, shape_env: ShapeEnv | None, promised: Mapping[sympy.Symbol, ValueRanges[Any]] | None = None
    ) -> None:
        self.shape_env, self.promised = shape_env, promised
        self._symbols: dict[sympy.Symbol, Dim] = {}
        self._divisors: dict[sympy.Symbol, int] = {}
        self._derived: dict[sympy.Basic, Dim] = {}
        self._facts: _Facts | None = None
        for fact in shape_env.divisible if shape_env is not None else ():
            base, modulus = cast(tuple[Any, Any], fact.args)[:2]
            if base.is_Symbol and modulus.is_Integer:
                self._divisors[base] = int(sympy.ilcm(self._divisors.get(base, 1), int(modulus)))

    def size(self, value: SizeLike) -> Dim:
        """The size as a Dim. UnsupportedOpError for an expression that no Dim can say."""
        if isinstance(value, int):
            return as_dim(value)
        expression = value.node.expr
        if self.shape_env is not None:
            expression = self.shape_env.replace(expression)
        found = self.translate(expression)
        return found if found.constant is not None else self._guards().same.get(found, found)

    def shape(self, values: Sequence[SizeLike]) -> tuple[Dim, ...]:
        return tuple(self.size(value) for value in values)

    def known_less_equal(self, left: Dim, right: Dim) -> bool:
        """Proven `left <= right`, by the dims' ranges or by what the shape environment has seen guarded."""
        if known_less_equal(left, right):
            return True
        return any(known_less_equal(left + fact, right) for fact in self._guards().not_negative)

    def decide_less_equal(self, left: Dim, right: Dim) -> bool:
        """Whether `left <= right`; where that is open, what holds for the traced sizes, and a guard that it goes on to.

        UnsupportedOpError where guards can no longer be made, as in a backward graph.
        """
        if self.known_less_equal(left, right):
            return True
        if self.known_less_equal(right + 1, left):
            return False
        env = self._open_env(f"whether {left} <= {right}")
        holds = bool(self._symint(left, env) <= self._symint(right, env))
        self._guards().not_negative.append(right - left if holds else left - right - 1)
        return holds

    def decide_equal(self, left: Dim, right: Dim) -> bool:
        """Whether the dims are equal for the traced sizes, and a guard that it goes on so where that was open.

        UnsupportedOpError where guards can no longer be made.
        """
        if known_equal(left, right) or known_unequal(left, right):
            return known_equal(left, right)
        env = self._open_env(f"whether {left} == {right}")
        return bool(self._symint(left, env) == self._symint(right, env))

    def fixed(self, value: int | Dim) -> int:
        """The plain integer, and a guard that a symbolic one keeps the value it was traced with."""
        if isinstance(value, int) or value.constant is not None:
            return value if isinstance(value, int) else cast(int, value.constant)
        env = self._open_env(f"the value of {value}")
        return int(self._symint(value, env))

    def _open_env(self, question: str) -> ShapeEnv:
        if self.shape_env is None or self.shape_env.frozen or self.promised is not None:
            raise UnsupportedOpError(f"{question} is not known, and can't be guarded any more")
        return self.shape_env

    def _symint(self, value: Dim, env: ShapeEnv) -> Any:
        """The torch integer that a Dim stands for."""
        scope: dict[str, Any] = {"min": torch.sym_min, "max": torch.sym_max, "__builtins__": {}}
        for symbol, known in self._symbols.items():
            number = env.create_symintnode(symbol, hint=int(env.backed_var_to_val[symbol]))
            scope[_only_name(known)] = number // self._divisors.get(symbol, 1)
        return eval(str(value), scope)

    def _guards(self) -> _Facts:
        """What the guards of the graph say, read once."""
        if self._facts is not None:
            return self._facts
        self._facts = _Facts([], {})
        if self.shape_env is None:
            return self._facts
        for guard in self.shape_env.guards:
            parts = guard.expr.args if isinstance(guard.expr, sympy.And) else (guard.expr,)
            for part in parts:
                # sizes are read with their symbols replaced; so is what is said of them
                self._note_fact(self.shape_env.replace(cast(Any, part)), self._facts)
        return self._facts

    def _note_fact(self, relation: Any, facts: _Facts) -> None:
        if not isinstance(relation, (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt, sympy.Eq)):
            return
        try:
            left, right = map(self.translate, relation.args)
        except UnsupportedOpError:
            return
        if isinstance(relation, sympy.Eq):
            short, long = sorted((left, right), key=lambda side: (len(str(side)), str(side)))
            if long.constant is None:
                facts.same[long] = short
            return
        more, less = (left, right) if isinstance(relation, (sympy.Ge, sympy.Gt)) else (right, left)
        facts.not_negative.append(more - less - int(isinstance(relation, (sympy.Lt, sympy.Gt))))

    def translate(self, expression: sympy.Basic) -> Dim:
        """A sympy expression over integers as a Dim."""
        if isinstance(expression, sympy.Integer):
            return as_dim(int(expression))
        if isinstance(expression, sympy.Symbol):
            return self._symbol(expression)
        rule = _RULES.get(type(expression))
        if rule is not None:
            try:
                return rule([self.translate(argument) for argument in expression.args])
            except UnsupportedOpError:
                pass
        return self._derive(expression)

    def _derive(self, expression: sympy.Basic) -> Dim:
        """A symbol of its own for what no Dim can say: its value is computed at every call."""
        if self.shape_env is None or not cast(Any, expression).is_integer:
            raise UnsupportedOpError(f"the size {expression} has no symbolic form in Luminal")
        if expression not in self._derived:
            low, high = _limits(bound_sympy(cast(Any, expression), self._ranges))
            self._derived[expression] = dim(f"derived_{len(self._derived)}", low, high)
        return self._derived[expression]

    def bindings(self, placeholders: Sequence[Any], names: Iterable[str]) -> list[SymbolBinding]:
        """Where the values of the symbols `names` come from, given the placeholders' fake values in order.

        UnsupportedOpError for a size that no argument has: it depends on data.
        """
        found = self._found(placeholders)
        known = {
            self._name(s): replace(b, name=self._name(s), divisor=self._divisors.get(s, 1))
            for s, b in found.items()
        }
        for expression, value in self._derived.items():
            name = _only_name(value)
            known[name] = _computed(name, expression, found)
        for name in names:
            if name not in known:
                raise UnsupportedOpError(f"the size {name} depends on data: no input of the graph has it")
        return [known[name] for name in names]

    def conditions(self, placeholders: Sequence[Any]) -> list[SymbolBinding]:
        """The guards of an exported program's trace, each named by its text: 1 where it holds."""
        if self.promised is None or self.shape_env is None:
            return []
        found = self._found(placeholders)
        guards = dict.fromkeys(guard.expr for guard in self.shape_env.guards)
        return [_computed(str(guard), guard, found) for guard in guards]

    def _found(self, placeholders: Sequence[Any]) -> dict[sympy.Symbol, SymbolBinding]:
        """Where each symbol's value comes from, undivided."""
        found: dict[sympy.Symbol, SymbolBinding] = {}
        for number, value in enumerate(placeholders):
            if isinstance(value, torch.SymInt):
                self._bind(found, value, number, None)
        for number, value in enumerate(placeholders):
            if isinstance(value, torch.Tensor):
                for axis, size in enumerate(value.shape):
                    self._bind(found, size, number, axis)
        for number, value in enumerate(placeholders):
            for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                self._bind_multiple(found, size, number, axis)
        return found

    def hints(self) -> dict[str, int]:
        """A representative value of each symbol, from the inputs that the graph was traced with."""
        hints: dict[str, int] = {}
        for symbol, value in self._symbols.items():
            known = self.shape_env.backed_var_to_val.get(symbol) if self.shape_env is not None else None
            if known is not None:
                hints[_only_name(value)] = int(known) // self._divisors.get(symbol, 1)
        return hints

    def _symbol(self, symbol: sympy.Symbol) -> Dim:
        if symbol not in self._symbols:
            divisor = self._divisors.get(symbol, 1)
            low, high = self._range(symbol)
            self._symbols[symbol] = dim(
                self._name(symbol), -(-low // divisor), None if high is None else high // divisor
            )
        return self._symbols[symbol] * self._divisors.get(symbol, 1)

    def _range(self, symbol: sympy.Symbol) -> tuple[int, int | None]:
        known = self._ranges.get(symbol)
        return (LOWEST, None) if known is None else _limits(known)

    @property
    def _ranges(self) -> dict[sympy.Symbol, ValueRanges[Any]]:
        """What is known of each symbol now."""
        traced = self.shape_env.var_to_range if self.shape_env is not None else {}
        return {**cast(Any, traced), **(self.promised or {})}

    def _bind(
        self, found: dict[sympy.Symbol, SymbolBinding], size: SizeLike, number: int, axis: int | None
    ) -> None:
        if isinstance(size, int) or self.shape_env is None:
            return
        for symbol in (
            self.shape_env.replace(size.node.expr),
            size.node._expr,
        ):  # a guard may have replaced it since
            if isinstance(symbol, sympy.Symbol) and symbol not in found:
                found[symbol] = SymbolBinding(str(symbol), number, axis)

    def _bind_multiple(
        self, found: dict[sympy.Symbol, SymbolBinding], size: SizeLike, number: int, axis: int
    ) -> None:
        """From a size such as 2*s + 1, where no argument has s itself."""
        parts = None if isinstance(size, int) else linear_parts(size.node.expr)
        if parts is not None and parts[0] not in found:
            symbol, factor, offset = parts
            uses = (SymbolBinding("size", number, axis),)
            found[symbol] = SymbolBinding(
                str(symbol), -1, None, code=f"(size - {offset}) // {factor}", uses=uses
            )

    def _name(self, symbol: sympy.Symbol) -> str:
        divisor = self._divisors.get(symbol, 1)
        return str(symbol) if divisor == 1 else f"{symbol}_by_{divisor}"


def _computed(name: str, expression: Any, found: Mapping[sympy.Symbol, SymbolBinding]) -> SymbolBinding:
    uses = tuple(found[s] for s in sorted(expression.free_symbols, key=str) if s in found)
    return SymbolBinding(name, -1, None, code=PythonPrinter().doprint(expression), uses=uses)


def linear_parts(expression: Any) -> tuple[sympy.Symbol, int, int] | None:
    """(s, a, b) of an expression a*s + b of one symbol, with whole a > 0 and b; None for any other."""
    if len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    offset = expression.subs(symbol, 0)
    factor = (expression - offset).coeff(symbol)
    is_linear = (
        factor.is_Integer and offset.is_Integer and factor > 0 and expression == factor * symbol + offset
    )
    return (symbol, int(factor), int(offset)) if is_linear else None


def _limits(known: Any) -> tuple[int, int | None]:
    """Both ends of a range of torch, an infinite upper one as None."""
    low, high = known.lower, known.upper
    unbounded = high in (int_oo, sympy.oo) or int(high) >= 2**62
    return (LOWEST if low in (-int_oo, -sympy.oo) else int(low)), (None if unbounded else int(high))


def _only_name(value: Dim) -> str:
    (symbol,) = value.symbols()
    return symbol.name


def _power(arguments: list[Dim]) -> Dim:
    base, exponent = arguments
    if exponent.constant is None or exponent.constant < 0:
        raise UnsupportedOpError(f"the size {base}**{exponent} has no symbolic form in Luminal")
    return product([base] * exponent.constant)


def _ceil_divide(arguments: list[Dim]) -> Dim:
    return -((-arguments[0]) // arguments[1])


_RULES: dict[type, Callable[[list[Dim]], Dim]] = {
    sympy.Add: lambda a: reduce(lambda x, y: x + y, a),
    sympy.Mul: product,
    sympy.Pow: _power,
    sympy_functions.PowByNatural: _power,
    sympy_functions.FloorDiv: lambda a: a[0] // a[1],
    sympy_functions.CleanDiv: lambda a: a[0] // a[1],
    sympy_functions.CeilDiv: _ceil_divide,
    sympy_functions.Mod: lambda a: a[0] % a[1],
    sympy_functions.PythonMod: lambda a: a[0] % a[1],
    sympy_functions.ModularIndexing: lambda a: (a[0] // a[1]) % a[2],
    sympy_functions.Min: lambda a: dim_min(*a),
    sympy_functions.Max: lambda a: dim_max(*a),
    sympy_functions.Identity: lambda a: a[0],
}
