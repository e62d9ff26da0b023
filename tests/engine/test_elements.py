"""Elements read without NumPy are those that NumPy reads; printing and `tolist` load neither NumPy nor LLVM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._engine.core.elements import elements_of

DTYPES = {
    "bool": np.bool_, "uint8": np.uint8, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "float16": np.float16,
    "float32": np.float32, "float64": np.float64, "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip
VIEWS: dict[str, Any] = {
    "whole": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2) if hasattr(x, "untyped_storage") else x.swapaxes(0, 2),
    "row": lambda x: x[1, 2],
    "column": lambda x: x[:, 1, 3],
    "inner": lambda x: x[1:, ::2, 1:3],
    "number": lambda x: x[1, 2, 3],
    "none": lambda x: x[:0],
    "no columns": lambda x: x[:, :, 2:2],
}


def data(dtype: Any) -> np.ndarray:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2 if dtype is np.bool_ else 100, (2, 3, 4)).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        values = (values / 7).astype(dtype)
        values[0, 0, :3] = [math.nan, math.inf, -0.0]
    if np.dtype(dtype).kind == "c":
        values.imag = values.real[::-1]
    return values


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", DTYPES)
def test_views(name: str, view: str) -> None:
    array = data(DTYPES[name])
    tensor = torch.from_numpy(array)
    mine, wanted = VIEWS[view](tensor).tolist(), VIEWS[view](array).tolist()
    assert repr(mine) == repr(wanted)


def test_expanded_and_bfloat16() -> None:
    assert torch.tensor([[1.5], [2.5]]).expand(2, 3).tolist() == [[1.5] * 3, [2.5] * 3]
    assert torch.tensor(3).expand(2, 2).tolist() == [[3, 3], [3, 3]]
    half = torch.tensor([1.0, -2.5, math.inf, 3.14159]).to(torch.bfloat16)
    assert half.tolist() == [1.0, -2.5, math.inf, 3.140625]
    assert repr(half) == "tensor([ 1.0000, -2.5000,     inf,  3.1406], dtype=torch.bfloat16)"


def test_indexing_as_an_array() -> None:
    elements = elements_of(torch.arange(12).reshape(3, 4))
    assert elements[-1].tolist() == [8, 9, 10, 11] and elements[1:].shape == (2, 4)
    assert [row.tolist() for row in elements[:2]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(IndexError):
        elements[3]


def test_meta() -> None:
    with pytest.raises(NotImplementedError, match="meta"):
        torch.empty(2, device="meta").tolist()


def test_nested_lists_and_arrays_give_what_they_hold() -> None:
    cases = (
        [1, 2, 3],
        [[1.5, 2], [3, 4]],
        [[1, 2], [3, 4]],
        (1, 2),
        [],
        [[], []],
        [[True], [False]],
        [[[1.0]], [[2.0]]],
        [(1, 2), [3, 4]],
        [[True], [0]],
    )
    for data in cases:
        for _ in range(2):
            made, wanted = torch.tensor(data), np.array(data)
            assert tuple(made.shape) == wanted.shape and made.tolist() == wanted.tolist()
            assert torch.tensor(data, dtype=torch.float64).tolist() == wanted.astype("float64").tolist()
    whole = np.arange(24, dtype="int16").reshape(2, 3, 4)
    for array in (whole, whole.T, whole[:, 1:], whole[..., ::2], whole[:0], whole[0, 0]):
        for _ in range(2):
            shared, copied = torch.from_numpy(array), torch.tensor(array)
            assert shared.tolist() == copied.tolist() == array.tolist()
    torch.from_numpy(whole)[1, 2, 3] = -7
    assert whole[1, 2, 3] == -7
    for bad in ([[1, 2], [3]], [[1, 2], 3]):
        with pytest.raises((ValueError, TypeError)):
            torch.tensor(bad)
