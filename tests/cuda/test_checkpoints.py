"""`torch.utils.checkpoint` on a GPU: the second computation draws the numbers of the first, under the casts of the first."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cuda.emulated import outcomes_of

import rushlight as torch
from rushlight import nn
from rushlight.utils import checkpoint as page
from rushlight.utils.checkpoint import checkpoint, checkpoint_sequential

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_random_numbers_are_drawn_again(reentrant: bool, compiled: bool) -> None:
    def step(x: Any) -> Any:
        y = checkpoint(lambda v: nn.functional.dropout(v, 0.5), x, use_reentrant=reentrant)
        y.sum().backward()
        return y

    run = torch.compile(step) if compiled else step
    torch.manual_seed(0)
    x = torch.ones(1000, device="cuda", requires_grad=True)
    first = run(x)
    assert torch.equal(x.grad, first)  # 0 or 2, where the mask of the first computation says so
    x.grad = None
    second = run(x)
    assert torch.equal(x.grad, second) and not torch.equal(first, second)


def test_numbers_go_on_as_if_nothing_had_been_drawn_again() -> None:
    found = []
    for keeps in (False, True):
        torch.manual_seed(3)
        x = torch.ones(50, device="cuda", requires_grad=True)
        dropout = lambda v: nn.functional.dropout(v, 0.5)
        y = checkpoint(dropout, x, use_reentrant=False) if keeps else dropout(x)
        y.sum().backward()
        found.append(torch.rand(5, device="cuda"))
    assert torch.equal(*found)


@pytest.mark.parametrize("reentrant", [False, True])
def test_casts_are_those_of_the_first_computation(reentrant: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)]).cuda()
    found = []
    for keeps in (False, True):
        x = torch.linspace(-1, 1, 64, device="cuda").view(8, 8).half().requires_grad_()
        model.zero_grad()
        with torch.autocast("cuda"):
            y = checkpoint_sequential(model, 2, x, use_reentrant=reentrant) if keeps else model(x)
        assert y.dtype is torch.float16
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y.sum().backward()
        found.append([x.grad, *[p.grad for p in model.parameters()]])
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)


def test_states_of_devices() -> None:
    x = torch.ones(2, device="cuda")
    devices, states = page.get_device_states(x, [x, torch.ones(1)])
    first = torch.rand(3, device="cuda")
    page.set_device_states(devices, states, device_type="cuda")
    assert devices == [0] and torch.equal(torch.rand(3, device="cuda"), first)


def test_a_generator_that_is_made_inside_starts_anew_behind() -> None:
    program = """
torch.manual_seed(5)
with torch.random.fork_rng():
    torch.rand(7, device="cuda")
found = torch.rand(3, device="cuda")
torch.manual_seed(5)
assert torch.equal(found, torch.rand(3, device="cuda"))
"""
    assert outcomes_of("import rushlight as torch\n", {"": program}) == {"": ""}
