"""Everything that a trace reads is guarded, by words in memory where there are some: after each change the right thing is computed."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._capture.trace import CompileSettings, compile_function
from rushlight._capture.trace.segments.segment import MISS
from rushlight._native.mutable_objects import supported

native = pytest.mark.skipif(not supported(), reason="this version of Python was not tried")
SCALE, TABLE, LISTED = 2.0, {"scale": 3.0}, [1.0, 2.0]
Pair = namedtuple("Pair", "first second")


class Scaled(nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))
        self.values = [1.0, 2.0]
        self.settings = {"power": 2}

    def shift(self, x: Any) -> Any:
        return x + self.offset

    def forward(self, x: Any) -> Any:
        x = self.shift(self.inner(x)) * self.factor * SCALE + self.values[1] + self.settings["power"]
        return x if self.training else -x


class Quadrupled(Scaled):
    factor = 4.0


def table_reader(x: Any) -> Any:
    return x * TABLE["scale"] + len(TABLE) + LISTED[0]


def with_defaults(x: Any, by: float = 2.0, *, plus: float = 1.0) -> Any:
    return x * by + plus


def default_reader(x: Any) -> Any:
    return with_defaults(x)


def helper(x: Any) -> Any:
    return x + 1


def helper_reader(x: Any) -> Any:
    return helper(x)


def flags_reader(x: Any) -> Any:
    return x * 2 if x.requires_grad else x * 3


def grad_reader(x: Any) -> Any:
    return x * 2 if x.grad is None else x + x.grad


def sums(values: Any) -> Any:
    return values[0] + values[1] * len(values)


def of_dict(values: dict[str, Any]) -> Any:
    total = values["x"]
    for name, value in values.items():
        total = total + value * len(name)
    return total


def same(a: Any, b: Any) -> Any:
    return a + 1 if a is b else a * b


def closure() -> tuple[Any, Any]:
    by = 2.0

    def scaled(x: Any) -> Any:
        return x * by

    return scaled, scaled.__closure__[0]  # type: ignore[index]


class Slotted:
    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by = 2.0


def slot_reader(x: Any, held: Any) -> Any:
    return x * held.by


def checked(
    function: Callable[..., Any], changes: list[Callable[[], Any]], *arguments: Any, noted: bool = True
) -> None:
    """The compiled function and the function give the same, before and after each change, and words were noted."""
    compiled = compile_function(function, CompileSettings(recompile_limit=30, own_limit=True))

    def compare() -> None:
        for _ in range(5):
            got, expected = compiled(*arguments), function(*arguments)
            assert got.dtype is expected.dtype and got.requires_grad is expected.requires_grad
            assert torch.equal(got, expected)

    compare()
    segment = compiled.entry.segments[0]
    if noted and supported():
        assert segment.guard.reason == "" and segment.guard.hits() >= 2
    for change in changes:
        change()
        compare()


def tensor(*values: float, **kwargs: Any) -> Any:
    return torch.tensor(values, **kwargs)


MODULE_CHANGES = {
    "training": lambda m: m.eval(),
    "attribute of the class": lambda m: setattr(type(m), "factor", 5.0),
    "attribute of the instance hides the class's": lambda m: setattr(m, "factor", 7.0),
    "attribute added, then deleted": lambda m: (setattr(m, "factor", 7.0), m(torch.ones(3)), delattr(m, "factor")),
    "method of the instance": lambda m: setattr(m, "shift", lambda x: x - 1),
    "property of the class": lambda m: setattr(type(m), "inner", property(lambda self: lambda x: x * 5)),
    "attribute of a class inherited from": lambda m: setattr(type(m).__mro__[1], "factor", 6.0),
    "method of a class inherited from": lambda m: setattr(type(m).__mro__[1], "shift", lambda self, x: x - 3),
    "data descriptor of the class": lambda m: setattr(type(m), "values", property(lambda self: [5.0, 6.0])),
    "method of the class": lambda m: setattr(type(m), "shift", lambda self, x: x - 2),
    "forward of the instance": lambda m: setattr(m, "forward", lambda x: x * 3),
    "class": lambda m: setattr(m, "__class__", Quadrupled),
    "dict": lambda m: setattr(m, "__dict__", {**m.__dict__, "factor": 11.0}),
    "list item": lambda m: m.values.__setitem__(1, 5.0),
    "list appended": lambda m: m.values.insert(0, 9.0),
    "list replaced": lambda m: setattr(m, "values", [3.0, 4.0]),
    "dict item": lambda m: m.settings.__setitem__("power", 3),
    "dict replaced": lambda m: setattr(m, "settings", {"power": 4}),
    "submodule replaced": lambda m: setattr(m, "inner", nn.Linear(3, 3)),
    "submodule of another class": lambda m: setattr(m, "inner", nn.Tanh()),
    "submodule deep": lambda m: m._modules.__setitem__("inner", nn.Sequential(nn.Linear(3, 3), nn.ReLU())),
    "parameter replaced": lambda m: setattr(m.inner, "weight", nn.Parameter(torch.zeros(3, 3))),
    "parameter removed": lambda m: setattr(m.inner, "bias", None),
    "parameter's data": lambda m: setattr(m.inner.weight, "data", torch.full((3, 3), 2.0)),
    "parameter's data of other strides": lambda m: setattr(m.inner.weight, "data", torch.randn(3, 3).t()),
    "parameter without gradient": lambda m: m.inner.weight.requires_grad_(False),
    "all without gradient": lambda m: m.requires_grad_(False),
    "dtype": lambda m: setattr(m.inner, "bias", nn.Parameter(torch.ones(3).double().float())),
    "buffer swapped": lambda m: setattr(m, "offset", torch.full((3,), 4.0)),
    "buffer in place": lambda m: m.offset.mul_(3),
    "buffer of another dtype": lambda m: setattr(m, "offset", torch.ones(3, dtype=torch.float64)),
    "tied": lambda m: setattr(m.inner, "bias", nn.Parameter(m.offset)),
    "views of one memory": lambda m: setattr(m, "offset", m.inner.bias.detach()),
    "forward hook": lambda m: m.register_forward_hook(lambda module, args, out: out + 1),
    "forward pre hook of a part": lambda m: m.inner.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "state loaded": lambda m: m.load_state_dict({k: torch.zeros_like(v) for k, v in m.state_dict().items()}),
}


@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_what_is_read_of_a_module(name: str) -> None:
    class Base(Scaled):
        factor = Scaled.factor
        shift = Scaled.shift

    class Own(Base):
        pass

    torch.manual_seed(0)
    module = Own()
    checked(module, [lambda: MODULE_CHANGES[name](module)], torch.randn(2, 3))


def test_both_ways() -> None:
    module = Scaled()
    checked(module, [module.eval, module.train, module.eval, module.train] * 3, torch.randn(2, 3))


def test_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Scaled()
    checked(module, [lambda: monkeypatch.setitem(globals(), "SCALE", 5.0), monkeypatch.undo], torch.randn(2, 3))


def test_a_function_that_a_global_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(x: Any) -> Any:
        return x - 1

    code = helper.__code__
    changes = [
        lambda: monkeypatch.setitem(globals(), "helper", other), monkeypatch.undo, lambda: setattr(helper, "__code__", other.__code__),
        lambda: setattr(helper, "__code__", code), lambda: monkeypatch.delitem(globals(), "SCALE"), monkeypatch.undo,
    ]  # fmt: skip
    checked(helper_reader, changes, tensor(1.0))


def test_global_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [
        lambda: TABLE.__setitem__("scale", 4.0), lambda: TABLE.__setitem__("new", 1.0), lambda: LISTED.__setitem__(0, 7.0),
        lambda: TABLE.pop("new"), lambda: monkeypatch.setitem(globals(), "TABLE", {"scale": 9.0}), monkeypatch.undo,
    ]  # fmt: skip
    checked(table_reader, changes, tensor(1.0))


def test_functions_and_methods_of_ours_that_are_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, x = nn.Linear(3, 3), torch.randn(2, 3)

    def call(x: Any) -> Any:
        return nn.functional.relu(linear(x))

    changes = [
        lambda: monkeypatch.setattr(nn.functional, "relu", lambda x: x * 2), lambda: monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x - 1),
        monkeypatch.undo, lambda: monkeypatch.setattr(nn.functional, "linear", lambda x, w, b: x + b), monkeypatch.undo,
    ]  # fmt: skip
    checked(call, changes, x)


def test_special_methods() -> None:
    class Kind(type):
        def __call__(cls, *args: Any) -> Any:
            return 3

    class Made(metaclass=Kind):
        pass

    class Held:
        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            return 3

        def __add__(self, other: Any) -> Any:
            return other + 1

        def __enter__(self) -> Any:
            return 2

        def __exit__(self, *exc: object) -> None:
            return None

        def __iter__(self) -> Any:
            return iter([1, 2])

        def __getattr__(self, name: str) -> Any:
            return 5

    held: Any = Held()

    def call(x: Any) -> Any:
        x = held + (x * 2 if held else x * 3) * len(held) * Made()
        with held as by:
            x = x * by
        for each in held:
            x = x + each
        return x + held.missing

    def put(name: str, method: Any) -> Callable[[], None]:
        return lambda: setattr(Held, name, method)

    changes = [
        put("__bool__", lambda self: False), put("__len__", lambda self: 7), put("__add__", lambda self, other: other + 5),
        put("__enter__", lambda self: 6), put("__iter__", lambda self: iter([5])), put("__getattr__", lambda self, name: 8),
        lambda: setattr(held, "missing", 1), lambda: setattr(Kind, "__call__", lambda cls, *args: 4),
    ]  # fmt: skip
    checked(call, changes, tensor(1.0), noted=False)


def test_code_that_is_replaced() -> None:
    class Own(nn.Module):
        def helper(self, x: Any) -> Any:
            return x + 1

        def forward(self, x: Any) -> Any:
            return helper(self.helper(x))

    def other(self: Any, x: Any) -> Any:
        return x * 5

    def one(x: Any) -> Any:
        return x * 7

    code = helper.__code__
    changes = [
        lambda: setattr(Own.helper, "__code__", other.__code__), lambda: setattr(helper, "__code__", one.__code__), lambda: setattr(helper, "__code__", code),
    ]  # fmt: skip
    checked(Own(), changes, tensor(1.0))


def test_defaults() -> None:
    function: Any = with_defaults
    before = function.__defaults__, dict(function.__kwdefaults__)
    changes = [
        lambda: setattr(function, "__defaults__", (5.0,)), lambda: function.__kwdefaults__.__setitem__("plus", 3.0),
        lambda: setattr(function, "__kwdefaults__", {"plus": 4.0}), lambda: setattr(function, "__defaults__", before[0]),
        lambda: setattr(function, "__kwdefaults__", before[1]),
    ]  # fmt: skip
    checked(default_reader, changes, tensor(1.0))


def test_a_cell() -> None:
    function, cell = closure()
    checked(
        function, [lambda: setattr(cell, "cell_contents", 3.0), lambda: setattr(cell, "cell_contents", 2)], tensor(1.0)
    )


def test_a_slot() -> None:
    held = Slotted()
    checked(slot_reader, [lambda: setattr(held, "by", 3.0), lambda: setattr(held, "by", 1e300)], tensor(1.0), held)


def test_a_partial_function() -> None:
    made = functools.partial(with_defaults, by=3.0)

    def call(x: Any) -> Any:
        return made(x)

    checked(call, [lambda: made.keywords.__setitem__("by", 4.0), lambda: made.keywords.pop("by")], tensor(1.0))


def test_a_namespace() -> None:
    held = types.SimpleNamespace(by=2.0)

    def call(x: Any) -> Any:
        return x * held.by

    checked(call, [lambda: setattr(held, "by", 3.0)], tensor(1.0), noted=False)


def test_flags_of_an_argument() -> None:
    x = tensor(1.0, 2.0)
    changes = [
        lambda: x.requires_grad_(),
        lambda: x.requires_grad_(False),
        lambda: setattr(x, "data", tensor(1.0, 2.0, 3.0)),
    ]
    checked(flags_reader, changes, x)


def test_the_gradient_of_an_argument() -> None:
    x = tensor(1.0, 2.0, requires_grad=True)
    changes = [
        lambda: setattr(x, "grad", tensor(3.0, 4.0)), lambda: setattr(x, "grad", tensor(5.0, 6.0)), lambda: setattr(x, "grad", None),
        lambda: (x * 2).sum().backward(), lambda: x.grad.zero_(),
    ]  # fmt: skip
    checked(grad_reader, changes, x)


@pytest.mark.parametrize("kind", [list, tuple, Pair._make], ids=["list", "tuple", "namedtuple"])
def test_a_sequence_of_tensors(kind: Any) -> None:
    compiled = compile_function(sums)
    for shape in [(2,), (2,), (2,), (3,), (3,), (3,), (2,)]:
        for _ in range(3):
            values = kind([torch.randn(shape), torch.randn(shape)])
            assert torch.equal(compiled(values), sums(values))
    shared = torch.randn(4)
    for values in (
        [shared, shared],
        [shared[:2], shared[2:]],
        [shared[:2], shared[:2].clone()],
        [shared[1:3], shared[2:]],
    ):
        for _ in range(3):
            assert torch.equal(compiled(kind(values)), sums(kind(values)))
    if kind is list:
        values = [torch.ones(2), torch.ones(2), torch.ones(2)]
        assert torch.equal(compiled(values), sums(values))


@pytest.mark.parametrize(
    "kind", [dict, OrderedDict, functools.partial(defaultdict, float)], ids=["dict", "ordered", "default"]
)
def test_a_dict_of_tensors(kind: Any) -> None:
    compiled = compile_function(of_dict)
    for names in ["x y", "x y", "x y", "y x", "x zz", "x y zz", "x", "x y"]:
        for _ in range(3):
            values = kind({name: torch.randn(2) for name in names.split()})
            assert torch.equal(compiled(values), of_dict(values))


def test_the_order_of_a_dict() -> None:
    held = OrderedDict(x=tensor(1.0), yy=tensor(2.0), z=tensor(4.0))

    def names(x: Any) -> Any:
        for number, name in enumerate(held):
            x = x * len(name) + number
        return x

    checked(
        names, [lambda: held.move_to_end("yy"), lambda: held.move_to_end("z", last=False)], tensor(1.0), noted=False
    )


def test_sets() -> None:
    held = {1, 2, 3}

    def call(x: Any) -> Any:
        return x * sum(held)

    checked(call, [lambda: (held.discard(1), held.add(7))], tensor(1.0), noted=False)


@pytest.mark.parametrize(
    "values",
    [
        (1, 2, 1),
        (1.5, 0.0, -0.0, float("nan")),
        ("a", "bb", "a" * 3),
        (True, False, None, 1, 1.0),
        (1 << 70, 1 << 31, -5),
    ],
)
def test_numbers_and_texts(values: Any) -> None:
    def call(x: Any, value: Any) -> Any:
        if isinstance(value, str):
            return x * len(value)
        return x * 7 if value is None else x + x.new_tensor(float(value)) if value != value else x + value % 7

    compiled = compile_function(call)
    for _ in range(3):
        for value in values:
            for _ in range(3):
                made = value if not isinstance(value, str) else "".join(list(value))
                x = tensor(1.0, 2.0)
                assert torch.equal(compiled(x, made).nan_to_num(5.0), call(x, made).nan_to_num(5.0))


def test_one_tensor_or_two() -> None:
    compiled, a, b = compile_function(same), tensor(2.0), tensor(2.0)
    for _ in range(3):
        for pair in [(a, a), (a, b), (b, b), (b, a)]:
            assert torch.equal(compiled(*pair), same(*pair))


def test_arguments_of_other_kinds() -> None:
    def call(x: Any) -> Any:
        return x * 2

    compiled = compile_function(call, CompileSettings(recompile_limit=20, own_limit=True))
    made = [
        torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(3), torch.ones(2, 2), torch.ones(2, 3).t(), torch.ones(4)[::2],
        nn.Parameter(torch.ones(2)), 3, 2.5, "ab",
    ]  # fmt: skip
    for _ in range(2):
        for x in made:
            for _ in range(2):
                got, expected = compiled(x), call(x)
                if isinstance(x, torch.Tensor):
                    assert (
                        got.dtype is expected.dtype and got.stride() == expected.stride() and torch.equal(got, expected)
                    )
                else:
                    assert got == expected


def test_states_of_the_process() -> None:
    x = tensor(1.0, requires_grad=True)

    def call(x: Any) -> Any:
        return x * 2 + torch.tensor(1.5)

    compiled = compile_function(call)
    for _ in range(4):
        assert compiled(x).requires_grad
    with torch.no_grad():
        for _ in range(4):
            assert not compiled(x).requires_grad
    torch.set_default_dtype(torch.float64)
    try:
        for _ in range(4):
            assert compiled(x).dtype is call(x).dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert compiled(x).requires_grad


def test_an_attribute_of_a_tensor() -> None:
    x = tensor(1.0, 2.0)

    def call(x: Any) -> Any:
        return x * x.scale if hasattr(x, "scale") else x

    checked(call, [lambda: setattr(x, "scale", 2.0), lambda: setattr(x, "scale", 3.0), lambda: delattr(x, "scale")], x)


# ***** what a backward that is part of the trace meets *****


def stepping() -> tuple[Any, Any]:
    weight = torch.ones(3, requires_grad=True)

    def step(x: Any) -> Any:
        (weight * x).sum().backward()

    return weight, step


def test_gradients_are_added_to_what_is_there() -> None:
    weight, step = stepping()
    compiled, x, found = compile_function(step), torch.ones(3), []
    for k in range(9):
        if k in (4, 5):
            weight.grad = None
        compiled(x)
        found.append(weight.grad[0].item())
    assert found == [1, 2, 3, 4, 1, 1, 2, 3, 4]


def test_hooks_of_tensors() -> None:
    weight, step = stepping()
    compiled, x, seen = compile_function(step), torch.ones(3), []

    def gradient() -> float:
        weight.grad = None
        compiled(x)
        return weight.grad[0].item()

    assert [gradient() for _ in range(4)] == [1.0] * 4
    handle = weight.register_hook(lambda grad: grad * 10)
    assert [gradient() for _ in range(2)] == [10.0] * 2
    handle.remove()
    assert [gradient() for _ in range(4)] == [1.0] * 4
    weight.register_post_accumulate_grad_hook(seen.append)
    assert [gradient() for _ in range(2)] == [1.0] * 2 and len(seen) == 2


@pytest.mark.filterwarnings("ignore:.*got another history")
def test_views_get_their_history() -> None:
    def call(x: Any) -> Any:
        return x.mul_(2)

    def gradient(function: Any, view: bool) -> Any:
        base = torch.ones(4, requires_grad=True)
        made = base * 1
        result = function(made[:2] if view else made[:2].clone())
        (made if view else result).sum().backward()
        return base.grad

    compiled = compile_function(call)
    for view in (False, False, False, True, True, False):
        assert torch.equal(gradient(compiled, view), gradient(call, view))


def test_tensors_of_inference_mode() -> None:
    def call(x: Any) -> Any:
        return x.mul_(2)

    compiled = compile_function(call)
    for _ in range(4):
        assert compiled(torch.ones(2))[0].item() == 2.0
    with torch.inference_mode():
        x = torch.ones(2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="[Ii]nference"):
            compiled(x)


# ***** what changes at every call *****


@native
def test_a_counter_beside_what_is_read() -> None:
    module = Scaled()
    compiled, x = compile_function(module), torch.randn(2, 3)
    for step in range(40):
        module.steps = step
        globals()["_beside"] = step
        assert torch.equal(compiled(x), module(x))
    (segment,) = compiled.entry.segments
    assert segment.guard.hits() > 20
    module.factor = 9.0  # the dict is looked into rather than noted: so is what was not there
    for _ in range(3):
        assert torch.equal(compiled(x), module(x))


@native
def test_a_tensor_that_is_another_at_each_call() -> None:
    class Holds(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * self.held

    module, x = Holds(), tensor(1.0, 2.0)
    compiled = compile_function(module)
    for step in range(40):
        module.held = tensor(float(step), 1.0)
        assert torch.equal(compiled(x), module(x))
    (segment,) = compiled.entry.segments
    assert segment.guard.hits() > 20
    module.held = tensor(3.0, 4.0, 5.0, 6.0)[::2]
    assert torch.equal(compiled(x), module(x))
    module.held = 2.0
    assert torch.equal(compiled(x), module(x))


@native
def test_another_module_at_each_call() -> None:
    def call(module: Any, x: Any) -> Any:
        return module(x)

    compiled, modules, x = compile_function(call), [nn.Linear(3, 3) for _ in range(5)], torch.randn(2, 3)
    for step in range(60):
        module = modules[step % 5]
        assert torch.equal(compiled(module, x), module(x))
    (segment,) = compiled.entry.segments
    assert segment.guard.hits() > 20
    modules[2].weight = nn.Parameter(torch.zeros(3, 3), requires_grad=False)
    modules[3] = nn.Linear(3, 3, bias=False)
    for module in modules * 2:
        got = compiled(module, x)
        assert torch.equal(got, module(x)) and got.requires_grad is module(x).requires_grad


def test_conditions_in_python_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rushlight._capture.trace.guards.guards.supported", lambda: False)
    module, x = Scaled(), torch.randn(2, 3)
    compiled = compile_function(module)
    for change in [module.train, module.eval, lambda: setattr(module, "factor", 9.0)]:
        change()
        for _ in range(4):
            assert torch.equal(compiled(x), module(x))
    assert "versions of dicts" in compiled.entry.segments[0].guard.reason


# ***** lives *****


def test_what_was_replaced_dies() -> None:
    module, x = Scaled(), torch.randn(2, 3)
    compiled = compile_function(lambda m, x: m(x))
    for _ in range(4):
        compiled(module, x)
    old = weakref.ref(module.inner), weakref.ref(module.inner.weight), weakref.ref(module.offset), weakref.ref(x)
    module.inner, module.offset, x = nn.Linear(3, 3), torch.zeros(3), torch.randn(2, 3)
    gc.collect()
    assert [ref() for ref in old[:3]] == [None] * 3
    assert torch.equal(compiled(module, x), module(x))
    assert old[3]() is None
    last = weakref.ref(module)
    del module
    gc.collect()
    assert last() is None


@native
def test_a_dict_that_died_does_not_pass_for_its_successor() -> None:
    class Holder:
        pass

    holder = Holder()

    def call(x: Any) -> Any:
        return x * holder.table["by"]

    compiled, x = compile_function(call), tensor(1.0)
    for step in range(300):
        holder.table = {"by": float(step % 3)}  # again and again at the same address
        assert compiled(x).item() == float(step % 3)


def test_many_closures_leave_nothing() -> None:
    def make(k: int) -> Any:
        by = torch.full((1,), float(k))
        return by, compile_function(lambda x: x * by)

    x, alive = tensor(1.0), []
    for k in range(30):
        by, compiled = make(k)
        assert compiled(x).item() == compiled(x).item() == compiled(x).item() == k
        alive.append(weakref.ref(by))
    del by, compiled
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_threads_change_what_others_read() -> None:
    module, x = Scaled(), torch.ones(2, 3)
    nn.init.zeros_(module.inner.weight)
    nn.init.zeros_(module.inner.bias)
    compiled = compile_function(module)
    compiled(x)
    failures: list[Any] = []
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            module.inner.bias = nn.Parameter(torch.zeros(3))
            module.values = [1.0, 2.0]
            module.settings = {"power": 2}
            module.other = object()

    def read() -> None:
        try:
            for _ in range(150):
                if compiled(x)[0, 0].item() != 8.0:  # (0 + 1) * 2 * 2 + 2 + 2
                    failures.append("another value")
        except Exception as error:
            failures.append(error)

    changing, reading = threading.Thread(target=change), [threading.Thread(target=read) for _ in range(3)]
    for thread in (changing, *reading):
        thread.start()
    for thread in reading:
        thread.join()
    stop.set()
    changing.join()
    assert not failures


def test_a_process_that_has_not_called_an_operator_yet() -> None:
    """Words are noted before anything else made the native tables ready."""
    text = (
        "import rushlight\nf = rushlight.compile(lambda x: len(x))\nassert [f([1, 2]) for _ in range(6)] == [2] * 6\n"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


# ***** segments that only compute *****


def test_what_only_computes_is_called_natively() -> None:
    def several(x: Any, y: Any) -> Any:
        return x * 2, x + y

    x, y = torch.randn(3), torch.randn(3)
    one, two = compile_function(lambda x: x * 2), compile_function(several)
    for _ in range(4):
        assert torch.equal(one(x), x * 2)
        found = two(x, y)
        assert type(found) is tuple and all(map(torch.equal, found, several(x, y)))
    (segment,) = two.entry.segments
    assert segment.native is not None and one.entry.segments[0].native is not None
    run = segment.run
    assert all(map(torch.equal, run((x, y)), several(x, y))) and run((x, torch.randn(4))) is MISS
    two.forget()
    del segment
    gc.collect()
    assert run((x, y)) is MISS  # nothing is left of what it called


def test_errors_of_kernels_that_are_called_natively() -> None:
    def pick(x: Any, at: Any) -> Any:
        return x[at] * 2

    compiled, x = compile_function(pick), torch.arange(5.0)
    for _ in range(4):
        assert compiled(x, torch.tensor([1, 2])).tolist() == [2, 4]
    assert compiled.entry.segments[0].native is not None
    for function in (compiled, pick):
        with pytest.raises(IndexError, match="out of bounds") as caught:
            function(x, torch.tensor([1, 7]))
        assert "pick" in [entry.name for entry in caught.traceback]
    assert compiled(x, torch.tensor([1, 3])).tolist() == [2, 6]


def test_callers_search_in_native_code():
    def step(find, runs, MISS, *missed, s=2):
        return find * runs + MISS - sum(missed) * s

    compiled = torch.compile(step)
    x = torch.ones(3)
    for count in (3, 3, 4):  # the last misses, and makes a second segment
        given = [torch.full((3,), float(k)) for k in range(count)]
        assert torch.equal(compiled(x, *given, s=3), step(x, *given, s=3))
    assert type(compiled._compiled._front._find.cell_contents) is type(len)
    compiled._compiled.forget()
    assert torch.equal(compiled(x, x, x, x), step(x, x, x, x))


def test_programs_without_a_result_run_in_native_code():
    def step(x, n):
        x.add_(n)

    compiled, x = torch.compile(step), torch.zeros(3)
    for _ in range(4):
        assert compiled(x, 1) is None
    (segment,) = compiled._compiled.entry.segments
    assert type(segment.run) is type(len) and x.tolist() == [4.0] * 3


def test_a_condition_with_an_alternative_leaves_the_others_asked() -> None:
    """Where all conditions are one function of Python."""
    from rushlight._capture.trace.guards.asking import Conditions
    from rushlight._capture.trace.guards.sources import Constants, Reads

    reads = Reads(Constants())
    first, second = reads.source("s[0]"), reads.source("s[1]")
    reads.check(first, "{} is None or {} == 1")
    reads.check(second, "{} == 3")
    asked = Conditions(reads, [], {})
    for state in ((None, 3), (1, 3)):
        assert asked(state) == asked.function(state) == ()
    for state in ((None, 4), (1, 4), (2, 3)):
        assert asked(state) is asked.function(state) is None


def test_native_methods_and_names_of_classes_leave_no_conditions_in_python():
    class Layer:
        pass

    def step(x):
        with torch.no_grad():
            return x + len(Layer.__name__)

    torch.compiler.reset()
    made, x = compile_function(step), torch.ones(2)
    for name in ("Layer", "Other name", "Layer"):
        Layer.__name__ = name
        for _ in range(8):
            assert made.caller(x).tolist() == [1 + len(name)] * 2
    for segment in made.entry.segments:
        table = segment.guard.table[0]
        assert table is None or table[2] is None
    assert any(segment.guard.table[0] for segment in made.entry.segments) or not supported()
