#!/usr/bin/env python3
"""Writes numpy.jsonl, beside this file: what NumPy, or exact arithmetic, says of every operator; tests/tests/numpy.rs reads it.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install numpy==2.4.6 scipy==1.17.1 ml_dtypes==0.6.0
    /tmp/venv/bin/python tests/reference/numpy_cases.py

A line is a case: `op`, `dtype`, `data` (a data set below, each element a formula of its index's hash, so that no inputs are
stored), `len`, and what the operator takes besides: `ddof` where it is not the default; `second`, the data set of the second of two
arrays, by the hashes of indices from 2^32; or `is` and `than`, a comparison and the bits of what is compared with. Expected are

- `bits`: the result's bits in hexadecimal, a pair's one after the other; null where an empty input is an error.
- `value`, an f64 in decimal, and `within`, how far off the result may be, if at all: `relative` says of which part of the value,
  or for sums and means, which may cancel, of that of the magnitudes. Those of four moments are in a row.

Results without rounding are NumPy's own. All others of finite data are those of exact rational arithmetic, rounded once to f64,
because NumPy's and SciPy's round or wrap themselves; here they are only compared with their f64 ones. (Exponentials and logarithms
have 60 digits.)

Where the library differs from NumPy on purpose, the case is as the library's documentation has it:

- [total order] -0.0 is below +0.0 in min, max, and the indices of them; NumPy takes the two for equal.
- [NaN] A NaN result has one pattern of bits.
- [signalling] nanmin and nanmax skip signalling NaNs, too, and NumPy's float32 and float64 ones only quiet ones.
- [wide] sum and prod of integers up to 32 bits are of 64 bits, as NumPy's; float16, bfloat16 and float32 give a float32, from f64
  for mean, var, std and norm_l2 where NumPy rounds, overflows or underflows on the way in the narrow type.
- [no freedom] var and std are NaN where the length is not above ddof; NumPy divides by 0, so that they may be infinite.
- [all NaN] nanargmin and nanargmax are 0; NumPy has an error.
- [infinities] nanargmin of NaN and infinity alone is the infinity's place; NumPy, which puts infinities in place of NaN, may say a
  NaN's.
- [norm_max] Of an empty input it is an error; in NumPy 2.4 it is 0.
- [not finite] moments are all NaN where an element is not finite; NumPy's mean may be infinite.
- [no weight] weighted_mean is NaN where the weights sum to 0; NumPy has an error.

Left out: sums and means of floats near the type's largest, where overflow depends on the order of adding; var, std and moments of
64-bit integers that are not f64s, which the library and NumPy round first; of f64 what squares or multiplies f64s as they are, and
may overflow or underflow, where that is not the result.
"""

import json
import math
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
from scipy import special, stats
from scipy.spatial.distance import cosine

warnings.simplefilter("ignore", RuntimeWarning)
np.seterr(all="ignore")

INTS = {name: np.dtype(kind) for name, kind in zip(
    "i8 i16 i32 i64 u8 u16 u32 u64".split(), "i1 i2 i4 i8 u1 u2 u4 u8".split())}
FLOATS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype("f4"), "f64": np.dtype("f8")}
# Bits below the exponent, and infinity's bits.
FRACTION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def u(value):
    return np.uint64(value)


def hashes(length, first=0):
    """`support::hash` of the indices from `first`."""
    h = (np.arange(length, dtype=np.uint64) + u(first + 1)) * u(0x9E3779B97F4A7C15)
    h = (h ^ (h >> u(30))) * u(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> u(27))) * u(0x94D049BB133111EB)
    return h ^ (h >> u(31))


def integers(dtype, data, h):
    kind = INTS[dtype]
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)

    def of(values):
        return values.astype(np.uint64).astype(kind)

    match data:
        case "any":
            return of(h)
        case "factor":
            return of(h) | kind.type(1)
        case "ties":
            return of(h % u(5)) - kind.type(2 if low < 0 else 0)
        case "zeros":
            return np.zeros(len(h), kind)
        case "constant":
            return np.full(len(h), 7, kind)
        case "sparse":
            return of(h % u(512) == u(0))
        case "dense":
            return np.where(h % u(512) == u(0), kind.type(0), of(h) | kind.type(1))
        case "extremes":
            return np.array([low, high, low + 1, high - 1, 0, 1, high, low], kind)[h % u(8)]
        case "top":
            return kind.type(high) - of(h % u(4))
        case "bottom":
            return kind.type(low) + of(h % u(4))
        case "offset":
            return kind.type(10**9) + of(h % u(7))
        case "weights":
            return of(h % u(8))


