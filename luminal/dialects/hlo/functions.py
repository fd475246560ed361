"""Elementary functions from the primitives, accurate to one or two units in the last place of f32 and f64.

Polynomials are minimax fits of the relative error, made in 90 digits with Remez' algorithm; each row below holds the
coefficients of rising powers. Functions take and return f32 or f64 expressions.
"""

from __future__ import annotations

import math

from luminal.dialects.hlo.expression import CARRIERS, Expression
from luminal.dtype import to_bits

_FITS = """
tanh f32: -0.3333328 0.13331443 -0.053739768 0.020639181 -0.0057050306
tanh f64: -0.3333333333333333 0.13333333333333156 -0.05396825396812828 0.021869488531646716
    -0.008863235434306928 0.0035921267305916733 -0.0014558222919902235 0.0005899492255799907
    -0.00023877082411270187 9.575107343984551e-05 -3.662550624432248e-05 1.179456244727296e-05
    -2.27175716216386e-06
sinh f32: 0.16666667 0.00833335 0.0001983616 2.8169522e-06
sinh f64: 0.16666666666666666 0.008333333333333333 0.000198412698412696 2.755731922411629e-06
    2.5052108346509174e-08 1.6059050601239818e-10 7.646482897148948e-13 2.8482329732039093e-15
atan f32: -0.333333 0.19998549 -0.14264244 0.10952194 -0.08403473 0.05795796 -0.03117819 0.010914781
    -0.0017936593
atan f64: -0.3333333333333307 0.19999999999951473 -0.142857142825759 0.11111111007049203
    -0.090909070033901 0.07692279843784856 -0.06666404092621789 0.05880528012088042 -0.05253519380504879
    0.047223248492418754 -0.04219185394484635 0.036642032921107154 -0.02990403795004785
    0.02198505752064621 -0.013900737920498374 0.007196619481117932 -0.002884973683617384
    0.0008313398183648681 -0.00015216444665278785 1.3225404977738352e-05
asin f32: 0.16666752 0.074953005 0.045470107 0.024180513 0.042165082
asin f64: 0.16666666666665408 0.07500000000336965 0.04464285682836556 0.030381959135545103
    0.022371758082349927 0.017359704307933464 0.013885239768341048 0.012169184378465444
    0.006528089740209243 0.0195279599606276 -0.016223784944273227 0.03191195603877054
expm1 f32: 0.5 0.16666666 0.041666843 0.008333398 0.0013883159 0.00019825355 2.5491809e-05 2.8841555e-06
expm1 f64: 0.5 0.16666666666666666 0.04166666666666648 0.00833333333333324 0.0013888888888909736
    0.0001984126984137273 2.4801587291598737e-05 2.7557319174741205e-06 2.7557321670927394e-07
    2.505212046946978e-08 2.0876437749337486e-09 1.605745773054471e-10 1.149171021363377e-11
    7.753006290575787e-13 4.253066153172516e-14
atanh f32: 0.3333333 0.20000167 0.14268672 0.1179078
atanh f64: 0.3333333333333333 0.2 0.14285714285714105 0.11111111111162376 0.09090909082598272
    0.07692308524622223 0.06666613477261955 0.05884523646091904 0.052085720344840734 0.055256169377477064
erf_inner f32: 0.12837917 -0.37612632 0.112836875 -0.026858943 0.0051999083 -0.0008130019 8.316769e-05
erf_inner f64: 0.1283791670955126 -0.37612638903183754 0.11283791670955069 -0.026866170645116892
    0.005223977625253867 -0.0008548327008722656 0.00012055332240861616 -1.49256253222284e-05
    1.6461533556320775e-06 -1.6356552721992327e-07 1.4706072901329732e-08 -1.157011801583371e-09
    6.32487249103697e-11
erf_numerator f32: 1.1283791 0.19078109 0.052789923 0.0037794907 0.00028480584 2.0419911e-06
erf_denominator f32: 1.0 0.50240803 0.11425639 0.014997202 0.0011651837 3.8004138e-05
normal_tail f32: -1.0 -1.1511052 -0.45920852 -0.052495252 0.007062141 -0.00013599667 -0.00018655424 3.945345e-05
    -2.8410047e-06
erf_outer f32: -0.00019572783 -1.1276754 -0.63718265 -0.10393121 0.022226725 -0.0030431657 0.00019593172
erf_outer f64: -8.415082240511586e-08 -1.1283782786033187 -0.6366240901362307 -0.10275986845897533
    0.01910324994561088 0.00024373564780629287 -0.0017279317495271823 0.0006053770877346709
    -2.0155462075539526e-05 -8.390490486249152e-05 5.096889331030995e-05 -1.85834609836912e-05
    4.897766321762163e-06 -9.732899685475806e-07 1.4582533575328334e-07 -1.6054075123608918e-08
    1.2286198942770496e-09 -5.845018607743549e-11 1.3020092783348647e-12
"""


