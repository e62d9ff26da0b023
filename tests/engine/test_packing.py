"""`tensor()` of Python numbers: what each dtype makes of them; the expectations are PyTorch's."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._engine.core.packing import pack_numbers
from rushlight._types.dtype import BFLOAT16, FLOAT16

NAN, INF = math.nan, math.inf
VALUES: list[tuple[Any, str, Any]] = [
    (1e39, "float32", INF), (-1e39, "float32", -INF), (1e39, "float16", INF), ([1e-8, 65519.9, 65520.0], "float16", [0.0, 65504.0, INF]),
    (65519.0, "float16", 65504.0), ([1.00390625, 3.38e38, 0.1], "bfloat16", [1.0, 3.3762391092936863e38, 0.10009765625]),
    (-1, "uint8", 255), ([-128, -255, 255], "uint8", [128, 1, 255]), ([-1], "uint16", [65535]), (3.7, "int64", 3), ([3.7, True], "int32", [3, 1]),
    (-3.7, "int8", -3), ([0j, NAN, 2.5, 0], "bool", [False, True, True, False]), (True, "float64", 1.0), ([1, 2j], "complex64", [1 + 0j, 2j]),
    (-(2**63), "int64", -(2**63)), (2**64 - 1, "uint64", 2**64 - 1), (2**63, "float32", float(2**63)), ([], "int16", []), ([[], []], "int8", [[], []]),
]  # fmt: skip
ERRORS: list[tuple[Any, str, type[Exception], str]] = [
    (300, "uint8", RuntimeError, "cannot be converted to type uint8 without overflow"),
    ([-256], "uint8", RuntimeError, "cannot be converted to type uint8 without overflow"),
    ([2**40], "int32", RuntimeError, "cannot be converted to type int32 without overflow"),
    (NAN, "int64", RuntimeError, "cannot be converted to type int64 without overflow"),
    ([INF], "int8", RuntimeError, "cannot be converted to type int8 without overflow"),
    (2**63, "int64", ValueError, "Overflow when unpacking long long"),
    (2**64, "uint64", OverflowError, "int too big to convert"),
    (10**400, "float32", OverflowError, "int too large to convert to float"),
    (1j, "float32", TypeError, "must be real number, not complex"),
    (1j, "int64", TypeError, "'complex' object cannot be interpreted as an integer"),
]


@pytest.mark.parametrize(("data", "dtype", "wanted"), VALUES)
def test_values(data: Any, dtype: str, wanted: Any) -> None:
    made = torch.tensor(data, dtype=getattr(torch, dtype))
    assert made.dtype is getattr(torch, dtype)
    assert made.tolist() == wanted


@pytest.mark.parametrize(("data", "dtype", "error", "text"), ERRORS)
def test_errors(data: Any, dtype: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        torch.tensor(data, dtype=getattr(torch, dtype))


def test_minus_zero_and_nan() -> None:
    made = torch.tensor([-0.0, NAN], dtype=torch.float16).tolist()
    assert math.copysign(1, made[0]) == -1 and math.isnan(made[1])
    assert math.isnan(torch.tensor(NAN, dtype=torch.bfloat16).item())


def test_half_types_round_as_numpy_does() -> None:
    rng = np.random.default_rng(5)
    floats = (rng.standard_normal(2000) * 10.0 ** rng.integers(-9, 6, 2000)).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = floats.astype(np.float16).view(np.uint16)
    assert pack_numbers(floats.tolist(), FLOAT16).tolist() == wanted.tolist()
    # bfloat16: of the two neighbours the nearer one, on a tie the one with an even last bit
    for value, bits in zip(floats.tolist(), pack_numbers(floats.tolist(), BFLOAT16), strict=True):
        full = struct.unpack("<I", struct.pack("<f", value))[0]
        low, rest = full >> 16, full & 0xFFFF
        assert bits == low + (rest > 0x8000 or (rest == 0x8000 and low & 1))


def test_mixed_data() -> None:
    assert torch.tensor([[1, 2.5], (True, 4)]).tolist() == [[1.0, 2.5], [1.0, 4.0]]
    assert torch.tensor([np.arange(2), np.arange(2)]).tolist() == [[0, 1], [0, 1]]
    assert torch.tensor([torch.tensor(1), torch.tensor(2.5)]).tolist() == [1.0, 2.5]
    # A tensor among numbers is a number, whatever its shape.
    assert torch.tensor([torch.ones(1), torch.ones(1, 1), 2]).tolist() == [1.0, 1.0, 2.0]
    assert torch.as_tensor([[torch.ones(1)], [2]]).tolist() == [[1.0], [2.0]]
    with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
        torch.tensor([torch.ones(2), torch.ones(2)])
    assert torch.tensor(np.float32(2.5)).dtype is torch.float32
    assert torch.tensor(np.arange(3), dtype=torch.bfloat16).tolist() == [0.0, 1.0, 2.0]
    assert torch.tensor(range(3)).dtype is torch.int64
    assert torch.tensor([[1.0, 2.0]], device="meta").shape == (1, 2)
    with pytest.raises(ValueError, match="expected sequence of length 2 at dim 1"):
        torch.tensor([[1, 2], [3]])