def floats(dtype, data, h):
    kind = FLOATS[dtype]
    word = np.dtype(f"u{kind.itemsize}")
    top, fraction, infinity = 8 * kind.itemsize - 1, FRACTION[dtype], INFINITY[dtype]

    def signed(h):
        return (h & u(1)) << u(top)

    def of_bits(bits):
        return bits.astype(word).view(kind)

    def of(values):
        """From f64: exactly, but for float32, which NumPy rounds to nearest."""
        return np.asarray(values, np.float64).astype(kind)

    def whole(values):
        return values.astype(np.int64).astype(np.float64)

    def constant(value):
        return of(np.full(len(h), value))

    def nan(h):
        quiet = u(infinity) | u(1 << (fraction - 1)) | (h >> u(8)) % u(32)
        signalling = u(infinity) | u(1) + (h >> u(8)) % u(31)
        return of_bits(np.where((h >> u(21)) & u(1) == u(0), quiet, signalling) | signed(h >> u(20)))

    def scaled(scale16, scale):
        """Of both signs, magnitudes from half of to one and a half times `scale`."""
        sign = np.where(h & u(1) == u(0), 1.0, -1.0)
        match dtype:
            case "f16":
                return of(sign * scale16(whole((h >> u(1)) % u(16))))
            case "bf16":
                return of(sign * (128.0 + whole((h >> u(1)) % u(128))) * 2.0 ** math.floor(math.log2(scale) - 7))
            case _:
                return of(sign * ((any_f64 + 1.0) * scale))

    any_f64 = (h >> u(11)).astype(np.float64) / 2.0**53 - 0.5
    match dtype:
        case "f16":
            some = of((whole((h >> u(11)) % u(2049)) - 1024.0) / 2048.0)
        case "bf16":
            some = of((whole((h >> u(11)) % u(257)) - 128.0) / 256.0)
        case _:
            some = of(any_f64)
    zero = of_bits(signed(h))
    match data:
        case "any":
            return some
        case "factor":
            size = np.where(h % u(4096) == u(0), 0.75 + whole((h >> u(12)) % u(65)) / 128.0, 1.0)
            return of(np.where(h >> u(63) == u(0), size, -size))
        case "bits":
            return of_bits(h >> u(63 - top))
        case "ties":
            return of(whole(h % u(5)) - 2.0)
        case "zeros":
            return zero
        case "constant":
            return of(np.full(len(h), 0.15625 if kind.itemsize == 2 else 0.1))
        case "sparse":
            return np.where(h % u(512) == u(0), constant(1.5), zero)
        case "dense":
            return np.where(h % u(512) == u(0), zero, of(1.0 + whole(h >> u(62))))
        case "nans":
            return np.where(h % u(64) == u(7), nan(h), some)
        case "all_nan":
            return nan(h)
        case "infinities":
            return np.where(h % u(16) == u(0), constant(math.inf), some)
        case "opposite":
            return np.where(h % u(16) < u(2), of_bits(u(infinity) | signed(h)), some)
        case "infinite":
            return constant(math.inf)
        case "low":
            return np.where(h % u(16) == u(0), constant(-math.inf), some)
        case "lowest":
            return constant(-math.inf)
        case "nonfinite":
            special = np.where(h % u(4) == u(0), nan(h), of_bits(u(infinity) | signed(h >> u(30))))
            return np.where(h % u(4) == u(3), some, special)
        case "extremes":
            bits = [infinity - 1, infinity - 1 | 1 << top, 1 << fraction, 1, 1 | 1 << top, 0, 1 << top, (1 << fraction) - 1]
            return of_bits(np.array(bits, np.uint64)[h % u(8)])
        case "apart":
            return of(some.astype(np.float64) * -4096.0)
        case "below":
            return of((some.astype(np.float64) - 0.5) * 4096.0)
        case "weights":
            return of(whole(h % u(8)) / 4.0)
        case "subnormal":
            return of_bits(signed(h) | (h >> u(1)) % u(1 << fraction))
        case "huge":
            return scaled(lambda some: 64512.0 - 32.0 * some, 1e200 if dtype == "f64" else 1e30)
        case "tiny":
            return scaled(lambda some: (1.0 + some) / 2.0**24, 1e-200 if dtype == "f64" else 1e-30)
        case "offset":
            match dtype:
                case "f16":
                    return of(998.0 + whole(h % u(5)))
                case "bf16":
                    return of(198.0 + whole(h % u(5)))
                case _:
                    return of((1e9 if dtype == "f64" else 1e6) + any_f64 * 3.4641016)