def _read(text: str) -> dict[str, tuple[float, ...]]:
    table: dict[str, tuple[float, ...]] = {}
    for entry in text.strip().replace("\n    ", " ").splitlines():
        name, _, numbers = entry.partition(": ")
        table[name] = tuple(map(float, numbers.split()))
    return table


FITS = _read(_FITS)
"""Coefficients by "function dtype"."""

HALF_MASKS = {32: 0xFFFFF000, 64: 0xFFFFFFFFF8000000}
MANTISSAS = {32: 23, 64: 52}


def polynomial(z: Expression, name: str) -> Expression:
    """The fit `name` at z, by Horner's rule."""
    coefficients = FITS[f"{name} {z.dtype}"]
    total = z * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        total = total * z + coefficient
    return total


def _odd(x: Expression, name: str) -> Expression:
    """x + x^3 P(x^2), for x without a sign: small numbers stay what they are."""
    z = x * x
    return x + x * z * polynomial(z, name)


def _upper(x: Expression) -> Expression:
    """The upper half of the significand: the product of two such halves is exact."""
    carrier = CARRIERS[x.dtype.bits]
    mask = HALF_MASKS[x.dtype.bits] - (1 << x.dtype.bits)
    return (x.bitcast(carrier) & mask).bitcast(x.dtype)


def _split_constant(value: float, x: Expression) -> tuple[float, float]:
    """A constant as the nearest number of x's dtype and what is missing."""
    if x.dtype.bits == 64:
        return value, {math.pi: 1.2246467991473532e-16, math.pi / 2: 6.123233995736766e-17}[value]
    high = float(x.dtype.numpy.type(value))
    return high, value - high


def expm1(x: Expression) -> Expression:
    near = x + x * x * polynomial(x, "expm1")
    return x.eq(0.0).select(x, x.abs().le(1.0).select(near, x.exp() - 1.0))


def log1p(x: Expression) -> Expression:
    """log(u) with u = 1 + x rounded, corrected by what rounding lost, x - (u - 1)."""
    u = x + 1.0
    lost = x - (u - 1.0)
    corrected = u.log() + (lost.eq(0.0) | u.eq(math.inf)).select(0.0, lost / u)
    return u.eq(1.0).select(x, corrected)


def tanh(x: Expression) -> Expression:
    a = x.abs()
    large = 1.0 - 2.0 / ((a + a).exp() + 1.0)
    return a.lt(0.625).select(_odd(a, "tanh"), large).with_sign(x)


def _half_exponential(a: Expression) -> Expression:
    """exp(a) / 2 for a >= 0, finite as long as that is."""
    shift = 64.0
    near_limit = a.gt(80.0 if a.dtype.bits == 32 else 700.0)
    return near_limit.select(a - shift, a).exp() * near_limit.select(a.like(math.exp(shift) / 2), 0.5)


def sinh(x: Expression) -> Expression:
    a = x.abs()
    half = _half_exponential(a)
    return a.lt(1.0).select(_odd(a, "sinh"), half - 0.25 / half).with_sign(x)


def cosh(x: Expression) -> Expression:
    half = _half_exponential(x.abs())
    return half + 0.25 / half


def erf(x: Expression) -> Expression:
    """x + x P(x^2) near zero, 1 - exp(P(|x|)) outside, which is 1 from `limit` on."""
    limit = 4.0 if x.dtype.bits == 32 else 6.0
    a = x.abs()
    near = a + a * polynomial(a * a, "erf_inner")
    far = 1.0 - polynomial(a.lt(limit).select(a, limit), "erf_outer").exp()
    return a.gt(0.925).select(far, near).with_sign(x)


