"""Functions that emitted kernels call, put in front of the kernels that use them."""

from __future__ import annotations

from collections.abc import Iterable

HELPERS: dict[str, str] = {
    "_floor_divide": """
def _floor_divide(x, n):
    quotient = x // n
    rest = x - quotient * n
    return quotient - ((rest != 0) & ((rest < 0) != (n < 0))).to(tl.int32)
""",
    "_floor_modulo": """
def _floor_modulo(x, n):
    return x - _floor_divide(x, n) * n
""",
    # the device's exp2 flushes results below 2^-126 to zero
    "_exp2": """
def _exp2(x):
    small = x < -126.0
    return tl.exp2(tl.where(small, x + 24.0, x)) * tl.where(small, 5.960464477539063e-8, 1.0)
""",
    # exp2 of the rounded product, times what the rounding lost: exp(x) = 2^t * e^(x - t / log2(e))
    "_exp": """
def _exp(x):
    product = x * 1.4426950216293335
    lost = tl.fma(x, 1.4426950216293335, -product)
    lost = tl.fma(x, 1.9259629911266175e-8, lost)
    lost = tl.where(lost == lost, lost, 0.0)
    small = product < -126.0
    rest = tl.fma(lost, 0.6931471805599453, 1.0) * tl.where(small, 5.960464477539063e-8, 1.0)
    return tl.exp2(tl.where(small, product + 24.0, product)) * rest
""",
    "_round_even": """
def _round_even(x):
    whole = (tl.abs(x) + 8388608.0) - 8388608.0
    whole = tl.where(tl.abs(x) < 8388608.0, whole, tl.abs(x))
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    return (whole.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
""",
    "_round_even_64": """
def _round_even_64(x):
    whole = (tl.abs(x) + 4503599627370496.0) - 4503599627370496.0
    whole = tl.where(tl.abs(x) < 4503599627370496.0, whole, tl.abs(x))
    sign = x.to(tl.int64, bitcast=True) & -9223372036854775808
    return (whole.to(tl.int64, bitcast=True) | sign).to(tl.float64, bitcast=True)
""",
    # long division in f64, 28 bits of the quotient in each step, each of which is exact
    "_fmod": """
def _fmod(x, y):
    rest = tl.abs(x).to(tl.float64)
    step = tl.abs(y).to(tl.float64) * 7.237005577332262e75
    for _ in range(0, 10):
        rest = rest - tl.floor(rest / step) * step
        rest = tl.where(rest < 0.0, rest + step, rest)
        step = step * 3.725290298461914e-9
    rest = tl.where(tl.abs(y) == float("inf"), tl.abs(x), rest.to(tl.float32))
    sign = x.to(tl.int32, bitcast=True) & -2147483648
    rest = (rest.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
    return tl.where((tl.abs(x) < float("inf")) & (y == y) & (y != 0.0), rest, float("nan"))
""",
    # the same in steps of 51 bits: what a fused multiply-add leaves of a step is exact; a step too large is infinite
    "_fmod_64": """
def _fmod_64(x, y):
    rest = tl.abs(x)
    for number in range(0, 42):
        power = (tl.cast(1023 + 17 * (41 - number), tl.int64) << 52).to(tl.float64, bitcast=True)
        step = tl.abs(y) * power * power * power
        left = tl.fma(-tl.floor(rest / step), step, rest)
        left = tl.where(left < 0.0, left + step, left)
        left = tl.where(left < step, left, left - step)
        rest = tl.where(step <= rest, left, rest)
    sign = x.to(tl.int64, bitcast=True) & -9223372036854775808
    rest = (rest.to(tl.int64, bitcast=True) | sign).to(tl.float64, bitcast=True)
    return tl.where((tl.abs(x) < float("inf")) & (y == y) & (y != 0.0), rest, float("nan"))
""",
    # exponent and fraction where f16 has them; the biases differ by a power of two
    "_decoded": """
def _decoded(pattern, fraction: tl.constexpr, bias: tl.constexpr, sign: tl.constexpr, nan: tl.constexpr):
    wide = pattern.to(tl.int32)
    magnitude = wide & (sign - 1)
    half = (magnitude << (10 - fraction)) | ((wide & sign) * (32768 // sign))
    value = half.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * (2.0 ** (15 - bias))
    return tl.where(magnitude >= nan, float("nan"), value)
""",
    # to nearest even, from the pattern of f32; below the least normal number, whole steps of the least one
    "_encoded": """
def _encoded(
    x, fraction: tl.constexpr, bias: tl.constexpr, sign: tl.constexpr, most: tl.constexpr, last: tl.constexpr
):
    bits = x.to(tl.int32, bitcast=True)
    drop: tl.constexpr = 23 - fraction
    whole = bits & 0x7FFFFFFF
    near = ((whole + ((1 << (drop - 1)) - 1) + ((whole >> drop) & 1)) >> drop) - ((127 - bias) << fraction)
    steps = tl.abs(x) * (2.0 ** (bias - 1 + fraction)) + 8388608.0
    small = steps.to(tl.int32, bitcast=True) & 0xFFFF
    code = tl.minimum(tl.where(tl.abs(x) < 2.0 ** (1 - bias), small, near), most)
    code = tl.where(x == x, code | ((bits < 0).to(tl.int32) * sign), last)
    return code.to(tl.uint8)
""",
    "_maximum": """
def _maximum(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
""",
    "_minimum": """
def _minimum(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
""",
    "_product": """
def _product(x, y):
    return x * y
""",
    "_argmax": """
def _argmax(x, place, y, other):
    better = (y > x) | ((y != y) & (x == x))
    tie = (y == x) | ((y != y) & (x != x))
    take = better | (tie & (other < place))
    return tl.where(take, y, x), tl.where(take, other, place)
""",
    "_argmin": """
def _argmin(x, place, y, other):
    better = (y < x) | ((y != y) & (x == x))
    tie = (y == x) | ((y != y) & (x != x))
    take = better | (tie & (other < place))
    return tl.where(take, y, x), tl.where(take, other, place)
""",
}


def helper_text(names: Iterable[str]) -> str:
    """The functions with these names, and those that they call, each once."""
    wanted = set(names)
    for name in list(wanted):
        wanted |= {other for other in HELPERS if f"{other}(" in HELPERS[name]}
    return "".join(f"\n\n@triton.jit{HELPERS[name]}" for name in HELPERS if name in wanted)