def nearest(value):
    """A Fraction as an f64."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def root(value):
    """The root of a Fraction, to over 80 bits."""
    up, down = value.numerator, value.denominator
    shift = max(0, 200 - up.bit_length() + down.bit_length())
    shift += shift % 2
    return Fraction(math.isqrt((up << shift) // down), 1) / (1 << shift // 2)


class Exact:
    """Finite data as integers over one power of two."""

    def __init__(self, values):
        ratios = [value.as_integer_ratio() for value in values.tolist()]
        most = max((down.bit_length() for _, down in ratios), default=1)
        self.whole = [up << (most - down.bit_length()) for up, down in ratios]
        self.one = 1 << (most - 1)

    @cache
    def sum(self):
        return Fraction(sum(self.whole), self.one)

    @cache
    def l1(self):
        return Fraction(sum(map(abs, self.whole)), self.one)

    @cache
    def squares(self):
        return Fraction(sum(value * value for value in self.whole), self.one**2)

    def spread(self):
        return self.squares() - self.sum() ** 2 / len(self.whole)

    @cache
    def moments(self):
        """The mean and three central moments, and the means of as many powers of the distances from the first element."""
        n, total, first = len(self.whole), sum(self.whole), self.whole[0]
        central = [Fraction(sum((n * value - total) ** k for value in self.whole), n * (n * self.one) ** k) for k in (2, 3, 4)]
        far = [Fraction(sum(abs(value - first) ** k for value in self.whole), n * self.one**k) for k in (1, 2, 3, 4)]
        return [Fraction(total, n * self.one), *central], far


KEPT = [b"", None]


def exactly(values):
    """The last array's is kept."""
    key = values.tobytes() + values.dtype.char.encode()
    if KEPT[0] != key:
        KEPT[:] = key, Exact(values)
    return KEPT[1]


NUMPY = {
    "sum": np.sum,
    "nansum": np.nansum,
    "sumsq": lambda x: np.sum(np.square(x)),
    "prod": np.prod,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "norm_l1": lambda x: np.linalg.norm(x, 1),
    "norm_l2": np.linalg.norm,
    "norm_max": lambda x: np.linalg.norm(x, np.inf),
    "min": np.min,
    "max": np.max,
    "nanmin": np.nanmin,
    "nanmax": np.nanmax,
    "argmin": np.argmin,
    "argmax": np.argmax,
    "nanargmin": np.nanargmin,
    "nanargmax": np.nanargmax,
    "nanmean": np.nanmean,
    "nanvar": np.nanvar,
    "nanstd": np.nanstd,
    "any": np.any,
    "all": np.all,
    "count_nonzero": np.count_nonzero,
    "count_nan": lambda x: np.isnan(x).sum(),
    "moments": lambda x: [np.mean(x), *stats.moment(x, (2, 3, 4))],
    "skewness": stats.skew,
    "kurtosis": stats.kurtosis,
    "logsumexp": special.logsumexp,
    "compensated_sum": np.sum,
    "bit_and": np.bitwise_and.reduce,
    "bit_or": np.bitwise_or.reduce,
    "bit_xor": np.bitwise_xor.reduce,
    "dot": lambda x, y: np.sum(x * y),
    "distance_squared": lambda x, y: np.sum(np.square(x - y)),
    "distance_l1": lambda x, y: np.sum(np.abs(x - y)),
    "weighted_mean": lambda x, weights: np.average(x, weights=weights),
    "cosine": lambda x, y: 1 - cosine(x, y),
    "count_where": np.count_nonzero,
    "sum_where": np.sum,
}
COMPARISONS = {
    "Less": np.less,
    "LessEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
}


def exact_value(op, exact, length, ddof):
    """The exact result and what its error is in proportion to."""
    match op.removeprefix("nan"):
        case "sum" | "compensated_sum" | "sum_where":
            return exact.sum(), exact.l1()
        case "mean":
            return exact.sum() / length, exact.l1() / length
        case "prod":
            product = Fraction(math.prod(exact.whole), exact.one ** len(exact.whole))
            return product, abs(product)
        case "sumsq":
            value = exact.squares()
        case "norm_l1":
            value = exact.l1()
        case "norm_l2":
            value = root(exact.squares())
        case "var":
            value = exact.spread() / (length - ddof)
        case "std":
            # That of an f64, as NumPy's of float64 is: 0 or infinite where that of the variance is.
            variance = nearest(exact.spread() / (length - ddof))
            value = root(Fraction(variance)) if math.isfinite(variance) else None
    return value, value


def relative(op, dtype, data):
    """The relative error allowed. f32's own rounding is up to 6e-8, f64's 1.2e-16."""
    single = dtype in FLOATS and dtype != "f64"
    if op in SPREADS:
        # In f64 throughout, also of data far from zero ("offset").
        return 1e-7 if single else 1e-14
    if dtype in INTS:
        # Sums are exact.
        return 1e-14 if op == "norm_l2" else 5e-16
    return 5e-7 if single else 1e-14


