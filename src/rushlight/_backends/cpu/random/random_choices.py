"""Choices by weights, counts, and gamma numbers: distributions that draw a varying number of words for an element."""

from __future__ import annotations

from rushlight._backends.cpu.random.mt19937 import draw_unit, put_float, take
from rushlight._backends.cpu.random.random_normal import draw_normal
from rushlight._backends.cpu.random.random_uniform import to_exponential
from rushlight._native import NativeFunction, ceil, extern, f32, f64, floor, load, native, select, sqrt, store, u32

__all__ = [
    "make_binomial",
    "make_choice",
    "make_gamma",
    "make_leaks",
    "make_multinomial",
    "make_poisson",
    "make_weights_status",
]

log = extern("log", "f64(f64)")
log1p = extern("log1p", "f64(f64)")
exp = extern("exp", "f64(f64)")
lgamma = extern("lgamma", "f64(f64)")
power = extern("pow", "f64(f64, f64)")


def make_weights_status(p_kind: str) -> NativeFunction:
    """0 for valid weights, 1 if one is negative, infinite or NaN, 2 if a row has no weight."""
    P = f64 if p_kind == "f64" else f32

    @native("i64(ptr, i64, i64)", name=f"rl_weights_status_{p_kind}")
    def status(p, rows, categories):
        worst = 0
        for row in range(rows):
            bad, some = u32(0), u32(0)
            for j in range(categories):
                v = load(P, p, row * categories + j)
                bad |= u32(v < P(0.0)) | u32(v - v != P(0.0))
                some |= u32(v > P(0.0))
            if bad != u32(0):
                return 1
            if some == u32(0):
                worst = 2
        return worst

    return status


def make_multinomial(p_kind: str) -> NativeFunction:
    """`multinomial(state, out, p, rows, categories, samples, sums)`: indices drawn with replacement by the weights of
    each row.

    `sums` is room for one row.  It holds running sums in the dtype, divided by the last one when they are compared; a
    float64 uniform selects the first category whose sum is not below it.  Returns the weights' status (see above), and
    draws nothing unless that is 0.
    """
    P, check = f64 if p_kind == "f64" else f32, make_weights_status(p_kind)
    p_size = P.itemsize

    @native("i64(ptr, ptr, ptr, i64, i64, i64, ptr)", name=f"rl_multinomial_{p_kind}")
    def multinomial(state, out, p, rows, categories, samples, sums):
        status = check(p, rows, categories)
        if status != 0:
            return status
        take(state, state, 0)  # seeds the state if needed
        for row in range(rows):
            weights = p + row * categories * p_size
            total = P(0.0)
            for j in range(categories):
                total = total + load(P, weights, j)
                store(P, sums, j, total)
            for s in range(samples):
                u = draw_unit(state)
                low = 0
                high = categories
                while low < high:
                    middle = low + ((high - low) >> 1)
                    if middle < categories - 1 and f64(load(P, sums, middle) / total) < u:
                        low = middle + 1
                    else:
                        high = middle
                out.i64[row * samples + s] = low
        return 0

    return multinomial


def make_choice(p_kind: str) -> NativeFunction:
    """`choice(state, out, p, rows, categories)`: one index for each row, by its weights.

    It is the first maximum of p / t, where t are exponential numbers; NaN (0 / 0) counts as largest.  Returns the
    weights' status, and draws nothing unless that is 0.
    """
    P, check = f64 if p_kind == "f64" else f32, make_weights_status(p_kind)

    @native("i64(ptr, ptr, ptr, i64, i64)", name=f"rl_choice_{p_kind}")
    def choice(state, out, p, rows, categories):
        status = check(p, rows, categories)
        if status != 0:
            return status
        take(state, state, 0)  # seeds the state if needed
        for row in range(rows):
            best = P(-1.0)
            best_index = 0
            for j in range(categories):
                key = load(P, p, row * categories + j) / P(to_exponential(draw_unit(state), -1.0, 0.0))
                if key > best or (key != key and best == best):
                    best = key
                    best_index = j
            out.i64[row] = best_index
        return 0

    return choice


