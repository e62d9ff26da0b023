"""What compiled functions do with attributes, globals and mappings of users' classes: the same as eager, call after call."""

from __future__ import annotations

import collections
import ctypes
import functools
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight._capture.trace import compile_function
from rushlight._dynamo.utils import counters

_BACKENDS = ("inductor", "eager")


def _alike(go: Any, *args: Any, backend: str = "inductor", calls: int = 2) -> None:
    """Whether two calls give what eager gives, in one graph."""
    compiled = torch.compile(go, backend=backend, fullgraph=True)
    for _ in range(calls):
        assert str(compiled(*args)) == str(go(*args))


def _module(source: str) -> Any:
    made = types.ModuleType("elsewhere")
    exec(source, made.__dict__)  # noqa: S102 - a module of a few lines
    return made


@pytest.mark.parametrize("backend", _BACKENDS)
def test_globals_of_other_modules_that_a_call_changes(backend: str) -> None:
    other = _module(
        "v = 0\nw = 1\ndef up(x):\n    global v\n    v += 1\n    return x * v\ndef drop():\n    global w\n    del w\n"
    )

    def go(x):
        before = other.v
        return other.up(x) + other.v + before

    compiled = torch.compile(go, backend=backend, fullgraph=True)
    # v is 1, 2, 3 after each call: x * v + v + (v - 1)
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [2, 5, 8]
    assert other.v == 3

    def gone(x):
        other.drop()
        return x + hasattr(other, "w")

    assert torch.compile(gone, backend=backend)(torch.ones(1)).item() == 1
    assert not hasattr(other, "w")


@pytest.mark.parametrize("backend", _BACKENDS)
def test_parameters_that_hooks_replace_and_restore(backend: str) -> None:
    def before(module, args):
        held = module.weight
        del module.weight
        module.kept, module.weight = held, held + 1.0

    def after(module, args, out):
        held = module.kept
        del module.weight, module.kept
        module.weight = held

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            return self.linear(x)

    model, x = Model(), torch.randn(4, 3)
    model.linear.register_forward_pre_hook(before)
    model.linear.register_forward_hook(after)
    assert torch.equal(torch.compile(model, backend=backend, fullgraph=True)(x), model(x))
    assert sorted(model.linear._parameters) == ["bias", "weight"]
    assert not hasattr(model.linear, "kept")


class _Deletes:
    """A class whose attributes are deleted in several ways."""

    shared = 5

    def __init__(self) -> None:
        self.log: list[str] = []

    @property
    def managed(self) -> int:
        return 1

    @managed.deleter
    def managed(self) -> None:
        self.log.append("managed")

    @property
    def fixed(self) -> int:
        return 2


class _Slots:
    __slots__ = ("a", "b")


@pytest.mark.parametrize("backend", _BACKENDS)
def test_attributes_that_are_deleted(backend: str) -> None:
    def go(thing, slots, x):
        thing.shared = 3
        x = x + thing.shared
        del thing.shared
        del thing.managed
        slots.b = x
        del slots.a, slots.b
        missed = 0
        for name in ("a", "b"):
            try:
                delattr(slots, name)
            except AttributeError:
                missed += 1
        try:
            del thing.fixed
        except AttributeError:
            missed += 1
        return x + thing.shared, missed

    compiled = torch.compile(go, backend=backend)
    for _ in range(2):
        thing, slots = _Deletes(), _Slots()
        slots.a = 1
        found, missed = compiled(thing, slots, torch.ones(1))
        assert (found.item(), missed, vars(thing)) == (9, 3, {"log": ["managed"]})
        assert not hasattr(slots, "a")
        assert not hasattr(slots, "b")


