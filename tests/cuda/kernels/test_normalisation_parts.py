"""The parts of `SyncBatchNorm` on GPUs, by which packages build their own: two processes' batches give one batch's results."""

from __future__ import annotations

import pytest

import rushlight as torch


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_parts_of_a_batch_give_what_the_whole_gives(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, grad = (torch.randn(6, 3, 5, dtype=dtype) for _ in range(2))
    kind = torch.float64 if dtype is torch.float64 else torch.float32
    model = torch.nn.BatchNorm1d(3, momentum=0.25, dtype=kind)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([0.5, 2.0, -1.0]))
        model.bias.copy_(torch.tensor([1.0, 0.0, 3.0]))
    leaf = x.to(kind).requires_grad_()
    expected = model(leaf)
    expected.backward(grad.to(kind))
    parts, grads = ([v.cuda() for v in y.split([4, 2])] for y in (x, grad))
    weight, bias = (p.detach().cuda() for p in (model.weight, model.bias))
    running = torch.zeros(3, dtype=kind).cuda(), torch.ones(3, dtype=kind).cuda()
    stats = [torch.batch_norm_stats(part, 1e-5) for part in parts]
    assert all(s.dtype is kind for pair in stats for s in pair)
    counts = torch.tensor([20.0, 10.0], dtype=kind).cuda()
    both = [torch.stack(column) for column in zip(*stats, strict=True)]
    mean, invstd = torch.batch_norm_gather_stats_with_counts(parts[0], *both, *running, 0.25, 1e-5, counts)
    near = {"rtol": 1e-9, "atol": 1e-9} if kind is torch.float64 else {"rtol": 2e-3, "atol": 4e-3}
    torch.testing.assert_close(running[0].cpu(), model.running_mean, **near)
    torch.testing.assert_close(running[1].cpu(), model.running_var, **near)
    found = torch.cat([torch.batch_norm_elemt(part, weight, bias, mean, invstd, 1e-5) for part in parts])
    assert found.dtype is dtype
    torch.testing.assert_close(found.cpu().to(kind), expected.detach(), **near)
    sums = [
        torch.batch_norm_backward_reduce(g, p, mean, invstd, weight, True, True, True)
        for g, p in zip(grads, parts, strict=True)
    ]
    dy, dy_xmu, of_weight, of_bias = (a + b for a, b in zip(*sums, strict=True))
    torch.testing.assert_close(of_weight.cpu(), model.weight.grad, rtol=near["rtol"], atol=10 * near["atol"])
    torch.testing.assert_close(of_bias.cpu(), model.bias.grad, rtol=near["rtol"], atol=10 * near["atol"])
    back = [
        torch.batch_norm_backward_elemt(g, p, mean, invstd, weight, dy, dy_xmu, counts.int())
        for g, p in zip(grads, parts, strict=True)
    ]
    torch.testing.assert_close(torch.cat(back).cpu().to(kind), leaf.grad, **near)


@pytest.mark.cuda
def test_batches_of_one_size() -> None:
    x = torch.randn(4, 3).cuda()
    mean, invstd = (
        torch.stack(pair) for pair in zip(*(torch.batch_norm_stats(p, 1e-5) for p in x.split(2)), strict=True)
    )
    found = torch.batch_norm_gather_stats(x, mean, invstd, None, None, 0.1, 1e-5, 2)
    for a, b in zip(found, torch.batch_norm_stats(input=x, eps=1e-5), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.batch_norm_backward_reduce(x, x, mean[0], invstd[0], None, False, False, False) == (None,) * 4
