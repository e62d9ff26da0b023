"""Special methods that give something of another type: compiled functions raise what Python raises."""

from __future__ import annotations

import enum
import itertools
import operator
from typing import Any

import pytest

import rushlight as torch

# The method, what asks for it, and what the method gives.
CASES: dict[str, tuple[str, Any, list[Any]]] = {
    "if": ("__bool__", lambda o, x: x if o else -x, [1.2, 1, None, "a", True]),
    "not": ("__bool__", lambda o, x: (not o, x), [1]),
    "and": ("__bool__", lambda o, x: (o and 1, x), [1.5]),
    "bool": ("__bool__", lambda o, x: x if bool(o) else -x, [2]),
    "any": ("__bool__", lambda o, x: (any([o]), x), [1.5]),
    "if of a length": ("__len__", lambda o, x: x if o else -x, [-1, 1.5, "a", 0, 2]),
    "len": ("__len__", lambda o, x: x + len(o), [1.5, -1, "a", True, 2]),
    "int": ("__int__", lambda o, x: x + int(o), [1.5, "a", 3]),
    "float": ("__float__", lambda o, x: x + float(o), [1, "a", 2.5]),
    "complex": ("__complex__", lambda o, x: (complex(o), x), [1, "a", 2j]),
    "index": ("__index__", lambda o, x: ([x, -x][o], operator.index(o)), [1.0, "a", 1]),
    "str": ("__str__", lambda o, x: (str(o), x), [1, None, "a"]),
    "repr": ("__repr__", lambda o, x: (repr(o), x), [1, None, "a"]),
    "f-string": ("__str__", lambda o, x: (f"{o}", x), [1, "a"]),
    "format": ("__format__", lambda o, x: (f"{o:3}", x), [1, "a"]),
    "in": ("__contains__", lambda o, x: (3 in o, x), [1.5, None, 0]),
    "for": ("__iter__", lambda o, x: ([-y for y in o], x), [1.5, None, [1]]),
    "list": ("__iter__", lambda o, x: (list(o), x), [1.5, [1]]),
}


def _outcome(function: Any, name: str, value: Any) -> str:
    asked = type("Asked", (), {name: lambda self: value, "__contains__": lambda self, item: value})()
    try:
        return repr(function(asked, torch.ones(2)))
    except (TypeError, ValueError) as error:
        return repr(error)


@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("case", CASES)
def test_results_of_special_methods(case: str, backend: str) -> None:
    name, function, values = CASES[case]
    for value in values:
        compiled = torch.compile(function, backend=backend)
        assert _outcome(compiled, name, value) == _outcome(function, name, value)


@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_older_names_of_is_compiling(backend: str) -> None:
    def function(x: Any) -> Any:
        return x + 1 if torch._utils.is_compiling() else x

    assert torch.compile(function, backend=backend)(torch.ones(1)).item() == 2


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Way(enum.Flag):
    IN = 1
    OUT = 2


class Held:
    pass


class Listing(type):
    def __iter__(cls) -> Any:
        seen.append("asked")
        return iter(cls.held)  # type: ignore[attr-defined]


class Listed(metaclass=Listing):
    held = (Held(), Held())

    def __class_getitem__(cls, number: int) -> Held:
        return cls.held[number]


seen: list[str] = []
MEMBERS = {
    "list": lambda: list(Size),
    "loop": lambda: [each for each in Size],  # noqa: C416 - the loop is what is tested
    "next": lambda: [next(iter(Size))],
    "by name": lambda: [Size["LARGE"]],
    "by value": lambda: [Size(2), Way(3)],
    "of flags": lambda: [Way.IN | Way.OUT, ~Way.IN, *(Way.IN | Way.OUT)],
    "keys": lambda: [*dict.fromkeys(Size, 1)],
    "zip": lambda: [pair[0] for pair in zip(Size, "ab", strict=True)],
    "metaclass, list": lambda: list(Listed),  # type: ignore[call-overload]
    "metaclass, tuple": lambda: [*tuple(Listed)],  # type: ignore[arg-type]
    "metaclass, map": lambda: list(map(lambda each: each, Listed)),  # type: ignore[call-overload]  # noqa: C417
    "metaclass, fromkeys": lambda: [*dict.fromkeys(Listed)],  # type: ignore[call-overload]
    "metaclass, chain": lambda: [*itertools.chain(Listed)],  # type: ignore[arg-type]
    "class_getitem": lambda: [Listed[1]],
}


@pytest.mark.parametrize("name", MEMBERS)
def test_what_a_class_gives_is_the_object_itself(name: str) -> None:
    """Members of enumerations and objects that a metaclass hands out are no copies, and its code runs once a call."""
    members = MEMBERS[name]
    expected, runs = members(), []
    compiled = torch.compile(lambda x: (members(), x + 1))
    for _ in range(2):
        seen.clear()
        found, _ = compiled(torch.ones(2))
        runs.append(len(seen))
        assert [type(each) for each in found] == [type(each) for each in expected]
        assert all(each is other for each, other in zip(found, expected, strict=True))
    assert runs == [name.startswith("metaclass")] * 2
