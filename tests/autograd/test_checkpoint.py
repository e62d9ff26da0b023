"""Checkpoints: the same gradients from less memory."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop


def gradients(wrap: Any, function: Any, *values: Any) -> list[Any]:
    torch.manual_seed(0)
    leaves = [torch.tensor(v, requires_grad=True) for v in values]
    out = wrap(function, *leaves)
    (out * torch.arange(1.0, out.numel() + 1).reshape(out.shape)).sum().backward()
    return [out.tolist(), torch.rand(1).item(), *[x.grad.tolist() for x in leaves]]


def plainly(function: Any, *args: Any) -> Any:
    return function(*args)


FORMS = {
    "reentrant": lambda f, *args: checkpoint(f, *args, use_reentrant=True),
    "not reentrant": lambda f, *args: checkpoint(f, *args, use_reentrant=False),
    "nested": lambda f, *args: checkpoint(
        lambda *a: checkpoint(f, *a, use_reentrant=False), *args, use_reentrant=False
    ),
}
FUNCTIONS = {
    "chain": lambda x, y: ((x * y).exp() * x).tanh(),
    "dropout": lambda x, y: torch.nn.functional.dropout(x * y, 0.5) * x.sin(),
    "views and in place": lambda x, y: (x * y).view(-1).mul_(2).exp(),
    "several uses": lambda x, y: (x.softmax(0) + y.sigmoid()).sqrt() * x,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_gradients(form: str, name: str) -> None:
    values = [0.3, 0.5, 0.9], [1.0, 2.0, 0.5]
    assert gradients(FORMS[form], FUNCTIONS[name], *values) == gradients(plainly, FUNCTIONS[name], *values)


def test_nothing_is_kept() -> None:
    def memory(wrap: Any) -> int:
        from rushlight._backends.cpu.runtime.storage import memory_stats

        x = torch.ones(100_000, requires_grad=True)
        before = memory_stats()["allocated"]
        y = wrap(lambda v: v.exp().sin().exp().sum(), x)
        found = memory_stats()["allocated"] - before
        y.backward()
        return found

    assert memory(plainly) > 700_000
    assert memory(FORMS["not reentrant"]) < 10_000
    assert memory(FORMS["reentrant"]) < 10_000


def test_backward_twice() -> None:
    x = torch.tensor([0.5], requires_grad=True)
    y = checkpoint(lambda v: v.exp() * v, x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, 2 * first)


def test_keywords_and_no_grad() -> None:
    x = torch.ones(2, requires_grad=True)
    y = checkpoint(lambda v, *, k: v * k, x, use_reentrant=False, k=3)
    y.sum().backward()
    assert x.grad.tolist() == [3, 3]
    with torch.no_grad():
        assert not checkpoint(lambda v: v * 2, x, use_reentrant=False).requires_grad
    with pytest.warns(UserWarning, match="use_reentrant"):
        checkpoint(lambda v: v * 2, x)
    with pytest.raises(ValueError, match="keyword"):
        checkpoint(lambda v, k: v, x, use_reentrant=True, k=3)


def test_a_function_that_changes_its_mind() -> None:
    calls: list[int] = []

    def fickle(v: Any) -> Any:
        calls.append(1)
        return v.exp() if len(calls) == 1 else v[:1].exp()

    x = torch.ones(2, requires_grad=True)
    y = checkpoint(fickle, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="different metadata"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_sequences(reentrant: bool) -> None:
    torch.manual_seed(1)
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)])
    x = torch.randn(2, 4, requires_grad=True)
    net(x).square().sum().backward()
    wanted = [x.grad.clone(), *[p.grad.clone() for p in net.parameters()]]
    x.grad = None
    net.zero_grad()
    checkpoint_sequential(net, 2, x, use_reentrant=reentrant).square().sum().backward()
    found = [x.grad, *[p.grad for p in net.parameters()]]
    assert all(torch.allclose(f, w) for f, w in zip(found, wanted, strict=True))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_block_that_ends_in_place_runs_whole_again(reentrant: bool) -> None:
    """The result of the in-place operator at the end is saved too: its statistics are counted twice, as PyTorch's, and it is not kept."""
    nn = torch.nn
    block = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, momentum=0.5), nn.ReLU(inplace=True))
    x = torch.randn(4, 3, requires_grad=True)
    with torch.no_grad():
        mean = block[0](x).mean(0)
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert torch.allclose(block[1].running_mean, 0.75 * mean, atol=1e-6)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("form", ["gc", "cg", "ccg", "cgc", "gcc", "cgcg"])
def test_a_backward_inside_of_a_checkpoint(early: bool, form: str) -> None:
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def twice(x: torch.Tensor) -> torch.Tensor:
        torch.autograd.grad(x.sin().exp(), x)
        return x.sin().exp().sin()

    def nested(checkpointed: bool) -> torch.Tensor:
        found: Any = twice
        for letter in reversed(form):
            inner = found
            if letter == "g":
                found = lambda x, f=inner: torch.autograd.grad(f(x), x, create_graph=True)[0]
            elif checkpointed:
                found = lambda x, f=inner: checkpoint(f, x, use_reentrant=False)
        return torch.autograd.grad(found(x), x)[0]

    with set_checkpoint_early_stop(early):
        assert nested(True).item() == pytest.approx(nested(False).item(), rel=1e-12)
