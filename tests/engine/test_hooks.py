"""The one object through which later modules give the engine what it needs."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

import rushlight  # noqa: F401 -- provides every hook
from rushlight._engine.core.hooks import HOOKS, OPS, Hooks, _Operators

LATER = ("plain_class_added", "forget_calls_of", "subclass_added")  # nothing needs to be done while nobody listens


def test_every_field_is_typed_and_set() -> None:
    names = set(Hooks.__slots__)
    assert names == set(Hooks.__annotations__)
    assert get_type_hints(Hooks).keys() >= names
    for name in names:
        value = getattr(HOOKS, name)
        assert getattr(value, "__name__", "") != "missing", f"nobody has set {name}"


@pytest.mark.parametrize(
    "name", [n for n in Hooks.__slots__ if callable(getattr(Hooks(), n)) and n not in (*LATER, "user_code")]
)
def test_a_missing_hook_says_who_sets_it(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"hook '{name}' is not set: `[a-z_.]+` sets it"):
        getattr(Hooks(), name)()


def test_there_are_no_other_fields() -> None:
    hooks: Any = Hooks()
    with pytest.raises(AttributeError):
        hooks.other = 1


def test_a_missing_operator_says_who_provides_it() -> None:
    with pytest.raises(RuntimeError, match="no operator 'add'"):
        _Operators()["add"]
    assert callable(OPS["add"])
