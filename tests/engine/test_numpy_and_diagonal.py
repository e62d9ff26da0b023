"""NumPy functions of tensors, and `fill_diagonal_`."""

import sys

import numpy as np
import pytest

import rushlight as torch


def test_numpy_functions_of_tensors_return_tensors() -> None:
    x = torch.tensor([[1.0, -4.0], [0.0, 2.0]], dtype=torch.float64)
    result = np.sin(x)
    assert isinstance(result, torch.Tensor) and result.dtype == torch.float64
    assert np.array_equal(result.numpy(), np.sin(x.numpy()))
    assert isinstance(np.abs(torch.tensor(-1.0)), torch.Tensor)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (7, 2), (4, 1), (3, 3, 3), (0, 2), (2, 0)])
@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal(shape: tuple, wrap: bool) -> None:
    expected = np.zeros(shape)
    if 0 not in shape:
        np.fill_diagonal(expected, 5.0, wrap=wrap)
    x = torch.zeros(*shape)
    assert x.fill_diagonal_(5.0, wrap=wrap) is x
    assert np.array_equal(x.numpy(), expected)


def test_fill_diagonal_of_strided_memory_and_its_errors() -> None:
    x = torch.zeros(3, 9)[:, ::3]
    x.fill_diagonal_(1.0)
    assert np.array_equal(x.numpy(), np.eye(3))
    with pytest.raises(RuntimeError):
        torch.zeros(3).fill_diagonal_(1.0)
    with pytest.raises(RuntimeError, match="equal length"):
        torch.zeros(2, 2, 3).fill_diagonal_(1.0)


def test_arrays_of_a_form_that_was_met() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        a = rng.standard_normal((3, 4))
        for array in (a, a.T, a[:, ::2], a[1], a[:0], np.array(2.5), a.astype(np.int16), a > 0, a.view(np.complex128)):
            made = torch.from_numpy(array)
            assert made.shape == array.shape and made.tolist() == array.tolist()
            assert not array.size or made.data_ptr() == array.ctypes.data
        torch.from_numpy(a)[1, 2] = 7.0
        assert a[1, 2] == 7.0
        for wrong in (a[::-1], a.astype(">f8")):
            with pytest.raises(ValueError):
                torch.from_numpy(wrong)
        frozen = a.copy()
        frozen.flags.writeable = False
        assert torch.from_numpy(frozen).tolist() == a.tolist()
        held = rng.standard_normal(5)
        count = sys.getrefcount(held)
        made = torch.from_numpy(held)
        assert sys.getrefcount(held) == count + 1
        del made
        assert sys.getrefcount(held) == count
        with torch.inference_mode():
            assert torch.from_numpy(a).is_inference()


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_tensors_of_lists_of_numbers_in_tensors(name: str) -> None:
    dtype = getattr(torch, name)
    x = torch.tensor([1, 0, 3], dtype=dtype)
    for given in ([x[0], x[1]], (x[2],), [x[0], x[2] * x[2]]):
        made = torch.tensor(given)
        assert made.dtype is dtype and made.tolist() == [v.item() for v in given] and not made.requires_grad
        assert torch.tensor(given, dtype=torch.complex128, requires_grad=True).requires_grad
    assert torch.tensor([x[0], torch.tensor(0.5, dtype=torch.float64)]).dtype is torch.promote_types(
        dtype, torch.float64
    )
    with pytest.raises(ValueError):
        torch.tensor([x[0], x])


@pytest.mark.parametrize(
    "scalar", [np.float32(2.5), np.float64(2.5), np.int16(-3), np.bool_(True), np.complex64(1 + 2j), np.float16(0.5)]
)
def test_tensors_of_numpy_scalars(scalar: np.generic) -> None:
    made = torch.tensor(scalar)
    assert made.shape == () and made.item() == scalar.item() and str(made.dtype) == f"torch.{scalar.dtype.name}"
    assert torch.tensor(scalar, dtype=torch.complex128, requires_grad=True).requires_grad
    assert (
        torch.tensor(scalar, dtype=torch.bfloat16 if scalar.dtype.kind != "c" else torch.complex64).item()
        == scalar.item()
    )
