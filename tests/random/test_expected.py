"""The public functions against stored results of real PyTorch, bit for bit; and against PyTorch itself where it is installed."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rushlight

HERE = pathlib.Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())


def load_cases() -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_cases", HERE / "cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = load_cases()


def content(tensor: Any) -> tuple[str, list[int], bytes]:
    """dtype, shape and bytes of a tensor of either library."""
    tensor = tensor.contiguous()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy lacks it: the upper halves of the same numbers in float32
        data = (tensor.float().numpy().view(np.uint32) >> 16).astype(np.uint16).tobytes()
    else:
        data = tensor.numpy().tobytes()
    return str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data


def test_every_case_is_stored() -> None:
    assert list(CASES.CASES) == list(EXPECTED)


@pytest.mark.parametrize("name", CASES.CASES)
def test_stored(name: str) -> None:
    found = [content(t) for t in CASES.tensors(CASES.CASES[name](rushlight))]
    assert len(found) == len(EXPECTED[name])
    for i, ((dtype, shape, data), (want_dtype, want_shape, first, digest)) in enumerate(
        zip(found, EXPECTED[name], strict=True)
    ):
        assert (dtype, shape) == (want_dtype, want_shape), i
        assert data[: len(first) // 2].hex() == first, i
        assert hashlib.sha256(data).hexdigest()[:32] == digest, i


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES.CASES)
def test_live(name: str) -> None:
    """The stored results are what the installed PyTorch answers (on a processor with AVX2, as they were made on)."""
    torch = pytest.importorskip("torch")
    found = [content(t) for t in CASES.tensors(CASES.CASES[name](torch))]
    for (dtype, shape, data), (want_dtype, want_shape, _, digest) in zip(found, EXPECTED[name], strict=True):
        assert (dtype, shape) == (want_dtype, want_shape)
        assert hashlib.sha256(data).hexdigest()[:32] == digest


@pytest.mark.oracle
def test_states_travel() -> None:
    """A state of PyTorch continues here, and one of ours there."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(2**63 + 5)
    torch.rand(700), torch.randn(3)
    state = torch.get_rng_state()
    rushlight.set_rng_state(rushlight.from_numpy(state.numpy()))
    assert rushlight.get_rng_state().numpy().tobytes() == state.numpy().tobytes()
    for draw in ("t.randn(5)", "t.rand(1000)", "t.randn(1000)", "t.randn(1)"):
        name, n = draw[2:-1].split("(")
        assert getattr(rushlight, name)(int(n)).numpy().tobytes() == getattr(torch, name)(int(n)).numpy().tobytes()
    torch.set_rng_state(torch.from_numpy(rushlight.get_rng_state().numpy()))
    assert rushlight.randn(2000).numpy().tobytes() == torch.randn(2000).numpy().tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "name", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"]
)
def test_dropouts_live(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    shape = {"dropout1d": (3, 4, 5), "dropout3d": (2, 3, 2, 2, 2)}.get(name, (3, 4, 5, 2))
    for p in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.123):
        results = []
        for t in (torch, rushlight):
            t.manual_seed(4)
            x = t.randn(shape).to(getattr(t, dtype)).requires_grad_()
            y = getattr(t.nn.functional, name)(x, p, True)
            y.backward(t.ones(shape, dtype=y.dtype))
            results.append((content(y.detach()), content(x.grad)))
        if "alpha" in name:  # three roundings, which kernels may fuse differently
            assert results[0][0][:2] == results[1][0][:2]
        else:
            assert results[0] == results[1], p


@pytest.mark.oracle
def test_bounds_of_integers_live() -> None:
    torch = pytest.importorskip("torch")
    cases = [
        ("float16", 0, 2049), ("float16", -2000, 2000), ("bfloat16", 0, 257), ("bfloat16", -255, 250), ("float32", 2**24 - 9, 2**24),
        ("float64", -(2**53), 2**53), ("uint8", 0, 256), ("int8", -128, 128), ("int16", -(2**15), 2**15), ("int32", -(2**31), 2**31),
        ("int64", -(2**63), 2**63 - 1), ("uint16", 0, 2**16), ("uint32", 5, 2**32), ("uint64", 0, 2**62), ("bool", 0, 2),
    ]  # fmt: skip
    for dtype, low, high in cases:
        results = []
        for t in (torch, rushlight):
            t.manual_seed(6)
            results.append(content(t.randint(low, high, (301,), dtype=getattr(t, dtype))))
        assert results[0] == results[1], (dtype, low, high)


@pytest.mark.oracle
@pytest.mark.parametrize("call", [
    "t.randn(5, generator=g)", "t.randn(40, generator=g)", "t.rand(3, 4, dtype=t.float64)", "t.randn((4, 5), dtype=t.bfloat16, generator=g)",
    "t.randint(0, 7, (9,), generator=g)", "t.randint(3, 90, (9,), dtype=t.uint8)", "t.randint(0, 5, (8,), dtype=t.float32)",
    "t.randint(-3, 5, (8,), dtype=t.int16, device='cpu')", "t.randperm(12, generator=g)", "t.randperm(5, dtype=t.int32)",
    "t.bernoulli(p)", "t.bernoulli(p, generator=g)", "t.bernoulli(p.double())", "t.bernoulli(p.t())", "x.random_(10)", "x.random_(3, 9, generator=g)",
    "x.random_()",
])  # fmt: skip
def test_kept_plans_draw_on_live(call: str) -> None:
    """Three times in a row: made, and twice by what was kept, with other generators in between."""
    torch = pytest.importorskip("torch")
    found = []
    for t in (torch, rushlight):
        t.manual_seed(9)
        g, p, x = t.Generator().manual_seed(3), t.linspace(0, 1, 30).reshape(5, 6), t.zeros(7)
        made = []
        for _ in range(3):
            made.append(content(eval(call, {"t": t, "g": g, "p": p, "x": x})))  # noqa: S307
            g = t.Generator().manual_seed(4)
            t.rand(3)
        found.append(made)
    assert found[0] == found[1]
