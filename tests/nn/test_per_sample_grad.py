"""`call_for_per_sample_grads` against backward of each sample by itself."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.nn.utils._per_sample_grad import call_for_per_sample_grads


class _Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, *, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x).exp(), self.table(words).sum(1)


CASES: list[tuple[Any, Any, Any]] = [
    (lambda: nn.Linear(3, 2), (torch.randn(4, 3),), {}),
    (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(2, 2), nn.Flatten(), nn.Linear(8, 1)), (torch.randn(3, 1, 4, 4),), {}),
    (_Two, (torch.randn(3, 3),), {"words": torch.tensor([[1, 1], [2, 4], [0, 1]])}),
]  # fmt: skip


def _total(made: Any) -> torch.Tensor:
    return sum(((x * x).sum() for x in made), torch.zeros(())) if isinstance(made, tuple) else (made * made).sum()


@pytest.mark.parametrize(("make", "args", "kwargs"), CASES)
def test_equals_backward_of_each_sample(make: Any, args: Any, kwargs: Any) -> None:
    module = make()
    _total(call_for_per_sample_grads(module)(*args, **kwargs)).backward()
    for k in range(args[0].shape[0]):
        one = _total(module(*(a[k : k + 1] for a in args), **{n: a[k : k + 1] for n, a in kwargs.items()}))
        wanted = torch.autograd.grad(one, list(module.parameters()))
        for parameter, grad in zip(module.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad_sample[k], grad)
            assert parameter.grad is None


def test_mean_and_samples_in_dim_one() -> None:
    x = torch.randn(5, 4, 3)
    layer = nn.Linear(3, 2, bias=False)
    call_for_per_sample_grads(layer, loss_reduction="mean", batch_first=False)(x).sum((0, 2)).mean().backward()
    torch.testing.assert_close(layer.weight.grad_sample, x.sum(0)[:, None].expand(4, 2, 3))


def test_refusals() -> None:
    layer, x = nn.Linear(3, 2), torch.ones(4, 3)
    for call, words in (
        (lambda: call_for_per_sample_grads(torch.relu), "must be nn.Module"),
        (lambda: call_for_per_sample_grads(layer, batch_size=0), "positive"),
        (lambda: call_for_per_sample_grads(layer, batch_size="a"), "an integer"),
        (lambda: call_for_per_sample_grads(layer, loss_reduction="none"), "sum or mean"),
        (lambda: call_for_per_sample_grads(layer)(3.0), "Unable to find a tensor"),
        (lambda: call_for_per_sample_grads(layer, batch_size=3)(x), "Expected 3 samples"),
        (lambda: call_for_per_sample_grads(nn.BatchNorm1d(3)), "normalizes over the batch"),
        (lambda: call_for_per_sample_grads(nn.GRU(3, 2)), "states"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    call_for_per_sample_grads(layer)(x).sum().backward()
    with pytest.raises(RuntimeError, match="weight has a grad_sample"):
        call_for_per_sample_grads(layer)
    layer.weight.grad_sample = layer.bias.grad_sample = None
    call_for_per_sample_grads(layer)(x).sum().backward()
    assert layer.weight.grad_sample.shape == (4, 2, 3)
