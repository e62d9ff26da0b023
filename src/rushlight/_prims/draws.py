"""Random numbers: primitives that draw from a stream.

A stream is the state of PyTorch's CPU generator in the format of `get_state`, uint8[5056]: the words of a Mersenne
twister, and possibly a cached normal number.  The references draw from it with NumPy's twister.  The words that an
element takes, and their order, are part of the definition: integers, Bernoulli and uniform numbers are the engine's to
the last bit, normal and exponential ones up to the rounding of logarithm, sine and cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims.numbers import holder, stored
from rushlight._prims.record import PRIMITIVES, Aval, Effect, EffectPrimitive
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import BOOL, FLOAT16, FLOAT32, FLOAT64, INT64, UINT8, DType
from rushlight._types.layout import numel

__all__ = ["STREAM", "seeded"]

STREAM_SIZE = 5056
STREAM: Aval = ((STREAM_SIZE,), UINT8)  # shape and dtype of a stream
_WORDS = 624
_WORDS_AT, _NORMAL, _NORMAL_VALID = 3, 628, 1260  # in elements of 8, 8 and 4 bytes
_BLOCK = 16  # size of the groups of normal numbers


def seeded(seed: int) -> Any:
    """The stream that starts from `seed`, as an array."""
    state = np.zeros(STREAM_SIZE, dtype=np.uint8)
    state.view(np.uint64)[0] = seed % 2**64
    word = seed % 2**32
    words = state.view(np.uint64)[_WORDS_AT : _WORDS_AT + _WORDS]
    words[0] = word
    for j in range(1, _WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + j) % 2**32
        words[j] = word
    state.view(np.uint32)[2:4] = 1  # one word is left before the next block; the words are there
    return state


class _Stream:
    """The draws from a stream: works on a copy of a state."""

    __slots__ = ("state",)

    def __init__(self, state: Any) -> None:
        self.state = np.array(state)

    def words(self, count: int) -> Any:
        """The next words, as uint64."""
        shorts, longs = self.state.view(np.uint32), self.state.view(np.uint64)
        if not count:
            return np.zeros(0, dtype=np.uint64)
        twister = np.random.MT19937()
        held = longs[_WORDS_AT : _WORDS_AT + _WORDS]
        at = _WORDS if shorts[2] == 1 else int(longs[2])
        twister.state = {"bit_generator": "MT19937", "state": {"key": held.astype(np.uint32), "pos": at}}
        drawn = twister.random_raw(count)
        after = twister.state["state"]
        held[:] = after["key"]
        longs[2], shorts[2] = after["pos"], _WORDS + 1 - after["pos"]
        return drawn

    def pairs(self, count: int) -> Any:
        """Numbers of 64 bits; the first word is the upper half."""
        words = self.words(2 * count)
        return (words[0::2] << np.uint64(32)) | words[1::2]

    def units(self, count: int, dtype: DType) -> Any:
        """Uniform numbers in [0, 1): of 53 bits for float64, of 24 for the others; in an array of float64."""
        if dtype is FLOAT64:
            return (self.pairs(count) & np.uint64(2**53 - 1)) * 2.0**-53
        return (self.words(count) & np.uint64(2**24 - 1)) * 2.0**-24

    def normal(self) -> float:
        """One normal number; they come in pairs, and the second is cached."""
        flags, doubles = self.state.view(np.uint32), self.state.view(np.float64)
        if flags[_NORMAL_VALID]:
            flags[_NORMAL_VALID] = 0
            waiting = float(doubles[_NORMAL])
            doubles[_NORMAL] = 0.0
            return waiting
        angle = 2 * math.pi * self.units(1, FLOAT64)[0]
        radius = math.sqrt(-2.0 * math.log1p(-self.units(1, FLOAT64)[0]))
        doubles[_NORMAL], flags[_NORMAL_VALID] = radius * math.sin(angle), 1
        return radius * math.cos(angle)


# ***** the distributions *****


def _uniform(stream: _Stream, count: int, dtype: DType, low: float, high: float) -> Any:
    units, span = stream.units(count, dtype), np.full(count, high - low)
    drawn = stored(PRIMITIVES["fma"].reference(units, span, np.full(count, low)), dtype)
    return np.where(drawn == stored(high, dtype), stored(low, dtype), drawn)


def _normal(stream: _Stream, count: int, dtype: DType, mean: float, std: float, serial: bool) -> Any:
    if serial or count < _BLOCK:
        return np.array([stream.normal() * std + mean for _ in range(count)])
    rest = count % _BLOCK
    drawn = np.empty(count)
    drawn[: count - rest] = stream.units(count - rest, dtype)
    blocks = [drawn[: count - rest]]
    if rest:  # the last 16 numbers are drawn once more
        if dtype in (FLOAT32, FLOAT64):
            stream.units(rest, dtype)
        last = stream.units(_BLOCK, dtype)
        blocks.append(last)
    for block in blocks:
        a, b = np.moveaxis(block.reshape(-1, 2, _BLOCK // 2), 1, 0)
        radius, angle = np.sqrt(-2.0 * np.log(1.0 - a)), 2 * math.pi * b
        a[:], b[:] = radius * np.cos(angle) * std + mean, radius * np.sin(angle) * std + mean
    if rest:
        drawn[-_BLOCK:] = last
    return drawn


def _exponential(stream: _Stream, count: int, dtype: DType, rate: float) -> Any:
    return -1.0 / rate * np.log1p(-stream.units(count, FLOAT64))


def _bernoulli(stream: _Stream, count: int, dtype: DType, p: float, value: float) -> Any:
    return np.where(stream.units(count, FLOAT64) < p, value, 0)


def _integers(stream: _Stream, count: int, dtype: DType, low: int, high: int) -> Any:
    span = high - low
    if span < 2**28:
        return stream.words(count).astype(np.int64) % span + low
    words = stream.pairs(count)
    return ((words if span >= 2**64 else words % np.uint64(span)) + np.uint64(low % 2**64)).astype(np.int64)


def _permutation(stream: _Stream, count: int, dtype: DType) -> Any:
    order = np.arange(count)
    if count < (2**32 - 1) // 20:
        for i, word in enumerate(stream.words(max(count - 1, 0)).tolist()):
            j = i + word % (count - i)
            order[i], order[j] = order[j], order[i]
        return order
    for i, word in enumerate(stream.pairs(count).tolist()):
        j = word % (i + 1)
        order[i], order[j] = order[j], i
    return order


# ***** the records *****


def _check(name: str, stream: Any, shape: Sequence[int], dtype: DType, kinds: str) -> None:
    if (tuple(stream.shape), stream.dtype) != STREAM:
        raise TypeError(f"prim.{name} takes a stream first, uint8[{STREAM_SIZE}]")
    if not isinstance(shape, tuple) or any(not isinstance(s, int) or s < 0 for s in shape):
        raise ValueError(f"prim.{name} takes a tuple of sizes >= 0, got {shape!r}")
    if dtype.kind not in kinds:
        raise TypeError(f"prim.{name} does not draw {dtype.name}")


def _no_vjp(cts: Any, outs: Any, *xs: Any, **params: Any) -> tuple[Any, ...]:
    return (None,) * len(xs)


def _no_jvp(tangents: Any, outs: Any, *xs: Any, **params: Any) -> tuple[Any, Any]:
    return None, None


def _batch(name: str) -> Callable[..., Any]:
    """One draw for all items of a batch: the transform `batch` has set the shape."""

    def rule(batched: Sequence[bool], stream: Any, *xs: Any, **params: Any) -> Any:
        raise RuntimeError(f"prim.{name} cannot be batched by its operands: a stream is one for all items")

    return rule


def _draw(
    name: str,
    doc: str,
    params: tuple[str, ...],
    kinds: str,
    make: Callable[..., Any],
    *samples: dict[str, Any],
    check: Callable[..., str] = lambda **p: "",
) -> None:
    """A primitive with the stream as its only operand: `name(stream, shape, dtype, PARAMS)` returns the stream
    afterwards and the numbers.

    `make(stream, count, dtype, PARAMS)` draws in row-major order; `check(PARAMS)` describes an error in them, or
    returns "".
    """

    def spec(stream: Any, shape: tuple[int, ...], dtype: DType, **given: Any) -> list[Aval]:
        _check(name, stream, shape, dtype, kinds)
        if tuple(given) != params:
            raise TypeError(f"prim.{name} takes {', '.join(params)}, got {', '.join(given)}")
        fault = check(shape=shape, **given)
        if fault:
            raise ValueError(f"prim.{name}: {fault}")
        return [STREAM, (shape, dtype)]

    def reference(state: Any, shape: tuple[int, ...], dtype: DType, **given: Any) -> tuple[Any, Any]:
        stream = _Stream(state)
        drawn = make(stream, numel(shape), dtype, **given)
        return stream.state, stored(drawn, dtype).astype(holder(dtype)).reshape(shape)

    def cases() -> Samples:
        for sample in samples:
            yield [seeded(7)], dict(sample)

    EffectPrimitive(
        name,
        doc,
        Effect("draws"),
        family="draw",
        multiple=True,
        spec=spec,
        reference=reference,
        samples=cases,
        vjp=_no_vjp,
        jvp=_no_jvp,
        batch=_batch(name),
    )


def _ordered(low: float, high: float, **rest: Any) -> str:
    return "" if low <= high else f"there is nothing between {low} and {high}"


def _some(low: int, high: int, **rest: Any) -> str:
    return "" if low < high else f"there is no integer from {low} to below {high}"


def _a_chance(p: float, **rest: Any) -> str:
    return "" if 0 <= p <= 1 else f"{p} is no probability"


_draw(
    "draw_uniform", "Uniform numbers in [low, high).", ("low", "high"), "f", _uniform,
    {"shape": (3, 5), "dtype": FLOAT32, "low": 0.0, "high": 1.0}, {"shape": (4,), "dtype": FLOAT64, "low": -1.0, "high": 3.0},
    {"shape": (0, 2), "dtype": FLOAT16, "low": 0.0, "high": 1.0}, check=_ordered,
)  # fmt: skip
_draw(
    "draw_normal", "Normal numbers: in groups of 16 where there are as many and `serial` is not set, else one by one.", ("mean", "std", "serial"), "f",
    _normal, {"shape": (5, 7), "dtype": FLOAT32, "mean": 0.0, "std": 1.0, "serial": False},
    {"shape": (16,), "dtype": FLOAT64, "mean": 2.0, "std": 0.5, "serial": False},
    {"shape": (3,), "dtype": FLOAT32, "mean": 0.0, "std": 1.0, "serial": True},
    check=lambda std, **rest: "" if std >= 0 else f"a standard deviation is not {std}",
)  # fmt: skip
_draw(
    "draw_exponential", "Exponential numbers of density rate * exp(-rate * x).", ("rate",), "f", _exponential,
    {"shape": (6,), "dtype": FLOAT32, "rate": 2.0}, check=lambda rate, **rest: "" if rate > 0 else f"{rate} is no rate",
)  # fmt: skip
_draw(
    "draw_bernoulli", "`value` with probability p, else 0.", ("p", "value"), "buif", _bernoulli,
    {"shape": (3, 5), "dtype": FLOAT32, "p": 0.25, "value": 4.0}, {"shape": (9,), "dtype": BOOL, "p": 0.5, "value": 1.0},
    check=_a_chance,
)  # fmt: skip
_draw(
    "draw_integers", "Integers in [low, high).", ("low", "high"), "uif", _integers,
    {"shape": (3, 5), "dtype": INT64, "low": -3, "high": 9}, {"shape": (4,), "dtype": INT64, "low": 0, "high": 2**40}, check=_some,
)  # fmt: skip
_draw(
    "draw_permutation", "The numbers from 0 to the size of the result's only dim in some order.", (), "uif", _permutation,
    {"shape": (10,), "dtype": INT64}, check=lambda shape, **rest: "" if len(shape) == 1 else f"{list(shape)} is no vector",
)  # fmt: skip


# ***** a probability for each element *****


def _each_spec(stream: Any, p: Any, dtype: DType) -> list[Aval]:
    _check("draw_bernoulli_each", stream, p.shape, dtype, "buif")
    if p.dtype not in (FLOAT32, FLOAT64):
        raise TypeError(f"prim.draw_bernoulli_each takes probabilities of float32 or float64, got {p.dtype.name}")
    return [STREAM, (tuple(p.shape), dtype)]


def _each(state: Any, p: Any, dtype: DType) -> tuple[Any, Any]:
    stream = _Stream(state)
    units = stream.units(p.size, FLOAT64 if p.dtype == np.float64 else FLOAT32)
    return stream.state, stored(units < p.reshape(-1), dtype).astype(holder(dtype)).reshape(p.shape)


def _each_samples() -> Samples:
    yield [seeded(3), floats((3, 5), low=0.0, high=1.0)], {"dtype": FLOAT64}
    yield [seeded(3), floats((4,), low=0.0, high=1.0, dtype="float32")], {"dtype": BOOL}


EffectPrimitive(
    "draw_bernoulli_each", "1 with the probability that p says for each element, else 0.", Effect("draws"), family="draw", multiple=True,
    spec=_each_spec, reference=_each, samples=_each_samples, vjp=_no_vjp, jvp=_no_jvp, batch=_batch("draw_bernoulli_each"),
)  # fmt: skip
