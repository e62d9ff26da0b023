"""What tensors and their nodes say of themselves, and functions that ask for it."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch


@pytest.mark.parametrize(("asked", "text"), [
    ({"size": [3]}, r"Tensor sizes mismatch! Expected: \[3\], Got: \[2\]"), ({"stride": [2]}, r"Tensor strides mismatch! Expected: \[2\], Got: \[1\]"),
    ({"dtype": torch.int64}, "Tensor dtype mismatch!"), ({"device": "meta"}, "Tensor device mismatch! Expected: meta, Got: cpu"),
    ({"layout": torch.sparse_coo}, "Tensor layout mismatch!"),
])  # fmt: skip
def test_assert_tensor_metadata(asked: Any, text: str) -> None:
    torch._assert_tensor_metadata(torch.ones(2), [2], [1], torch.float32, device="cpu", layout=torch.strided)
    with pytest.raises(RuntimeError, match=text):
        torch._assert_tensor_metadata(torch.ones(2), **asked)


@pytest.mark.parametrize("name", ["hann_window", "kaiser_window"])
def test_windows_are_strided_floats(name: str) -> None:
    for options, text in (
        ({"dtype": torch.int64}, "expects floating point dtypes"),
        ({"layout": torch.sparse_coo}, "is not implemented for sparse types"),
    ):
        with pytest.raises(RuntimeError, match=f"{name} {text}"):
            getattr(torch, name)(3, **options)
    with pytest.raises(RuntimeError, match=f"{name} requires non-negative window_length"):
        getattr(torch, name)(-1)


def test_names_of_dims_are_gone() -> None:
    assert not hasattr(torch.ones(2), "names") and not hasattr(torch.ones(2), "has_names")
    with pytest.raises(TypeError, match="unexpected keyword argument 'names'"):
        torch.zeros(2, names=("a",))


def test_normal_warns_of_another_shape() -> None:
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        torch.normal(torch.zeros(2, 3), torch.ones(2, 3), out=torch.ones(3, 2))


def test_rows_of_one_may_have_any_stride_for_view_as_complex() -> None:
    pairs = torch.ones(2).as_strided((1, 1, 2), (3, 3, 1))
    assert torch.view_as_complex(pairs).stride() == (1, 1)
    with pytest.raises(RuntimeError, match="stride divisible by 2"):
        torch.view_as_complex(torch.ones(6).as_strided((2, 2), (3, 1)))


def test_nodes_have_numbers_that_can_be_set() -> None:
    x = torch.ones(2, requires_grad=True)
    node = x.exp().grad_fn
    node._set_sequence_nr(7)
    assert node._sequence_nr() == 7 and node.requires_grad and isinstance(node._input_metadata, tuple)
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        del x.requires_grad