@native("f64(ptr, f64)")
def draw_poisson(state, rate):
    """Draw one Poisson number: products of uniforms below 10, Hoermann's transformed rejection from there."""
    if rate == 0.0:
        return 0.0
    if rate < 10.0:
        limit = exp(-rate)
        count = 0.0
        product = draw_unit(state)
        while product > limit:
            count += 1.0
            product = product * draw_unit(state)
        return count
    log_rate = log(rate)
    b = 0.931 + 2.53 * sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    accept = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = draw_unit(state) - 0.5
        v = draw_unit(state)
        us = 0.5 - abs(u)
        k = floor((2.0 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= accept:
            return k
        if not (k < 0.0 or (us < 0.013 and v > us)):
            if log(v) + log(inverse_alpha) - log(a / (us * us) + b) <= k * log_rate - rate - lgamma(k + 1.0):
                return k
    return 0.0


def make_poisson(kind: str) -> NativeFunction:
    """`poisson(state, out, n, rates)`: a count for each rate (float64); returns 1 and draws nothing if one is not >= 0."""
    put = put_float(kind)

    @native("i64(ptr, ptr, i64, ptr)", name=f"rl_poisson_{kind}")
    def poisson(state, out, n, rates):
        take(state, state, 0)  # seeds the state if needed
        for i in range(n):
            if not (rates.f64[i] >= 0.0):
                return 1
        for i in range(n):
            put(out, i, draw_poisson(state, rates.f64[i]))
        return 0

    return poisson


def make_leaks(kind: str) -> NativeFunction:
    """`leaks(state, out, n, x, low, high)`: a float64 uniform of [low, high) where x <= 0 (drawn only there), 1
    elsewhere.

    These are the slopes of the randomised leaky rectifier.
    """
    P = f64 if kind == "f64" else f32

    @native("void(ptr, ptr, i64, ptr, f64, f64)", name=f"rl_leaks_{kind}")
    def leaks(state, out, n, x, low, high):
        take(state, state, 0)  # seeds the state if needed
        for i in range(n):
            if load(P, x, i) <= P(0.0):
                store(P, out, i, P(draw_unit(state) * (high - low) + low))
            else:
                store(P, out, i, P(1.0))

    return leaks


@native("f64(f64)", inline=True)
def stirling_tail(k):
    """The error of Stirling's formula for log(k!), for a whole k."""
    if k >= 10.0:
        square = (k + 1.0) * (k + 1.0)
        return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0) / square) / square) / (k + 1.0)
    low = select(k < 1.0, 0.0810614667953272, select(k < 2.0, 0.0413406959554092, 0.0276779256849983))
    low = select(k < 3.0, low, select(k < 4.0, 0.02079067210376509, 0.0166446911898211))
    high = select(k < 6.0, 0.0138761288230707, select(k < 7.0, 0.0118967099458917, 0.0104112652619720))
    high = select(k < 8.0, high, select(k < 9.0, 0.00925546218271273, 0.00833056343336287))
    return select(k < 5.0, low, high)