def rounded(op, dtype, data, x, ddof):
    single = dtype in FLOATS and dtype != "f64"
    # To be summed; an integer that no f64 is stays whole.
    wide = x if dtype in INTS else x.astype(np.float64)
    if op.startswith("nan") and dtype in FLOATS:
        wide = wide[~np.isnan(wide)]
    length = len(wide)
    finite = dtype in INTS or bool(np.isfinite(wide).all())
    if op in SPREADS and length <= ddof:
        return math.nan, 0.0  # [no freedom]
    if op in ("mean", "nanmean") and length == 0:
        return math.nan, 0.0
    with_ddof = {"ddof": ddof} if op in SPREADS else {}
    numpy = float(NUMPY[op](wide.astype(np.float64), **with_ddof))
    if not finite:
        assert not math.isfinite(numpy), (op, dtype, data)
        return numpy, 0.0
    exact, scale = exact_value(op, exactly(wide), length, ddof)
    value = math.inf if exact is None else nearest(exact)
    if math.isfinite(value) and math.isfinite(numpy) and data not in ("tiny", "subnormal", "huge", "extremes"):
        # A check of this script: float64's own rounding.
        assert abs(value - numpy) <= (1e-6 if data in ("offset", "top", "bottom") else 1e-9) * nearest(scale) + 1e-15, (
            op, dtype, data, length, value, numpy)
    if not math.isfinite(value):
        return value, 0.0
    if op == "compensated_sum":
        # Two units in the last place.
        within = nearest(2 * Fraction(float(np.spacing((np.float32 if single else np.float64)(abs(value))))) + length * scale / 2**100)
    else:
        within = relative(op, dtype, data) * nearest(scale)
    return in_range(dtype, value, within, scale, length if op == "sumsq" else 1)


def in_range(dtype, value, within, scale, terms=1):
    """`value` and `within` of a result of `dtype`'s f32 or f64, from `terms` terms that round."""
    single = dtype in FLOATS and dtype != "f64"
    largest = float(np.finfo(np.float32).max)
    if single and abs(value) > largest * (1 + 2.0**-25):
        value = math.copysign(math.inf, value)
    if not math.isfinite(value):
        return value, 0.0
    # A result that is exact has nothing to round.
    if scale and dtype in FLOATS:
        # Below the least normal value, each term and the result may round by half the least subnormal one.
        within += terms * (2.0**-149 if single else 2.0**-1074)
    return value, within if scale else 0.0


def checked(op, ours, theirs, scale, near):
    """A check of this script, where SciPy's own rounding allows one."""
    same = ours == theirs or math.isnan(ours) and math.isnan(theirs)
    assert same or abs(ours - theirs) <= (1e-6 if near else 1e-9) * scale + 1e-15, (op, ours, theirs)


def from_f64(dtype, value, scale, errors, terms=1):
    """A Fraction that is computed in f64, with rounding errors up to `errors` of 1e-14 each, and rounded to the result's type."""
    rounding = 7e-8 if dtype in FLOATS and dtype != "f64" else 3e-16
    return in_range(dtype, nearest(value), 1e-14 * nearest(errors) + rounding * abs(nearest(value)), scale, terms)


def shape(op, dtype, data, x):
    """Of moments, skewness and kurtosis: pairs of a value and how far off it may be."""
    wide = x if dtype in INTS else x.astype(np.float64)
    theirs = NUMPY[op](wide.astype(np.float64))
    if len(x) == 0 or dtype in FLOATS and not np.isfinite(wide).all():
        nans = [math.nan] * (4 if op == "moments" else 1)  # [not finite]
        assert np.isnan(theirs[1:] if op == "moments" else theirs).all(), (op, dtype, data)
        return [(nan, 0.0) for nan in nans]
    (mean, m2, m3, m4), (far1, far2, far3, far4) = exactly(wide).moments()
    near = data in ("offset", "top", "bottom")
    if op == "moments":
        if data not in ("tiny", "subnormal", "huge", "extremes"):
            for value, far, their in zip((mean, m2, m3, m4), (far1 + abs(mean), far2, far3, far4), theirs):
                checked(op, nearest(value), float(their), nearest(far), near)
        return [from_f64(dtype, value, far, errors) for value, far, errors in
                ((mean, far1 + abs(mean), far1), (m2, far2, 2 * far2), (m3, far3, 3 * far3), (m4, far4, 4 * far4))]
    if m2 <= (Fraction(2) ** -52 * mean) ** 2:
        return [(math.nan, 0.0)]
    if op == "skewness":
        value = m3 / root(m2**3)
        errors = 3 * far3 / root(m2**3) + 3 * abs(value) * far2 / m2
    else:
        value = m4 / m2**2
        errors = 4 * far4 / m2**2 + 4 * value * far2 / m2
        value -= 3
    if data not in ("tiny", "subnormal", "huge", "extremes"):
        checked(op, nearest(value), float(theirs), 1.0, near)
    return [from_f64(dtype, value, errors, errors)]


