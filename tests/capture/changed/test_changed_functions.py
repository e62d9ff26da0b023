"""Functions whose defaults, code or cells change after they were compiled, or after what calls them was."""

from __future__ import annotations

import collections
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
import rushlight._dynamo as dynamo
from rushlight._capture.trace.segments import fronts

X = torch.arange(4.0)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    dynamo.reset()
    yield
    dynamo.reset()


def outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs).tolist()
    except TypeError as error:
        return str(error)


def checked(function: Callable[..., Any], changes: list[Callable[[], Any]], *args: Any, **kwargs: Any) -> None:
    """Compiled and plain calls give the same before and after each change, however often it was called."""
    compiled = torch.compile(function)
    for change in (lambda: None, *changes):
        change()
        expected = outcome(function, args, kwargs)
        for _ in range(8):  # after a few calls of a small function its own code takes over
            assert outcome(compiled, args, kwargs) == expected


def assigned(owner: Any, name: str, *values: Any) -> list[Callable[[], None]]:
    return [functools.partial(setattr, owner, name, value) for value in values]


def entry(owner: dict[str, Any], key: str, value: Any) -> Callable[[], None]:
    return functools.partial(owner.__setitem__, key, value)


def made(small: bool) -> tuple[Any, Any]:
    """Functions with a default, one by position and one by name; small ones run their own code after a few calls."""
    if small:
        return (lambda x, k=2: x * k), (lambda x, *, k=2: x * k)
    return (lambda x, k=2: (x * k + 1).relu()), (lambda x, *, k=2: (x * k + 1).relu())


def by_name(function: Any) -> list[Callable[[], None]]:
    return [
        *assigned(function, "__kwdefaults__", {"k": 3}), lambda: function.__kwdefaults__.update(k=5), *assigned(function, "__kwdefaults__", {}, None, {"k": 2}),
    ]  # fmt: skip


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("small", [True, False])
def test_own_defaults(small: bool, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not told:  # an interpreter whose functions tell nothing
        monkeypatch.setattr(fronts, "tells_of_functions", lambda _: False)
    first, second = made(small)
    checked(first, assigned(first, "__defaults__", (3,), (torch.ones(4),), None, (1, 2), (2,)), X)
    checked(second, by_name(second), X)


@pytest.mark.parametrize("small", [True, False])
def test_defaults_of_what_is_called(small: bool) -> None:
    first, second = made(small)
    checked(lambda x: first(x) * 2, assigned(first, "__defaults__", (3,), (torch.ones(4),), None, (1, 2), (2,)), X)
    checked(lambda x: second(x) * 2, by_name(second), X)


def test_more_defaults_than_before() -> None:
    def function(x: Any, k: int, j: int = 1) -> Any:
        return (x * k + j).relu()

    checked(lambda x: function(x, 3) * 2, assigned(function, "__defaults__", (2, 9), (2, 9, 10)), X)


class Owner(torch.nn.Module):
    def forward(self, x: Any, k: int = 2) -> Any:
        return (x * k + 1).relu()

    @classmethod
    def of_class(cls, x: Any, k: int = 2) -> Any:
        return (x * k + 1).relu()

    @staticmethod
    def alone(x: Any, k: int = 2) -> Any:
        return (x * k + 1).relu()


def test_defaults_of_methods() -> None:
    owner, forward = Owner(), Owner.forward
    checked(owner, assigned(forward, "__defaults__", (3,), (2,)), X)
    checked(owner.forward, assigned(forward, "__defaults__", (3,), (2,)), X)
    checked(lambda x: owner(x) * 2, assigned(forward, "__defaults__", (3,), (2,)), X)
    checked(lambda x: Owner.of_class(x), assigned(Owner.of_class.__func__, "__defaults__", (3,), (2,)), X)
    checked(lambda x: Owner.alone(x), assigned(Owner.alone, "__defaults__", (3,), (2,)), X)


def attributes(k: int) -> Any:
    class Attributes:
        w = 1

        @property
        def read(self, j: int = 2) -> int:
            return k * j

        @read.setter
        def read(self, value: int, j: int = 2) -> None:
            self.w = value * j

        @functools.cached_property
        def cached(self) -> int:
            return k

        def __getattr__(self, name: str, j: int = 2) -> int:
            if name != "missing":
                raise AttributeError(name)
            return j

    return Attributes


def test_functions_behind_attributes() -> None:
    kind = attributes(3)
    owner, getter, setter = kind(), kind.read.fget, kind.read.fset

    def written(x: Any) -> Any:
        owner.read = 3
        return (x * owner.w + 1).relu()

    cell = getter.__closure__[0]
    checked(
        lambda x: (x * owner.read + 1).relu(),
        [*assigned(getter, "__defaults__", (3,)), *assigned(cell, "cell_contents", 7),
         *assigned(getter, "__code__", attributes(1).cached.func.__code__)],
        X,
    )  # fmt: skip
    checked(written, assigned(setter, "__defaults__", (3,)), X)
    checked(lambda x: (x * owner.missing + 1).relu(), assigned(kind.__getattr__, "__defaults__", (3,)), X)
    checked(lambda x: (x * kind().cached + 1).relu(), assigned(cell, "cell_contents", 8), X)


def test_defaults_that_native_code_reads() -> None:
    pair = collections.namedtuple("pair", "a b", defaults=(2,))

    def function(x: Any, k: int = 2, *, j: int = 3) -> Any:
        return x

    def read(x: Any) -> Any:
        found = inspect.signature(function).parameters
        return (x * found["k"].default + found["j"].default).relu()

    checked(lambda x: (x * pair(1).b + 1).relu(), assigned(pair.__new__, "__defaults__", (5,)), X)
    checked(read, [*assigned(function, "__defaults__", (5,)), *assigned(function, "__kwdefaults__", {"j": 7})], X)


def test_defaults_of_a_backward() -> None:
    def helper(g: Any, k: int = 2) -> int:
        return k

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any, k: int = 3) -> Any:
            return g * k * helper(g)

    weight = torch.ones(4, requires_grad=True)
    compiled = torch.compile(lambda w: Scaled.apply(w).sum())
    for k, j in [(3, 2), (5, 2), (5, 7), (3, 2)]:
        Scaled.backward.__defaults__, helper.__defaults__ = (k,), (j,)
        for _ in range(8):
            assert torch.autograd.grad(compiled(weight), weight)[0].tolist() == [k * j] * 4


