"""What indexing, `view(dtype)`, `nonzero`, `reshape` and their kin refuse and say of themselves; the facts are PyTorch 2.13's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch

NO_INDEX = "tensors used as indices must be long, int, byte or bool tensors"


def x23() -> Any:
    return torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("name", ["int16", "int8", "uint16", "uint32", "uint64", "float32", "complex64"])
def test_tensors_of_other_dtypes_are_no_indices(name: str) -> None:
    x, places = x23(), torch.tensor([0, 1]).to(getattr(torch, name))
    for call in (
        lambda: x[places], lambda: x[places, 0], lambda: x.index_put_((places,), torch.tensor(5.0)), lambda: x.__setitem__(places, 5.0),
        lambda: x.__setitem__((slice(None), places), 5.0),
    ):  # fmt: skip
        with pytest.raises(IndexError, match=NO_INDEX):
            call()
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("name", ["int16", "int8", "uint16", "uint64", "float32", "complex64", "int32", "int64"])
def test_arrays_are_lists_of_numbers(name: str) -> None:
    assert x23()[np.array([1, 0], dtype=name)].tolist() == [[3, 4, 5], [0, 1, 2]]
    if name in ("int16", "int8", "int32", "int64"):
        assert x23()[torch.tensor(1, dtype=getattr(torch, name))].tolist() == [3, 4, 5]


MASKS = [
    (lambda x: x[torch.tensor([True, False, True])], [3], 0, [2, 3], 0),
    (lambda x: x[:, torch.tensor([True, False])], [2], 0, [2, 3], 1),
    (lambda x: x[0, torch.tensor([True, False])], [2], 0, [3], 0),
    (lambda x: x[None, torch.tensor([True])], [1], 0, [1, 2, 3], 1),
    (lambda x: x[torch.tensor([1], dtype=torch.uint8), 0], [1], 0, [2], 0),
    (lambda x: x[torch.tensor(True), torch.tensor([True, False, False])], [3], 0, [1, 2, 3], 1),
    (lambda x: x[torch.ones(2, 2, dtype=torch.bool)], [2, 2], 1, [2, 3], 1),
    (lambda x: x.__setitem__((0, torch.tensor([True, False])), 1), [2], 0, [3], 0),
]


@pytest.mark.parametrize("number", range(len(MASKS)))
def test_masks_of_a_wrong_shape_are_named_with_what_they_meet(number: int) -> None:
    call, mask, at, shape, place = MASKS[number]
    with pytest.raises(IndexError) as caught:
        call(x23())
    assert (
        str(caught.value)
        == f"The shape of the mask {mask} at index {at} does not match the shape of the indexed tensor {shape} at index {place}"
    )


def test_values_of_a_wrong_shape() -> None:
    with pytest.raises(
        RuntimeError, match=r"value tensor of shape \[4\] cannot be broadcast to indexing result of shape \[1, 3\]"
    ):
        x23()[torch.tensor([True, False])] = torch.ones(4)


def test_nothing_is_put_into_a_number() -> None:
    x = torch.tensor(1.0)
    for places in (torch.tensor([0]), torch.tensor(0), torch.tensor(True)):
        for call in (lambda p=places: x.index_put_((p,), torch.tensor(2.0)), lambda p=places: torch.index_put(x, (p,), torch.tensor(2.0), accumulate=True)):  # fmt: skip
            with pytest.raises(IndexError, match=r"too many indices for tensor of dimension 0 \(got 1\)"):
                call()
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        x[0] = 2
    x[()] = 3
    assert x.item() == 3


VIEWS = [
    (lambda: torch.ones(2, 3).view(torch.float64), "self.size(-1) must be divisible by 2 to view Float as Double (different element sizes), but got 3"),
    (lambda: torch.tensor(1.0).view(torch.int8), "self.dim() cannot be 0 to view Float as Char (different element sizes)"),
    (lambda: torch.ones(4, 2).t().view(torch.float64), "self.stride(-1) must be 1 to view Float as Double (different element sizes), but got 2"),
    (lambda: torch.ones(4, 2).t().view(torch.int8), "self.stride(-1) must be 1 to view Float as Char (different element sizes), but got 2"),
    (lambda: torch.ones(6)[1:5].view(torch.float64), "self.storage_offset() must be divisible by 2 to view Float as Double (different element sizes), but got 1"),
    (lambda: torch.ones(3, 5)[:, :2].view(torch.float64), "self.stride(0) must be divisible by 2 to view Float as Double (different element sizes), but got 5"),
    (lambda: torch.ones(6, dtype=torch.int8).view(torch.float64), "self.size(-1) must be divisible by 8 to view Char as Double (different element sizes), but got 6"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_bytes_that_are_no_elements_of_another_dtype(number: int) -> None:
    call, words = VIEWS[number]
    with pytest.raises(RuntimeError) as caught:
        call()
    assert str(caught.value) == words


def test_views_under_another_dtype_still_hold() -> None:
    x = torch.arange(8, dtype=torch.int16)
    assert x.view(torch.int32).tolist() == np.arange(8, dtype=np.int16).view(np.int32).tolist()
    assert torch.ones(3, 4)[:, :2].view(torch.float64).shape == (3, 1) and x.view(torch.int8).shape == (16,)


def test_nonzero_with_out() -> None:
    x = torch.tensor([0, 1, 0, 2])
    with pytest.raises(
        RuntimeError, match="nonzero: Expected out tensor to have scalar type Long but got scalar typeInt"
    ):
        torch.nonzero(x, out=torch.empty(0, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="nonzero does not support the out kwarg when as_tuple is True"):
        torch.nonzero(x, as_tuple=True, out=torch.empty(0, dtype=torch.int64))
    out = torch.empty(0, dtype=torch.int64)
    assert torch.nonzero(x, out=out) is out and out.tolist() == [[1], [3]]


def test_unravel_index_wants_whole_numbers() -> None:
    places = torch.tensor([1])
    with pytest.raises(TypeError, match="expected 'indices' to be integer dtype, but got torch.float32"):
        torch.unravel_index(torch.tensor([1.5]), (2, 3))
    with pytest.raises(TypeError, match="expected 'shape' to be int or sequence of ints, but got <class 'float'>"):
        torch.unravel_index(places, 2.5)
    with pytest.raises(TypeError, match="expected 'shape' sequence to only contain ints, but got <class 'float'>"):
        torch.unravel_index(places, (2, 3.0))
    assert [t.tolist() for t in torch.unravel_index(places, (2, 3))] == [[0], [1]]


def test_h_is_of_matrices() -> None:
    for shape, more in (
        ((2, 2, 2), " For batches of matrices, consider using tensor.mH"),
        ((2,) * 4, " For batches of matrices"),
        ((3,), ""),
    ):
        with pytest.raises(
            RuntimeError,
            match=rf"tensor.H is only supported on matrices \(2-D tensors\). Got {len(shape)}-D tensor.{more}",
        ):
            torch.ones(shape).H
    with pytest.raises(
        RuntimeError, match=r"tensor.adjoint\(\) is only supported on matrices or batches of matrices. Got 1-D tensor."
    ):
        torch.adjoint(torch.ones(3))
    assert torch.tensor([[1j, 2]]).H.tolist() == [[-1j], [2]] and torch.ones(2, 2, 3).mH.shape == (2, 3, 2)


@pytest.mark.parametrize(
    "layout",
    [
        ((0, 5), (7, 3)),
        ((3, 0), (7, 3)),
        ((2, 0, 3), (9, 9, 9)),
        ((0, 5, 2, 2), (7, 3, 1, 1)),
        ((2, 3, 0, 2, 2), (9, 9, 9, 1, 1)),
    ],
)
def test_without_elements_every_layout_is_contiguous(layout: Any) -> None:
    x = torch.empty_strided(*layout)
    assert x.is_contiguous() and x.contiguous() is x and x.contiguous().stride() == layout[1]
    assert x.clone().stride() == torch.empty_like(x).stride() == layout[1]
    for form in (torch.channels_last, torch.channels_last_3d):
        assert not x.is_contiguous(memory_format=form)


def test_without_elements_channels_last_is_of_the_strides() -> None:
    assert not torch.empty(2, 0, 2, 2).is_contiguous(memory_format=torch.channels_last)
    assert torch.empty_strided((0, 3, 2, 2), (12, 1, 6, 3)).is_contiguous(memory_format=torch.channels_last)


COPIES = [
    lambda x: x.t().reshape(6), lambda x: x.t().flatten(), lambda x: x.t().reshape_as(torch.ones(6)), lambda x: x.t().reshape(2, 3), lambda x: x.t().reshape(-1),
]  # fmt: skip


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("wants", [False, True])
def test_a_copying_reshape_is_no_view(copy: Any, wants: bool) -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_(wants)
    made = copy(x)
    assert not made._is_view() and made._base is None and made.is_contiguous()
    assert made.tolist() == np.arange(6.0).reshape(2, 3).T.reshape(tuple(made.shape)).tolist()
    if wants:
        assert type(made.grad_fn).__name__ == "UnsafeViewBackward0"
        made.mul_(torch.arange(6.0).reshape(made.shape))
        assert type(made.grad_fn).__name__ == "MulBackward0"
        made.sum().backward()
        assert x.grad.tolist() == np.arange(6.0).reshape(3, 2).T.tolist()


def test_a_reshape_that_shows_its_argument_is_a_view() -> None:
    x = torch.ones(2, 3)
    assert (
        x.reshape(6)._is_view()
        and x.flatten()._is_view()
        and torch.ones(3).reshape(3)._is_view()
        and not torch.ones(3).flatten()._is_view()
    )
    y = torch.ones(2, 3, requires_grad=True)
    with torch.no_grad():
        copied, shown = y.t().reshape(6), y.reshape(6)
    assert not copied.requires_grad and not copied._is_view() and shown.requires_grad and shown._is_view()


SAID = [  # a call, the class of its error, words of its message
    (
        lambda: x23().tensor_split(torch.tensor(1.5)),
        RuntimeError,
        "tensor_indices_or_sections to have dtype of long, but got Float",
    ),
    (
        lambda: x23().tensor_split(torch.tensor([[1]])),
        RuntimeError,
        "one-dimensional tensor, but got a tensor with 2 dims",
    ),
    (
        lambda: torch.ones(()).tensor_split(2),
        RuntimeError,
        "expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
    ),
    (lambda: torch.ones(4).split([5, -1]), RuntimeError, "split_sizes have only non-negative entries"),
    (lambda: x23()[0:2:0], ValueError, "slice step cannot be zero"),
    (lambda: x23()[0:2:-1], ValueError, "step must be greater than zero"),
    (lambda: x23()[0.0:2.0], TypeError, "slice indices must be integers or None or have an __index__ method"),
    (lambda: x23()["0":"1"], TypeError, "slice indices must be integers"),
    (lambda: x23()["a"], TypeError, "invalid data type 'str'"),
    (
        lambda: torch.ones(2).copy_(torch.ones(3)),
        RuntimeError,
        r"expanded size of the tensor \(2\) must match the existing size \(3\) at non-singleton dim",
    ),
    (
        lambda: x23().expand(3, 3, 3, 2),
        RuntimeError,
        r"tensor \(2\) must match the existing size \(3\) at non-singleton dimension 3",  # the last dim that does not fit
    ),
    (lambda: torch.ones(2).expand(-1, -3), RuntimeError, r"tensor \(-3\) must match the existing size \(2\)"),
    (lambda: torch.broadcast_to(x23(), (4, 5)), RuntimeError, r"tensor \(5\) must match the existing size \(3\)"),
    (
        lambda: torch.nn.functional.max_pool2d(torch.ones(1, 1, 2, 2), 5),
        RuntimeError,
        r"Given input size: \(1x2x2\). Calculated output size: \(1x0x0\). Output size is too small",
    ),
    (
        lambda: torch.ones(3).__setitem__(slice(0, 2), torch.ones(3)),
        RuntimeError,
        r"Target sizes: \[2\].  Tensor sizes: \[3\]",
    ),
    (
        lambda: torch.ones(3).__setitem__(0, torch.ones(2)),
        RuntimeError,
        r"number of sizes provided \(0\) must be greater or equal to the number of dim",
    ),
    (lambda: torch.ones(3).masked_fill(torch.tensor([1, 0, 1]), 2.0), RuntimeError, "got mask with dtype long int"),
    (
        lambda: torch.ones(()).index_put([], torch.ones(1), True),
        RuntimeError,
        r"value tensor of shape \[1\] .* indexing result of shape \[\]",
    ),
    (
        lambda: torch.ones(2).index_put((torch.tensor(1),), torch.ones(1)),
        RuntimeError,
        r"shape \[1\] .* result of shape \[\]",
    ),
    (
        lambda: torch.ones(2).index_put((torch.tensor([1]),), torch.ones(1, 1)),
        RuntimeError,
        r"shape \[1, 1\] .* result of shape \[1\]",
    ),
    (lambda: torch.ones(2, 2).rot90(1, (0, 2)), IndexError, "Dimension out of range"),
    (lambda: torch.empty_permuted((2, 3), (1, 1)), RuntimeError, "Duplicate dim not allowed"),
]


@pytest.mark.parametrize("number", range(len(SAID)))
def test_refused_in_these_words(number: int) -> None:
    call, error, words = SAID[number]
    with pytest.raises(error, match=words):
        call()


UNFIT = [  # values that a result was once computed from
    (lambda: torch.round(torch.tensor([15]), decimals=-1), NotImplementedError, "round_cpu"),
    (lambda: torch.repeat_interleave(torch.tensor([1.0, 1.0])), NotImplementedError, "repeat_interleave_cpu"),
    (lambda: torch.repeat_interleave(torch.tensor([[1]])), RuntimeError, "1D vector"),
    (lambda: torch.repeat_interleave(torch.arange(2), -1), RuntimeError, "Repeats must be non-negative"),
    (lambda: torch.range(1, 0), RuntimeError, "inconsistent with step sign"),
    (lambda: torch.range(0, 1, 0), RuntimeError, "step must be nonzero"),
    (lambda: torch.norm(torch.ones(2, 2, 2), p="nuc"), RuntimeError, "dim must be a 2-tuple"),
    (lambda: torch.norm(torch.ones(2, 2), p="foo"), RuntimeError, "Order foo not supported"),
    (lambda: torch.gradient(torch.ones(3, 3), spacing=torch.ones(2)), TypeError, "spacing"),
    (lambda: torch.celu(torch.ones(2), 0.0), RuntimeError, "alpha cannot be 0 for CELU"),
    (lambda: torch.histogram(torch.ones(3), torch.ones(2, 2)), RuntimeError, "should have one dimension"),
    (
        lambda: torch.searchsorted(torch.ones(2), torch.ones(2), sorter=torch.ones(2)),
        RuntimeError,
        "sorter must be a tensor of long dtype",
    ),
    (lambda: torch.vander(torch.tensor([1, 2]), N=-1), RuntimeError, "N must be non-negative"),
    (lambda: torch.eye(2, -1), RuntimeError, "m must be greater or equal to 0"),
    (lambda: torch.cov(torch.ones(2, 3), fweights=torch.ones(3, 1).long()), RuntimeError, "one or fewer dimensions"),
    (lambda: torch.frombuffer([1], dtype=torch.int32), ValueError, "does not implement Python buffer protocol"),
    (lambda: torch.tensor([1, [2]]), TypeError, "sequence"),
    (lambda: torch.device("cpu:00"), RuntimeError, "Invalid device string: 'cpu:00'"),
    (lambda: torch.device("cuda0"), RuntimeError, "Invalid device string: 'cuda0'"),
    (lambda: torch.device(""), RuntimeError, "Device string must not be empty"),
    (lambda: torch.device("cuda", "0"), TypeError, "must be int, not str"),
    (lambda: torch.device(-1), RuntimeError, "must not be negative"),
    (lambda: torch.Size([1.5]), TypeError, r"takes an iterable of 'int' \(item 0 is 'float'\)"),
    (lambda: torch.Size([1, "a"]), TypeError, r"\(item 1 is 'str'\)"),
    (
        lambda: setattr(torch.ones(2), "grad", torch.ones(3)),
        RuntimeError,
        r"gradient of size '\[3\]' to a tensor of size '\[2\]'",
    ),
]


@pytest.mark.parametrize("number", range(len(UNFIT)))
def test_unfit_values_are_refused(number: int) -> None:
    call, error, words = UNFIT[number]
    with pytest.raises(error, match=words):
        call()


def test_sizes_hold_numbers() -> None:
    found = torch.Size([torch.tensor(2), np.int64(3)])
    assert found == (2, 3) and [type(n) for n in found] == [int, int]
    assert [type(n) for n in torch.Size(torch.tensor([4, 5]))] == [int, int]
    assert torch.range(3, 0, -1.5).tolist() == [3, 1.5, 0] and torch.range(1, 1).tolist() == [1]
    nuclear = torch.norm(torch.ones(2, 2, 2), p="nuc", dim=(0, 1))
    assert nuclear.tolist() == pytest.approx([2, 2], rel=1e-6)


def test_one_value_for_what_masks_choose_may_have_any_dims() -> None:
    x, mask = torch.arange(5), torch.arange(5) > 1
    for shape in ((), (1,), (1, 1), (1, 1, 1)):
        value = torch.full(shape, -2)
        assert torch.index_put(x, (mask,), value).tolist() == [0, 1, -2, -2, -2]
        assert x.clone().index_put_((mask,), value).tolist() == [0, 1, -2, -2, -2]
    for call in (
        lambda: x.index_put((mask,), value, accumulate=True),
        lambda: x.index_put((torch.tensor([0]),), value),
    ):
        with pytest.raises(RuntimeError, match="shape mismatch: value tensor of shape"):
            call()
    y = x.float().requires_grad_()
    w = torch.ones(1, 1, requires_grad=True)
    torch.index_put(y, (mask,), w).sum().backward()
    assert y.grad.tolist() == [1, 1, 0, 0, 0] and w.grad.tolist() == [[3]]


BYTES = torch.tensor([1, 0, 1], dtype=torch.uint8)
FILLS = [
    lambda x: x.__setitem__(BYTES, 7.0),
    lambda x: x.__setitem__(BYTES, torch.tensor([7.0])),
    lambda x: x.__setitem__((BYTES, 1), 7.0),
    lambda x: x.__setitem__((slice(None), BYTES), 7.0),
    lambda x: x.index_put_((BYTES,), torch.tensor(7.0)),
    lambda x: x.index_put((BYTES,), torch.tensor([7.0])),
]


@pytest.mark.parametrize("number", range(len(FILLS)))
def test_one_number_is_not_written_by_a_mask_of_bytes(number: int) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    with (
        pytest.warns(UserWarning, match="uint8 is now deprecated"),
        pytest.raises(
            RuntimeError, match="^masked_fill_ only supports boolean masks, but got mask with dtype unsigned char$"
        ),
    ):
        FILLS[number](x)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_masks_of_bytes_write_tensors_and_warn_each_time() -> None:
    x = torch.arange(9.0).reshape(3, 3)
    for _ in range(2):
        with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
            x[BYTES] = torch.tensor([7.0, 8.0, 9.0])
    with pytest.warns(UserWarning, match="uint8 is now deprecated"):
        x.index_put_((BYTES,), torch.tensor(1.0), accumulate=True)
    with pytest.warns(UserWarning, match="uint8 is now deprecated"):
        x[BYTES, torch.tensor([0, 2])] = 0.0
    assert x.tolist() == [[0, 9, 10], [3, 4, 5], [8, 9, 0]]
