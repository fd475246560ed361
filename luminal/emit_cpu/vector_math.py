"""Elementary functions in IR for f32 and f64, scalar or any vector width: exp2 exp log2 log log10 sin cos.

Each is a reduction to a small interval and a polynomial, straight-line but for sin and cos of huge arguments.
Results are right for NaN, infinities, zeros of both signs, subnormals and on overflow; largest errors in ulp:
exp2 .9, exp .9, log 1.1, sin and cos 1.6. No fast-math flag is used and no fused step is optional, so that
every target gives one result.

Polynomials were fitted by a Remez exchange on the reduced interval (relative error, coefficients rounded to
the format from the lowest up); those of log and sin in f64 are fdlibm's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from luminal.emit_cpu.jit import Target
from luminal.emit_cpu.text import Function
from luminal.emit_cpu.values import (
    Value,
    constant,
    constant_bits,
    element_of,
    lanes_of,
    suffix_of,
    with_element,
)


def _hex(text: str) -> tuple[float, ...]:
    return tuple(float.fromhex(word) for word in text.split())


@dataclass(frozen=True)
class Format:
    """What the algorithms need to know of a float format. Polynomials are given from the lowest power up,
    constants in two or three parts from the largest down."""

    bits: int
    fraction: int
    bias: int
    exp2: tuple[float, ...]
    exp: tuple[float, ...]
    exp2_range: tuple[float, float]
    """beyond it exp2 is 0 or inf after rounding; within it half of the exponent is a normal power of two"""
    exp_range: tuple[float, float]
    ln2: tuple[float, ...]
    """the first part has trailing zeros, so that exponent * part is exact"""
    log: tuple[float, ...]
    per_base: dict[str, tuple[float, ...]]
    """log_b(2) and log_b(e), each in two parts"""
    half_pi: tuple[float, ...]
    sin: tuple[float, ...]
    cos: tuple[float, ...]
    sin_limit: float
    """where three parts of pi/2 no longer suffice"""


FORMATS = {
    "float": Format(
        bits=32,
        fraction=23,
        bias=127,
        exp2=_hex(
            "0x1p+0 0x1.62e432p-1 0x1.ebfbe6p-3 0x1.c6ada6p-5 0x1.3b21c8p-7 0x1.5fc046p-10 0x1.4bbeacp-13"
        ),
        exp=_hex("0x1p+0 0x1p+0 0x1.fffffcp-2 0x1.55548cp-3 0x1.55585ap-5 0x1.123d5cp-7 0x1.6ab6bap-10"),
        exp2_range=(-151.0, 129.0),
        exp_range=(-104.5, 89.5),
        ln2=_hex("0x1.62e4p-1 0x1.7f7d1cp-20"),
        log=_hex(
            "-0x1p-1 0x1.555548p-2 -0x1.00007p-2 0x1.99a54p-3 -0x1.552f18p-3 0x1.23036cp-3 -0x1.010438p-3"
            " 0x1.effadep-4 -0x1.bf6312p-4 0x1.b6593cp-5"
        ),
        per_base={
            "2": _hex("0x1p+0 0x0p+0 0x1.715476p+0 0x1.4ae0cp-26"),
            "e": _hex("0x1.62e4p-1 0x1.7f7d1cp-20 0x1p+0 0x0p+0"),
            "10": _hex("0x1.344p-2 0x1.3509f8p-18 0x1.bcb7b2p-2 -0x1.5b235ep-27"),
        },
        half_pi=_hex("0x1.921fb6p+0 -0x1.777a5cp-25 -0x1.ee59dap-50"),
        sin=_hex("-0x1.555544p-3 0x1.1106c6p-7 -0x1.991c26p-13"),
        cos=_hex("0x1.55554ap-5 -0x1.6c0c26p-10 0x1.99e714p-16"),
        sin_limit=2.0**17,
    ),
    "double": Format(
        bits=64,
        fraction=52,
        bias=1023,
        exp2=_hex(
            "0x1p+0 0x1.62e42fefa39efp-1 0x1.ebfbdff82c58fp-3 0x1.c6b08d704a0d6p-5 0x1.3b2ab6fba4ea8p-7"
            " 0x1.5d87fe78a130fp-10 0x1.430912f859997p-13 0x1.ffcbfc7ac2bf4p-17 0x1.62c0229a4f50fp-20"
            " 0x1.b524d0ebc630bp-24 0x1.e4cd9dd30818fp-28 0x1.ea1420fddc593p-32 0x1.c6d929dcd6639p-36"
        ),
        exp=_hex(
            "0x1p+0 0x1p+0 0x1p-1 0x1.5555555555566p-3 0x1.555555555558ap-5 0x1.111111110ceccp-7"
            " 0x1.6c16c16c014f6p-10 0x1.a01a01bc17d7bp-13 0x1.a01a021157de0p-16 0x1.71ddde5249c6ap-19"
            " 0x1.27e3f08beea39p-22 0x1.af86ef3d8c8e1p-26 0x1.20e811b7b357ep-29"
        ),
        exp2_range=(-1076.0, 1025.0),
        exp_range=(-746.0, 710.5),
        ln2=_hex("0x1.62e42feep-1 0x1.a39ef35793c76p-33"),
        log=_hex(
            "0x1.5555555555593p-1 0x1.999999997fa04p-2 0x1.2492494229359p-2 0x1.c71c51d8e78afp-3"
            " 0x1.7466496cb03dep-3 0x1.39a09d078c69fp-3 0x1.2f112df3e5244p-3"
        ),
        per_base={
            "2": _hex("0x1p+0 0x0p+0 0x1.71547652b82fep+0 0x1.777d0ffda0d24p-56"),
            "e": _hex("0x1.62e42feep-1 0x1.a39ef35793c76p-33 0x1p+0 0x0p+0"),
            "10": _hex("0x1.34413508p-2 0x1.f79fef311f12bp-34 0x1.bcb7b1526e50ep-2 0x1.95355baaafad3p-57"),
        },
        half_pi=_hex("0x1.921fb54442d18p+0 0x1.1a62633145c07p-54 -0x1.f1976b7ed8fbcp-110"),
        sin=_hex(
            "-0x1.5555555555549p-3 0x1.111111110f8a6p-7 -0x1.a01a019c161d5p-13 0x1.71de357b1fe7dp-19"
            " -0x1.ae5e68a2b9cebp-26 0x1.5d93a5acfd57cp-33"
        ),
        cos=_hex(
            "0x1.555555555554cp-5 -0x1.6c16c16c15177p-10 0x1.a01a019cb1590p-16 -0x1.27e4f809c52adp-22"
            " 0x1.1ee9ebdb4b1c4p-29 -0x1.8fae9be8838d4p-37"
        ),
        sin_limit=2.0**28,
    ),
}
LOG2_E = 1.4426950408889634
TWO_OVER_PI = 0.6366197723675814


def _integer(format_: Format) -> str:
    return f"i{format_.bits}"


def _horner(f: Function, x: Value, coefficients: tuple[float, ...]) -> Value:
    result = constant(x.type, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = f.fma(result, x, constant(x.type, coefficient))
    return result


def _scalef(target: Target, type_: str) -> str | None:
    """AVX-512's p * 2^n, which rounds once and saturates by itself, where it exists for this width."""
    width = FORMATS[element_of(type_)].bits * lanes_of(type_)
    if (
        not target.has("avx512f")
        or width not in (128, 256, 512)
        or (width < 512 and not target.has("avx512vl"))
    ):
        return None
    return f"llvm.x86.avx512.mask.scalef.{'ps' if element_of(type_) == 'float' else 'pd'}.{width}"


