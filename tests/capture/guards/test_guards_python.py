"""Each feature of Python that a compiled function may read: what it read is changed, and the function sees it.

A case is a function that makes a fresh pair: the program, and what changes the world before its call number n.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import re
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace.reports.events import EVENTS

Pair = tuple[Callable[[Any], Any], Callable[[int], Any]]
CASES: list[Callable[[], Pair]] = []


def case(make: Callable[[], Pair]) -> Callable[[], Pair]:
    CASES.append(make)
    return make


class Box:
    """An object with an attribute `v`."""

    def __init__(self, v: Any) -> None:
        self.v = v


def setting(box: Any, of: Callable[[int], Any] = lambda n: n) -> Callable[[int], None]:
    """Sets the attribute `v` of an object."""
    return lambda n: setattr(box, "v", of(n))


def container(made: Any, change: Callable[[Any, int], Any], *reads: Callable[[Any], Any]) -> Callable[[], Pair]:
    """A case of a container, whose contents are read in some ways."""

    def make() -> Pair:
        held = made()
        return lambda x: (x * len(held), *[read(held) for read in reads]), lambda n: change(held, n)

    make.__name__ = getattr(made, "__name__", "container")
    CASES.append(make)
    return make


class Dict(dict):
    pass


class List(list):
    pass


class Set(set):
    pass


for kind in (dict, Dict, collections.OrderedDict):
    container(
        kind,
        lambda d, n: d.__setitem__(f"k{n}", n),
        lambda d: "k2" in d,
        lambda d: d == {"k1": 1},
        lambda d: d.get("k2"),
    )
    container(
        kind, lambda d, n: d.update(a=n), lambda d: d["a"], dict, list, lambda d: bool(d), lambda d: [*d.values()]
    )
for kind in (list, List, collections.deque):
    container(
        kind,
        lambda d, n: d.append(n),
        lambda d: 2 in d,
        lambda d: d[-1],
        lambda d: d == type(d)([1, 2]),
        list,
        sum,
        lambda d: d + d,
    )
for kind in (set, Set):
    container(kind, lambda d, n: d.add(n), lambda d: 2 in d, lambda d: d | {9}, lambda d: d == {1, 2}, sorted)
container(collections.Counter, lambda d, n: d.update("a" * n), lambda d: d["a"], lambda d: d["zz"], lambda d: d + d)
container(collections.ChainMap, lambda d, n: d.maps[0].update(a=n), lambda d: d["a"], lambda d: "b" in d)
container(
    functools.partial(collections.defaultdict, list),
    lambda d, n: d["a"].append(n),
    lambda d: len(d["a"]),
    lambda d: d["c"],
)


class Tuple(tuple):
    pass


@pytest.mark.parametrize("kind", [int, float, str, tuple, Tuple, ValueError, slice, range, bytes, complex])
def test_values(kind: Any) -> None:
    box = Box(None)

    def value(n: int) -> Any:
        return kind((n,)) if kind in (tuple, Tuple) else kind(str(n)) if kind is str else kind(n)

    def go(x):
        v = box.v
        return x + 1, v == value(2), f"{v}", v.args if isinstance(v, ValueError) else v

    see(lambda: (go, setting(box, value)), recompiles=kind not in (int, float))


@case
def attributes() -> Pair:
    box = Box(1)
    return lambda x: x * box.v, setting(box)


@case
def attributes_that_are_added() -> Pair:
    box = Box(1)
    return lambda x: (x, hasattr(box, "w2"), getattr(box, "w3", 0), sorted(vars(box))), lambda n: setattr(
        box, f"w{n}", n
    )


@case
def slots() -> Pair:
    class Slotted:
        __slots__ = ("v", "w")

    held: Any = Slotted()
    held.v = 1
    return lambda x: (x * held.v, hasattr(held, "w")), lambda n: setattr(held, "vw"[n % 2], n)


@case
def class_attributes() -> Pair:
    class A:
        v = 1

    class B(A):
        pass

    b = B()
    return lambda x: (x * b.v, B.v, hasattr(B, "w")), lambda n: setattr((A, B, b, B)[n - 1], "vvvw"[n - 1], n)


@case
def methods() -> Pair:
    class A:
        def go(self) -> int:
            return 1

    a = A()

    def change(n: int) -> None:
        if n == 2:
            A.go = lambda self: 2  # type: ignore[method-assign]
        if n == 3:
            a.go = lambda: 3  # type: ignore[method-assign]

    return lambda x: x * a.go(), change


@case
def special_methods() -> Pair:
    class A(Box):
        def __eq__(self, other: Any) -> bool:
            return bool(self.v == other.v)

        def __hash__(self) -> int:
            return hash(self.v)

        def __len__(self) -> int:
            return int(self.v)

        def __lt__(self, other: Any) -> bool:
            return bool(self.v < other.v)

        def __repr__(self) -> str:
            return f"A{self.v}"

        def __reversed__(self) -> Iterator[int]:
            return iter([self.v])

        def __contains__(self, i: int) -> bool:
            return i == self.v

        def __float__(self) -> float:
            return float(self.v)

    a = A(1)

    def go(x):
        told = str([a]), f"{[a]}", "%s" % (a,), repr(a)  # noqa: UP031
        return (
            x,
            a == A(2),
            a in [A(2)],
            {A(2): 1}.get(a),
            [A(2)] == [a],
            sorted([a, A(2)])[0].v,
            len(a),
            2 in a,
            told,
            [*reversed(a)],
            float(a),
        )

    return go, setting(a)


@case
def properties() -> Pair:
    class A(Box):
        @property
        def double(self) -> Any:
            return self.v * 2

        @functools.cached_property
        def kept(self) -> Any:
            return self.v

        def __getattr__(self, name: str) -> Any:
            return f"{name}{self.v}"

    a = A(1)
    return lambda x: (x * a.double, a.kept, a.other), setting(a)


@case
def closures() -> Pair:
    v = 1

    def change(n: int) -> None:
        nonlocal v
        v = n

    return lambda x: x * v, change


@case
def names_of_modules() -> Pair:
    space: dict[str, Any] = {"v": 1}
    exec("def go(x):\n    return x * v, len([1])", space)  # noqa: S102

    def change(n: int) -> None:
        space["v"] = n
        if n == 3:
            space["len"] = lambda items: 7  # hides the builtin

    return space["go"], change


@case
def modules() -> Pair:
    held = types.ModuleType("held")
    held.v = 1  # type: ignore[attr-defined]
    return lambda x: (x * held.v, hasattr(held, "w3")), lambda n: setattr(held, "v" if n < 3 else f"w{n}", n)


@case
def functions() -> Pair:
    def one(a: int = 1, *, b: int = 1) -> int:
        return a + b

    def other(a: int = 1, *, b: int = 1) -> int:
        return a - b

    def change(n: int) -> None:
        one.__defaults__ = (n,)
        one.__kwdefaults__ = {"b": n}
        if n == 3:
            one.__code__ = other.__code__
        if n == 4:
            one.mark = 1  # type: ignore[attr-defined]

    return lambda x: (x * one(), hasattr(one, "mark")), change


@case
def enums() -> Pair:
    class E(enum.Enum):
        A, B, C, D = 1, 2, 3, 4

    box = Box(E.A)
    return lambda x: (x * box.v.value, box.v is E.B, box.v.name), setting(box, E)


@case
def namedtuples_and_dataclasses() -> Pair:
    named = collections.namedtuple("named", "a b")

    @dataclasses.dataclass
    class D:
        a: int
        b: Any

    box, other = Box(named(1, 1)), Box(D(1, 1))

    def change(n: int) -> None:
        box.v, other.v = named(n, 1), D(n, [n])

    def go(x):
        return (
            x * box.v.a,
            box.v == (2, 1),
            other.v == D(2, [2]),
            dataclasses.replace(other.v, a=5),
            dataclasses.astuple(other.v),
        )

    return go, change


@case
def context_managers() -> Pair:
    box = Box(1)

    @contextmanager
    def scaled() -> Iterator[Any]:
        yield box.v

    def go(x):
        with scaled() as v:
            return x * v

    return go, setting(box)


@case
def generators() -> Pair:
    box = Box(1)

    def items() -> Iterator[int]:
        got = yield box.v
        yield box.v + (got or 0)

    def go(x):
        it = items()
        return x * next(it), it.send(3), [v * 2 for v in items()], {k: v + 1 for k, v in enumerate(items())}

    return go, setting(box)


@case
def aliases() -> Pair:
    first = [1]
    box: Any = Box(first)
    box.w = first

    def go(x):
        box.v.append(1)
        return x * len(box.w), box.v is box.w

    return go, lambda n: setattr(box, "w", [1] if n == 3 else box.v)


@case
def tensors_and_modes() -> Pair:
    box = Box(torch.ones(2))
    kinds = [torch.ones(2), torch.ones(2, 2), torch.ones(2).double(), torch.ones(2, requires_grad=True)]
    return lambda x: (x * box.v, box.v.dtype, box.v.requires_grad, box.v.dim()), setting(box, lambda n: kinds[n - 1])


@case
def parameters_and_training() -> Pair:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(1.0))
    torch.nn.init.ones_(module[0].weight), torch.nn.init.ones_(module[0].bias)

    def change(n: int) -> None:
        module.train(n == 2)
        if n == 3:
            module[0] = torch.nn.Identity()

    return lambda x: module(x), change


@case
def iterators() -> Pair:
    box = Box(None)

    def go(x):
        return x, list(box.v[0]), [*zip(box.v[1], "abc")], next(box.v[2], 0)

    return go, setting(box, lambda n: (iter([n]), (i for i in range(n)), map(abs, [n])))


@case
def namespaces_getters_and_patterns() -> Pair:
    held, box = types.SimpleNamespace(v=1, other=types.SimpleNamespace(v=1)), Box(None)

    def change(n: int) -> None:
        held.v, held.other.v, box.v, box.w = n, n + 1, operator.itemgetter(n % 2), re.compile("a" * n)  # type: ignore[attr-defined]

    def go(x):
        held.last = x
        made = types.SimpleNamespace(v=held.v)
        made.w = made.v + 1
        several = operator.attrgetter("v", "other.v")(held)
        first = sorted([held, held.other], key=operator.attrgetter("v"))[0].v
        found = box.w.search("baaac"), box.w.findall("aaaa")
        return (
            x * held.v,
            made.w,
            several,
            first,
            box.v([5, 6]),
            operator.methodcaller("sum")(x),
            bool(found[0]),
            found[1],
            held.last is x,
        )

    return go, change


@case
def variables_that_are_deleted() -> Pair:
    v = 1

    def change(n: int) -> None:
        nonlocal v
        if n in (1, 3):
            v = n

    def go(x):
        nonlocal v
        try:
            del v
        except NameError as error:
            return x, str(error)
        return x

    return go, change


def told(value: Any) -> Any:
    """A value by its contents."""
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.dtype, value.requires_grad
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [told(x) for x in value]
    return type(value).__name__, repr(value)


def see(make: Callable[[], Pair], recompiles: bool = True) -> None:
    """Require that the program sees each change, and that it was compiled again (or ends traces where it reads)."""
    seen, results = [], []
    for compiled in (False, True):
        program, change = make()
        called = torch.compile(program) if compiled else program
        EVENTS.append(lambda kind, text, details: seen.append(kind))
        try:
            found = []
            for n in (1, 2, 3, 4):
                change(n)
                found.append(told(called(torch.ones(2))))
            results.append(found)
        finally:
            EVENTS.pop()
    assert results[0] == results[1]
    assert "failure" not in seen and (not recompiles or "recompile" in seen or "break" in seen)


@pytest.mark.filterwarnings("ignore:.*was compiled 8 times")  # all reads of a container are at one place
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_is_changed_is_seen(make: Callable[[], Pair]) -> None:
    see(make)


def test_attributes_of_functions_are_noticed() -> None:
    def scale(x: Any) -> Any:
        return x * scale.by

    def counted(x: Any) -> Any:
        counted.calls += 1
        return x * counted.calls

    def named(x: Any) -> Any:
        return x + len(scale.__name__)

    class Holder:
        def method(self) -> None: ...

    def of_method(x: Any) -> Any:
        return x * Holder().method.factor + getattr(scale, "more", 0)

    scale.by, counted.calls, Holder.method.factor = 2, 0, 3  # type: ignore[attr-defined]
    programs = [torch.compile(f) for f in (scale, counted, named, of_method)]
    one = torch.ones(1)
    for calls, by in enumerate((2, 7, 9, 8), 1):
        scale.by, scale.__name__, Holder.method.factor = by, "s" * by, by + 0.5  # type: ignore[attr-defined]
        if by > 7:
            scale.more = by  # type: ignore[attr-defined]
        wanted = [by, calls, 1 + by, by + 0.5 + (by if by > 7 else 0)]
        assert [c(one).item() for c in programs] == wanted
