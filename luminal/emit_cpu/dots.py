"""Instructions that multiply the neighbours of each lane and add all their products to it: sum += a0 b0 + a1 b1 ...

The table says which there are; a processor without one multiplies wider numbers, which gives the same for integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dtype import DType, bf16, f32, i8, i16, i32, u8
from luminal.emit_cpu.arithmetic import cast_value, combine
from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value, lanes_of, vector_of
from luminal.emit_cpu.vectors import neighbours


@dataclass(frozen=True, slots=True)
class Dot:
    """One instruction: the intrinsic's name, the features that a processor must have, the bits of its registers, how
    many neighbours it multiplies, the dtypes of its factors and of the sum, and its cycles beside those of an FMA."""

    intrinsic: str
    features: tuple[str, ...]
    bits: int
    group: int
    left: DType
    right: DType
    total: DType
    cycles: float = 1.0

    @property
    def lanes(self) -> int:
        return self.bits // self.total.bits


DOTS = (
    Dot("x86.avx512bf16.dpbf16ps.512", ("avx512bf16",), 512, 2, bf16, bf16, f32),
    Dot("x86.avx512bf16.dpbf16ps.256", ("avx512bf16", "avx512vl"), 256, 2, bf16, bf16, f32),
    Dot("x86.avx512.vpdpbusd.512", ("avx512vnni",), 512, 4, u8, i8, i32),
    Dot("x86.avx512.vpdpbusd.256", ("avx512vnni", "avx512vl"), 256, 4, u8, i8, i32),
    Dot("x86.avx512.vpdpbusd.256", ("avxvnni",), 256, 4, u8, i8, i32),
    Dot("aarch64.neon.sdot.v4i32.v16i8", ("dotprod",), 128, 4, i8, i8, i32),
    Dot("aarch64.neon.udot.v4i32.v16i8", ("dotprod",), 128, 4, u8, u8, i32),
    Dot("aarch64.neon.usdot.v4i32.v16i8", ("i8mm",), 128, 4, u8, i8, i32),
    Dot("x86.avx512.pmaddw.d.512", ("avx512bw",), 512, 2, i16, i16, i32, 2.0),
    Dot("x86.avx2.pmadd.wd", ("avx2",), 256, 2, i16, i16, i32, 2.0),
)
"""The last two multiply and add neighbours; adding to the sum is an instruction of its own."""
UNSUMMED = ("x86.avx512.pmaddw.d.512", "x86.avx2.pmadd.wd")


def available(target: Target) -> list[Dot]:
    """The instructions of a processor."""
    return [dot for dot in DOTS if all(map(target.has, dot.features))]


def dot_product(
    f: Function,
    target: Target,
    total: Value,
    factors: tuple[Value, Value],
    dtypes: tuple[DType, DType],
    dtype: DType,
    licences: frozenset[str],
) -> Value:
    """total, of `dtype`, plus the products of each lane's neighbours; narrower factors are widened, which is exact.

    Floats take an instruction under *reassociate* and *contract* only, and are else added in order.
    """
    lanes = max(lanes_of(total.type), 1)
    group = lanes_of(factors[0].type) // lanes
    is_free = not dtype.is_float or {"contract", "reassociate"} <= licences
    for dot in available(target) if is_free else ():
        if (dot.lanes, dot.group, dot.total) == (lanes, group, dtype):
            found = _operands(f, dot, factors, dtypes)
            if found is not None:
                return _instruction(f, dot, total, found)
    left, right = (cast_value(f, x, own, dtype, "none") for x, own in zip(factors, dtypes, strict=True))
    if dtype.is_float and "contract" in licences:
        for a, b in zip(neighbours(f, left, group), neighbours(f, right, group), strict=True):
            total = f.fma(a, b, total)
        return total
    for product in neighbours(f, combine(f, "prod", left, right, dtype), group):
        total = combine(f, "sum", total, product, dtype)
    return total


def _operands(
    f: Function, dot: Dot, factors: tuple[Value, Value], dtypes: tuple[DType, DType]
) -> tuple[Value, Value] | None:
    """The factors as an instruction takes them; None where it is not for their dtypes."""
    if dtypes == (dot.left, dot.right):
        return factors
    if dtypes == (dot.right, dot.left):
        return factors[1], factors[0]
    if dot.left is not i16 or dtypes[0].is_float or any(each.bits > 16 for each in dtypes):
        return None
    left, right = (cast_value(f, x, own, i16, "none") for x, own in zip(factors, dtypes, strict=True))
    return left, right


def _instruction(f: Function, dot: Dot, total: Value, factors: tuple[Value, Value]) -> Value:
    name = f"llvm.{dot.intrinsic}"
    if dot.total is f32:
        factors = (_as_bfloat(f, factors[0]), _as_bfloat(f, factors[1]))
    if dot.intrinsic in UNSUMMED:
        f.module.declare(name, total.type, [x.type for x in factors])
        return f.op("add", total, f.call(total.type, name, factors))
    f.module.declare(name, total.type, [total.type, *(x.type for x in factors)])
    return f.call(total.type, name, [total, *factors])


def _as_bfloat(f: Function, value: Value) -> Value:
    return f.bitcast(value, vector_of("bfloat", lanes_of(value.type)))
