"""Operators under the names of PyTorch's native modules (`torch._C._nn`, `_linalg`, `_sparse`) and as private methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import _C

X, Y = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.0, 0.0, 1.0])
HUBER = np.array([0.5, 1.5, 2.5])


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("l1_loss", (), np.array([1.0, 2.0, 3.0])),
        ("mse_loss", (), np.array([1.0, 4.0, 9.0])),
        ("smooth_l1_loss", (1.0,), HUBER),
        ("huber_loss", (1.0,), HUBER),
        ("soft_margin_loss", (), np.log1p(np.exp([-0.0, -0.0, -4.0]))),
    ],
)
def test_losses_take_reductions_as_numbers(name: str, arguments: tuple[Any, ...], expected: Any) -> None:
    loss = getattr(_C._nn, name)
    for number, reduce in enumerate((lambda x: x, np.mean, np.sum)):
        np.testing.assert_allclose(loss(X, Y, number, *arguments).numpy(), reduce(expected), rtol=1e-6)


def test_negative_log_likelihood_by_number() -> None:
    x, target = torch.eye(3), torch.tensor([0, 1, 2])
    assert _C._nn.nll_loss(x, target, None, 0, -100).tolist() == [-1.0, -1.0, -1.0]
    assert _C._nn.nll_loss(x, target, None, 2, 1).item() == -2.0


def test_interpolation_takes_both_forms() -> None:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    by_size = _C._nn.upsample_bilinear2d(x, (2, 2), True)
    assert by_size[0, 0].tolist() == [[0.0, 3.0], [12.0, 15.0]]
    assert torch.equal(_C._nn.upsample_bilinear2d(x, None, True, (0.5, 0.5)), by_size)
    assert torch.equal(
        torch.ops.aten.upsample_bilinear2d(x, None, align_corners=True, scale_factors=(0.5, 0.5)), by_size
    )
    assert _C._nn.upsample_nearest2d(x, output_size=(2, 2))[0, 0].tolist() == [[0.0, 2.0], [8.0, 10.0]]


def test_pages_name_what_they_lack() -> None:
    assert _C._functorch.is_batchedtensor(X) is False
    assert _C._linalg.linalg_norm(torch.tensor([3.0, 4.0])).item() == 5.0
    assert _C._linalg._linalg_eigvals(torch.eye(2)).real.tolist() == [1.0, 1.0]
    assert _C._nn.flatten_dense_tensors([X, Y]).tolist() == [1.0, 2.0, 4.0, 0.0, 0.0, 1.0]
    for page in ("_nn", "_linalg", "_fft", "_special", "_sparse"):
        with pytest.raises(AttributeError, match=rf"_C\.{page}\.no_such_operator"):
            getattr(_C, page).no_such_operator


def test_private_methods_of_tensors() -> None:
    both = torch.tensor([True, False])
    assert (both._is_all_true().item(), both._is_any_true().item()) == (False, True)
    assert not X._is_zerotensor() and not torch._is_zerotensor(X)
    assert torch.tensor([1j])._conj().is_conj()


def test_helpers_that_copies_of_attention_take_from_functional() -> None:
    F = torch.nn.functional
    mask = torch.tensor([True, False])
    added = F._canonical_mask(mask, "mask", F._none_or_dtype(None), "other", torch.float32)
    assert added.tolist() == [-float("inf"), 0.0] and F._none_or_dtype(mask) is torch.bool
    x, weight = torch.ones(3, 2), torch.arange(12.0).reshape(6, 2)
    assert [part[0].tolist() for part in F._in_projection_packed(x, x, x, weight)] == [[1, 5], [9, 13], [17, 21]]
    assert F._mha_shape_check(x, x, x, None, None, 1) is False
    assert (F._pair(3), F._single(3), F._list_with_default([2, None], [4, 5, 6])) == ((3, 3), (3,), [2, 6])
    assert F.has_torch_function is torch.overrides.has_torch_function
