"""Conversions between every pair of dtypes, bit casts, and the 16-bit floats."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.scalar_harness import FEATURES, run

import rushlight as torch

NAMES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip


def fitting(source, target):
    """Values of `source` that `target` can hold, so that NumPy says what they become."""
    values = np.array([0, 1, 2, 3, 100, 127, -1, -100, -128, 255, 65504, -32768, 2**31 - 1, -(2**31), 2**40, 2**62 + 1])
    for name in (source, target):
        if name == "bool":
            continue
        if name in ("float32", "complex64"):
            values = values[values != 2**31 - 1]  # these would round up, out of the integer's range
            values = values[values != 2**62 + 1]
        if name[0] in "iu":
            info = np.iinfo(name)
            values = values[(values >= info.min) & (values <= min(info.max, 2**63 - 1))]
        elif name == "float16":
            values = values[np.abs(values) <= 65504]
    return values.astype(source)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("source", NAMES)
def test_every_pair(source, features):
    for target in NAMES:
        x = fitting(source, target)
        expected = (x.real if source[0] == "c" and target[0] != "c" and target != "bool" else x).astype(target)
        got = run("convert", x, out=target, features=features)
        np.testing.assert_array_equal(got, expected, err_msg=f"{source} to {target}")


def test_integers_wrap():
    x = np.array([300, -1, 2**31, 2**33 + 5, -(2**40) - 3], "int64")
    for target in ("uint8", "int8", "int16", "uint16", "int32", "uint32"):
        np.testing.assert_array_equal(run("convert", x, out=target), x.astype(target))


def test_floats_out_of_range():
    """What x86 gives, and PyTorch therefore: the smallest 32- or 64-bit integer, cut down."""
    x = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 3e9, -3e9, 300.7, -300.7, -1.5], "float32")
    low32, low64 = -(2**31), -(2**63)
    expected = {
        "int64": [low64, low64, low64, low64, low64, 3000000000, -3000000000, 300, -300, -1],
        "int32": [low32] * 7 + [300, -300, -1],
        "int16": [0] * 7 + [300, -300, -1],
        "int8": [0] * 7 + [44, -44, -1],
        "uint8": [0, 0, 0, 0, 0, 3000000000 % 256, -3000000000 % 256, 44, 212, 255],
        "uint32": [2**31, 0, 2**31, 0, 2**31, 3000000000, 2**31, 300, 2**32 - 300, 2**32 - 1],
        "uint64": [2**63, 0, 2**63, 0, 2**63, 3000000000, 2**64 - 3000000000, 300, 2**64 - 300, 2**64 - 1],
    }
    for target, values in expected.items():
        np.testing.assert_array_equal(run("convert", x, out=target), np.array(values, target), err_msg=target)
    assert run("convert", x, out="bool").all()


def test_bool_is_not_zero():
    x = np.array([0.0, -0.0, np.nan, 1e-45, -2], "float32")
    assert run("convert", x, out="bool").tolist() == [False, False, True, True, True]
    z = np.array([0, 1j, 1, complex(0, np.nan)], "complex64")
    assert run("convert", z, out="bool").tolist() == [False, True, True, True]


@pytest.mark.parametrize("features", FEATURES)
def test_bfloat16_rounds_to_nearest_even(features):
    """Every bfloat16 pattern survives the round trip; halfway cases go to the even neighbour; NaN stays NaN."""
    bits = np.arange(65536, dtype=np.uint16)
    wide = (bits.astype(np.uint32) << 16).view("float32")
    names = {"in_names": ("bfloat16",), "features": features}
    np.testing.assert_array_equal(run("convert", bits, out="float32", **names), wide)
    back = run("convert", wide, out="bfloat16", features=features)
    numbers = ~np.isnan(wide)
    np.testing.assert_array_equal(back[numbers], bits[numbers])
    assert (back[~numbers] == 0x7FC0).all()
    half = (bits[:0x7F7F].astype(np.int64) << 16) + 0x8000
    even = bits[:0x7F7F] + (bits[:0x7F7F] & 1)
    for delta, expected in ((-1, bits[:0x7F7F]), (0, even), (1, bits[:0x7F7F] + 1)):
        x = (half + delta).astype(np.uint32).view("float32")
        np.testing.assert_array_equal(run("convert", x, out="bfloat16", features=features), expected)


@pytest.mark.parametrize("features", FEATURES)
def test_float16_is_ieee(features):
    bits = np.arange(65536, dtype=np.uint16)
    halves = bits.view("float16")
    np.testing.assert_array_equal(run("convert", halves, out="float32", features=features), halves.astype("float32"))
    rng = np.random.default_rng(2)
    x = np.concatenate(
        [rng.normal(0, 1, 5000) * 10.0 ** rng.uniform(-9, 6, 5000), [65519, 65520, 1e-8, -0.0, np.inf, np.nan]]
    )
    x = x.astype("float32")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run("convert", x, out="float16", features=features), x.astype("float16"))


def test_arithmetic_on_16_bit_floats_rounds_once():
    x = np.random.default_rng(0).normal(0, 1, 500).astype("float16")
    np.testing.assert_array_equal(run("mul", x, x), x * x)
    np.testing.assert_array_equal(run("lt", x, x[::-1], out="bool"), x < x[::-1])


def test_bitcast():
    x = np.array([1.0, -2.5, np.nan, 0], "float32")
    np.testing.assert_array_equal(run("bitcast", x, out="int32"), x.view("int32"))
    np.testing.assert_array_equal(run("bitcast", x.view("uint32"), out="float32"), x)
    z = np.array([1 + 2j, -3j], "complex64")
    np.testing.assert_array_equal(run("bitcast", z, out="int64"), z.view("int64"))
    np.testing.assert_array_equal(run("bitcast", z.view("float64"), out="complex64"), z)
    np.testing.assert_array_equal(run("bitcast", np.array([True, False]), out="uint8"), [1, 0])
    with pytest.raises(NotImplementedError, match="sizes differ"):
        run("bitcast", x, out="int64")


@pytest.mark.oracle
def test_against_pytorch():
    torch = pytest.importorskip("torch")
    values = [
        0.0,
        -0.0,
        0.5,
        -1.5,
        np.inf,
        -np.inf,
        np.nan,
        1e-8,
        65519,
        65520,
        1e10,
        -1e10,
        3e38,
        2.0**63,
        300.7,
        -300.7,
        128,
    ]
    for source in (*NAMES, "bfloat16"):
        if source[0] in "iu":
            every = torch.tensor([0, 1, 5, 127, 128, 255, 2**31, 2**62 + 3, -1, -129]).to(getattr(torch, source))
        else:
            every = torch.tensor(values, dtype=torch.float64).to(getattr(torch, source))
        for target in (*NAMES, "bfloat16"):
            x = every
            if target == "uint32" and source[0] in "fc":
                x = x[x.abs() < 2**31]  # beyond, PyTorch's result depends on the strides
            real = x.real if x.is_complex() and target[0] != "c" and target != "bool" else x
            expected = real.to(getattr(torch, target))
            plain = [(t.view(torch.uint16) if t.dtype is torch.bfloat16 else t).numpy() for t in (x, expected)]
            got = run("convert", plain[0], out=target, in_names=(source,))
            if target == "bfloat16":
                got = torch.from_numpy(got).view(torch.bfloat16).float().numpy()
                plain[1] = expected.float().numpy()
            np.testing.assert_array_equal(got, plain[1], err_msg=f"{source} to {target}")


def test_bfloat16_that_need_not_be_rounded():
    """Changes of sign and choices give one of the operands, bit by bit; of a NaN they give a NaN."""
    every = np.arange(1 << 16, dtype=np.uint16)
    x = torch.from_numpy(every.view(np.int16).copy()).view(torch.bfloat16)
    values = (every.astype(np.uint32) << 16).view(np.float32)
    turned = np.random.default_rng(0).permutation(1 << 16)
    y = x[torch.from_numpy(turned)]
    other = values[turned]
    cases = {
        "neg": (-x, -values), "abs": (x.abs(), np.abs(values)), "relu": (x.relu(), np.where(values < 0, np.float32(0), values)),
        "maximum": (torch.maximum(x, y), np.maximum(values, other)), "clamp": (x.clamp(-1, 1), np.clip(values, -1, 1)),
        "copysign": (torch.copysign(x, y), np.copysign(values, other)), "scaled": (x.abs() * 0.3, None),
    }  # fmt: skip
    for name, (made, expected) in cases.items():
        if expected is None:  # what is computed is rounded
            assert np.array_equal(
                made.float().numpy(), (x.abs().float() * 0.3).bfloat16().float().numpy(), equal_nan=True
            )
            continue
        found = made.view(torch.int16).numpy().view(np.uint16)
        nan = np.isnan(expected)
        assert np.isnan(made.float().numpy()[nan]).all(), name
        same = found[~nan] == (expected.view(np.uint32) >> 16).astype(np.uint16)[~nan]
        assert (same | (expected[~nan] == 0)).all(), name  # which of two zeros is chosen is not said


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_sign_of_narrow_numbers_is_one_bit(dtype):
    """Nothing else changes, of NaN and the smallest numbers either, wherever the numbers come from and go to."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = torch.from_numpy(bits.view(np.int16).copy()).view(dtype)
    for made, expected in (
        (-x, bits ^ 0x8000), (x.abs(), bits & 0x7FFF), (-x.view(256, 256).t(), (bits ^ 0x8000).reshape(256, 256).T), (-x[::3], bits[::3] ^ 0x8000),
        (x.clone().neg_(), bits ^ 0x8000), (x.neg().abs(), bits & 0x7FFF),
    ):  # fmt: skip
        np.testing.assert_array_equal(made.contiguous().view(torch.int16).numpy().view(np.uint16), expected)
    y = torch.arange(64.0).sub(32).to(dtype).requires_grad_()
    (slope,) = torch.autograd.grad((-y.abs()).sum(), y)
    np.testing.assert_array_equal(slope.float().numpy(), -np.sign(y.detach().float().numpy()))
