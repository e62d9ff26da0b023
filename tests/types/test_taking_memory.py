"""`set_`, `x.data = y`, `resize_` and arrays over a tensor's memory; the facts are PyTorch 2.13's."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch

NOT_RESIZABLE = "Trying to resize storage that is not resizable"
DTYPES = {
    "int64": "long int",
    "int8": "signed char",
    "float16": "c10::Half",
    "complex64": "c10::complex<float>",
    "float64": "double",
}


@pytest.mark.parametrize("name", DTYPES)
def test_set_wants_the_same_dtype(name: str) -> None:
    other = torch.zeros(2, dtype=getattr(torch, name))
    with pytest.raises(RuntimeError, match=f"Could not set tensor of type {DTYPES[name]} to a tensor of type float"):
        torch.ones(2).set_(other)
    with pytest.raises(
        RuntimeError,
        match="Expected a Storage of type .* or an UntypedStorage, but got type Float for argument 1 'storage'",
    ):
        other.set_(torch.ones(2).storage())
    assert torch.ones(2).set_(other, 0, (1,), (1,)).dtype is torch.float32  # a part of its memory, as bytes


def test_set_takes_the_forms_of_pytorch() -> None:
    x, held = torch.ones(2), torch.arange(3.0).untyped_storage()
    assert x.set_(source=held, storage_offset=1, size=(2,), stride=(1,)).tolist() == [1, 2]
    assert x.set_(held, 1, torch.Size([2]), stride=[]).tolist() == [1, 2]
    for call in (
        lambda: x.set_(held, 2), lambda: x.set_(x, 2), lambda: x.set_(3), lambda: x.set_(held, size=(2,)), lambda: x.set_(x, storage_offset=0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="invalid combination of arguments"):
            call()
    with pytest.raises(RuntimeError, match='on device "cpu" to a storage on different device "meta"'):
        x.set_(torch.ones(2, device="meta"))


def test_set_enlarges_a_storage_for_all_who_look_at_it() -> None:
    x = torch.arange(2.0)
    y, held = x[1:], x.untyped_storage()
    x.set_(held, 0, (10,))
    x[1] = 7
    assert y.tolist() == [7] and y.data_ptr() - x.data_ptr() == 4 and held.nbytes() == 40


def test_set_is_a_change_and_has_no_derivative() -> None:
    x, y = torch.ones(2), torch.zeros(3)
    view = x[1:]
    x.set_(y)
    assert (x._version, y._version, view._version) == (1, 0, 1)
    leaf = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.set_(y)
    made = leaf * 2
    made.set_(torch.zeros(2))
    assert made.grad_fn.name().endswith("NotImplemented")
    with pytest.raises(RuntimeError, match="derivative for set_ is not implemented"):
        made.sum().backward()
    factor = torch.ones(2)
    product = leaf * factor
    factor.set_(torch.zeros(2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_data_keeps_the_count_of_changes() -> None:
    x, y = torch.ones(2), torch.zeros(2)
    x.add_(1)
    for _ in range(3):
        y.add_(1)
    x.data = y
    assert (x._version, y._version) == (1, 3)
    assert x.add_(1)._version == 2 and y._version == 3 and x.detach()._version == 2 and y.tolist() == [4, 4]
    factor, leaf = torch.ones(2), torch.ones(2, requires_grad=True)
    product = leaf * factor
    factor.data = torch.zeros(2)
    factor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize("leaf", [True, False])
def test_data_of_what_wants_a_gradient_is_floating(leaf: bool) -> None:
    x = torch.ones(2, requires_grad=True)
    x = x if leaf else x * 2
    with pytest.raises(
        RuntimeError, match="data set to a tensor that requires gradients must be floating point or complex dtype"
    ):
        x.data = torch.ones(2, dtype=torch.int32)
    x.data = torch.ones(2, dtype=torch.float64)
    assert x.dtype is torch.float64


def test_tensors_over_one_memory_move_together() -> None:
    x, y = torch.zeros(2), torch.arange(4.0)
    x.data = y  # a count of its own, the same memory
    part = y.data[2:]
    y.untyped_storage().resize_(64)
    y[2] = 9
    assert x.tolist() == [0, 1, 9, 3] and part.tolist() == [9, 3] and torch._C._is_alias_of(x, y)
    x.resize_(20).fill_(1)
    assert (
        y.tolist() == [1, 1, 1, 1]
        and part.tolist() == [1, 1]
        and x.untyped_storage().nbytes() == y.untyped_storage().nbytes()
    )
    y.share_memory_()
    x[3] = 5
    assert y[3] == 5 and part[1] == 5 and x.is_shared() and part.is_shared()


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_memory_that_an_array_shows_does_not_move() -> None:
    x = torch.ones(2)
    array = x.numpy()
    for call in (
        lambda: x.resize_(10), lambda: x[:].resize_(10), lambda: x.detach().resize_(10), lambda: x.data.resize_(10), lambda: x.untyped_storage().resize_(100),
        lambda: x.set_(x.untyped_storage(), 0, (10,)), lambda: torch.add(torch.ones(5), 1, out=x),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=NOT_RESIZABLE):
            call()
    assert not x.untyped_storage().resizable() and x.resize_(1).shape == (1,) and array.tolist() == [1, 1]
    other = torch.ones(2)
    np.asarray(other[:1])
    with pytest.raises(RuntimeError, match=NOT_RESIZABLE):
        other.resize_(10)
    listed = torch.ones(2)
    listed.tolist()
    assert listed.resize_(10).shape == (10,)


def test_resizing_is_a_change() -> None:
    x = torch.ones(2)
    assert x.resize_(1)._version == 1 and x.resize_(8)._version == 2
    assert not torch.ones(2).untyped_storage()[0:4].resizable()


def test_moving_asks_no_other_object_for_its_class() -> None:
    class Touchy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise AssertionError("asked for its class")

    touchy = Touchy()
    x = torch.ones(4)
    y = x.view(2, 2)
    x.untyped_storage().resize_(64)
    x.data = x.data
    x.share_memory_()
    assert y.sum() == 4 and y.data_ptr() == x.data_ptr() and type(touchy) is Touchy
