"""`make_tensor`: ranges, layouts, errors, and PyTorch's numbers for the same seed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.testing.cases import outcome

import rushlight
from rushlight.testing import make_tensor

DTYPES = [
    "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "bool", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip
CALLS: list[tuple[Any, dict[str, Any]]] = [
    (5, {}), ((2, 3), {"low": -1e60, "high": 1e60}), ((2, 3), {"low": float("-inf")}), ((2, 2), {"low": 0.5, "noncontiguous": True}),
    ((2, 2), {"low": 20}), ((2, 2), {"high": -20}), ((2, 2), {"low": 3, "high": 3}), ((0, 2), {}), ((), {"noncontiguous": True}),
    ((1,), {"noncontiguous": True}), ((2,), {"low": float("nan")}), ((2,), {"low": -1e60, "high": -1e59}), ((2, 3), {"low": 2.5, "high": 9.5}),
    ((1, 2, 2, 2), {"memory_format": "channels_last"}), (2, {"noncontiguous": True, "memory_format": "contiguous_format"}),
]  # fmt: skip


def described(t: Any, name: str, shape: Any, how: dict[str, Any]) -> str:
    """The numbers (as text), dtype and strides of one call after a fixed seed, or its error."""

    def call() -> Any:
        asked = {k: getattr(t, v) if k == "memory_format" else v for k, v in how.items()}
        made = t.testing.make_tensor(shape, dtype=getattr(t, name), device="cpu", **asked)
        return made, made.stride()

    t.manual_seed(3)
    return outcome(call)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DTYPES)
def test_the_numbers_and_errors_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    for shape, how in CALLS:
        if name == "uint64" and how.get("low") == -1e60:
            continue  # its whole range overflows PyTorch's bounds, which are of int64
        assert described(rushlight, name, shape, how) == described(torch, name, shape, how), (shape, how)


def test_stored_numbers_of_pytorch() -> None:
    rushlight.manual_seed(3)
    found = make_tensor(5, dtype=rushlight.float32, device="cpu")
    assert [round(x, 4) for x in found.tolist()] == [-8.9233, -7.0998, -3.8548, -8.5148, -0.5109]
    rushlight.manual_seed(3)
    assert make_tensor((5,), dtype=rushlight.int8, device="cpu").tolist() == [4, 2, 7, 3, -7]


@pytest.mark.parametrize("name", DTYPES)
def test_zeros_can_be_excluded(name: str) -> None:
    dtype = getattr(rushlight, name)
    found = make_tensor(64, dtype=dtype, device="cpu", low=0, high=2, exclude_zero=True)
    wide = found.to(rushlight.complex128 if dtype.is_complex else rushlight.float64)
    assert bool((wide != 0).all())


def test_gaps_between_elements() -> None:
    found = make_tensor(2, 3, dtype=rushlight.float32, device="cpu", noncontiguous=True, requires_grad=True)
    assert found.shape == (2, 3) and found.stride() == (6, 2) and found.is_leaf and found.requires_grad


def test_an_empty_interval_warns_and_fills() -> None:
    with pytest.warns(FutureWarning, match="low==high") as caught:
        found = make_tensor(2, dtype=rushlight.complex64, device="cpu", low=3, high=3)
    assert found.tolist() == [3 + 3j, 3 + 3j] and caught[0].filename == __file__


def test_errors() -> None:
    with pytest.raises(ValueError, match="requires_grad=True"):
        make_tensor(2, dtype=rushlight.int8, device="cpu", requires_grad=True)
    with pytest.raises(TypeError, match="torch.quint8' is not supported"):
        make_tensor(2, dtype=rushlight.quint8, device="cpu")
    with pytest.raises(ValueError, match=r"is \[256, 300\), but torch.uint8 only supports \[0, 256\)"):
        make_tensor(2, dtype=rushlight.uint8, device="cpu", low=256, high=300)
