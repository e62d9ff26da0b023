"""Results on views: strides of results, places in memory that are asked for, windows that lie in padding; expected values are PyTorch 2.13's or NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch

F = torch.nn.functional
LOWEST = {"float32": -float("inf"), "bfloat16": -float("inf"), "int64": -(2**63)}


def first_inside(size: int, kernel: int, stride: int, padding: int, dilation: int) -> list[int]:
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    return [next(at for k in range(kernel) if (at := o * stride - padding + k * dilation) >= 0) for o in range(count)]


@pytest.mark.parametrize("dtype", LOWEST)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (2, 1, 1, 1), (3, 1, 2, 2), (4, 3, 2, 1), (5, 1, 2, 1)]
)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_greatest_of_lowest_elements_lies_inside(
    n: int, kernel: int, stride: int, padding: int, dilation: int, dtype: str
) -> None:
    """The padding is lower than all elements, the lowest number too; its index would be none of the input."""
    size = 6
    x = torch.full((1, 1, *[size] * n), LOWEST[dtype], dtype=getattr(torch, dtype))
    pool = getattr(F, f"max_pool{n}d")
    _, found = pool(x, kernel, stride, padding, dilation, return_indices=True)
    axis = np.array(first_inside(size, kernel, stride, padding, dilation))
    expected = np.zeros([len(axis)] * n, np.int64)
    for dim in range(n):
        expected += (axis * size ** (n - 1 - dim)).reshape([-1 if d == dim else 1 for d in range(n)])
    np.testing.assert_array_equal(found[0, 0].numpy(), expected)
    if x.is_floating_point():
        leaf = x.clone().requires_grad_()
        pool(leaf, kernel, stride, padding, dilation).sum().backward()
        counted = np.bincount(expected.ravel(), minlength=size**n).reshape([size] * n)
        np.testing.assert_array_equal(leaf.grad[0, 0].float().numpy(), counted)


def test_as_strided_scatter_means_places_in_memory() -> None:
    base = torch.arange(12.0)
    x = base[3:9]
    new = torch.tensor([-1.0, -2.0])
    assert torch.as_strided_scatter(x, new, (2,), (1,), 4).tolist() == [3, -1, -2, 6, 7, 8]
    assert torch.as_strided_scatter(x, new, (2,), (1,), 2).tolist() == [-2, 4, 5, 6, 7, 8]
    assert torch.as_strided_scatter(x, new, (2,), (1,)).tolist() == [-1, -2, 5, 6, 7, 8]
    assert torch.as_strided_scatter(x, new, (2,), (1,), 0).tolist() == [3, 4, 5, 6, 7, 8]
    stepped = base[1::3]
    assert torch.as_strided_scatter(stepped, new, (2,), (1,)).tolist() == [-1, 4, 7, 10]
    assert torch.as_strided_scatter(stepped, new, (2,), (5,), 2).tolist() == [1, 4, -2, 10]
    turned = base.view(3, 4).t()
    assert torch.as_strided_scatter(turned, new, (2,), (1,), 1).tolist() == [
        [0, 4, 8],
        [-1, 5, 9],
        [-2, 6, 10],
        [3, 7, 11],
    ]
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.as_strided_scatter(x, new, (2,), (1,), 11)
    leaf = torch.arange(12.0, requires_grad=True)
    torch.as_strided_scatter(leaf[1::3], new, (2,), (5,), 2).sum().backward()
    assert leaf.grad.nonzero().flatten().tolist() == [7]  # that of what is covered


@pytest.mark.parametrize(
    ("call", "strides"),
    [
        (lambda a, b: torch.rsub(a, b), (15, 5, 1)),
        (lambda a, b: torch.rsub(b, a), (1, 4, 12)),
        (lambda a, b: torch.rsub(a.int(), b.int(), alpha=2), (15, 5, 1)),
        (lambda a, b: torch.diff(a, prepend=a), (27, 9, 1)),
        (lambda a, b: torch.diff(a), (1, 4, 12)),
        (lambda a, b: torch.slice_scatter(a, b[:1], 0, 0, 1), (1, 4, 12)),
    ],
)
def test_strides_of_results(call: Any, strides: tuple[int, ...]) -> None:
    assert call(torch.zeros(5, 3, 4).permute(2, 1, 0), torch.zeros(4, 3, 5)).stride() == strides


def test_pairs_of_numbers_begin_at_an_even_place() -> None:
    """Also behind a call of the same shape and strides that may be seen so."""
    x = torch.arange(11.0)
    assert torch.view_as_complex(x[2:6].view(2, 2)).tolist() == [2 + 3j, 4 + 5j]
    with pytest.raises(RuntimeError, match="storage_offset divisible by 2"):
        torch.view_as_complex(x[1:5].view(2, 2))


def test_batch_norm_without_running_statistics_is_a_form_of_the_operator() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    out, mean, _ = torch._native_batch_norm_legit(x, None, None, True, 0.5, 0.0)
    assert mean.tolist() == [2.0, 4.0] and out.tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    running = torch.zeros(2)
    torch._native_batch_norm_legit(x, None, None, running, torch.ones(2), True, 0.5, 0.0)
    assert running.tolist() == [1.0, 2.0]


def test_dims_of_one_item_keep_their_steps_as_in_pytorch() -> None:
    image = torch.rand(4, 3, 1, 1).to(memory_format=torch.channels_last)
    steps, row = (3, 1, 3, 3), torch.rand(3, 1, 1)
    assert image.stride() == steps
    for kept in (image.clone(), torch.empty_like(image), image.double(), torch.rand_like(image), image * 5, 1 - image):
        assert kept.stride() == steps
    assert (image + row).stride() == (row + image).stride() == steps
    for fresh in (image.exp(), image + image, image.clamp(0, 1), image**2, torch.lerp(image, image, 0.5)):
        assert fresh.stride() == (3, 1, 1, 1)  # all operands are contiguous and of one shape
    assert (2**image).stride() == (3, 1, 1, 1)
    wide = torch.rand(2, 3, 4)[::2]
    assert (
        wide.stride() == (24, 4, 1) == wide.clone().stride() == wide.half().stride() == torch.nan_to_num(wide).stride()
    )
    assert (wide + 1).stride() == wide.exp().stride() == (12, 4, 1)


def test_the_first_operand_decides_on_the_order_also_where_it_is_broadcast() -> None:
    x, y = torch.rand(2, 3, 4), torch.rand(4, 3).t()
    assert (y + x).stride() == (12, 1, 3)
    assert (x + y).stride() == (12, 4, 1)


def test_powers_of_a_number_are_row_major() -> None:
    x = torch.rand(4, 3).t()
    assert (2**x).stride() == (4, 1) and (x**2).stride() == (1, 3)
