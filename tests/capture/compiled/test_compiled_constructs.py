"""Constructs of Python that a trace follows whole, each against CPython: classes that functions make, dispatch, coroutines."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import sys
import typing
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS, compile_function


class Base:
    def area(self, x):
        return x + 1

    @classmethod
    def made(cls, x):
        return cls().area(x)


class Colour(enum.Enum):
    RED, GREEN = 1, 2


def simple(x):
    class Scale:
        by = 2

        def __init__(self, x):
            self.x = x

        def __call__(self, y):
            return self.x * self.by + y

    Scale.by += 1
    return Scale(x)(1), Scale.__name__, Scale.by


def derived(x):
    class Square(Base):
        def area(self, x):
            return super().area(x) * 5

    return Square().area(x), Square.made(x), isinstance(Square(), Base)


def abstract(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Box(Shape):
        def area(self):
            return x * 2

    try:
        Shape()
    except TypeError:
        return Box().area(), issubclass(Box, Shape)


def data_class(x):
    @dataclasses.dataclass(order=True)
    class Point:
        a: int
        b: Any = dataclasses.field(default=None, compare=False)
        c: list[int] = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.c.append(self.a)

    p = Point(1, x)
    return p.b + p.a, p.c, Point(1) < Point(2), dataclasses.replace(p, a=5).a, [f.name for f in dataclasses.fields(p)]


def named_tuple(x):
    pair = collections.namedtuple("pair", "a b", defaults=(3,))
    found = pair(x)
    return found.a * found.b, found._fields, found._replace(b=4).b, found._asdict()["b"]


def special_methods(x):
    class Meta(type):
        @property
        def told(cls):
            return cls.__name__

    class Odd(metaclass=Meta):
        __slots__ = ("v",)

        def __init__(self, v):
            self.v = v

        def __getattr__(self, name):
            return name

        def __add__(self, other):
            return Odd(self.v + other.v)

        def __contains__(self, item):
            return True

    class Lazy:
        @functools.cached_property
        def value(self):
            return x + 1

    a, lazy = Odd(x), Lazy()
    return (a + a).v, a.missing, 3 in a, lazy.value + lazy.value, Odd.told


def by_type(x):
    kind = type("Kind", (Base,), {"by": 3, "scaled": lambda self, x: x * self.by})
    return kind().scaled(x), kind().area(x), kind.__mro__[1] is Base


def enumeration(x):
    class Level(enum.Enum):
        LOW, HIGH = 1, 2

    for each in Level:
        x = x + each.value
    return x, Level["LOW"].name, Level(2) is Level.HIGH, [c.name for c in Colour]


def exception_class(x):
    class Odd(ValueError):
        def __init__(self, size):
            super().__init__(f"odd {size}")

    try:
        raise Odd(3)
    except ValueError as error:
        return x + 1, str(error), type(error).__name__


def module_class(x):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.by = 2

        def forward(self, x):
            return x * self.by

    return Twice()(x)


def autograd_class(x):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    (grad,) = torch.autograd.grad(Twice.apply(x.requires_grad_()).sum(), x)
    return grad


T = typing.TypeVar("T")


def generic_class(x):
    class Holder(typing.Generic[T]):
        def __init__(self, held: T) -> None:
            self.held = held

    return Holder(x).held + 1


@functools.singledispatch
def sized(a, x):
    return x


@sized.register
def _(a: int, x):
    return x + a


@sized.register
def _(a: str, x):
    return x - len(a)


class Dispatching:
    @functools.singledispatchmethod
    def told(self, a):
        return "other"

    @told.register
    def _(self, a: int):
        return "int"


DISPATCHING = Dispatching()


def dispatch(x):
    return sized(1, x), sized("ab", x), sized(1.5, x), DISPATCHING.told(1), DISPATCHING.told("a")


def memoized(x):
    @functools.cache
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return x + fibonacci(30), fibonacci.cache_info().misses


@contextlib.contextmanager
def plus_one(x):
    yield x + 1


def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        y = stack.enter_context(plus_one(x))
        stack.callback(log.append, 3)
        stack.enter_context(contextlib.suppress(KeyError))
        raise KeyError("a")
    return y, log, sys.exc_info()


def with_a_sentinel(x):
    numbers = iter([1, 2, 0, 5])
    return x, list(iter(lambda: next(numbers), 0)), next(numbers)


def coroutine(x):
    async def plus(y):
        return y + 1

    async def twice(y):
        return await plus(await plus(y))

    try:
        twice(x).send(None)
    except StopIteration as end:
        return end.value


def async_generator(x):
    async def counted():
        for i in range(3):
            yield x + i

    async def gathered():
        async with contextlib.AsyncExitStack():
            return [y async for y in counted()]

    try:
        gathered().send(None)
    except StopIteration as end:
        return end.value


WHOLE = [
    simple, derived, abstract, data_class, named_tuple, special_methods, by_type, enumeration, exception_class, module_class, autograd_class, generic_class, dispatch,
    memoized, exit_stack, with_a_sentinel, coroutine, async_generator,
]  # fmt: skip


@pytest.mark.parametrize("function", WHOLE, ids=lambda f: f.__name__)
def test_is_followed_whole(function: Callable[..., Any]) -> None:
    COUNTERS["graph_break"].clear()
    compiled = compile_function(function)
    for scale in (1.0, 2.0):
        assert repr(compiled(torch.arange(3.0) * scale)) == repr(function(torch.arange(3.0) * scale))
    assert not COUNTERS["graph_break"]


def kept_class(x):
    class Point:
        def __init__(self, x):
            self.x = x

    return Point, Point(x * 2)


def kept_enumeration(x):
    class Level(enum.IntEnum):
        LOW = 1

    return x + 1, Level.LOW


def kept_method(x):
    class Point:
        def told(self):
            return __class__

    return x + 1, Point().told


def raised_class(x):
    class Odd(Exception):
        pass

    raise Odd(x + 1)


@pytest.mark.parametrize("function", [kept_class, kept_enumeration, kept_method, raised_class])
def test_a_class_that_leaves_is_a_new_one_at_each_call(function: Callable[..., Any]) -> None:
    def told(call: Callable[..., Any]) -> Any:
        try:
            found = call(torch.ones(2))[-1]
        except Exception as error:
            found = error
        return type(getattr(found, "__self__", found))

    compiled = compile_function(function)
    kinds = [told(compiled) for _ in range(3)]
    assert len(set(kinds)) == 3
    assert [kind.__qualname__ for kind in kinds] == [told(function).__qualname__] * 3


def test_what_making_a_class_would_run_is_not_run_by_the_trace() -> None:
    seen: list[str] = []

    class Registering:
        def __init_subclass__(cls):
            seen.append(cls.__name__)

    class Named:
        def __set_name__(self, owner, name):
            seen.append(name)

    def registers(x):
        class Kept(Registering):
            field = x

        return Kept.field + 1

    def names(x):
        class Kept:
            field = Named()

        return x + len(Kept.__name__)

    for function, name in ((registers, "Kept"), (names, "field")):
        seen.clear()
        compiled = compile_function(function)
        for n in range(1, 4):
            compiled(torch.ones(2))
            assert seen == [name] * n


def test_a_function_that_is_registered_later_is_found() -> None:
    @functools.singledispatch
    def told(a):
        return 1

    compiled = compile_function(lambda x, a: x + told(a))
    assert compiled(torch.zeros(1), 2.5) == 1
    told.register(float, lambda a: 2)
    assert compiled(torch.zeros(1), 2.5) == 2


def test_a_coroutine_that_nobody_awaits_warns_at_each_call() -> None:
    def function(x):
        async def plus(y):
            return y + 1

        plus(x)
        return x * 2

    for call in (function, compile_function(function)):
        for _ in range(2):
            with pytest.warns(RuntimeWarning, match="coroutine '.*plus' was never awaited"):
                call(torch.ones(2))


def test_classes_of_traces_are_let_go() -> None:
    made: list[weakref.ref[Any]] = []

    def function(x):
        class Plain:
            by = 2

        note(Plain)
        return x * Plain.by

    @torch.compiler.allow_in_graph
    def note(kind):
        made.append(weakref.ref(kind))

    compiled = compile_function(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compiled(torch.ones(1)) == 2
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert made
    assert not any(ref() for ref in made)
