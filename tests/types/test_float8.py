"""Floats of eight bits and complex32: every code, casts from and to all dtypes, against stored digests of PyTorch's bits and PyTorch itself."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight._prims.numbers import stored
from rushlight._types.dtype import BY_NAME
from rushlight._types.float8 import FORMATS, decode, encode, values

DIGESTS = json.loads((Path(__file__).parent.parent / "data" / "float8.json").read_text())
SOURCES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "complex64")
BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def sample() -> np.ndarray:
    """Floats of all magnitudes, the halfway points of every format, and what is special; made without a generator, so that it never changes."""
    steps = (np.arange(60000, dtype=np.uint64) * 71585).astype(np.uint32).view(np.float32)
    halves = [np.convolve(sorted(v for v in values(name) if math.isfinite(v)), [0.5, 0.5], "valid") for name in FORMATS]
    small = np.sin(np.arange(20000.0)) * 10.0 ** (np.arange(20000) % 13 - 6)
    special = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        448.0,
        464.0,
        465.0,
        240.0,
        248.0,
        57344.0,
        61440.0,
        1e-40,
        -1e-40,
    ]
    with np.errstate(all="ignore"):
        return np.concatenate(
            [np.where(np.isnan(steps), np.float32(math.nan), steps), *halves, *(-h for h in halves), small, special]
        ).astype(np.float32)


def sample_for(source: str) -> np.ndarray:
    """What has a defined value in the dtype `source`."""
    x = sample()
    if source[0] in "fc":
        return x
    x = np.clip(np.nan_to_num(x), -1e6, 1e6)
    return x if source[0] == "i" else np.abs(np.sin(x)) * np.float32(200)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def to_bits(module, x, source: str, target: str) -> np.ndarray:
    """The bits of `x`, cast to `source` and on to `target`."""
    numbers = module.from_numpy(x).to(getattr(module, source)).to(getattr(module, target))
    return numbers.view(getattr(module, BITS[numbers.element_size()])).numpy()


def from_codes(module, name: str, target: str) -> np.ndarray:
    """All 256 codes cast to `target`, NaN by one pattern (an integer has none: those codes are left out)."""
    codes = module.arange(256, dtype=module.uint8).view(getattr(module, name))
    known = np.array([not math.isnan(v) for v in values(name)])
    found = codes.to(getattr(module, target))
    if found.dtype in (module.bfloat16, module.complex32):
        found = found.to(module.complex64 if found.is_complex() else module.float32)
    with np.errstate(all="ignore"):
        return np.where(known, found.numpy(), 0)


CASES = [(name, source) for name in (*FORMATS, "complex32") for source in SOURCES]


@pytest.mark.parametrize(("name", "source"), CASES, ids=lambda v: v)
def test_casts_have_pytorchs_bits(name: str, source: str) -> None:
    assert digest(to_bits(torch, sample_for(source), source, name)) == DIGESTS["to"][f"{source} {name}"]
    if name != "complex32":
        assert digest(from_codes(torch, name, source)) == DIGESTS["from"][f"{name} {source}"]


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "source"), CASES, ids=lambda v: v)
def test_casts_beside_pytorch(name: str, source: str) -> None:
    theirs = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal(50000).astype(np.float32) * np.float32(10.0) ** np.arange(
        -6, 4
    ).repeat(5000).astype(np.float32)
    x = np.abs(x) % 256 if source == "uint8" else x
    np.testing.assert_array_equal(to_bits(torch, x, source, name), to_bits(theirs, x, source, name))
    if name != "complex32":
        np.testing.assert_array_equal(from_codes(torch, name, source), from_codes(theirs, name, source))


@pytest.mark.parametrize("name", FORMATS)
def test_the_code_is_the_nearest_number(name: str) -> None:
    """Against a search among all numbers of the format."""
    finite = {v: c for c, v in reversed(list(enumerate(values(name)))) if math.isfinite(v)}
    grid = np.array(sorted(finite))
    x = [float(v) for v in sample()[::97] if math.isfinite(v) and grid[0] <= v <= grid[-1]]
    for v in x:
        near = grid[np.argsort(np.abs(grid - v))[:2]]
        chosen = decode(name, encode(name, v))
        assert abs(chosen - v) == min(abs(near - v)) or name == "float8_e8m0fnu"
    np.testing.assert_array_equal(
        stored(np.array(x, "float32"), BY_NAME[name]), [decode(name, encode(name, v)) for v in x]
    )
    assert all(decode(name, encode(name, v)) == v for v in finite)


def test_what_float8_can_do() -> None:
    x = torch.tensor([1.0, 2.3, 500.0, -1.5], dtype=torch.float8_e4m3fn)
    assert repr(x) == "tensor([  1.0000,   2.2500, 448.0000,  -1.5000], dtype=torch.float8_e4m3fn)"
    assert (
        x.element_size() == 1
        and x.tolist() == [1.0, 2.25, 448.0, -1.5]
        and x[1].item() == 2.25
        and x.type() == "torch.Float8_e4m3fnTensor"
    )
    assert (x == x).all() and x.abs()[3].item() == 1.5 and not x.isnan().any()
    assert torch.cat([x, x])[4:].float().equal(x.float()) and x[torch.tensor([2, 0])].tolist() == [448.0, 1.0]
    assert torch.where(x == 1.0, x, torch.zeros_like(x)).tolist() == [1.0, 0.0, 0.0, 0.0] and x.view(2, 2).T[
        0
    ].tolist() == [1.0, 448.0]
    x.fill_(3.3)
    x[0] = 7
    assert x.tolist() == [7.0, 3.25, 3.25, 3.25] and torch.ones(2, 2, dtype=torch.float8_e5m2).mm(
        torch.ones(2, 2, dtype=torch.float8_e5m2)
    ).tolist()[0] == [2.0, 2.0]
    with pytest.raises(NotImplementedError, match="\"add\" not implemented for 'Float8_e4m3fn'"):
        x + x
    with pytest.raises(NotImplementedError, match="\"sum\" not implemented for 'Float8_e4m3fn'"):
        x.sum()
    with pytest.raises(
        RuntimeError, match="Promotion for Float8 Types is not supported, attempted to promote Float8_e4m3fn and Float"
    ):
        x + torch.ones(4)
    with pytest.raises(TypeError, match="Got unsupported ScalarType Float8_e4m3fn"):
        x.numpy()


def test_float8_in_a_graph() -> None:
    w = torch.tensor([1.0, 2.3], requires_grad=True)
    (w.to(torch.float8_e5m2).to(torch.float32) * torch.tensor([1.0, 3.0])).sum().backward()
    assert w.grad.tolist() == [1.0, 3.0]


def test_complex32() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.chalf)
    assert (
        repr(z) == "tensor([1.+2.j, 3.-4.j], dtype=torch.complex32)"
        and z.element_size() == 4
        and z.tolist() == [1 + 2j, 3 - 4j]
    )
    assert z.real.dtype is torch.float16 and z.abs().dtype is torch.float16 and z.abs()[1].item() == 5.0
    for made in (z + z, z * z, z - 1, z.conj_physical(), z.cumsum(0), -z, z.sum(), torch.stack([z, z]), z.mean()):
        assert made.dtype is torch.complex32
        assert made.shape == () or torch.view_as_complex(torch.view_as_real(made)).equal(made)
    assert (z * z).tolist() == [-3 + 4j, -7 - 24j] and z.sum().item() == 4 - 2j
    assert torch.index_fill(z, 0, torch.tensor([1]), 1j).tolist() == [1 + 2j, 1j]
    w = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    w.chalf().abs().sum().float().backward()
    assert w.grad.dtype is torch.complex64 and (w.grad.abs() - 1).abs().max() < 1e-2


@pytest.mark.parametrize("name", ["uint4", "int3", "bits8", "bits16", "float4_e2m1fn_x2"])
def test_bits_are_kept_and_moved(name: str) -> None:
    dtype = getattr(torch, name)
    x = torch.tensor([1, 2, 3, 4], dtype=torch.uint8).view(dtype)
    assert (
        torch.cat([x, x]).view(torch.uint8).tolist() == [1, 2, 3, 4] * 2
        and torch.empty(2, 3, dtype=dtype).element_size() == dtype.itemsize
    )
    assert repr(torch.empty(0, dtype=dtype)) == f"tensor([], dtype=torch.{name})" and x[1:].numel() == x.numel() - 1
    for call in (
        lambda: x + x,
        lambda: x.float(),
        lambda: torch.ones(2).to(dtype),
        lambda: x[0].item(),
        lambda: x.sum(),
        lambda: torch.ones(2, dtype=dtype),
    ):
        with pytest.raises(NotImplementedError, match=f"not implemented for '{dtype.scalar}'"):
            call()


def test_equal_ones_are_close_without_a_tolerance() -> None:
    x = torch.tensor([1.0, 2.0, float("nan")]).to(torch.float8_e4m3fn)
    y = torch.tensor([1.0, 2.5, float("nan")]).to(torch.float8_e4m3fn)
    assert torch.isclose(x, y, rtol=0, atol=0).tolist() == [True, False, False]
    assert torch.isclose(x, y, rtol=0, atol=0, equal_nan=True).tolist() == [True, False, True]
    with pytest.raises(NotImplementedError, match="Float8_e4m3fn"):
        torch.isclose(x, y)