def _erf_quotient(x: Expression) -> Expression:
    """x P(x^2) / Q(x^2) in f32, within 6 ulp and never more than 1: half the work, for what is then rounded."""
    a = x.abs()
    z = a * a
    quotient = a * polynomial(z, "erf_numerator") / polynomial(z, "erf_denominator")
    return (a.gt(3.83) | quotient.gt(1.0)).select(1.0, quotient).with_sign(x)


def _normal_distribution(x: Expression) -> Expression:
    """The part of normal numbers that is below x, in f32: P(|x|), which falls for ever, is log2 of the lesser part."""
    tail = polynomial(x.abs(), "normal_tail").exp2()
    return x.signbit().select(tail, 1.0 - tail)


def sigmoid(x: Expression) -> Expression:
    return 1.0 / ((-x).exp() + 1.0)


def silu(x: Expression) -> Expression:
    return x / ((-x).exp() + 1.0)


def gelu(given: Expression, approximate: str) -> Expression:
    x = given.cast(given.dtype.accumulate)
    if approximate == "tanh":
        cumulated = tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi))
    elif given.dtype.bits == 32:
        return x * _normal_distribution(x)
    else:
        cumulated = (erf if x.dtype == given.dtype else _erf_quotient)(x * math.sqrt(0.5))
    return (x * 0.5 * (cumulated + 1.0)).cast(given.dtype)


def softplus(x: Expression, beta: float, threshold: float) -> Expression:
    scaled = x * beta
    return scaled.gt(threshold).select(x, log1p(scaled.exp()) / beta)


def tan(x: Expression) -> Expression:
    return x.sin() / x.sin("cos")


def _square_root_parts(z: Expression) -> tuple[Expression, Expression]:
    """sqrt(z) in two parts: a short upper one, and the rest."""
    root = z.sqrt()
    high = _upper(root)
    return high, z.eq(0.0).select(0.0, (z - high * high) / (root + high))