class _Mapping(collections.abc.MutableMapping):
    """A mapping that keeps its entries in a dict of its own."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        return self.held[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.held[key] = value

    def __delitem__(self, key: str) -> None:
        del self.held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class _Hiding(dict):
    """A dict that shows one key."""

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def keys(self) -> Any:
        return iter(self)


class _Dict(dict):
    pass


_READS = {
    "keywords": lambda d, x: _scaled(x, **d),
    "display": lambda d, x: x * sum({**d}.values()),
    "dict": lambda d, x: x * dict(d)["a"],
    "update": lambda d, x: x * _updated(d)["a"],
    "ordered": lambda d, x: x * collections.OrderedDict(d)["a"],
}


def _scaled(x: Any, a: int = 1, b: int = 0) -> Any:
    return x * a + b


def _updated(d: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    made.update(d)
    return made


@pytest.mark.parametrize("kind", [_Mapping, _Hiding, _Dict, collections.UserDict, collections.ChainMap])
@pytest.mark.parametrize("read", sorted(_READS))
def test_mappings_are_guarded_by_what_was_read(kind: type, read: str) -> None:
    held = kind()
    held["a"], held["b"] = 3, 1

    def go(x):
        return _READS[read](held, x)

    compiled, x = torch.compile(go), torch.ones(2)
    for a, b in ((3, 1), (5, 1), (5, 4)):
        held["a"], held["b"] = a, b
        assert compiled(x).tolist() == go(x).tolist(), (a, b)


@pytest.mark.parametrize("backend", _BACKENDS)
def test_tensors_in_a_mapping(backend: str) -> None:
    held = _Mapping()
    held["a"] = torch.full((2,), 2.0)
    _alike(lambda x: _scaled(x, **held), torch.ones(2), backend=backend)
    _alike(lambda x: {**held, "b": x}, torch.ones(2), backend=backend)
    _alike(lambda x: dict(held, b=x), torch.ones(2), backend=backend)


class _Pair(tuple):
    """A class of tuples whose objects have attributes."""


@pytest.mark.parametrize("backend", _BACKENDS)
def test_attributes_of_tuples(backend: str) -> None:
    def go(x):
        made = _Pair([x * 2])
        made.about, made.itself = x + 1, made
        return made

    made = torch.compile(go, backend=backend, fullgraph=True)(torch.ones(2))
    assert type(made) is _Pair
    assert made[0].tolist() == made.about.tolist() == [2, 2]
    assert made.itself is made


def test_function_that_closes_over_itself() -> None:
    def go(x):
        def made():
            return made

        return x + 1, made

    _, made = torch.compile(go, fullgraph=True)(torch.ones(1))
    assert made() is made


@functools.lru_cache
def _cached(x: Any) -> Any:
    """One more."""
    return x + 1


def test_wraps_of_a_function_with_a_cache() -> None:
    def go(x):
        @functools.wraps(_cached)
        def made(*args):
            return _cached(*args)

        return made(x), made.__name__, made.__doc__

    _alike(go, torch.ones(2))


def test_lists_of_tensors_are_no_nodes() -> None:
    def go(a, b):
        pair = (a, b)
        pair += (a + b, a - b)
        more = [*pair, 1] + [a]
        more *= 2
        return pair, sum(more)

    counter = torch._dynamo.testing.CompileCounter()
    a, b = torch.ones(2), torch.full((2,), 3.0)
    compiled = torch.compile(go, backend=counter, fullgraph=True)
    assert str(compiled(a, b)) == str(go(a, b))
    assert counter.op_count == 2 + 12


def test_constants_of_other_libraries_in_graphs() -> None:
    def go(x):
        return torch.jit.annotate(Any, x * np.float32(2.5)) + np.finfo(np.float32).eps

    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(go, backend=counter, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == go(torch.ones(2)).tolist()
    assert counter.op_count == 2


def test_arguments_by_the_names_of_pytorch() -> None:
    def go(**named):
        return torch._foreach_pow(**named)

    compiled = torch.compile(go, fullgraph=True)
    assert compiled(self=[torch.full((2,), 3.0)], exponent=2)[0].tolist() == [9, 9]


class _Counted:
    """A class with a property of the name under which the dictionary holds the value."""

    def __init__(self) -> None:
        self.__dict__["x"] = 3

    @property
    def x(self) -> int:
        return self.__dict__["x"]


def test_entries_of_dictionaries_behind_a_property() -> None:
    def go(thing, t):
        thing.__dict__["x"] = thing.x + 1
        return t * thing.x

    thing = _Counted()
    compiled = torch.compile(go, fullgraph=True)
    assert [compiled(thing, torch.ones(1)).item() for _ in range(2)] == [4, 5]
    assert vars(thing) == {"x": 5}


def test_structures_of_ctypes_are_read_at_each_call() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("n", ctypes.c_int),)

    pair, number = Pair(2), ctypes.c_int(3)
    compiled = torch.compile(lambda x: x * pair.n + number.value)
    found = []
    for n, value in ((2, 3), (5, 3), (5, 9), (6, 7)):
        pair.n, number.value = n, value
        found.append(compiled(torch.ones(1)).item())
    assert found == [5, 8, 14, 13]


def test_objects_whose_class_writes_attributes_natively() -> None:
    held, error = threading.local(), ValueError("old")
    held.count = error.count = 1  # type: ignore[attr-defined]

    def program(x: Any) -> Any:
        held.count += 1
        error.count += 1  # type: ignore[attr-defined]
        return x * held.count + error.count  # type: ignore[attr-defined]

    compiled = torch.compile(program)
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [4, 6, 8]
    assert (held.count, error.count) == (4, 4)  # type: ignore[attr-defined]


class _Native(ctypes.Structure):
    """What C declares a function of Python by: its name, code, kind of arguments and text."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


