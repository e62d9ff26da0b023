"""Gradients that a compiled step replaces: their memory is free before the step runs, where nobody else sees it."""

import weakref

import pytest

import rushlight as torch
from rushlight._backends.cpu.runtime.storage import memory_stats, reset_peak

CALLS = 8  # after so many the conditions are asked natively: no variable holds a gradient


@pytest.fixture
def trained():
    torch.manual_seed(0)
    weight, x = torch.nn.Parameter(torch.randn(256, 256)), torch.randn(256, 256)

    def step(x):
        weight.grad = None
        loss = (x @ weight).tanh().sum()
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=1e-3)
        return loss.detach()

    compiled = torch.compile(step, fullgraph=True)
    for _ in range(CALLS):
        compiled(x)
    return weight, lambda: compiled(x)


def peak_of(call):
    reset_peak()
    before = memory_stats()["allocated"]
    call()
    return memory_stats()["peak_allocated"] - before


def test_old_gradients_make_room(trained):
    weight, step = trained
    free = peak_of(step)
    held = weight.grad
    assert peak_of(step) - free >= 4 * weight.numel() and held is not weight.grad


@pytest.mark.parametrize("hold", [lambda g: g, lambda g: g.view(-1), lambda g: g.numpy()])
def test_what_somebody_holds_stays(trained, hold):
    weight, step = trained
    wanted = weight.grad.flatten().tolist()
    held = hold(weight.grad)
    step()
    assert torch.as_tensor(held).flatten().tolist() == wanted != weight.grad.flatten().tolist()


def test_weak_references_see_whole_tensors(trained):
    weight, step = trained
    seen = []
    reference = weakref.ref(weight.grad, lambda _: seen.append(True))
    step()
    assert reference() is None and seen == [True]
