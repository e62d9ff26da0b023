"""Settings that decide on precision and on determinism: default dtype, deterministic mode, precision of float32 products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


@pytest.mark.usefixtures("deterministic")
def test_new_memory_is_filled() -> None:
    for dtype, wanted in ((torch.int8, 127), (torch.uint8, 255), (torch.int64, 2**63 - 1), (torch.bool, True)):
        assert torch.empty(3, dtype=dtype).tolist() == [wanted] * 3
    ones = torch.ones(2)
    made = (
        torch.empty(2),
        torch.empty(2, dtype=torch.float16),
        torch.empty_like(ones),
        ones.new_empty(2),
        torch.empty_strided((2,), (1,)),
        torch.Tensor(2),
    )
    assert all(bool(x.isnan().all()) for x in made)
    assert torch.zeros(1).resize_(3).isnan().tolist() == [False, True, True]
    torch.utils.deterministic.fill_uninitialized_memory = False
    assert not torch.utils.deterministic.fill_uninitialized_memory


@pytest.mark.usefixtures("deterministic")
def test_what_pytorch_leaves_open_is_refused() -> None:
    place, value = torch.tensor([0]), torch.ones(1)
    pooled, places = nn.functional.max_pool2d(torch.arange(16.0).reshape(1, 1, 4, 4), 2, return_indices=True)
    calls: list[Any] = [
        lambda: torch.zeros(3).put_(place, value), lambda: torch.zeros(3).put(place, value), lambda: nn.functional.max_unpool2d(pooled, places, 2),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            call()
    assert torch.zeros(3).put_(place, value, accumulate=True).tolist() == [1, 0, 0]
    torch.use_deterministic_algorithms(True, warn_only=True)
    for call in calls:
        for _ in range(2):
            with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
                call()
    torch.use_deterministic_algorithms(False)
    assert torch.zeros(3).put_(place, value).tolist() == [1, 0, 0]


def test_deterministic_mode_is_remembered() -> None:
    for bad in ("x", 1, None):
        with pytest.raises(TypeError, match="must be bool"):
            torch.use_deterministic_algorithms(bad)
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.get_deterministic_debug_mode() == 1
    torch.set_deterministic_debug_mode("default")
    assert not torch.are_deterministic_algorithms_enabled()


def test_precision_of_products() -> None:
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    with pytest.warns(UserWarning, match="is not one of"):
        torch.set_float32_matmul_precision("low")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError, match="expects a str"):
        torch.set_float32_matmul_precision(3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_default_dtype_goes_everywhere(dtype: Any) -> None:
    torch.set_default_dtype(dtype)
    try:
        ints = torch.tensor([1, 4])
        made = (
            ints / 3,
            3 / ints,
            ints.sqrt(),
            ints * 1.5,
            ints**0.5,
            torch.rand(2),
            torch.tensor(0.5),
            torch.linspace(0, 1, 3),
            torch.hann_window(4),
        )
        assert all(x.dtype is dtype for x in made)
        assert (ints / 3).tolist() == torch.tensor([1 / 3, 4 / 3], dtype=dtype).tolist()
        assert torch.nn.functional.pairwise_distance(ints, ints + 3).dtype is dtype
        assert torch.isclose(ints, ints + 1, rtol=0.25).tolist() == [False, True] and torch.allclose(ints, ints)
        assert torch.full((2,), 1j).dtype is (torch.complex128 if dtype is torch.float64 else torch.complex64)
        np.testing.assert_allclose(torch.kaiser_window(5, False).double(), np.kaiser(5, 12.0), rtol=1e-2)
        assert (
            torch.kaiser_window(5).dtype is dtype
            and torch.kaiser_window(5, dtype=torch.bfloat16, requires_grad=True).is_leaf
        )
        layers = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LayerNorm(3), nn.Embedding(3, 2), nn.LSTM(2, 2))
        assert {p.dtype for p in layers.parameters()} == {dtype}
        p = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([p])
        p.grad = torch.ones(2)
        optimizer.step()
        assert optimizer.state[p]["step"].dtype is (torch.float64 if dtype is torch.float64 else torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)


def test_windows() -> None:
    n = np.arange(8)
    turn = np.cos(2 * math.pi * n / 8)
    np.testing.assert_allclose(torch.hann_window(8), 0.5 - 0.5 * turn, atol=1e-7)
    np.testing.assert_allclose(torch.hamming_window(8), 0.54 - 0.46 * turn, atol=1e-7)
    np.testing.assert_allclose(
        torch.blackman_window(8), 0.42 - 0.5 * turn + 0.08 * np.cos(4 * math.pi * n / 8), atol=1e-7
    )
    np.testing.assert_allclose(torch.hann_window(9, periodic=False)[:8], 0.5 - 0.5 * turn, atol=1e-7)


def test_the_default_device_and_what_it_is_not_for() -> None:
    x = torch.ones(1)
    torch.set_default_device("meta")
    try:
        for made in (
            torch.zeros(1),
            torch.hann_window(3),
            torch.kaiser_window(3),
            nn.Linear(1, 1).weight,
            torch.tensor([1.0]),
        ):
            assert made.device.type == "meta"
        for made in (
            torch.Tensor(2),
            torch.Tensor([1.0]),
            torch.FloatTensor(2),
            torch.ByteTensor([1]),
            x.new(2),
            x.new([1.0]),
            x.new_zeros(1),
        ):
            assert made.device.type == "cpu"
        windows = torch.signal.windows
        for window in (windows.hann, windows.gaussian, windows.kaiser, windows.bartlett):
            assert window(5).device.type == "meta" and window(5, device="cpu").sum() > 0
        assert torch.hann_window(3, device="cpu").tolist() == pytest.approx([0.0, 0.75, 0.75])
    finally:
        torch.set_default_device(None)
    assert torch.hann_window(3, device="meta").device.type == torch.ones(1, device="meta").new(2).device.type == "meta"
    for wrong in (lambda: torch.Tensor(2, device="meta"), lambda: x.new(2, device="meta")):
        with pytest.raises(RuntimeError, match="legacy constructor expects device type: cpu but device type: meta"):
            wrong()


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda", "xpu", "cuda:7"])
def test_legacy_constructors_look_at_the_device_before_they_ask_for_it(device: str) -> None:
    """Real PyTorch 2.13 raises RuntimeError whether or not there is such a device."""
    x = torch.ones(2)
    for wrong in (
        lambda: torch.Tensor(x, device=device),
        lambda: torch.IntTensor(x, device=device),
        lambda: x.new(x, device=device),
    ):
        with pytest.raises(RuntimeError, match="do not take a tensor together with a device") as caught:
            wrong()
        assert not isinstance(caught.value, AssertionError)
    for make in (lambda: torch.Tensor(2, device=device), lambda: x.new([1.0], device=device)):
        if device == "cpu":
            assert make().device.type == "cpu"
            continue
        kind = device.partition(":")[0]
        with pytest.raises(
            RuntimeError, match=f"expects device type: cpu but device type: {kind} was passed"
        ) as caught:
            make()
        assert not isinstance(caught.value, AssertionError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_types_of_tensors_on_a_missing_gpu_are_type_errors() -> None:
    for make in (lambda: torch.cuda.FloatTensor(2), lambda: torch.cuda.IntTensor(torch.ones(2)), torch.cuda.HalfTensor):
        with pytest.raises(
            TypeError, match=r"type torch.cuda.\w+ is not available: rushlight was asked for device 'cuda'"
        ):
            make()
