"""Random numbers by Philox 4x32 (or 4x64), with Triton's sequence: a function of a seed and of offsets."""

from __future__ import annotations

from typing import Any

from .ambient import builtin
from .arithmetic import cast, maximum, where
from .dtypes import BY_TRITON_NAME
from .mathematics import cos, log, sin, sqrt, umulhi
from .shapes import zeros_like
from .values import constant, tensor, to_tensor

__all__ = [
    "pair_uniform_to_normal", "philox", "philox_impl", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "uint_to_uniform_float",
]  # fmt: skip

ROUNDS = 10
# For a word size: what the key grows by, and the two multipliers of a round.
_CONSTANTS = {
    32: ((0x9E3779B9, 0xBB67AE85), (0xD2511F53, 0xCD9E8D57)),
    64: ((0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B), (0xD2E7470EE14C6C93, 0xCA5A826395121157)),
}
_INT32, _INT64, _UINT32, _UINT64 = (BY_TRITON_NAME[n] for n in ("int32", "int64", "uint32", "uint64"))


@builtin
def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: int = ROUNDS) -> tuple[tensor, ...]:
    """`n_rounds` rounds of Philox on a counter of four unsigned words with a key of two."""
    if c0.dtype not in (_UINT32, _UINT64):
        raise ValueError("dtype not supported in philox_impl")
    (grow0, grow1), (a, b) = _CONSTANTS[c0.dtype.int_bitwidth]
    for _ in range(n_rounds):
        left, right = c0, c2
        c0 = umulhi(b, right) ^ c1 ^ k0
        c2 = umulhi(a, left) ^ c3 ^ k1
        c1, c3 = right * b, left * a
        k0, k1 = k0 + grow0, k1 + grow1
    return c0, c1, c2, c3


@builtin
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: int = ROUNDS) -> tuple[tensor, ...]:
    """The four words for a seed and a counter of four words."""
    seed = to_tensor(seed)
    if not seed.dtype.is_int():
        raise ValueError(f"the seed is an integer, not {seed.dtype}")
    seed = cast(seed, _UINT64)
    counter = [to_tensor(c) for c in (c0, c1, c2, c3)]
    bits = counter[0].dtype.primitive_bitwidth
    if bits not in _CONSTANTS:
        raise ValueError("bitwidth not supported in philox")
    word = _UINT32 if bits == 32 else _UINT64
    if bits == 32:
        low, high = cast(seed & 0xFFFFFFFF, word), cast((seed >> 32) & 0xFFFFFFFF, word)
    else:
        low, high = seed, constant(0, word, (1,))
    return philox_impl(*(cast(c, word, bitcast=True) for c in counter), low, high, n_rounds)


@builtin
def randint4x(seed: Any, offset: Any, n_rounds: int = ROUNDS) -> tuple[tensor, ...]:
    """Four blocks of random uint32 for a seed and a block of offsets."""
    offset = to_tensor(offset)
    low = cast(offset, _UINT32)
    zero = zeros_like(low)
    high = cast(offset >> 32, _UINT32) if offset.dtype.primitive_bitwidth > 32 else zero
    return philox(seed, low, high, zero, zero, n_rounds)


@builtin
def randint(seed: Any, offset: Any, n_rounds: int = ROUNDS) -> tensor:
    """A block of random uint32."""
    return randint4x(seed, offset, n_rounds)[0]


@builtin
def uint_to_uniform_float(x: tensor) -> tensor:
    """Random words as float32 in [0, 1)."""
    narrow = x.dtype.int_bitwidth == 32
    word = cast(x, _INT32 if narrow else _INT64, bitcast=True)
    scale = 4.6566127342e-10 if narrow else 1.0842020432385337e-19
    return where(word < 0, ~word, word) * scale


@builtin
def rand(seed: Any, offset: Any, n_rounds: int = ROUNDS) -> tensor:
    """A block of float32, uniform in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@builtin
def rand4x(seed: Any, offsets: Any, n_rounds: int = ROUNDS) -> tuple[tensor, ...]:
    """Four blocks as those of `rand`."""
    return tuple(uint_to_uniform_float(word) for word in randint4x(seed, offsets, n_rounds))


@builtin
def pair_uniform_to_normal(u1: Any, u2: Any) -> tuple[tensor, tensor]:
    """Two normal numbers of two uniform ones (Box and Muller)."""
    u1 = maximum(1.0e-7, u1)
    angle = 6.283185307179586 * u2
    radius = sqrt(-2.0 * log(u1))
    return radius * cos(angle), radius * sin(angle)


@builtin
def randn(seed: Any, offset: Any, n_rounds: int = ROUNDS) -> tensor:
    """A block of float32 of the normal distribution."""
    first, second = (uint_to_uniform_float(word) for word in randint4x(seed, offset, n_rounds)[:2])
    return pair_uniform_to_normal(first, second)[0]


@builtin
def randn4x(seed: Any, offset: Any, n_rounds: int = ROUNDS) -> tuple[tensor, ...]:
    """Four blocks as those of `randn`."""
    u = rand4x(seed, offset, n_rounds)
    return (*pair_uniform_to_normal(u[0], u[1]), *pair_uniform_to_normal(u[2], u[3]))
