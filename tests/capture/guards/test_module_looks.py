"""Calls of compiled modules whose hooks and functions change between them, once native code knows how they were."""

from __future__ import annotations

import gc
import weakref

import pytest

import rushlight as torch
from rushlight._capture.trace.guards.unchanged import Looks
from rushlight._host.dict_versions import dicts_are_watched
from rushlight._native.mutable_objects import supported
from rushlight.nn.modules import module as modules

CALLS = 6


class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def looks_of(compiled):
    return compiled.__dict__["_direct"][1]


@pytest.fixture
def called():
    """A compiled module of a class of its own that was called a few times, and its argument."""
    torch.compiler.reset()
    kind = type("Twice", (Twice,), {"forward": Twice.forward})
    compiled, x = torch.compile(kind()), torch.ones(3)
    for _ in range(CALLS):
        assert compiled(x).tolist() == [2, 2, 2]
    if supported() and dicts_are_watched():
        assert looks_of(compiled).table is not None
    return compiled, x


def hooked(module, args, output):
    return output + 1


def prepared(module, args):
    return (args[0] + 1,)


@pytest.mark.parametrize("of", ["module", "compiled"])
@pytest.mark.parametrize("hook, register", [(hooked, "register_forward_hook"), (prepared, "register_forward_pre_hook")])
def test_hooks_that_come_and_go(called, of, hook, register):
    compiled, x = called
    handle = getattr(compiled._orig_mod if of == "module" else compiled, register)(hook)
    wanted = 2 * x + 1 if hook is hooked else 2 * (x + 1)
    for _ in range(CALLS):
        assert torch.equal(compiled(x), wanted)
    handle.remove()
    for _ in range(CALLS):
        assert torch.equal(compiled(x), 2 * x)


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_hooks_of_all_modules(called):
    compiled, x = called
    seen = []
    handle = modules.register_module_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
    compiled(x)
    handle.remove()
    assert "Twice" in seen
    compiled(x)
    assert len(seen) <= 2


def test_functions_that_are_replaced(called):
    compiled, x = called
    module = compiled._orig_mod
    module.forward = lambda x: 3 * x
    assert torch.equal(compiled(x), 3 * x)
    del module.forward
    assert torch.equal(compiled(x), 2 * x)
    type(module).forward = lambda self, x: 5 * x
    assert torch.equal(compiled(x), 5 * x)


def test_other_attributes_change_nothing(called):
    compiled, x = called
    module = compiled._orig_mod
    for count in range(40):
        module.count = count
        assert torch.equal(compiled(x), 2 * x)
    assert looks_of(compiled).table is None  # what changes all the time is noted no more
    handle = module.register_forward_hook(hooked)
    assert torch.equal(compiled(x), 2 * x + 1)
    handle.remove()


def test_another_dict_is_looked_at_anew():
    held, containers = {"a": {}}, lambda given: [given["a"]]
    looks = Looks(lambda given: not given["a"], containers, [], Twice)
    assert looks(held)
    if looks.table is not None:
        assert looks.ask(looks.table, (held,)) == ()
        assert looks.ask(looks.table, (dict(held),)) is None
        held["a"][1] = 2
        assert looks.ask(looks.table, (held,)) is None
    assert not looks({"a": {1: 2}}) and looks.table is None


def test_a_compiled_module_dies_without_the_collector():
    compiled, x = torch.compile(Twice()), torch.ones(2)
    for _ in range(CALLS):
        compiled(x)
    there = weakref.ref(compiled)
    gc.disable()
    try:
        del compiled
        assert there() is None
    finally:
        gc.enable()


def test_a_compiled_module_is_followed_by_other_traces():
    module = Twice()
    compiled, x = torch.compile(module), torch.ones(2)
    for _ in range(CALLS):  # its looks are native by now
        compiled(x)
    around = torch.compile(lambda x: compiled(x) + 1, fullgraph=True)
    assert torch.equal(around(x), 2 * x + 1)
    handle = module.register_forward_hook(lambda *_: x * 5)
    assert torch.equal(around(x), x * 6)
    handle.remove()
    assert torch.equal(around(x), 2 * x + 1)
