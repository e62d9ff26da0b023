"""Each way to change a dict changes its word; so do assignments to the attributes that it shows."""

from __future__ import annotations

import os
import random
import sys
import types
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._capture.trace import compile_function
from rushlight._host.dict_versions import dicts_are_watched, version_place
from rushlight._native.mutable_objects import class_dict, supported, word_at

assert torch.ones(1) is not None  # the runtime knows its types now
pytestmark = pytest.mark.skipif(
    not supported() or not dicts_are_watched(), reason="this version of Python was not tried"
)


class Plain:
    """An object with attributes."""


def word(held: dict[Any, Any]) -> tuple[int, int]:
    place = version_place(held)
    assert place is not None
    return place, word_at(place)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "item": lambda d: d.__setitem__("a", 5), "new item": lambda d: d.__setitem__("z", 5), "number": lambda d: d.__setitem__(3, 5),
    "deleted": lambda d: d.__delitem__("a"), "pop": lambda d: d.pop("a"), "popitem": lambda d: d.popitem(), "clear": lambda d: d.clear(),
    "update": lambda d: d.update(a=7), "many": lambda d: d.update({str(k): k for k in range(100)}), "pairs": lambda d: d.update([("a", 7)]),
    "union": lambda d: d.__ior__({"a": 7}), "setdefault": lambda d: d.setdefault("z", 5), "again": lambda d: d.__init__(a=6),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda *a, **k: defaultdict(list, *a, **k), "attributes", "class"])
def test_changes(name: str, kind: Any) -> None:
    if kind == "class":
        held = class_dict(type("Made", (), {"a": 1, "b": 2}))
    elif kind == "attributes":
        owner = Plain()
        owner.a, owner.b = 1, 2  # type: ignore[attr-defined]
        held = owner.__dict__
    else:
        held = kind(a=1, b=2)
    place, before = word(held)
    assert held["a"] == 1 and held.get("z") is None and len(held) >= 2 and word_at(place) == before
    if kind == "class" and name in ("clear", "again"):
        return
    CHANGES[name](held)
    assert word_at(place) != before


def test_what_dies() -> None:
    held = [{"a": 1}]
    place, before = word(held[0])
    held.clear()
    if sys.version_info >= (3, 12):  # elsewhere the word is the dict's
        assert word_at(place) != before


def test_attributes_of_objects() -> None:
    """As the interpreter specialises assignments, and after the object's dict was seen."""

    def assign(owner: Any, value: Any) -> None:
        owner.a = value

    for seen_before in (False, True):
        owner: Any = Plain()
        if seen_before:
            vars(owner)
        owner.a, owner.b = 1, 2
        held = owner.__dict__
        for k in range(40):
            place, before = word(held)
            assign(owner, object())
            assert word_at(place) != before, k
        assert vars(owner) is held and list(held) == ["a", "b"] and owner.b == 2
        for change, name, *value in ((setattr, "c", 1), (delattr, "a"), (setattr, "a", 3)):
            place, before = word(held)
            change(owner, name, *value)  # type: ignore[operator]
            assert word_at(place) != before
        assert held == {"b": 2, "c": 1, "a": 3} and owner.a == 3


def test_classes_modules_and_functions() -> None:
    made, module = type("Made", (), {"a": 1}), types.ModuleType("made")
    function: Any = lambda: None
    module.a = function.a = 1  # type: ignore[attr-defined]
    for owner, held in ((made, class_dict(made)), (module, vars(module)), (function, vars(function))):
        for k in range(20):
            place, before = word(held)
            owner.a = 10000 + k
            assert word_at(place) != before
        place, before = word(held)
        owner.a = 5
        assert word_at(place) != before


def test_random_changes() -> None:
    """A word that stands still belongs to a dict that does, whatever happens to many that share places."""
    draw = random.Random(0)
    owners: list[Any] = [Plain() for _ in range(50)]
    for k, owner in enumerate(owners):
        owner.a = k
    noted: dict[int, tuple[int, int, dict[str, Any]]] = {}
    for step in range(4000):
        k = draw.randrange(50)
        owner = owners[k]
        action = draw.randrange(6)
        if action == 0 and vars(owner):
            noted[k] = (*word(vars(owner)), dict(vars(owner)))
        elif action == 1:
            owners[k] = Plain()
            owners[k].a = step
            noted.pop(k, None)
        elif action == 2:
            setattr(owner, draw.choice("abcdef"), step)
        elif action == 3 and vars(owner):
            delattr(owner, draw.choice(list(vars(owner))))
        elif action == 4 and noted:
            vars(owner).update({draw.choice("abc"): step})
        for other, (place, before, was) in noted.items():
            if word_at(place) == before:
                assert vars(owners[other]) == was


def test_dicts_are_not_kept() -> None:
    owner: Any = Plain()
    owner.a = 1
    word(vars(owner))
    seen = weakref.ref(owner)
    del owner
    assert seen() is None


def test_guards_of_objects_that_no_longer_show_their_own_values() -> None:
    """A module's attributes are seen to change whether its dict was noted before or is noted by the guard."""
    module = nn.Linear(2, 2)
    module.scale = 2.0  # type: ignore[assignment]
    compiled = compile_function(lambda x: module(x) * module.scale)
    x = torch.ones(1, 2)
    for scale in (2.0, 2.0, 2.0, 3.0, 3.0, 4.0, 2.0):
        module.scale = scale  # type: ignore[assignment]
        for _ in range(3):
            assert torch.equal(compiled(x), module(x) * scale)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_counts_for_itself() -> None:
    held = {"a": 1}
    place, before = word(held)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are there
        child = os.fork()
    if not child:
        held["a"] = 2
        os._exit(word_at(place) == before)
    assert os.waitpid(child, 0)[1] == 0
    assert word_at(place) == before
    held["a"] = 2
    assert word_at(place) != before