def _call_scalef(f: Function, name: str, p: Value, n: Value) -> Value:
    lanes = max(lanes_of(p.type), 8)
    mask, arguments = Value(f"i{lanes}", "-1"), [p, n, Value(p.type, "zeroinitializer")]
    rounding = [Value("i32", "4")] if name.endswith("512") else []
    arguments += [mask, *rounding]
    f.module.declare(name, p.type, [x.type for x in arguments])
    return f.call(p.type, name, arguments)


def rounded(f: Function, product: Value, target: Target) -> Value:
    """A product that no sum takes in unrounded. For 64-bit Arm LLVM asks the sum alone whether it may be contracted."""
    return f.intrinsic("arithmetic.fence", product) if target.is_arm else product


def exponential(f: Function, x: Value, base: Literal["2", "e"], target: Target) -> Value:
    """base^x."""
    type_, format_ = x.type, FORMATS[element_of(x.type)]
    scalef = _scalef(target, type_)
    low, high = format_.exp2_range if base == "2" else format_.exp_range
    # The comparisons are false for NaN, which passes. With scalef, +inf and large values work out by
    # themselves: n is huge, the polynomial of even degree is positive or NaN, and scalef(NaN, +inf) is +inf.
    if base == "e" or not scalef:
        x = f.select(f.compare("fcmp olt", x, low), low, x)
    if not scalef:
        x = f.select(f.compare("fcmp ogt", x, high), high, x)
    # Adding 1.5 * 2^fraction rounds to an integer, which is then in the sum's low bits (for NaN, some
    # integer): here with two biases, so that its halves are the exponents of two powers of two.
    magic = constant(type_, 1.5 * 2.0**format_.fraction + 2 * format_.bias)
    if scalef:
        n = f.intrinsic("roundeven", x if base == "2" else f.op("fmul", x, LOG2_E))
        shifted = n
    else:
        shifted = f.op("fadd", x, magic) if base == "2" else f.fma(x, LOG2_E, magic)
        n = f.op("fsub", shifted, magic)
    if base == "2":
        p = _horner(f, f.op("fsub", x, n), format_.exp2)
    else:
        r = x
        for part in format_.ln2:
            r = f.fma(n, constant(type_, -part), r)
        p = _horner(f, r, format_.exp)
    if scalef:
        return _call_scalef(f, scalef, p, n)
    integer = with_element(type_, _integer(format_))
    # In two steps, so that a subnormal result is rounded once and an overflow gives infinity.
    bits, exponents = f.bitcast(shifted, integer), 2 * format_.bias + 1 << format_.fraction
    half = f.op("and", f.op("shl", bits, format_.fraction - 1), constant_bits(integer, exponents))
    rest = f.op("sub", f.op("shl", bits, format_.fraction), half)
    once = f.op("fmul", p, f.bitcast(half, type_))
    return rounded(f, f.op("fmul", once, f.bitcast(rest, type_)), target)