def logsumexp(dtype, x):
    wide = x.astype(np.float64)
    theirs = float(NUMPY["logsumexp"](wide))
    if not math.isfinite(theirs):
        return theirs, 0.0
    values, counts = np.unique(x if dtype in INTS else wide[np.isfinite(wide)], return_counts=True)
    with localcontext(prec=60):
        values = [Decimal(value) for value in values.tolist()]
        most = values[-1]
        terms = (count * (value - most).exp() for value, count in zip(values, counts.tolist()) if value - most > -200)
        value = float(most + sum(terms).ln())
    checked("logsumexp", value, theirs, abs(value), False)
    single = dtype in FLOATS and dtype != "f64"
    return value, (4 * 2.0**-24 if single else 8 * 2.0**-53) * max(1.0, abs(value))


def pair(op, dtype, data, x, y):
    """A value of two arrays, and how far off it may be."""
    single = dtype in FLOATS and dtype != "f64"
    wide = [values if dtype in INTS else values.astype(np.float64) for values in (x, y)]
    f64s = [values.astype(np.float64) for values in wide]
    if not all(np.isfinite(values).all() for values in f64s):
        theirs = math.nan if op == "weighted_mean" and not y.any() else float(NUMPY[op](*f64s))  # [no weight]
        assert not math.isfinite(theirs) or op == "weighted_mean", (op, dtype, data)
        return theirs, 0.0
    both = exactly(np.concatenate(wide))
    pairs, one = list(zip(both.whole[: len(x)], both.whole[len(x) :])), both.one
    terms = 1
    match op:
        case "dot":
            value = Fraction(sum(a * b for a, b in pairs), one**2)
            scale, terms = Fraction(sum(abs(a * b) for a, b in pairs), one**2), len(x)
        case "distance_squared":
            value = scale = Fraction(sum((a - b) ** 2 for a, b in pairs), one**2)
            terms = len(x)
        case "distance_l1":
            value = scale = Fraction(sum(abs(a - b) for a, b in pairs), one)
        case "weighted_mean":
            weight = sum(b for _, b in pairs)
            if weight == 0:
                return math.nan, 0.0  # [no weight]
            value = Fraction(sum(a * b for a, b in pairs), one * weight)
            scale = Fraction(sum(abs(a * b) for a, b in pairs), one * abs(weight))
            scale += abs(value) * Fraction(sum(abs(b) for _, b in pairs), abs(weight))
        case "cosine":
            squares = sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)
            if squares == 0:
                return math.nan, 0.0
            squares = root(Fraction(squares))
            value = sum(a * b for a, b in pairs) / squares
            scale = sum(abs(a * b) for a, b in pairs) / squares
    if data not in ("tiny", "subnormal", "huge", "extremes"):
        checked(op, nearest(value), float(NUMPY[op](*f64s)), nearest(scale), data == "top")
    if op in ("weighted_mean", "cosine"):
        return from_f64(dtype, value, scale, scale)
    within = (5e-7 if single else 5e-16 if dtype in INTS else 1e-14) * nearest(scale)
    return in_range(dtype, nearest(value), within, scale, terms)


def where(op, dtype, data, x, comparison, than):
    """Those of the case's keys that say what is expected."""
    exact = np.float32 if dtype == "bf16" else x.dtype
    which = x[COMPARISONS[comparison](x.astype(exact), np.array([than], x.dtype).astype(exact))]
    if op == "count_where":
        return {"bits": f"{len(which):016x}"}
    if dtype in INTS:
        return {"bits": precise("sum", dtype, which)}
    return case_of([rounded(op, dtype, data, which, 0)])


def case_of(results):
    """The keys of values and how far off they may be."""
    case = {"value": " ".join(repr(value) for value, _ in results)}
    if any(within for _, within in results):
        case["within"] = " ".join(f"{within:.2g}" for _, within in results)
    return case


def bits(value, dtype):
    """Of a result of the element's type."""
    if dtype in FLOATS and math.isnan(value):
        return f"{INFINITY[dtype] | 1 << FRACTION[dtype] - 1:0{2 * FLOATS[dtype].itemsize}x}"  # [NaN]
    kind = {**INTS, **FLOATS}[dtype]
    word = np.array([value], kind).view(f"u{kind.itemsize}")[0]
    return f"{int(word):0{2 * kind.itemsize}x}"