_doubled = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)(lambda _, x: x * 2)
_DECLARED = _Native(b"doubled", ctypes.cast(_doubled, ctypes.c_void_p).value, 8, None)


def native_function(owner: Any) -> Any:
    """A function of an extension whose `__self__` is an object that has no such method, as pybind11 makes them."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return make(ctypes.addressof(_DECLARED), owner, "extension")


@pytest.mark.parametrize("owner", [object(), [1], {"a": 1}], ids=["object", "list", "dict"])
def test_native_functions_that_their_owner_does_not_name_break_the_graph(owner: Any) -> None:
    double = native_function(owner)

    def go(x):
        return double(x + 1) * 3, double

    counters.clear()
    compiled = compile_function(go)
    for _ in range(2):
        found, function = compiled(torch.ones(2))
        assert found.tolist() == [12.0, 12.0] and function is double
    assert dict(counters["graph_break"]) == {"calls the native function extension.doubled()": 1}
    assert not counters["failures"] and counters["stats"]["unique_graphs"] == 2


def test_sizes_from_outside_are_guarded_by_their_numbers() -> None:
    def go(x, size):
        return torch.zeros(size) + x.view(size) + size.numel() + len(size[:1] + (x.ndim,)), size, [size]

    counters.clear()
    compiled = compile_function(go)
    for n in (2, 2, 3, 4, 5):
        x, size = torch.arange(4.0 * n), torch.Size([n, 4])
        found, expected = compiled(x, size), go(x, size)
        assert torch.equal(found[0], expected[0]) and found[1] is size and found[2][0] is size
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 2


def test_classes_of_ours_are_ours_under_the_name_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.kind = nn.Sequential(nn.Linear(3, 3)), "old"

        def forward(self, x):
            if self.kind == "old":
                self.kind, made = "new", nn.Sequential(nn.Identity())
                made[0] = self.inner[0]
                self.inner = made
            return self.inner(x)

    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(type(nn.Parameter), "__module__", "torch.nn.parameter")
    net, x = Net(), torch.ones(2, 3)
    linear = net.inner[0]
    compiled = torch.compile(net, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), linear(x)) and net.inner[0] is linear


def test_an_attribute_that_is_made_again_comes_last() -> None:
    class Thing:
        pass

    def function(thing: Any, x: Any) -> Any:
        thing.never = 1
        del thing.never
        if hasattr(thing, "extra"):
            del thing.extra
        thing.extra = 1
        names = list(vars(thing))
        thing.__dict__["six"] = 3
        return x + len(names), names

    for call in (function, compile_function(function)):
        thing, found = Thing(), []
        for _ in range(3):
            found.append(call(thing, torch.ones(2))[1])
            assert list(vars(thing)) == (["extra", "six"] if len(found) == 1 else ["six", "extra"])
        assert found == [["extra"], ["six", "extra"], ["six", "extra"]]
