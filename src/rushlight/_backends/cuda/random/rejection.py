"""Distributions whose elements take as many words as they need: Poisson, binomial and gamma numbers.

Element i draws from subsequence i; turn t of its loop from subsequence i + (t + 1) 2**40, so the offset of the stream
grows by one block whatever the elements take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._backends.cuda.random.fill import Drawn
from rushlight._backends.cuda.random.philox import Stream, normal_double, uniform_double, words
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import FLOAT64, INT32, INT64, UINT64, DType

__all__ = ["binomial_launch", "gamma_launch", "poisson_launch"]

_BLOCK = 128
_FEW = 10.0  # expected events, below which they are counted one by one


class _Elements:
    """The elements of a program: where they are, and what they draw."""

    def __init__(self, name: str, out: Memory, dtype: DType, count: int, stream: Stream) -> None:
        self.arguments, self.name, self.count = Arguments(), f"{name}_{dtype.abbr}", count
        self.to = self.arguments.pointer(out, "out", dtype)
        self.n = self.arguments.number(count, INT64, "count")
        self.stream, self.state = stream, stream.parameters(self.arguments)

    def source(self, memory: Memory, name: str, dtype: DType) -> int:
        return self.arguments.pointer(memory, name, dtype)

    def begin(self) -> TermBuilder:
        b = self.b = self.arguments.builder(self.name)
        self.place = b.program(0).to(INT64) * _BLOCK + b.index(_BLOCK).to(INT64)
        self.inside = self.place < self.arguments.term(b, self.n, INT64)
        self.key = self.stream.terms(b, self.arguments, self.state)
        return b

    def loaded(self, number: int, otherwise: float) -> Term:
        pointer = self.arguments.term(self.b, number) + self.place
        return pointer.load(self.inside, otherwise).to(FLOAT64)

    def drawn(self, turn: Any) -> tuple[Term, Term, Term, Term]:
        """The words of a turn: a number, or a scalar int32."""
        seed, block = self.key
        shift = (turn.to(UINT64) << 40) if isinstance(turn, Term) else turn << 40
        return words(self.b, seed, self.place.to(UINT64) + shift, block)

    def uniforms(self, turn: Any) -> tuple[Term, Term]:
        four = self.drawn(turn)
        return uniform_double(four[0], four[1]), uniform_double(four[2], four[3])

    def until_all(self, values: Sequence[Term], step: Callable[..., tuple[Term, Sequence[Term]]]) -> list[Term]:
        """`step(turn, *values)` gives which elements are done, and new values; those that are done keep theirs."""
        b = self.b

        def turn_of(turn: Term, done: Term, *before: Term) -> list[Term]:
            now, after = step(turn, *before)
            kept = [b.where(done, old, new) for old, new in zip(before, after, strict=True)]
            return [turn + 1, done | now, *kept]

        more = lambda turn, done, *rest: b.total(~done, 0)
        return b.repeat([b.number(1, INT32), ~self.inside, *values], more, turn_of)[2:]

    def finish(self, value: Term) -> Drawn:
        (self.arguments.term(self.b, self.to) + self.place).store(value, self.inside)
        grid = (-(-self.count // _BLOCK),)
        return Drawn(Launch(self.arguments.finish(self.b), grid, self.arguments.values), 4)


def poisson_launch(out: Memory, dtype: DType, rates: Memory, count: int, stream: Stream) -> Drawn:
    """Counts for rates (float64): products of uniform numbers below a few events, else Hoermann's transformed rejection
    (PTRS, 1993).
    """
    e = _Elements("poisson", out, dtype, count, stream)
    given = e.source(rates, "rates", FLOAT64)
    b = e.begin()
    rate = e.loaded(given, 0.0)
    few, limit = rate < _FEW, b.apply("exp", -rate)
    many = b.where(few, _FEW, rate)
    logarithm = b.apply("log", many)
    slope = b.apply("sqrt", many) * 2.53 + 0.931
    a = slope * 0.02483 - 0.059
    scale = 1.1239 + 1.1328 / (slope - 3.4)
    bound = 0.9277 - 3.6224 / (slope - 2.0)

    def step(turn: Term, events: Term, product: Term) -> tuple[Term, list[Term]]:
        u, v = e.uniforms(turn)
        product = product * u
        over = product <= limit
        centred = u - 0.5
        width = 0.5 - b.apply("abs", centred)
        k = b.apply("floor", (a * 2.0 / width + slope) * centred + many + 0.43)
        sure = (width >= 0.07) & (v <= bound)
        never = (k < 0.0) | ((width < 0.013) & (v > width))
        left = b.apply("log", v) + b.apply("log", scale) - b.apply("log", a / (width * width) + slope)
        right = k * logarithm - many - b.apply("lgamma", k + 1.0)
        taken = sure | (~never & (left <= right))
        counted = b.where(over, events, events + 1.0)
        return b.where(few, over, taken), [b.where(few, counted, k), product]

    zero, one = b.number(0, FLOAT64, (_BLOCK,)), b.number(1, FLOAT64, (_BLOCK,))
    return e.finish(e.until_all([zero, one], step)[0])


def gamma_launch(out: Memory, dtype: DType, shapes: Memory, count: int, smallest: float, stream: Stream) -> Drawn:
    """Numbers of rate 1 (Marsaglia, Tsang, "A simple method for generating gamma variables", 2000)."""
    e = _Elements("gamma", out, dtype, count, stream)
    given = e.source(shapes, "shapes", dtype)
    least = e.arguments.number(smallest, FLOAT64, "smallest")
    b = e.begin()
    shape = e.loaded(given, 1.0)
    low = shape < 1.0
    boost = b.where(low, b.apply("pow", e.uniforms(0)[0], 1.0 / shape), 1.0)
    d = b.where(low, shape + 1.0, shape) - 1.0 / 3.0
    c = 1.0 / b.apply("sqrt", d * 9.0)

    def step(turn: Term, found: Term) -> tuple[Term, list[Term]]:
        x, _ = normal_double(b, e.drawn(turn * 2 - 1))
        u, _ = e.uniforms(turn * 2)
        root = c * x + 1.0
        v = root * root * root
        positive = root > 0.0
        square = x * x
        safe = b.where(positive, v, 1.0)
        taken = (u < 1.0 - square * square * 0.0331) | (
            b.apply("log", u) < square * 0.5 + d * (1.0 - safe + b.apply("log", safe))
        )
        return positive & taken, [d * safe]

    (value,) = e.until_all([b.number(1, FLOAT64, (_BLOCK,))], step)
    return e.finish((value * boost).greatest(e.arguments.term(b, least)))


def binomial_launch(out: Memory, dtype: DType, counts: Memory, chances: Memory, count: int, stream: Stream) -> Drawn:
    """Successes in so many trials: the sum of trials until the next success where few are expected, else Hoermann's
    transformed rejection (BTRS, 1993).
    """
    e = _Elements("binomial", out, dtype, count, stream)
    of_counts, of_chances = e.source(counts, "counts", dtype), e.source(chances, "chances", dtype)
    b = e.begin()
    n, given = e.loaded(of_counts, 0.0), e.loaded(of_chances, 0.5)
    turned = given > 0.5
    p = b.where(turned, 1.0 - given, given)
    some = (p > 0.0) & (n > 0.0)
    few = (n * p < _FEW) | ~some
    p_few, n_many, p_many = b.where(some, p, 0.5), b.where(few, 100.0, n), b.where(few, 0.5, p)
    failure = b.apply("log1p", -p_few)
    odds = p_many / (1.0 - p_many)
    spread = b.apply("sqrt", n_many * p_many * (1.0 - p_many))
    slope = spread * 2.53 + 1.15
    a = slope * 0.0248 - 0.0873 + p_many * 0.01
    centre, bound = n_many * p_many + 0.5, 0.92 - 4.2 / slope
    alpha = (2.83 + 5.1 / slope) * spread
    middle = b.apply("floor", (n_many + 1.0) * p_many)
    fixed = b.apply("lgamma", middle + 1.0) + b.apply("lgamma", n_many - middle + 1.0)

    def step(turn: Term, successes: Term, trials: Term) -> tuple[Term, list[Term]]:
        u, v = e.uniforms(turn)
        trials = trials + b.apply("ceil", b.apply("log", u) / failure).greatest(1.0)
        over = (trials > n) | ~some
        centred = u - 0.5
        width = 0.5 - b.apply("abs", centred)
        k = b.apply("floor", (a * 2.0 / width + slope) * centred + centre)
        inside = (k >= 0.0) & (k <= n_many)
        safe = b.where(inside, k, middle)
        sure = (width >= 0.07) & (v <= bound)
        left = b.apply("log", v * alpha / (a / (width * width) + slope))
        right = fixed - b.apply("lgamma", safe + 1.0) - b.apply("lgamma", n_many - safe + 1.0)
        right = right + (safe - middle) * b.apply("log", odds)
        counted = b.where(over, successes, successes + 1.0)
        done = b.where(few, over, inside & (sure | (left <= right)))
        return done, [b.where(few, counted, safe), trials]

    zero = b.number(0, FLOAT64, (_BLOCK,))
    found = e.until_all([zero, zero], step)[0]
    found = b.where(some, found, 0.0)
    return e.finish(b.where(turned, n - found, found))