def precise(op, dtype, x, *second):
    """The bits of a result that does not round, or None where there is none."""
    if op in ("minmax", "argminmax"):
        least, most = (precise(op.replace("minmax", which), dtype, x) for which in ("min", "max"))
        return least and least + most
    if op in WHOLE:
        wide = [values.astype(np.int64 if dtype.startswith("i") else np.uint64) for values in (x, *second)]  # [wide]
        return bits(NUMPY[op](*wide), "i64" if dtype.startswith("i") else "u64")
    # NumPy's own float32 orders bfloat16 as it is.
    if dtype == "bf16":
        x = x.astype(np.float32)
    if len(x) == 0 and op in EXTREMES + PLACES + NAN_PLACES:
        try:
            NUMPY[op](x)
        except ValueError:
            return None
        raise AssertionError(op)
    if op in ("nanmin", "nanmax") and dtype in FLOATS:
        x = np.where(np.isnan(x), x.dtype.type(math.nan), x)  # [signalling]
    if op in NAN_PLACES and dtype in FLOATS and np.isnan(x).all():
        return f"{0:016x}"  # [all NaN]
    if op in NAN_PLACES and dtype in FLOATS and not np.isfinite(x).any():
        # [infinities]
        best = (np.argmin if op == "nanargmin" else np.argmax)([v if not np.isnan(v) else math.inf if op == "nanargmin" else -math.inf for v in x.astype(np.float64)])
        candidates = np.flatnonzero(~np.isnan(x) & (x == x[best])) if not np.isnan(x[best]) else np.flatnonzero(~np.isnan(x))
        return f"{int(candidates[0]):016x}"
    result = NUMPY[op](x)
    if op in ("any", "all"):
        return f"{int(result):02x}"
    if "arg" in op or op.startswith("count"):
        if "arg" in op and dtype in FLOATS and x[result] == 0:
            # [total order]
            sign = np.signbit(x) == op.endswith("argmin")
            if (sign & (x == 0)).any():
                result = np.argmax(sign & (x == 0))
        return f"{int(result):016x}"
    if dtype in FLOATS and result == 0:
        # [total order]
        sign = op.endswith("min")
        there = (x == 0) & (np.signbit(x) == sign)
        result = -0.0 if bool(there.any()) == sign else 0.0
    return bits(result, dtype)


PLACES = "argmin argmax argminmax".split()
NAN_PLACES = "nanargmin nanargmax".split()
EXTREMES = "min max minmax nanmin nanmax norm_max".split()
COUNTS = "any all count_nonzero count_nan".split()
SUMS = "sum nansum mean".split()
SIZES = "sumsq norm_l1 norm_l2".split()
SPREADS = "var std nanvar nanstd".split()
ROUNDING = SUMS + SIZES + SPREADS + ["nanmean"]
SHAPES = "moments skewness kurtosis".split()
LATER = SHAPES + "logsumexp compensated_sum".split()
EVERY = PLACES + EXTREMES + COUNTS + ROUNDING + ["prod"] + NAN_PLACES + LATER
BITS = "bit_and bit_or bit_xor".split()
# Of two arrays.
DISTANCES = "distance_squared distance_l1".split()
PAIRS = ["dot"] + DISTANCES + ["weighted_mean", "cosine"]
# Of integers these do not round.
WHOLE = "sum nansum prod sumsq compensated_sum dot distance_squared".split()

