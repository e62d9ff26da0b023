"""Choices by weights, permutations, and what is checked of probabilities."""

from __future__ import annotations

import math

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._backends.cuda.random.fill import Drawn
from rushlight._backends.cuda.random.philox import Stream, uniform, uniform_double, words
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import BOOL, FLOAT64, INT32, INT64, UINT64, DType

__all__ = [
    "BLOCK",
    "choice_launch",
    "leaks_launch",
    "multinomial_launch",
    "outside_launch",
    "status_launch",
    "words_launch",
]

BLOCK = 256


def _drawn(b: TermBuilder, key: tuple[Term, Term], subsequence: Term, dtype: DType) -> Term:
    """One uniform number in (0, 1] of each subsequence (int64); `key` is the seed and the block."""
    seed, block = key
    four = words(b, seed, subsequence.to(UINT64), block)
    return uniform_double(four[0], four[1]) if dtype is FLOAT64 else uniform(four[0])


def outside_launch(p: Memory, dtype: DType, flags: Memory, count: int) -> Launch:
    """For each `BLOCK` elements how many are not in [0, 1]: int32."""
    arguments = Arguments()
    source, to = arguments.pointer(p, "p", dtype), arguments.pointer(flags, "flags", INT32)
    n = arguments.number(count, INT64, "count")
    b = arguments.builder(f"outside_unit_{dtype.abbr}")
    place = b.program(0).to(INT64) * BLOCK + b.index(BLOCK).to(INT64)
    x = (arguments.term(b, source) + place).load(place < arguments.term(b, n, INT64), 0.0)
    good = (x >= 0.0) & (x <= 1.0)
    (arguments.term(b, to) + b.program(0)).store(b.total((~good).to(INT32), 0))
    return Launch(arguments.finish(b), (-(-count // BLOCK),), arguments.values)


def status_launch(p: Memory, dtype: DType, status: Memory, rows: int, categories: int) -> Launch:
    """For each row of weights 0, 1 where one is negative, infinite or NaN, 2 where none is positive: int32."""
    arguments = Arguments()
    source, to = arguments.pointer(p, "p", dtype), arguments.pointer(status, "status", INT32)
    n = arguments.integer(categories, "categories")
    b = arguments.builder(f"weights_status_{dtype.abbr}")
    many = arguments.term(b, n)
    base = arguments.term(b, source) + b.program(0).to(INT64) * many.to(INT64)

    def step(start: Term, bad: Term, some: Term) -> list[Term]:
        place = start + b.index(BLOCK)
        x = (base + place).load(place < many, 0.0)
        return [bad | (x < 0.0) | (x - x).differs(0.0), some | (x > 0.0)]

    bad, some = b.loop(0, many, BLOCK, [b.number(False, BOOL, (BLOCK,))] * 2, step)
    found = b.where(b.total(bad, 0), 1, b.where(b.total(some, 0), b.number(0, INT32), 2))
    (arguments.term(b, to) + b.program(0)).store(found)
    return Launch(arguments.finish(b), (rows,), arguments.values)


def choice_launch(out: Memory, p: Memory, dtype: DType, rows: int, categories: int, stream: Stream) -> Drawn:
    """One index for each row: the first maximum of the weight by an exponential number, that which `exponential_` gives
    the element.
    """
    arguments = Arguments()
    source, to = arguments.pointer(p, "p", dtype), arguments.pointer(out, "out", INT64)
    n, state = arguments.integer(categories, "categories"), stream.parameters(arguments)
    b = arguments.builder(f"choice_{dtype.abbr}")
    key, many = stream.terms(b, arguments, state), arguments.term(b, n)
    first = b.program(0).to(INT64) * many.to(INT64)
    half = 2.0**-53 if dtype is FLOAT64 else 2.0**-24

    def step(start: Term, best: Term, index: Term) -> list[Term]:
        place = start + b.index(BLOCK)
        inside = place < many
        weight = (arguments.term(b, source) + (first + place.to(INT64))).load(inside, 0.0)
        u = _drawn(b, key, first + place.to(INT64), dtype)
        score = weight / -b.where(u >= 1 - half, -half, b.apply("log", u))
        better = inside & (score > best)
        return [b.where(better, score, best), b.where(better, place, index)]

    begin = [b.number(-math.inf, dtype, (BLOCK,)), b.number(0, INT32, (BLOCK,))]
    best, index = b.loop(0, many, BLOCK, begin, step)
    top = b.largest(best, 0)
    found = -b.largest(b.where(best.equals(top), -index, -(2**31) + 1), 0)
    (arguments.term(b, to) + b.program(0)).store(found.to(INT64))
    return Drawn(Launch(arguments.finish(b), (rows,), arguments.values), 4)


_SAMPLES = 64


def multinomial_launch(
    out: Memory, p: Memory, dtype: DType, rows: int, categories: int, samples: int, stream: Stream
) -> Drawn:
    """Indices [rows, samples]: the first category whose running sum is not below a uniform number times the total."""
    arguments = Arguments()
    source, to = arguments.pointer(p, "p", dtype), arguments.pointer(out, "out", INT64)
    n, m = arguments.integer(categories, "categories"), arguments.integer(samples, "samples")
    pieces = -(-samples // _SAMPLES)
    of_row = arguments.integer(pieces, "pieces")
    state = stream.parameters(arguments)
    b = arguments.builder(f"multinomial_{dtype.abbr}")
    key, many, drawn = stream.terms(b, arguments, state), arguments.term(b, n), arguments.term(b, m)
    each = arguments.term(b, of_row)
    row = (b.program(0) // each).to(INT64)
    sample = b.program(0) % each * _SAMPLES + b.index(_SAMPLES)
    base = arguments.term(b, source) + row * many.to(INT64)

    def weights(start: Term) -> Term:
        place = start + b.index(BLOCK)
        return (base + place).load(place < many, 0.0).to(FLOAT64)

    (total,) = b.loop(0, many, BLOCK, [b.number(0, FLOAT64)], lambda start, t: [t + b.total(weights(start), 0)])
    u = _drawn(b, key, row * drawn.to(INT64) + sample.to(INT64), FLOAT64)
    target = u * total

    def step(start: Term, before: Term, passed: Term) -> list[Term]:
        sums = before + b.prefixes(weights(start), 0)
        below = (sums[None, :] < target[:, None]).to(INT32)
        return [b.largest(sums, 0), passed + b.total(below, 1)]

    _, index = b.loop(0, many, BLOCK, [b.number(0, FLOAT64), b.number(0, INT32, (_SAMPLES,))], step)
    index = index.least(many - 1)
    (arguments.term(b, to) + (row * drawn.to(INT64) + sample.to(INT64))).store(index.to(INT64), sample < drawn)
    return Drawn(Launch(arguments.finish(b), (rows * pieces,), arguments.values), 4)


def leaks_launch(out: Memory, x: Memory, dtype: DType, count: int, low: float, high: float, stream: Stream) -> Drawn:
    """Slopes: uniform in [low, high) for x <= 0, else 1."""
    arguments = Arguments()
    source, to = arguments.pointer(x, "x", dtype), arguments.pointer(out, "out", dtype)
    n, state = arguments.number(count, INT64, "count"), stream.parameters(arguments)
    bounds = [arguments.number(v, dtype, k) for v, k in ((low, "low"), (high, "high"))]
    b = arguments.builder(f"leaks_{dtype.abbr}")
    place = b.program(0).to(INT64) * BLOCK + b.index(BLOCK).to(INT64)
    inside = place < arguments.term(b, n, INT64)
    key, (least, most) = stream.terms(b, arguments, state), (arguments.term(b, v) for v in bounds)
    u = _drawn(b, key, place, dtype)
    slope = (most - u * (most - least)).greatest(least)
    value = (arguments.term(b, source) + place).load(inside, 0.0)
    (arguments.term(b, to) + place).store(b.where(value <= 0.0, slope, 1.0), inside)
    return Drawn(Launch(arguments.finish(b), (-(-count // BLOCK),), arguments.values), 4)


def words_launch(out: Memory, count: int, stream: Stream) -> Drawn:
    """64 bits for each element: keys whose order is a permutation."""
    arguments = Arguments()
    to, n = arguments.pointer(out, "out", UINT64), arguments.number(count, INT64, "count")
    state = stream.parameters(arguments)
    b = arguments.builder("words")
    place = b.program(0).to(INT64) * BLOCK + b.index(BLOCK).to(INT64)
    seed, block = stream.terms(b, arguments, state)
    four = words(b, seed, place.to(UINT64), block)
    value = (four[0].to(UINT64) << 32) | four[1].to(UINT64)
    (arguments.term(b, to) + place).store(value, place < arguments.term(b, n, INT64))
    return Drawn(Launch(arguments.finish(b), (-(-count // BLOCK),), arguments.values), 4)