def logarithm(f: Function, x: Value, base: Literal["2", "e", "10"]) -> Value:
    """log_base(x): -inf at both zeros, NaN below."""
    type_, format_ = x.type, FORMATS[element_of(x.type)]
    integer = with_element(type_, _integer(format_))
    # A subnormal is scaled up first. x = 2^e * m with m in [sqrt(1/2), sqrt(2)).
    tiny = f.compare("fcmp olt", x, 2.0 ** (1 - format_.bias))
    shift = format_.fraction + 1
    bits = f.bitcast(f.select(tiny, f.op("fmul", x, 2.0**shift), x), integer)
    root = 0x3F3504F3 if format_.bits == 32 else 0x3FE6A09E667F3BCD
    e = f.op("ashr", f.op("sub", bits, root), format_.fraction)
    m = f.bitcast(f.op("sub", bits, f.op("shl", e, format_.fraction)), type_)
    exponent = f.convert(
        "sitofp",
        f.op("add", e, f.select(tiny, constant(integer, -shift), constant(integer, 0))),
        element_of(type_),
    )
    r = f.op("fsub", m, 1.0)
    # rest = log(1+r) - r
    if format_.bits == 32:
        rest = f.op("fmul", f.op("fmul", r, r), _horner(f, r, format_.log))
    else:
        s = f.op("fdiv", r, f.op("fadd", r, 2.0))
        z = f.op("fmul", s, s)
        half_square = f.op("fmul", f.op("fmul", r, r), 0.5)
        polynomial = f.op("fmul", z, _horner(f, z, format_.log))
        rest = f.op("fsub", f.op("fmul", s, f.op("fadd", half_square, polynomial)), half_square)
    two, two_low, e_high, e_low = format_.per_base[base]
    low = rest if base == "e" else f.fma(rest, e_high, f.op("fmul", r, e_low))
    low = low if base == "2" else f.fma(exponent, two_low, low)
    high = f.op("fadd", r, low) if base == "e" else f.fma(r, e_high, low)
    result = f.fma(exponent, two, high)
    infinity = constant(type_, float("inf"))
    special = f.select(f.compare("fcmp olt", x, 0.0), constant(type_, float("nan")), x)
    special = f.select(f.compare("fcmp oeq", x, 0.0), constant(type_, float("-inf")), special)
    usual = f.op("and", f.compare("fcmp ogt", x, 0.0), f.compare("fcmp olt", x, infinity))
    return f.select(usual, result, special)