# Of each data set: the lengths, and the operators.
INTEGER_SETS = {
    "any": ([0, 1, 2, 31, 4097], EVERY + BITS),
    "factor": ([4097], ["prod"]),
    "ties": ([2, 1000, 70_003], PLACES),
    "zeros": ([31], COUNTS + ["argmin", "argmax", "var", "norm_l2", "prod", "skewness", "logsumexp"]),
    "constant": ([1000], SPREADS + ["all", "mean"] + SHAPES + BITS),
    "sparse": ([70_003, 4097], COUNTS[:3] + BITS[1:]),
    "dense": ([70_003, 4097], COUNTS[:3]),
    "extremes": ([1, 4097], PLACES + EXTREMES + ["mean", "norm_l1", "norm_l2", "var", "sumsq"] + LATER[:4]),
    "top": ([2, 31, 70_003], ["sum", "mean", "norm_l1", "norm_l2", "norm_max", "argmin", "var"] + LATER + ["bit_and", "bit_xor"]),
    "bottom": ([2, 31, 70_003], ["sum", "mean", "norm_l1", "norm_l2", "norm_max", "argmax", "var"] + LATER[:4] + BITS),
    "offset": ([31, 4097, 70_003], SPREADS + ["mean"] + SHAPES),
}
FLOAT_SETS = {
    "any": ([0, 1, 2, 31, 1000, 4097, 70_003], EVERY),
    "factor": ([1000, 70_003], ["prod"]),
    "bits": ([2, 1000, 4097, 70_003], PLACES + NAN_PLACES + EXTREMES + COUNTS),
    "ties": ([2, 1000, 70_003], PLACES + NAN_PLACES + ["nansum", "var"]),
    "zeros": ([1, 31, 1000], PLACES + NAN_PLACES + EXTREMES + COUNTS + SPREADS + ["norm_l1", "norm_l2", "nansum", "prod"] + LATER),
    "constant": ([1, 1000, 70_003], SPREADS + SIZES[1:] + ["mean"] + LATER),
    "sparse": ([31, 4097, 70_003], COUNTS[:3] + ["argmax"]),
    "dense": ([31, 4097, 70_003], COUNTS[:3] + ["argmin"]),
    "nans": ([1000, 4097, 70_003], EVERY),
    "all_nan": ([1, 2, 31, 1000], EVERY),
    "infinities": ([31, 1000, 4097], [op for op in EVERY if op != "prod"]),
    "opposite": ([1000, 4097], [op for op in EVERY if op != "prod"]),
    "infinite": ([1, 2, 1000], EVERY),
    "low": ([31, 4097], LATER),
    "lowest": ([1, 1000], ["logsumexp", "compensated_sum"]),
    "apart": ([2, 31, 1000, 4097], ["logsumexp"]),
    "below": ([2, 31, 1000, 4097], ["logsumexp"]),
    "nonfinite": ([2, 31, 4097], EVERY),
    "extremes": ([1, 2, 31, 4097], PLACES + NAN_PLACES + EXTREMES + COUNTS + SIZES + SPREADS + LATER[:4]),
    "subnormal": ([31, 4097], PLACES + EXTREMES + COUNTS + ROUNDING + LATER),
    "huge": ([1, 31, 4097, 70_003], EXTREMES + ROUNDING + LATER),
    "tiny": ([1, 31, 4097, 70_003], EXTREMES + ROUNDING + LATER),
    "offset": ([2, 31, 4097, 70_003], ["mean", "sum", "norm_l2"] + SPREADS + LATER),
}
# Of each two data sets, the same.
INTEGER_PAIRS = {
    ("any", "any"): ([0, 1, 2, 31, 1000, 4097, 70_003], PAIRS),
    ("any", "weights"): ([31, 4097], ["weighted_mean"]),
    ("any", "zeros"): ([31], ["weighted_mean", "cosine"]),
    ("ties", "ties"): ([31, 1000], PAIRS),
    ("zeros", "any"): ([31], PAIRS),
    ("constant", "constant"): ([1000], PAIRS),
    ("extremes", "extremes"): ([1, 31, 4097], PAIRS),
    ("top", "weights"): ([31, 4097], ["weighted_mean", "cosine"]),
    ("top", "bottom"): ([2, 70_003], ["dot"] + DISTANCES),
}
FLOAT_PAIRS = {
    ("any", "any"): ([0, 1, 2, 31, 1000, 4097, 70_003], PAIRS),
    ("any", "weights"): ([31, 4097, 70_003], ["weighted_mean", "cosine"]),
    ("any", "zeros"): ([31], ["weighted_mean", "cosine"]),
    ("any", "nans"): ([31, 4097], PAIRS),
    ("nans", "weights"): ([31, 1000], PAIRS),
    ("any", "infinities"): ([31, 1000], PAIRS),
    ("infinities", "weights"): ([31, 1000], PAIRS),
    ("opposite", "opposite"): ([31, 1000], PAIRS),
    ("infinite", "infinite"): ([1, 31], PAIRS),
    ("infinite", "zeros"): ([1], PAIRS),
    ("ties", "ties"): ([1, 1000], PAIRS),
    ("zeros", "zeros"): ([31], PAIRS),
    ("zeros", "any"): ([31], PAIRS),
    ("constant", "constant"): ([1, 1000], PAIRS),
    ("extremes", "extremes"): ([1, 2, 31, 4097], DISTANCES + ["cosine"]),
    ("subnormal", "subnormal"): ([31, 4097], PAIRS),
    ("huge", "huge"): ([1, 31, 4097], DISTANCES + PAIRS[3:]),
    ("tiny", "tiny"): ([1, 31, 4097], PAIRS),
    ("offset", "offset"): ([2, 4097, 70_003], PAIRS),
    ("offset", "weights"): ([31, 4097], ["weighted_mean"]),
}
# What elements are compared with.
INTEGER_WHERE = {
    "any": ([0, 4097, 70_003], ["middle"]),
    "ties": ([1000], ["one"]),
    "extremes": ([4097], ["least", "most", "one"]),
}
FLOAT_WHERE = {
    "any": ([0, 4097, 70_003], ["middle"]),
    "ties": ([1000], ["one", "zero"]),
    "zeros": ([31], ["minus zero"]),
    "nans": ([4097], ["middle", "nan"]),
    "nonfinite": ([1000], ["infinity", "minus infinity", "most"]),
    "extremes": ([4097], ["least", "most", "zero"]),
}