def test_items_of_a_partial() -> None:
    def function(x: Any, k: int, j: int = 1) -> Any:
        return (x * k + j).relu()

    held = functools.partial(function, k=2)
    changes = [
        entry(held.keywords, "k", 4),
        entry(held.keywords, "j", 5),
        lambda: held.__setstate__((function, (), {"k": 9}, {})),
    ]
    checked(held, changes, X)
    held.__setstate__((function, (), {"k": 2}, {}))
    checked(lambda x: held(x) * 2, changes, X)
    checked(lambda x: held(x) * 3, assigned(function, "__defaults__", (6,)), X)


def reads_a_global(x: Any) -> Any:
    return (x * k + 1).relu()  # type: ignore[name-defined]  # noqa: F821


def test_cells_and_globals() -> None:
    def closing(k: int) -> Any:
        return lambda x: (x * k + 1).relu()

    inner, space = closing(2), {"k": 2}
    cell = inner.__closure__[0]
    checked(inner, assigned(cell, "cell_contents", 3, 4.0), X)
    checked(lambda x: inner(x) * 2, assigned(cell, "cell_contents", 5, 6), X)
    function = types.FunctionType(reads_a_global.__code__, space)
    checked(function, [entry(function.__globals__, "k", 5)], X)
    checked(lambda x: function(x) * 2, [entry(function.__globals__, "k", 6)], X)


@pytest.mark.parametrize("told", [True, False])
def test_code_with_other_parameters(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not told:
        monkeypatch.setattr(fronts, "tells_of_functions", lambda _: False)

    def function(x: Any, a: int = 1, b: int = 2) -> Any:
        return (x * a - b).relu()

    others = [
        (lambda x, b=1, a=2: (x * a - b).relu()),
        (lambda x, b, a, c=4, *, d=5, **more: (x * a + b * c * d).relu()),
        (lambda x, *more, a=1, b=7: (x * a + b).relu()),
        (lambda x, a: x * a),
    ]
    changes: list[Callable[[], None]] = []
    for other in others:
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            changes += assigned(function, name, getattr(other, name))
    checked(function, changes, X, a=3, b=1)


def test_code_with_other_cells() -> None:
    def one(k: int) -> Any:
        return lambda x, a=2: x * k * a

    def other(a: int) -> Any:
        return lambda x, k=2: x * a + k

    function = one(3)
    cell = function.__closure__[0]
    changes = [*assigned(function, "__code__", other(1).__code__), *assigned(cell, "cell_contents", 9)]
    checked(function, [*changes, *assigned(function, "__defaults__", (7,))], X)
