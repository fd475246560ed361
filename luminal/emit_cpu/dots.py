"""Instructions that multiply the neighbours of each lane and add all their products to it: sum += a0 b0 + a1 b1 ...

The table says which there are; a processor without one multiplies wider numbers, which gives the same for integers.
Some sum pairs of products up in i16, and saturate: they are for products that are known to be small enough.  Of a chain
of them, sum += a0 b0 + ...; sum += a1 b1 + ..., as much is summed up in i16 as it holds before i32 are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from luminal.dtype import DType, bf16, f32, i8, i16, i32, u8
from luminal.emit_cpu.arithmetic import cast_value, combine
from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import Value, constant_bits, lanes_of, vector_of
from luminal.emit_cpu.vectors import neighbours


@dataclass(frozen=True, slots=True)
class Dot:
    """One instruction: the intrinsic's name, the features that a processor must have, the bits of its registers, how
    many neighbours it multiplies, the dtypes of its factors and of the sum, and its cycles beside those of an FMA.
    `largest`: the greatest magnitude of a product that it takes, where that is less than its dtypes allow."""

    intrinsic: str
    features: tuple[str, ...]
    bits: int
    group: int
    left: DType
    right: DType
    total: DType
    cycles: float = 1.0
    largest: int | None = None

    @property
    def lanes(self) -> int:
        return self.bits // self.total.bits


I16 = (1 << 15) - 1
"""The greatest i16."""
DOTS = (
    Dot("x86.avx512bf16.dpbf16ps.512", ("avx512bf16",), 512, 2, bf16, bf16, f32),
    Dot("x86.avx512bf16.dpbf16ps.256", ("avx512bf16", "avx512vl"), 256, 2, bf16, bf16, f32),
    Dot("x86.avx512.vpdpbusd.512", ("avx512vnni",), 512, 4, u8, i8, i32),
    Dot("x86.avx512.vpdpbusd.256", ("avx512vnni", "avx512vl"), 256, 4, u8, i8, i32),
    Dot("x86.avx512.vpdpbusd.256", ("avxvnni",), 256, 4, u8, i8, i32),
    Dot("aarch64.neon.sdot.v4i32.v16i8", ("dotprod",), 128, 4, i8, i8, i32),
    Dot("aarch64.neon.udot.v4i32.v16i8", ("dotprod",), 128, 4, u8, u8, i32),
    Dot("aarch64.neon.usdot.v4i32.v16i8", ("i8mm",), 128, 4, u8, i8, i32),
    Dot("x86.avx512.pmaddubs.w.512", ("avx512bw",), 512, 4, u8, i8, i32, 2.5, I16 // 2),
    Dot("x86.avx2.pmadd.ub.sw", ("avx2",), 256, 4, u8, i8, i32, 2.5, I16 // 2),
    Dot("x86.avx512.pmaddw.d.512", ("avx512bw",), 512, 2, i16, i16, i32, 2.0),
    Dot("x86.avx2.pmadd.wd", ("avx2",), 256, 2, i16, i16, i32, 2.0),
)
"""The last four multiply and add neighbours; adding to the sum is an instruction of its own."""
PAIRS = {512: "x86.avx512.pmaddw.d.512", 256: "x86.avx2.pmadd.wd"}
"""Those that sum up pairs of products of i16, by the bits of their registers."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A sum i32 as what it was before, and sums of products in i16 that are still to be added to it: pairs of lanes, of
    magnitude `largest` at most."""

    before: Value
    pairs: Value
    largest: int


Chains = dict[Value, Chain]
"""By the sum."""


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
    largest: int | None = None,
    chains: Chains | None = None,
) -> Value:
    """total, of `dtype`, plus the products of each lane's neighbours; narrower factors are widened, which is exact.

    `largest`: the greatest magnitude that a product can have, where it is known.  `chains`: what is known of sums
    before this one, to which it is added.  Floats take an instruction under *reassociate* and *contract* only, and are
    else added in order.
    """
    lanes = max(lanes_of(total.type), 1)
    group = lanes_of(factors[0].type) // lanes
    is_free = not dtype.is_float or {"contract", "reassociate"} <= licences
    for dot in available(target) if is_free else ():
        is_small = dot.largest is None or (largest is not None and largest <= dot.largest)
        if is_small and (dot.lanes, dot.group, dot.total) == (lanes, group, dtype):
            found = _operands(f, dot, factors, dtypes)
            if found is not None and dot.largest is not None and largest is not None:
                return _chained(f, dot, total, found, 2 * largest, {} if chains is None else chains)
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
    if dot.intrinsic in PAIRS.values():
        return f.op("add", total, _pairs(f, dot.intrinsic, total.type, factors))
    f.module.declare(name, total.type, [total.type, *(x.type for x in factors)])
    return f.call(total.type, name, [total, *factors])


def _chained(
    f: Function, dot: Dot, total: Value, factors: tuple[Value, Value], largest: int, chains: Chains
) -> Value:
    """The sum with products that are summed up in i16 first, and with those of the sum before while they fit; of the
    sums that this makes on the way the code generator leaves out what nothing else needs."""
    pairs = _pairs(f, dot.intrinsic, vector_of("i16", 2 * dot.lanes), factors)
    chain = chains.get(total)
    if chain is not None and chain.largest + largest <= I16:
        pairs, largest, before = f.op("add", chain.pairs, pairs), chain.largest + largest, chain.before
    else:
        before = total
    ones = constant_bits(pairs.type, 1)
    result = f.op("add", before, _pairs(f, PAIRS[dot.bits], total.type, (pairs, ones)))
    chains[result] = Chain(before, pairs, largest)
    return result


def _pairs(f: Function, intrinsic: str, type_: str, factors: tuple[Value, Value]) -> Value:
    """The sums of the products of pairs."""
    f.module.declare(f"llvm.{intrinsic}", type_, [x.type for x in factors])
    return f.call(type_, f"llvm.{intrinsic}", factors)


def _as_bfloat(f: Function, value: Value) -> Value:
    return f.bitcast(value, vector_of("bfloat", lanes_of(value.type)))
