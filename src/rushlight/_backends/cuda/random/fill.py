"""Kernels that fill memory with numbers of a distribution, in the sequence of PyTorch's CUDA kernels.

A stream is a seed and an offset.  PyTorch gives the elements to threads, at most `_BLOCKS` blocks of 256 on a card with
132 multiprocessors, and each thread draws four words at a time from its own subsequence: element e belongs to thread e
mod T, with T the number of threads.  Here T is that of such a card, whatever the card is: so numbers do not depend on
it, and equal PyTorch's on every card for up to T = 270,336 elements, and for all sizes on an H100 or H200.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._backends.cuda.random.philox import Stream, normal_double, normal_pair, uniform, uniform_double, words
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import FLOAT32, FLOAT64, INT64, UINT8, UINT16, UINT32, UINT64, DType

__all__ = ["DISTRIBUTIONS", "Drawn", "fill_launch", "each_launch"]

_THREADS = 256  # of a block of PyTorch's kernels
_BLOCKS = 132 * 2048 // _THREADS
_BITS = {1: UINT8, 2: UINT16, 4: UINT32, 8: UINT64}

Four = tuple[Term, Term, Term, Term]
Numbers = Callable[[TermBuilder, Four, DType, Sequence[Term]], Sequence[Term]]


class Drawn(NamedTuple):
    """A launch, and by how much the offset of the stream grows."""

    launch: Launch
    offset: int


class Distribution(NamedTuple):
    """`numbers(b, words, dtype, parameters)` gives the elements of four words; parameters have these dtypes, of which
    None is that of the arithmetic.
    """

    numbers: Numbers
    parameters: tuple[DType | None, ...]


# ***** distributions *****


def _uniforms(b: TermBuilder, four: Four, dtype: DType) -> list[Term]:
    """In (0, 1], in the dtype of the arithmetic: four, or two of float64."""
    if dtype is FLOAT64:
        return [uniform_double(four[0], four[1]), uniform_double(four[2], four[3])]
    return [uniform(word) for word in four]


def _normals(b: TermBuilder, four: Four, dtype: DType) -> list[Term]:
    if dtype is FLOAT64:
        return list(normal_double(b, four))
    return [*normal_pair(b, four[0], four[1]), *normal_pair(b, four[2], four[3])]


def _fma(b: TermBuilder, x: Term, factor: Term, more: Term) -> Term:
    return b.apply("fma", x, factor.spread(x.shape), more.spread(x.shape))


def _uniform(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """In [low, high)."""
    low, high = parameters
    span, made = (high - low), []
    for u in _uniforms(b, four, dtype.wide):
        value = _fma(b, u, span, low).to(dtype).to(dtype.wide)
        made.append(b.where(value.equals(high.to(dtype).to(dtype.wide)), low, value))
    return made


def _normal(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    mean, std = parameters
    return [_fma(b, z, std, mean) for z in _normals(b, four, dtype.wide)]


def _log_normal(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    return [b.apply("exp", z) for z in _normal(b, four, dtype, parameters)]


def _epsilon(dtype: DType) -> float:
    return 2.0**-52 if dtype is FLOAT64 else 2.0**-23


def _exponential(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """The first parameter is -1 / rate."""
    half, made = _epsilon(dtype.wide) / 2, []
    for u in _uniforms(b, four, dtype.wide):
        made.append(b.where(u >= 1 - half, -half, b.apply("log", u)) * parameters[0])
    return made


def _cauchy(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    median, sigma = parameters
    made = []
    for u in _uniforms(b, four, dtype.wide):
        if dtype.wide is FLOAT32:
            u = u.least(1 - _epsilon(FLOAT32)).greatest(_epsilon(FLOAT32))
        made.append(_fma(b, b.apply("tan", (u - 0.5) * math.pi), sigma, median))
    return made


def _geometric(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """The first parameter is log(1 - p)."""
    wide = _arithmetic(dtype)
    return [b.apply("ceil", b.apply("log", u) / parameters[0]) for u in _uniforms(b, four, wide)]


def _bernoulli(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """A pattern of bits with probability p, else zeros."""
    p, pattern = parameters
    drawn = _uniforms(b, four, FLOAT64 if dtype.itemsize == 8 else FLOAT32)
    one = pattern.to(dtype)
    return [b.where(u < p.to(u.dtype), one, 0) for u in drawn]


def _integers(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """From a base on, of a range below 2**32 by one word."""
    span, base = parameters
    return [(word.to(UINT64) % span).bits(INT64) + base for word in four]


def _long_words(four: Four) -> list[Term]:
    return [(high.to(UINT64) << 32) | low.to(UINT64) for high, low in (four[:2], four[2:])]


def _long_integers(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """The same by two words."""
    span, base = parameters
    return [(word % span).bits(INT64) + base for word in _long_words(four)]


def _all_integers(b: TermBuilder, four: Four, dtype: DType, parameters: Sequence[Term]) -> list[Term]:
    """All 64 bits."""
    return [word.bits(INT64) for word in _long_words(four)]


def _arithmetic(dtype: DType) -> DType:
    return dtype.wide if dtype.kind == "f" else FLOAT64 if dtype.itemsize == 8 else FLOAT32


_REAL = (None, None)
DISTRIBUTIONS = {
    "uniform": Distribution(_uniform, _REAL),
    "normal": Distribution(_normal, _REAL),
    "normal_serial": Distribution(_normal, _REAL),
    "log_normal": Distribution(_log_normal, _REAL),
    "exponential": Distribution(_exponential, _REAL),
    "cauchy": Distribution(_cauchy, _REAL),
    "geometric": Distribution(_geometric, _REAL),
    "bernoulli": Distribution(_bernoulli, (FLOAT64, INT64)),
    "integers": Distribution(_integers, (UINT64, INT64)),
    "long_integers": Distribution(_long_integers, (UINT64, INT64)),
    "all_integers": Distribution(_all_integers, (UINT64, INT64)),
}


# ***** launches *****


def _stored(b: TermBuilder, value: Term, dtype: DType) -> Term:
    """A number in the dtype of the memory: floats from integers, integers from floats."""
    return value if value.dtype is dtype else value.to(dtype)


def fill_launch(name: str, dtype: DType, out: Memory, count: int, stream: Stream, parameters: Sequence[float]) -> Drawn:
    """Fills `count` elements; `dtype` is the element type (of bits for `bernoulli`)."""
    kind = DISTRIBUTIONS[name]
    pairs = name in ("long_integers", "all_integers") or (
        name != "integers" and (dtype.itemsize == 8 if name in ("bernoulli", "geometric") else dtype is FLOAT64)
    )
    each = 2 if pairs else 4
    blocks = min(-(-count // _THREADS), _BLOCKS)
    threads = blocks * _THREADS
    turns = (count - 1) // (threads * each) + 1
    arguments = Arguments()
    to = arguments.pointer(out, "out", dtype)
    numbers = [arguments.number(v, t, n) for v, t, n in ((count, INT64, "count"), (threads, INT64, "threads"))]
    state = stream.parameters(arguments)
    real = _arithmetic(dtype)
    given = [
        arguments.number(v, t or real, f"p{k}")
        for k, (v, t) in enumerate(zip(parameters, kind.parameters, strict=False))
    ]
    b = arguments.builder(f"{name}_{dtype.abbr}")
    many, stride = (arguments.term(b, n, INT64) for n in numbers)
    seed, block = stream.terms(b, arguments, state)
    thread = b.program(0).to(INT64) * _THREADS + b.index(_THREADS).to(INT64)
    turn = b.program(1).to(INT64)
    four = words(b, seed, thread.to(UINT64), block + turn.to(UINT64))
    values = kind.numbers(b, four, dtype, [arguments.term(b, p) for p in given])
    for k, value in enumerate(values):
        place = thread + stride * (turn * each + k)
        (arguments.term(b, to) + place).store(_stored(b, value.spread((_THREADS,)), dtype), place < many)
    return Drawn(Launch(arguments.finish(b), (blocks, turns), arguments.values), 4 * turns)


def each_launch(
    dtype: DType, probabilities: DType, out: Memory, p: Memory, count: int, stream: Stream, pattern: int
) -> Drawn:
    """The pattern of bits with the probability of each element: a thread draws four words for four neighbours."""
    arguments = Arguments()
    to, source = arguments.pointer(out, "out", dtype), arguments.pointer(p, "p", probabilities)
    n_count = arguments.number(count, INT64, "count")
    state = stream.parameters(arguments)
    one = arguments.number(pattern, INT64, "pattern")
    b = arguments.builder(f"bernoulli_each_{dtype.abbr}_{probabilities.abbr}")
    many = arguments.term(b, n_count, INT64)
    seed, block = stream.terms(b, arguments, state)
    thread = b.program(0).to(INT64) * _THREADS + b.index(_THREADS).to(INT64)
    for k, word in enumerate(words(b, seed, thread.to(UINT64), block)):
        place = thread * 4 + k
        inside = place < many
        chance = (arguments.term(b, source) + place).load(inside, 0.0).to(FLOAT32)
        value = b.where(uniform(word) <= chance, arguments.term(b, one).to(dtype), 0)
        (arguments.term(b, to) + place).store(value, inside)
    return Drawn(Launch(arguments.finish(b), (-(-count // (4 * _THREADS)),), arguments.values), 12)
