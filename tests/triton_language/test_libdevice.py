"""libdevice's conversions, bits, integers and formulas beside Python's integers and `math`."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl
from rushlight.triton.language.extra import libdevice

N = 64
RANDOM = np.random.default_rng(0)
INTS = RANDOM.integers(-(2**31), 2**31, N).astype(np.int32)
INTS[:4] = [0, -1, 1, -(2**31)]
OTHERS = RANDOM.integers(-(2**31), 2**31, N).astype(np.int32)
FLOATS = (RANDOM.normal(size=N) * 10.0 ** RANDOM.integers(-3, 12, N)).astype(np.float32)
FLOATS[:7] = [0.5, 1.5, -0.5, -2.5, np.inf, -np.inf, np.nan]


def ran(kernel: object, rows: int, dtype: object, *arrays: np.ndarray) -> np.ndarray:
    out = torch.empty(rows, N, dtype=dtype)
    kernel[(1,)](*map(torch.from_numpy, arrays), out, N=N)  # type: ignore[index]
    return out.numpy()


@triton.jit
def conversions(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out + i, libdevice.float2int_rn(v))
    tl.store(out + N + i, libdevice.float2int_rd(v))
    tl.store(out + 2 * N + i, libdevice.float2int_ru(v))
    tl.store(out + 3 * N + i, libdevice.float2int_rz(v))
    tl.store(out + 4 * N + i, libdevice.float2ll_rd(v))
    tl.store(out + 5 * N + i, libdevice.float2uint_rz(v))
    tl.store(out + 6 * N + i, libdevice.float_as_int(v))


def test_floats_as_integers() -> None:
    """What does not fit becomes the nearest that does, NaN 0."""

    def whole(of: object, low: int, high: int) -> list[int]:
        def one(x: float) -> int:
            if not math.isfinite(x):
                return 0 if x != x else high if x > 0 else low
            return max(low, min(high, int(of(x))))  # type: ignore[operator]

        return [one(float(x)) for x in FLOATS]

    narrow, wide = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
    ways = [(round, *narrow), (math.floor, *narrow), (math.ceil, *narrow), (math.trunc, *narrow), (math.floor, *wide)]
    expected = [whole(*way) for way in ways] + [whole(math.trunc, 0, 2**32 - 1), list(FLOATS.view(np.int32))]
    assert ran(conversions, 7, torch.int64, FLOATS).tolist() == np.array(expected).tolist()


@triton.jit
def bits(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, libdevice.popc(a))
    tl.store(out + N + i, libdevice.clz(a))
    tl.store(out + 2 * N + i, libdevice.ffs(a))
    tl.store(out + 3 * N + i, libdevice.brev(a).to(tl.uint32, bitcast=True))
    tl.store(out + 4 * N + i, libdevice.mulhi(a, b))
    tl.store(out + 5 * N + i, libdevice.hadd(a, b))
    tl.store(out + 6 * N + i, libdevice.rhadd(a, b))
    tl.store(out + 7 * N + i, libdevice.byte_perm(a, b, 0x3074).to(tl.uint32, bitcast=True))


def test_bits_and_integers() -> None:
    pairs = [(int(a), int(b), int(a) & 0xFFFFFFFF, int(b) & 0xFFFFFFFF) for a, b in zip(INTS, OTHERS, strict=True)]
    expected = [
        [u.bit_count() for _, _, u, _ in pairs],
        [32 - u.bit_length() for _, _, u, _ in pairs],
        [(u & -u).bit_length() for _, _, u, _ in pairs],
        [int(f"{u:032b}"[::-1], 2) for _, _, u, _ in pairs],
        [a * b >> 32 for a, b, _, _ in pairs],
        [a + b >> 1 for a, b, _, _ in pairs],
        [a + b + 1 >> 1 for a, b, _, _ in pairs],
        [int.from_bytes([v & 255, v >> 24, u & 255, u >> 24], "little") for _, _, u, v in pairs],
    ]
    assert ran(bits, 8, torch.int64, INTS, OTHERS).tolist() == expected


@triton.jit
def formulas(x, y, n, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, k = tl.load(x + i), tl.load(y + i), tl.load(n + i)
    tl.store(out + i, libdevice.remainder(a, b))
    tl.store(out + N + i, libdevice.ldexp(a, k))
    tl.store(out + 2 * N + i, libdevice.ilogb(a).to(tl.float64))
    tl.store(out + 3 * N + i, libdevice.fdim(a, b))
    tl.store(out + 4 * N + i, libdevice.tgamma(b))
    tl.store(out + 5 * N + i, libdevice.erfcx(b))
    tl.store(out + 6 * N + i, libdevice.sinpi(b))
    tl.store(out + 7 * N + i, libdevice.norm3d(a * 1e200, b * 1e200, a * 1e200))


def test_formulas() -> None:
    x, y = RANDOM.normal(size=N) * 10, np.abs(RANDOM.normal(size=N)) + 0.1
    x[:6], y[:6] = [1, 3, 5, -1, -3, 7], 2
    n = RANDOM.integers(-1090, 1000, N).astype(np.int32)
    found = ran(formulas, 8, torch.float64, x, y, n)
    pairs = [*zip(map(float, x), map(float, y), map(int, n), strict=True)]
    exact = [
        [math.remainder(a, b) for a, b, _ in pairs],
        [math.ldexp(a, k) for a, _, k in pairs],
        [math.frexp(a)[1] - 1 for a, _, _ in pairs],
        [max(a - b, 0.0) for a, b, _ in pairs],
    ]
    assert found[:4].tolist() == exact
    near = [
        [math.gamma(b) for _, b, _ in pairs],
        [math.exp(b * b) * math.erfc(b) for _, b, _ in pairs],
        [math.sin(math.pi * b) for _, b, _ in pairs],
        [math.hypot(a, b, a) * 1e200 for a, b, _ in pairs],
    ]
    np.testing.assert_allclose(found[4:], near, rtol=1e-13, atol=1e-14)


def test_what_is_not_there_says_so() -> None:
    @triton.jit
    def kernel(x):
        tl.store(x, libdevice.add_rz(tl.load(x), 1.0))

    with pytest.raises(triton.CompilationError, match=r"libdevice\.add_rz is not there"):
        kernel[(1,)](torch.ones(1))
