"""Two objects that become one, and one that becomes two: what a compiled function compared or wrote sees which it is."""

from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.capture.changed.worlds import Plain

import rushlight as torch
from rushlight import nn

BASE = torch.ones(2)


class Slots:
    __slots__ = ("v",)

    def __init__(self) -> None:
        self.v = 1


KINDS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1], "dict": lambda: {"a": 1}, "no items": dict, "deque": deque, "ordered": OrderedDict, "counter": Counter,
    "default": lambda: defaultdict(list), "set": set, "tuple": lambda: (torch.ones(1),), "frozenset": lambda: frozenset([1, 2]),
    "slice": lambda: slice(1, 2), "proxy": lambda: types.MappingProxyType({}), "object": lambda: Plain(v=1), "slots": Slots, "error": KeyError,
    "namespace": lambda: types.SimpleNamespace(v=1), "function": lambda: lambda x: x, "method": lambda: Plain(v=1).go, "module": nn.ReLU,
    "array": lambda: np.ones(2), "iterator": lambda: iter([1, 2]), "tensor": lambda: torch.ones(2), "view": lambda: BASE.view(2),
    "detached": lambda: BASE.detach(), "generator": lambda: torch.Generator().manual_seed(1), "optimizer": lambda: torch.optim.SGD([nn.Parameter(BASE)]),
}  # fmt: skip


def append(x: Any, a: Any, b: Any) -> Any:
    a.append(1)
    return x + len(b)


def set_item(x: Any, a: Any, b: Any) -> Any:
    a["q"] = 3
    return x + len(b)


def set_attribute(x: Any, a: Any, b: Any) -> Any:
    a.v = 5
    return x * b.v


def evaluate(x: Any, a: Any, b: Any) -> Any:
    a.eval()
    return x + b.training


def put_hook(x: Any, a: Any, b: Any) -> Any:
    a.register_forward_hook(lambda m, given, out: out + 1)
    return b(x)


def step(x: Any, a: Any, b: Any) -> Any:
    return x + next(a) * 10 + next(b)


def use_both(x: Any, a: Any, b: Any) -> Any:
    return x * a + b + (a is b)


def same_results(f: Callable[..., Any], make: Callable[[], Any]) -> None:
    """Eager and compiled, with two objects, one, two; and with one, two, one."""
    held = Plain()

    def go(x: Any) -> Any:
        return f(x, held.a, held.b)

    for order in ((0, 1, 0), (1, 0, 1)):
        results = []
        for call in (go, torch.compile(go)):
            results.append([])
            for one in order:
                held.a = make()
                held.b = held.a if one else make()
                results[-1].append(call(torch.ones(2)).tolist())
        assert results[0] == results[1], order


@pytest.mark.parametrize("kind", KINDS)
def test_identity_is_compared_at_each_call(kind):
    same_results(lambda x, a, b: x + (a is b), KINDS[kind])


@pytest.mark.parametrize(
    "f, kind",
    [
        (append, "list"), (append, "deque"), (set_item, "dict"), (set_item, "ordered"), (set_attribute, "object"), (set_attribute, "slots"),
        (evaluate, "module"), (put_hook, "module"), (step, "iterator"), (use_both, "view"), (use_both, "detached"),
        (lambda x, a, b: x + (a == b), "object"), (lambda x, a, b: x + (a in [b]), "object"), (lambda x, a, b: x + len({a: 1, b: 2}), "object"),
    ],
)  # fmt: skip
def test_what_is_written_to_one_of_two_objects_is_seen_in_the_other_if_it_is_the_same(f, kind):
    same_results(f, KINDS[kind])


def test_layers_that_become_one_layer():
    net = nn.Sequential(nn.ReLU(), nn.ReLU())

    def go(x: Any) -> Any:
        net[0].seen = 1
        return net(x) + hasattr(net[1], "seen")

    compiled = torch.compile(go)
    assert compiled(BASE).tolist() == [1, 1]
    net[1] = net[0]
    assert compiled(BASE).tolist() == [2, 2]