def make_binomial(kind: str) -> NativeFunction:
    """`binomial(state, out, n, counts, p)`: successes in counts[i] trials of probability p[i]; both in the dtype of the
    result.

    Below ten expected successes: the sum of trials until the next success.  Otherwise: Hoermann's transformed rejection
    (BTRS).  The parameters are computed in the dtype itself, the rest in float64, the mixture that PyTorch uses.
    """
    P = f64 if kind == "f64" else f32
    log1p_of = log1p if P is f64 else extern("log1pf", "f32(f32)")

    @native(f"{kind}(ptr, {kind}, {kind})", name=f"rl_binomial_few_{kind}")
    def few(state, count, p):
        log_failure = f64(log1p_of(-p))
        trials = 0.0
        successes = P(0.0)
        while True:
            trials += ceil(log(draw_unit(state)) / log_failure)
            if trials > f64(count):
                return successes
            successes += P(1.0)
        return successes

    @native(f"{kind}(ptr, {kind}, {kind})", name=f"rl_binomial_many_{kind}")
    def many(state, count, p):
        n = f64(count)
        spread = f64(sqrt(count * p * (P(1.0) - p)))
        b = 1.15 + 2.53 * spread
        a = -0.0873 + 0.0248 * b + 0.01 * f64(p)
        c = f64(count * p) + 0.5
        accept = 0.92 - 4.2 / b
        odds = f64(p / (P(1.0) - p))
        alpha = (2.83 + 5.1 / b) * spread
        mode = f64(floor((count + P(1.0)) * p))
        while True:
            u = draw_unit(state) - 0.5
            v = draw_unit(state)
            us = 0.5 - abs(u)
            k = P(floor((2.0 * a / us + b) * u + c))
            if k >= P(0.0) and k <= count:
                if us >= 0.07 and v <= accept:
                    return k
                rest = f64(count - k + P(1.0))
                bound = (mode + 0.5) * log((mode + 1.0) / (odds * (n - mode + 1.0)))
                bound = bound + f64(count + P(1.0)) * log((n - mode + 1.0) / rest)
                bound = bound + (f64(k) + 0.5) * log(odds * rest / f64(k + P(1.0)))
                bound = (
                    bound
                    + stirling_tail(mode)
                    + stirling_tail(n - mode)
                    - stirling_tail(f64(k))
                    - stirling_tail(f64(count - k))
                )
                if log(v * alpha / (a / (us * us) + b)) <= bound:
                    return k
        return P(0.0)

    @native("void(ptr, ptr, i64, ptr, ptr)", name=f"rl_binomial_{kind}")
    def binomial(state, out, n, counts, chances):
        take(state, state, 0)  # seeds the state if needed
        for i in range(n):
            count = load(P, counts, i)
            p = load(P, chances, i)
            successes = P(0.0)
            if count > P(0.0) and p > P(0.0):
                q = p
                if p > P(0.5):
                    q = P(1.0 - f64(p))
                if p >= P(1.0):
                    successes = count
                elif f64(count * q) >= 10.0:
                    successes = many(state, count, q)
                else:
                    successes = few(state, count, q)
                if p > P(0.5) and p < P(1.0):
                    successes = count - successes
            store(P, out, i, successes)

    return binomial


def make_gamma(kind: str) -> NativeFunction:
    """`gamma(state, out, n, shapes, smallest)`: gamma numbers of rate 1 for shapes in the dtype of the result, at least
    `smallest`.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); a shape below 1 is raised by 1 and the
    number multiplied by a power of a uniform one.  Shapes are prepared in the dtype itself, with float32 constants, the
    mixture that PyTorch uses.
    """
    P = f64 if kind == "f64" else f32
    third = 0.3333333432674408  # the float32 nearest to 1/3

    @native(f"f64(ptr, {kind})", name=f"rl_gamma_one_{kind}")
    def one(state, shape):
        scale = 1.0
        alpha = shape
        if shape < P(1.0):
            if shape == P(0.0):
                return 0.0
            scale = power(1.0 - draw_unit(state), f64(P(1.0) / shape))
            alpha = shape + P(1.0)
        d = f64(alpha - P(third))
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = draw_normal(state)
            y = 1.0 + c * x
            while y <= 0.0:
                x = draw_normal(state)
                y = 1.0 + c * x
            v = y * y * y
            u = 1.0 - draw_unit(state)
            square = x * x
            if u < 1.0 - 0.033100001513957977 * square * square:
                return scale * d * v
            if log(u) < 0.5 * square + d * (1.0 - v + log(v)):
                return scale * d * v
        return 0.0

    @native("void(ptr, ptr, i64, ptr, f64)", name=f"rl_gamma_{kind}")
    def gamma(state, out, n, shapes, smallest):
        take(state, state, 0)  # seeds the state if needed
        for i in range(n):
            number = P(one(state, load(P, shapes, i)))
            store(P, out, i, select(number > P(smallest), number, P(smallest)))

    return gamma
