"""Handles of hooks that a compiled program puts somewhere take these hooks away, and those that it is given do when it says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.capture.changed.worlds import Plain

import rushlight as torch
from rushlight import nn
from rushlight.nn.modules import hooks

KINDS: dict[str, Callable[[Any], Any]] = {
    "forward": lambda s: s.net.register_forward_hook(lambda m, a, out: out + 1),
    "first": lambda s: s.net.register_forward_hook(lambda m, a, out: out * 2, prepend=True),
    "keywords": lambda s: s.net.register_forward_hook(lambda m, a, k, out: out + 1, with_kwargs=True),
    "always": lambda s: s.net.register_forward_hook(lambda m, a, out: out + 1, always_call=True),
    "before": lambda s: s.net.register_forward_pre_hook(lambda m, a: (a[0] + 1,)),
    "backward": lambda s: s.net.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)),
    "every module": lambda s: hooks.register_module_forward_hook(lambda m, a, out: out + 0.5),
    "tensor": lambda s: s.net.weight.register_hook(lambda g: g * 3),
    "step": lambda s: s.best.register_step_pre_hook(lambda *a: s.log.append(1)),
}


def look(s: Any, x: Any) -> list[Any]:
    y = s.net(x)
    grads = torch.autograd.grad(y.sum(), [s.net.weight, x])
    s.best.step()
    return [y, *grads]


def calls(s: Any, kind: str, compiles: bool) -> list[Any]:
    def go(x: Any, change: int) -> Any:
        first = look(s, x)
        if change == 1:
            s.handles.append(KINDS[kind](s))
        if change == 2:
            s.handles.pop().remove()
        return first, look(s, x)

    call, seen = torch.compile(go) if compiles else go, []
    for change in (1, 0, 2, 1, 1, 2, "removed", 0):
        if change == "removed":
            s.handles.pop().remove()
        else:
            x = torch.arange(4.0).reshape(2, 2).requires_grad_()
            seen.append([[each.tolist() for each in part] for part in call(x, change)])
    return [seen, s.log]


@pytest.mark.parametrize("kind", KINDS)
def test_handles_of_a_program_take_its_hooks_away(kind, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 100)
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        net = nn.Linear(2, 2)
        world = Plain(net=net, best=torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), handles=[], log=[])
        results.append(calls(world, kind, compiles))
        assert not world.handles
    assert results[0] == results[1]


def test_each_call_puts_a_hook_of_its_own():
    net, handles = nn.ReLU(), []

    def go(x: Any) -> Any:
        handles.append(net.register_forward_hook(lambda m, a, out: out + 1))
        return x * 2

    compiled = torch.compile(go)
    compiled(torch.ones(2))
    handles[0].remove()
    compiled(torch.ones(2))
    handles[0].remove()  # does nothing any more
    assert net(torch.ones(2)).tolist() == [2, 2]
    assert handles[0].id != handles[1].id
    handles[1].remove()
    assert net(torch.ones(2)).tolist() == [1, 1]


def test_a_handle_from_outside_as_a_context():
    p = nn.Parameter(torch.ones(2))

    def go(x: Any, handle: Any) -> Any:
        with handle:
            first = torch.autograd.grad((p * x).sum(), p)[0]
        return first, torch.autograd.grad((p * x).sum(), p)[0]

    first, second = torch.compile(go)(torch.ones(2), p.register_hook(lambda g: g * 3))
    assert (first.tolist(), second.tolist()) == ([3, 3], [1, 1])
