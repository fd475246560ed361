"""The elementwise primitives and monoids as Triton expressions, with PyTorch's meaning on every processor.

Arithmetic of narrow floats goes through f32 and is rounded once.  NaN wins in max and min.  Integer division by zero
gives 0 with the rest that it had, and a conversion out of range gives what torch gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from luminal.dtype import DType, bf16, f8e5m2, f16, f32, f64, from_bits, i32, i64, u8
from luminal.emit_triton.eights import decoding, encoding, held_as
from luminal.emit_triton.text import TRUE, Lines, Value, atom, call, type_text
from luminal.errors import UnsupportedTargetError

NARROW = (f16, bf16)
LITERALS = (f64, f32, i64, i32)
"""The dtypes whose constants may be plain numbers beside another operand of the same dtype."""
COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
BITS = {"and": "&", "or": "|", "xor": "^", "<<": "<<", ">>": ">>"}
"""And shifts by what is known to be less than the width."""


def constant(bits: int, dtype: DType) -> Value:
    """A constant of a dtype; with a literal where a plain number says the same."""
    if dtype.is_bool:
        return TRUE if bits else Value("tl.full([], False, tl.int1)")
    number = from_bits(bits, dtype)
    plain = float(number) if dtype.is_float else int(number)
    narrow = dtype.is_float and dtype.bits < 32
    text = f'float("{plain}")' if not math.isfinite(plain) else repr(plain)
    full = call("tl.full", "[]", text, type_text(f32 if narrow else dtype))
    if narrow:
        full += f".to({type_text(dtype)})"
    usual = not math.isfinite(plain) or str(plain) in ("0.0", "0") or 1e-37 < abs(plain) < 2**63
    return Value(full, literal=text if dtype in LITERALS and usual else None)


class Arithmetic:
    """Writes elementwise operations; what is needed twice gets a name of its own."""

    def __init__(self, lines: Lines, helpers: set[str], eights: frozenset[str]) -> None:
        self.lines, self.helpers, self.eights = lines, helpers, eights

    def constant(self, bits: int, dtype: DType) -> Value:
        return constant(bits, held_as(dtype, self.eights))

    def helper(self, name: str, *arguments: str) -> str:
        self.helpers.add(name)
        return call(name, *arguments)

    def named(self, text: str, hint: str = "x") -> str:
        return self.lines.let(hint, text)

    def apply(
        self, op: str, variant: str | None, operands: Sequence[str], dtypes: Sequence[DType], result: DType
    ) -> str:
        """One elementwise primitive on expressions of one shape."""
        if op == "cast":
            return self.cast(operands[0], dtypes[0], result, variant or "none")
        if op == "select":
            return call("tl.where", *operands)
        dtype = dtypes[0]
        if dtype.is_float and dtype.bits < 16:
            raise UnsupportedTargetError(f"{op} of {dtype}: it stores and does not compute")
        if dtype in NARROW and op != "bits":
            wide = [f"{atom(x)}.to(tl.float32)" for x in operands]
            text = APPLY[op](self, wide, f32, variant or "")
            return text if result.is_bool else f"{atom(text)}.to({type_text(dtype)})"
        return APPLY[op](self, operands, dtype, variant or "")

    # Conversions

    def cast(self, x: str, source: DType, to: DType, variant: str) -> str:
        """The primitive `cast`: torch's `.to()` for none and soft, the same bits for bits, else a whole number."""
        if variant == "bits":
            held = [held_as(dtype, self.eights) for dtype in (source, to)]
            return x if held[0] is held[1] else f"{atom(x)}.to({type_text(held[1])}, bitcast=True)"
        if variant not in ("none", "soft"):
            return self._rounded(x, source, variant)
        if source is to:
            return x
        if held_as(source, self.eights) is not source:
            return self.cast(self.helper("_decoded", x, *decoding(source)), f32, to, "none")
        if held_as(to, self.eights) is not to:
            return self.helper("_encoded", self.cast(x, source, f32, "none"), *encoding(to))
        if source.is_float and source.bits < 32 and to is not f32:
            return self.cast(f"{atom(x)}.to(tl.float32)", f32, to, "none")
        if to.is_bool:
            return f"{atom(x)} != 0"
        if to.is_float and to.bits < 32 and source is not f32:
            return self.cast(self.cast(x, source, f32, "none"), f32, to, "none")
        if source.is_float and not to.is_float:
            return self._to_integer(x, source, to)
        if to is f8e5m2:  # the conversion saturates
            x = self.named(x)
            near = f"{x}.to(tl.float8e5).to(tl.uint8, bitcast=True)"
            infinite = call(
                "tl.where", f"{x} < 0", "tl.full([], 252, tl.uint8)", "tl.full([], 124, tl.uint8)"
            )
            chosen = call("tl.where", f"tl.abs({x}) >= 61440.0", infinite, near)
            return f"{chosen}.to(tl.float8e5, bitcast=True)"
        return f"{atom(x)}.to({type_text(to)})"

    def _rounded(self, x: str, dtype: DType, variant: str) -> str:
        if dtype in NARROW:
            return f"{atom(self._rounded(f'{atom(x)}.to(tl.float32)', f32, variant))}.to({type_text(dtype)})"
        if variant in ("floor", "ceil"):
            return call(f"tl.{variant}", x)
        if variant == "trunc":
            x = self.named(x)
            return call("tl.where", f"{x} < 0", f"tl.ceil({x})", f"tl.floor({x})")
        return self.helper("_round_even_64" if dtype is f64 else "_round_even", x)

    def _to_integer(self, x: str, source: DType, to: DType) -> str:
        """Truncation; what i64, or i32 for narrower integers, cannot hold is its least value. u8 goes through i64."""
        through = i64 if to in (i64, u8) else i32
        limit = 2.0 ** (through.bits - 1)
        low = f"> {-limit - 1}" if through is i32 and source is f64 else f">= {-limit}"
        x, wide = self.named(x), type_text(through)
        least = call("tl.full", "[]", str(-(2 ** (through.bits - 1))), wide)
        whole = call("tl.where", f"({x} {low}) & ({x} < {limit})", f"{x}.to({wide})", least)
        return whole if to is through else f"{whole}.to({type_text(to)})"

    # Division

    def divide(self, x: Sequence[str], dtype: DType, variant: str) -> str:
        if dtype.is_float and variant == "none":
            return call("tl.div_rn", *x) if dtype is f32 else f"{atom(x[0])} / {atom(x[1])}"
        if dtype.is_float:
            raise UnsupportedTargetError(
                f"recip of {dtype} with rounding {variant!r}: the one of floats is 'none'"
            )
        _, b, quotient, rest = self._parts(x, dtype)
        if variant == "trunc" or not dtype.is_signed:
            return quotient
        down = f"({rest} != 0) & (({rest} ^ {b}) < 0) & ({b} != 0)"
        return f"{quotient} - ({down}).to({type_text(dtype)})"

    def modulo(self, x: Sequence[str], dtype: DType, variant: str) -> str:
        if not dtype.is_float:
            _, b, _, rest = self._parts(x, dtype)
            if variant == "trunc" or not dtype.is_signed:
                return rest
            return call("tl.where", f"({rest} != 0) & (({rest} ^ {b}) < 0)", f"{rest} + {b}", rest)
        b = self.named(x[1], "divisor")
        rest = self.named(self.helper("_fmod_64" if dtype is f64 else "_fmod", x[0], b), "rest")
        if variant == "trunc":
            return rest
        return call("tl.where", f"({rest} != 0) & (({b} < 0) != ({rest} < 0))", f"{rest} + {b}", rest)

    def _parts(self, x: Sequence[str], dtype: DType) -> tuple[str, str, str, str]:
        """Dividend, divisor, quotient towards zero and rest, as names: x / 0 is 0 rest x, and x / -1 wraps."""
        kind = type_text(dtype)
        a, b = self.named(x[0], "dividend"), self.named(x[1], "divisor")
        special = f"({b} == 0) | ({b} == -1)" if dtype.is_signed else f"{b} == 0"
        safe = self.named(f"tl.where({special}, tl.full([], 1, {kind}), {b})", "safe")
        quotient = f"tl.where({b} == 0, tl.full([], 0, {kind}), {a} // {safe})"
        if dtype.is_signed:
            quotient = f"tl.where({b} == -1, (tl.full([], 0, {kind}) - {a}).to({kind}), {quotient})"
        rest = self.named(f"tl.where({b} == 0, {a}, {a} % {safe})", "rest")
        return a, b, self.named(quotient, "quotient"), rest

    # Integers and order

    def bits(self, x: Sequence[str], dtype: DType, kind: str) -> str:
        """A shift by less than 0 or by the width or more gives 0, or the sign where it is arithmetic."""
        if kind in BITS:
            return f"{atom(x[0])} {BITS[kind]} {atom(x[1])}"
        count, width = self.named(x[1], "count"), dtype.bits
        inside = f"({count} >= 0) & ({count} < {width})" if dtype.is_signed else f"{count} < {width}"
        if kind == "shl" or not dtype.is_signed:
            zero = call("tl.full", "[]", "0", type_text(dtype))
            sign = "<<" if kind == "shl" else ">>"
            safe = call("tl.where", inside, count, zero)
            return call("tl.where", inside, f"{atom(x[0])} {sign} {safe}", zero)
        most = call("tl.full", "[]", str(width - 1), type_text(dtype))
        return f"{atom(x[0])} >> {call('tl.where', inside, count, most)}"

    def compare(self, x: Sequence[str], dtype: DType, predicate: str) -> str:
        return f"{atom(x[0])} {COMPARE[predicate]} {atom(x[1])}"

    def combine(self, monoid: str, x: Sequence[str], dtype: DType) -> str:
        """One step of sum, prod, max or min (add and mul are their names in stores), narrow floats in f32."""
        if dtype in NARROW:
            wide = self.combine(monoid, [f"{atom(value)}.to(tl.float32)" for value in x], f32)
            return f"{atom(wide)}.to({type_text(dtype)})"
        if monoid in ("max", "min"):
            if dtype.is_bool:
                return f"{atom(x[0])} {'|' if monoid == 'max' else '&'} {atom(x[1])}"
            last = ["propagate_nan=tl.PropagateNan.ALL"] if dtype.is_float else []
            return call(f"tl.{monoid}imum", *x, *last)
        if monoid in ("sum", "add"):
            return f"{atom(x[0])} {'|' if dtype.is_bool else '+'} {atom(x[1])}"
        return f"{atom(x[0])} {'&' if dtype.is_bool else '*'} {atom(x[1])}"

    # Reductions over axes

    def reduce(self, monoid: str, x: Sequence[str], dtype: DType, axis: int) -> list[str]:
        """Expressions, one for each of a paired monoid, combined along one axis."""
        kind = type_text(dtype)
        if monoid in ("argmax", "argmin"):
            helper = f"_{monoid}"
            self.helpers.add(helper)
            value = self.lines.fresh("value")
            place = self.lines.fresh("place")
            self.lines.add(f"{value}, {place} = tl.reduce(({x[0]}, {x[1]}), {axis}, {helper})")
            return [value, place]
        if dtype.is_bool:
            function = "tl.max" if monoid in ("sum", "max") else "tl.min"
            return [f"{call(function, f'{atom(x[0])}.to(tl.int32)', f'axis={axis}')} != 0"]
        if dtype in NARROW:
            (wide,) = self.reduce(monoid, [f"{atom(x[0])}.to(tl.float32)"], f32, axis)
            return [f"{wide}.to({kind})"]
        narrow = f".to({kind})" if dtype.bits < 32 else ""
        if monoid == "sum" or (monoid in ("max", "min") and not dtype.is_float):
            return [call(f"tl.{monoid}", x[0], f"axis={axis}") + narrow]
        helper = {"max": "_maximum", "min": "_minimum", "prod": "_product"}[monoid]
        self.helpers.add(helper)
        return [call("tl.reduce", x[0], str(axis), helper)]

    def exponential(self, x: str, dtype: DType, base: str) -> str:
        name = "exp2" if base == "2" else "exp"
        return call(f"tl.{name}", x) if dtype is f64 else self.helper(f"_{name}", x)

    def logarithm(self, x: str, base: str) -> str:
        if base == "10":
            return f"{call('tl.log2', x)} * 0.3010299956639812"
        return call("tl.log2" if base == "2" else "tl.log", x)


# The table of elementwise primitives

Apply = Callable[[Arithmetic, Sequence[str], DType, str], str]
APPLY: dict[str, Apply] = {
    "log2": lambda a, x, dtype, base: a.logarithm(x[0], base),
    "exp2": lambda a, x, dtype, base: a.exponential(x[0], dtype, base),
    "sin": lambda a, x, dtype, phase: call(f"tl.{phase}", x[0]),
    "sqrt": lambda a, x, dtype, variant: call("tl.sqrt_rn" if dtype is f32 else "tl.sqrt", x[0]),
    "recip": lambda a, x, dtype, rounding: a.divide(x, dtype, rounding),
    "add": lambda a, x, dtype, variant: a.combine("sum", x, dtype),
    "mul": lambda a, x, dtype, variant: a.combine("prod", x, dtype),
    "mod": lambda a, x, dtype, sign: a.modulo(x, dtype, sign),
    "bits": lambda a, x, dtype, kind: a.bits(x, dtype, kind),
    "less_than": lambda a, x, dtype, predicate: a.compare(x, dtype, predicate),
    "max": lambda a, x, dtype, variant: a.combine("max", x, dtype),
    "min": lambda a, x, dtype, variant: a.combine("min", x, dtype),
}