def asin(x: Expression) -> Expression:
    """Directly up to 1/2, beyond as pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    a = x.abs()
    z = (1.0 - a) * 0.5
    high, low = _square_root_parts(z)
    half_pi, rest = _split_constant(math.pi / 2, x)
    tail = z.sqrt() * z * polynomial(z, "asin")
    large = half_pi - (high * 2.0 + ((tail + low) * 2.0 - rest))
    return a.le(0.5).select(_odd(a, "asin"), large).with_sign(x)


def acos(x: Expression) -> Expression:
    a = x.abs()
    small = a.le(0.5)
    z = small.select(x * x, (1.0 - a) * 0.5)
    fit = z * polynomial(z, "asin")
    high, low = _square_root_parts(z)
    half_pi, rest = _split_constant(math.pi / 2, x)
    right = (high + (z.sqrt() * fit + low)) * 2.0
    left = (half_pi - (high + (z.sqrt() * fit + low - rest))) * 2.0
    return small.select(half_pi - (x - (rest - x * fit)), x.lt(0.0).select(left, right))


def _first_octant(t: Expression, steep: Expression, left: Expression) -> Expression:
    """The angle in 0 .. pi of the slope t in 0 .. 1: mirrored at pi/4 where `steep`, then at pi/2 where `left`."""
    angle = _odd(t, "atan")
    half_pi, half_rest = _split_constant(math.pi / 2, t)
    pi, rest = _split_constant(math.pi, t)
    upper = steep.select(half_pi - (angle - half_rest), angle)
    return left.select(pi - (upper - rest), upper)


def atan(x: Expression) -> Expression:
    a = x.abs()
    steep = a.gt(1.0)
    angle = _first_octant(steep.select(1.0 / a, a), steep, steep & ~steep)
    return angle.with_sign(x)


def atan2(y: Expression, x: Expression) -> Expression:
    ay, ax = y.abs(), x.abs()
    steep = ay.gt(ax)
    larger, smaller = ay.maximum(ax), ay.minimum(ax)
    slope = larger.eq(0.0).select(0.0, smaller.eq(math.inf).select(1.0, smaller / larger))
    return _first_octant(slope, steep, x.signbit()).with_sign(y)


def asinh(x: Expression) -> Expression:
    a = x.abs()
    huge = a.gt(1e9)
    s = huge.select(1.0, a)
    large = a.log() + math.log(2)
    return huge.select(large, log1p(s + s * s / ((s * s + 1.0).sqrt() + 1.0))).with_sign(x)


def acosh(x: Expression) -> Expression:
    huge = x.gt(1e9)
    t = huge.select(1.0, x) - 1.0
    positive = huge.select(x.log() + math.log(2), log1p(t + (t * 2.0 + t * t).sqrt()))
    return x.lt(1.0).select(math.nan, positive)


def atanh(x: Expression) -> Expression:
    a = x.abs()
    return (log1p(a * 2.0 / (1.0 - a)) * 0.5).with_sign(x)


def _log2_parts(a: Expression) -> tuple[Expression, Expression]:
    """log2 of a positive finite number as a short upper part and the rest, to about 1.5 times the dtype's digits.

    a = 2^k m with m near 1; log2(m) = 2/ln 2 atanh(s) with s = (m - 1) / (m + 1), s and 2/ln 2 in two parts each.
    """
    bits, mantissa = a.dtype.bits, MANTISSAS[a.dtype.bits]
    small = a.lt(2.0 ** (2 - (1 << (bits - mantissa - 2))))
    pattern = small.select(a * 2.0**mantissa, a).pattern()
    root = to_bits(math.sqrt(0.5), a.dtype)
    k = (pattern - root).bits("shr", mantissa)
    m = (pattern - k.bits("shl", mantissa)).bitcast(a.dtype)
    exponent = small.select(k - mantissa, k).cast(a.dtype)
    f, g = m - 1.0, m + 1.0
    g_high = _upper(g)
    g_low = m - (g_high - 1.0)
    s = _upper(f / g)
    s_low = ((f - s * g_high) - s * g_low) / g
    z = (f / g) * (f / g)
    tail = s_low + (f / g) * z * polynomial(z, "atanh")
    factor = 2 / math.log(2)
    factor_high = 2.884765625 if bits == 32 else 2.885390043258667
    rest = {32: factor - 2.884765625, 64: 3.851925982253235e-08}[bits]
    product = s * factor_high
    total = exponent + product
    low = (product - (total - exponent)) + (s * rest + tail * factor)
    high = _upper(total + low)
    return high, low + (total - high)


def _power_of_positive(a: Expression, y: Expression) -> Expression:
    """a ** y for a > 0 and finite y: y * log2(a) in two parts, then exp2 of their sum, corrected by what it lost."""
    bound = 2.0**40 if a.dtype.bits == 32 else 2.0**70
    y = y.gt(bound).select(bound, y.lt(-bound).select(-bound, y))
    high, low = _log2_parts(a)
    y_high = _upper(y)
    product = y_high * high
    rest = y * low + (y - y_high) * high
    exponent = product + rest
    lost = rest - (exponent - product)
    # Half of a large power: the largest number itself must not overflow before it is corrected.
    halved = exponent.ge(1.0)
    power = halved.select(exponent - 1.0, exponent).exp2()
    power = power.lt(math.inf).select(power + power * (lost * math.log(2)), power)
    return halved.select(power + power, power)


def pow(x: Expression, y: Expression) -> Expression:
    """C's pow: exact where y is 0 or x is 1, signs by the parity of y, NaN for a negative x and a broken y."""
    a = x.abs()
    edge = a.eq(0.0) | a.eq(math.inf)
    limit = (a.eq(0.0) ^ y.gt(0.0)).select(a.like(math.inf), 0.0)
    power = edge.select(limit, _power_of_positive(edge.select(1.0, a), y))
    whole = y.round("trunc").eq(y)
    half = y * 0.5
    odd = whole & half.round("trunc").ne(half) & y.abs().lt(2.0 ** (MANTISSAS[x.dtype.bits] + 1))
    power = (x.signbit() & odd).select(-power, power)
    power = (x.lt(0.0) & x.gt(-math.inf) & ~whole).select(math.nan, power)
    power = (x.isnan() | y.isnan()).select(x + y, power)
    return (x.eq(1.0) | y.eq(0.0)).select(1.0, power)