def _by_libm(f: Function, x: Value, name: str, usual: Value) -> Value:
    """sin or cos, lane by lane: where the argument is huge through C's library in f64, else `usual`; in a function of
    its own off the fast path."""
    own = f"luminal_{name}_{suffix_of(x.type)}"
    if own not in f.module.functions:
        parameters = [(x.type, "x"), (x.type, "usual")]
        with f.module.function(own, parameters, x.type, "internal", "noinline cold nounwind") as g:

            def one(lane: Value) -> Value:
                if lane.type == "double":
                    return g.external("double", name, lane)
                return g.convert(
                    "fptrunc", g.external("double", name, g.convert("fpext", lane, "double")), "float"
                )

            exact = g.each_lane(one, g.parameters["x"])
            g.ret(g.select(_is_huge(g, g.parameters["x"]), exact, g.parameters["usual"]))
    return f.call(x.type, own, [x, usual])


def _is_huge(f: Function, x: Value) -> Value:
    return f.compare("fcmp oge", f.intrinsic("fabs", x), FORMATS[element_of(x.type)].sin_limit)


def sine(f: Function, x: Value, phase: Literal["sin", "cos"]) -> Value:
    """sin(x) or cos(x), x in radians, of any size; NaN at infinities."""
    type_, format_ = x.type, FORMATS[element_of(x.type)]
    integer = with_element(type_, _integer(format_))
    size = f.intrinsic("fabs", x)
    magic = constant(type_, 1.5 * 2.0**format_.fraction)
    shifted = f.fma(size, TWO_OVER_PI, magic)
    n, r = f.op("fsub", shifted, magic), size
    for part in format_.half_pi:
        r = f.fma(n, constant(type_, -part), r)
    s = f.op("fmul", r, r)
    sin = f.fma(f.op("fmul", r, s), _horner(f, s, format_.sin), r)
    half = f.op("fmul", s, 0.5)
    most = f.op("fsub", 1.0, half)
    lost = f.op("fsub", f.op("fsub", 1.0, most), half)
    cos = f.op("fadd", most, f.fma(f.op("fmul", s, s), _horner(f, s, format_.cos), lost))
    quadrant = f.bitcast(shifted, integer)
    if phase == "cos":
        quadrant = f.op("add", quadrant, 1)
    odd = f.compare("icmp ne", f.op("and", quadrant, 1), 0)
    sign = f.op("shl", f.op("and", quadrant, 2), format_.bits - 2)
    if phase == "sin":
        sign_bit = constant_bits(integer, 1 << (format_.bits - 1))
        sign = f.op("xor", sign, f.op("and", f.bitcast(x, integer), sign_bit))
    usual = f.bitcast(f.op("xor", f.bitcast(f.select(odd, cos, sin), integer), sign), type_)
    huge = _is_huge(f, x)
    some = f.reduce("or", huge) if lanes_of(type_) else huge
    return f.rarely(some, lambda: _by_libm(f, x, phase, usual), usual)
