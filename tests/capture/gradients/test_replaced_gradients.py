"""Gradients that a compiled step replaces: their memory is free before the step runs, where nobody else sees it."""

import weakref

import pytest

import rushlight as torch
from rushlight._backends.cpu.runtime.storage import memory_stats, reset_peak
from rushlight._capture.trace.reports.events import COUNTERS

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


# ***** gradients that nobody looks at *****


def stepping(before=lambda w: None, inside=lambda w, old: 0.0, used=True):
    """Weights of 0.5, and a step that drops their gradients; `before` sees them earlier, `inside` what that gave."""
    weights = [torch.nn.Parameter(torch.full((256, 256), 0.5)), torch.nn.Parameter(torch.full((3,), 0.5))]
    optimizer = torch.optim.SGD(weights, lr=0.25)

    def step(x):
        old = before(weights)
        optimizer.zero_grad()
        loss = (weights[0] * x).mean() + (weights[1].sum() if used else 0.0)
        loss.backward()
        optimizer.step()
        return loss.detach(), inside(weights, old)

    return weights, step


def states(weights):
    return [(w.tolist(), None if w.grad is None else w.grad.tolist()) for w in weights]


def test_a_step_that_drops_gradients_is_compiled_once():
    x = torch.full((256, 256), 2.0)
    (wanted, eager), (weights, step) = stepping(), stepping()
    compiled = torch.compile(step, fullgraph=True)
    before = COUNTERS["stats"]["unique_graphs"]
    for _ in range(3):
        assert compiled(x)[0].item() == eager(x)[0].item()
        assert states(weights) == states(wanted)
    for w in weights:
        w.grad = None  # as at the first call
    assert compiled(x)[0].item() == eager(x)[0].item() and states(weights) == states(wanted)
    assert COUNTERS["stats"]["unique_graphs"] == before + 1


def test_a_gradient_that_the_program_does_not_make_is_dropped():
    (wanted, eager), (weights, step) = stepping(used=False), stepping(used=False)
    compiled, x = torch.compile(step, fullgraph=True), torch.ones(256, 256)
    for _ in range(2):
        for each in (wanted, weights):
            each[1].grad = torch.ones(3)
        compiled(x), eager(x)
        assert weights[1].grad is None and states(weights) == states(wanted)


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        (lambda w: w[0].grad, lambda w, old: None if old is None else (old * 3).sum()),
        (lambda w: w[0].grad is None, lambda w, old: float(old)),
        (lambda w: [each.grad for each in w], lambda w, old: old[1]),
    ],
)
def test_gradients_that_were_read_before_are_asked_for(before, inside):
    (wanted, eager), (weights, step) = stepping(before, inside), stepping(before, inside)
    compiled, x = torch.compile(step), torch.full((256, 256), 3.0)
    for k in range(4):
        found, expected = compiled(x)[1], eager(x)[1]
        assert (found is None) == (expected is None) and (
            found is None or torch.equal(*map(torch.as_tensor, (found, expected)))
        )
        assert states(weights) == states(wanted)
        if k == 2:
            for w in (*weights, *wanted):
                w.grad = None


def test_a_dropped_gradient_that_is_used_under_another_name():
    weights, step = stepping(inside=lambda w, old: (kept[0] + 1).sum())
    kept = [torch.full((256, 256), 2.0)]
    weights[0].grad = kept[0]
    compiled = torch.compile(step, fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(256, 256))[1].item() == 3.0 * 256 * 256
        assert weights[0].grad is not kept[0] and kept[0][0, 0].item() == 2.0


def test_gradients_that_a_first_backward_adds_to():
    """`zero_grad` comes after a backward that added to what there was."""
    w = torch.nn.Parameter(torch.ones(3))

    def step(x):
        (w * x).sum().backward()
        seen = w.grad.clone()
        w.grad = None
        (w * x * 2).sum().backward()
        return seen

    compiled, x = torch.compile(step, fullgraph=True), torch.tensor([1.0, 2.0, 3.0])
    assert [compiled(x).tolist() for _ in range(3)] == [[1.0, 2.0, 3.0], [3.0, 6.0, 9.0], [3.0, 6.0, 9.0]]
    assert w.grad.tolist() == [2.0, 4.0, 6.0]
