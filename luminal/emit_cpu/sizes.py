"""Symbolic sizes in IR: dims evaluated with Python's floor semantics."""

from __future__ import annotations

from collections.abc import Mapping

from luminal.dim import Call, Dim, Symbol
from luminal.emit_cpu.text import Function, Index


class DimEmitter:
    """Evaluates dims in one function, each different one once; `symbols` are the values of their symbols."""

    def __init__(self, function: Function, symbols: Mapping[str, Index]) -> None:
        self.function, self.symbols = function, symbols
        self.memo: dict[Dim, Index] = {}

    def value(self, dim: Dim) -> Index:
        if dim.constant is not None:
            return dim.constant
        if dim not in self.memo:
            total: Index = 0
            for monomial, coefficient in dim.terms:
                part: Index = coefficient
                for atom in monomial:
                    part = self.function.index("mul", part, self._atom(atom))
                total = self.function.index("add", total, part)
            self.memo[dim] = total
        return self.memo[dim]

    def _atom(self, atom: Symbol | Call) -> Index:
        if isinstance(atom, Symbol):
            return self.symbols[atom.name]
        f, values = self.function, [self.value(argument) for argument in atom.arguments]
        if atom.kind in ("min", "max"):
            total = values[0]
            for value in values[1:]:
                total = f.index("s" + atom.kind, total, value)
            return total
        x, n = values
        low, divisor = (argument.bounds()[0] for argument in atom.arguments)
        if low is not None and low >= 0 and divisor is not None and divisor > 0:
            return f.index("udiv" if atom.kind == "//" else "urem", x, n)
        # one less than the truncated quotient where a rest has the other sign than the divisor
        quotient = f.op("sdiv", x, n)
        rest = f.op("sub", x, f.op("mul", quotient, n))
        differ = f.compare("icmp slt", f.op("xor", rest, n), 0)
        down = f.convert("sext", f.op("and", f.compare("icmp ne", rest, 0), differ), "i64")
        quotient = f.op("add", quotient, down)
        return quotient if atom.kind == "//" else f.op("sub", x, f.op("mul", quotient, n))