def scalar(name, dtype, x):
    kind = x.dtype
    limits = np.iinfo(kind) if dtype in INTS else ml_dtypes.finfo(kind)
    value = {
        # One that occurs.
        "middle": x[len(x) // 2] if len(x) else 0,
        "zero": 0,
        "minus zero": -0.0,
        "one": 1,
        "least": limits.min,
        "most": limits.max,
        "infinity": math.inf,
        "minus infinity": -math.inf,
        "nan": math.nan,
    }[name]
    return kind.type(value)


def elements(dtype, data, length, first=0):
    return (integers if dtype in INTS else floats)(dtype, data, hashes(length, first))


def missing(dtype, data):
    return dtype in INTS and (data == "bottom" and dtype.startswith("u") or data == "offset" and dtype[1:] in ("8", "16"))


def cases():
    """Longer inputs take turns: of two neighbouring lengths an operator has one, and another type's the other."""
    for turn, dtype in enumerate([*INTS, *FLOATS]):
        sets = INTEGER_SETS if dtype in INTS else FLOAT_SETS
        for data, (lengths, ops) in sets.items():
            if missing(dtype, data):
                continue
            for nth, length in enumerate(lengths):
                x = elements(dtype, data, length)
                for op in ops:
                    if length > 1 and len(lengths) > 1 and (turn + nth + (EVERY + BITS).index(op)) % 2 == 1:
                        continue
                    spread = op in SPREADS
                    if (spread or op == "moments") and data in ("top", "bottom") and dtype.endswith("64"):
                        continue
                    if op in SHAPES and dtype == "f64" and data in ("extremes", "subnormal", "huge", "tiny"):
                        continue
                    for ddof in ([0, 1, 2] if spread and data in ("any", "offset") else [0]):
                        yield dtype, data, length, x, op, ddof


def pair_cases():
    """Likewise."""
    for turn, dtype in enumerate([*INTS, *FLOATS]):
        for (data, second), (lengths, ops) in (INTEGER_PAIRS if dtype in INTS else FLOAT_PAIRS).items():
            if missing(dtype, data) or missing(dtype, second):
                continue
            for nth, length in enumerate(lengths):
                x, y = elements(dtype, data, length), elements(dtype, second, length, 1 << 32)
                for op in ops:
                    if length > 1 and len(lengths) > 1 and (turn + nth + PAIRS.index(op)) % 2 == 1:
                        continue
                    if op in PAIRS[3:] and dtype == "f64" and data in ("extremes", "subnormal", "huge", "tiny"):
                        continue
                    yield dtype, data, second, length, x, y, op


def where_cases():
    """Counts and sums take turns."""
    turn = 0
    for dtype in [*INTS, *FLOATS]:
        for data, (lengths, names) in (INTEGER_WHERE if dtype in INTS else FLOAT_WHERE).items():
            for length in lengths:
                x = elements(dtype, data, length)
                for name in names:
                    than = scalar(name, dtype, x)
                    for comparison in COMPARISONS:
                        turn += 1
                        # A sum of these may overflow.
                        op = "count_where" if turn % 2 == 0 or data == "extremes" and dtype in FLOATS else "sum_where"
                        yield dtype, data, length, x, op, comparison, than
                    turn += 1


def line(case):
    return json.dumps(case, separators=(",", ":")) + "\n"


def main():
    lines = []
    for dtype, data, length, x, op, ddof in cases():
        case = {"op": op, "dtype": dtype, "data": data, "len": length}
        if ddof:
            case["ddof"] = ddof
        if op == "norm_max":
            if length == 0:
                case["bits"] = None  # [norm_max]
            else:
                # Magnitudes as they are: NumPy's of the least integer is itself.
                value = float(max(abs(v) for v in x.tolist())) if dtype in INTS else NUMPY[op](x.astype(np.float64))
                case["value"] = repr(float(value))
        elif op in SHAPES:
            case |= case_of(shape(op, dtype, data, x))
        elif op == "logsumexp":
            case |= case_of([logsumexp(dtype, x)])
        elif op in ROUNDING + ["prod", "compensated_sum"] and not (dtype in INTS and op in WHOLE):
            case |= case_of([rounded(op, dtype, data, x, ddof)])
        else:
            case["bits"] = precise(op, dtype, x)
        lines.append(line(case))
    for dtype, data, second, length, x, y, op in pair_cases():
        case = {"op": op, "dtype": dtype, "data": data, "second": second, "len": length}
        if dtype in INTS and op in WHOLE:
            case["bits"] = precise(op, dtype, x, y)
        else:
            case |= case_of([pair(op, dtype, data, x, y)])
        lines.append(line(case))
    for dtype, data, length, x, op, comparison, than in where_cases():
        case = {"op": op, "dtype": dtype, "data": data, "len": length, "is": comparison, "than": bits(than, dtype)}
        lines.append(line(case | where(op, dtype, data, x, comparison, than)))
    path = Path(__file__).with_name("numpy.jsonl")
    path.write_text("".join(lines))
    print(f"{len(lines)} cases, {path.stat().st_size} bytes, NumPy {np.__version__}")


if __name__ == "__main__":
    main()
