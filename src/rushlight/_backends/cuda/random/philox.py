"""Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) in block kernels.

A stream is a seed, the key, and for each *subsequence* (a thread of PyTorch's kernels) a counter of blocks of four
words.  `words` gives block `offset / 4` of a subsequence, as cuRAND's `curand_init(seed, subsequence, offset)` and
`curand4` do.

Numbers come from words as cuRAND makes them: uniform ones in (0, 1], normal ones by Box and Muller.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.program.steps import Launch, Memory
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import FLOAT32, FLOAT64, UINT32, UINT64

__all__ = ["Stream", "in_order", "normal_double", "normal_pair", "state_launch", "uniform", "uniform_double", "words"]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_TO_UNIT, _TO_UNIT_DOUBLE = 2.0**-32, 2.0**-53
_TO_TURN = float.fromhex("0x1.921fb6p-30")  # 2 pi / 2**32 in float32, as cuRAND has it

Four = tuple[Term, Term, Term, Term]
STATE_BYTES = 16


class Stream(NamedTuple):
    """Where a draw begins: a seed and an offset; with a `state`, the seed and a first block of four words that lie there
    when the kernel runs, and the offset counts from that block on.
    """

    seed: int
    offset: int
    state: Memory | None = None

    def parameters(self, arguments: Arguments) -> tuple[int, int]:
        """Two parameters more of a kernel, for `terms`."""
        if self.state is not None:
            first = arguments.pointer(self.state, "state", UINT64)
        else:
            first = arguments.number(_signed(self.seed), UINT64, "seed")
        return first, arguments.number(_signed(self.offset // 4), UINT64, "block")

    def terms(self, b: TermBuilder, arguments: Arguments, parameters: tuple[int, int]) -> tuple[Term, Term]:
        """The seed and the block in a kernel."""
        first, block = (arguments.term(b, n, UINT64) for n in parameters)
        return (first, block) if self.state is None else (first.load(), (first + 1).load() + block)


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def state_launch(state: Memory, stream: Stream) -> Launch:
    """Writes a stream's seed and block where the kernels of a graph look for them."""
    arguments = Arguments()
    to = arguments.pointer(state, "state", UINT64)
    given = stream.parameters(arguments)
    b = arguments.builder("random_state")
    for place, term in enumerate(stream.terms(b, arguments, given)):
        (arguments.term(b, to) + place).store(term)
    return Launch(arguments.finish(b), (1,), arguments.values)


def words(b: TermBuilder, seed: Term, subsequence: Term, block: Term) -> Four:
    """Four uint32 of each subsequence (uint64): `block` (uint64) is the offset divided by 4; `seed` is a scalar uint64."""
    shape = subsequence.shape
    low, high = (_half(x.spread(shape), upper) for x in (block,) for upper in (False, True))
    place, above = _half(subsequence, False), _half(subsequence, True)
    counter = [low, high, place, above]
    keys = [_half(seed, False), _half(seed, True)]
    for turn in range(_ROUNDS):
        if turn:
            keys = [key + step for key, step in zip(keys, _STEPS, strict=True)]
        counter = _round(b, counter, keys)
    return counter[0], counter[1], counter[2], counter[3]


def _half(x: Term, upper: bool) -> Term:
    """The upper or the lower 32 bits of a uint64."""
    return ((x >> 32) if upper else (x & 0xFFFFFFFF)).to(UINT32)


def _round(b: TermBuilder, counter: list[Term], keys: list[Term]) -> list[Term]:
    parts = []
    for word, factor in ((counter[0], _MULTIPLIERS[0]), (counter[2], _MULTIPLIERS[1])):
        by = b.number(factor, UINT32, word.shape)
        parts.append((Term(b, b.value("multiply_high", word.value, by.value)), word * by))
    (high0, low0), (high1, low1) = parts
    return [high1 ^ counter[1] ^ keys[0], low1, high0 ^ counter[3] ^ keys[1], low0]


def in_order(b: TermBuilder, four: Four) -> Term:
    """Four tiles [..., n] as one [..., 4 n], element by element."""
    first, second, third, fourth = four
    joined = b.paired(b.paired(first, third), b.paired(second, fourth))
    *lead, n = first.shape
    return joined.reshape(*lead, 4 * n)


# ***** numbers *****


def uniform(word: Term) -> Term:
    """float32 in (0, 1] of a word."""
    return word.to(FLOAT32) * _TO_UNIT + _TO_UNIT / 2


def uniform_double(first: Term, second: Term) -> Term:
    """float64 in (0, 1] of two words."""
    bits = first.to(UINT64) ^ (second.to(UINT64) << 21)
    return bits.to(FLOAT64) * _TO_UNIT_DOUBLE + _TO_UNIT_DOUBLE / 2


def normal_pair(b: TermBuilder, first: Term, second: Term) -> tuple[Term, Term]:
    """Two normal float32 of two words."""
    u = uniform(first)
    angle = b.apply("fma", second.to(FLOAT32), *_numbers(b, second, _TO_TURN, _TO_TURN / 2))
    radius = b.apply("sqrt", b.apply("log", u) * -2.0)
    return b.apply("sin", angle) * radius, b.apply("cos", angle) * radius


def normal_double(b: TermBuilder, four: Four) -> tuple[Term, Term]:
    """Two normal float64 of four words."""
    u = uniform_double(four[0], four[1])
    turn = (four[2].to(UINT64) ^ (four[3].to(UINT64) << 21)).to(FLOAT64) * (2 * _TO_UNIT_DOUBLE) + _TO_UNIT_DOUBLE
    radius = b.apply("sqrt", b.apply("log", u) * -2.0)
    angle = turn * math.pi
    return b.apply("sin", angle) * radius, b.apply("cos", angle) * radius


def _numbers(b: TermBuilder, like: Term, *values: float) -> list[Term]:
    return [b.number(value, FLOAT32, like.shape) for value in values]
