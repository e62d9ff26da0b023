"""What rarer features of Python and of tensors read: it is changed, the compiled function sees it and is compiled again.

Hooks, parametrizations, `autograd.Function`, transforms, subclasses, classes made inside, NumPy and random numbers have a case each;
containers, objects and closures have theirs in `test_guards_python`.
"""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import dataclasses
import functools
import itertools
import threading
import types
import typing
import weakref
from abc import ABC
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import numpy as np
import pytest
from tests.capture.guards.test_guards_python import Box, Pair, see, setting

import rushlight as torch
from rushlight import nn
from rushlight.nn.utils import parametrize

CASES: list[Callable[[], Pair]] = []


def case(make: Callable[[], Pair]) -> Callable[[], Pair]:
    CASES.append(make)
    return make


def linear() -> nn.Linear:
    """A layer without random weights."""
    layer = nn.Linear(2, 2)
    nn.init.ones_(layer.weight), nn.init.zeros_(layer.bias)
    return layer


# ***** calls *****


@case
def star_arguments() -> Pair:
    box = Box(())

    def inner(x, *args, by=1, **named):
        return x * by + sum(args), sorted(named), len(args)

    box.named = {}  # type: ignore[attr-defined]

    def change(n: int) -> None:
        box.v, box.named = (1,) * n, {"by": n} if n < 3 else {"by": n, f"k{n}": n}  # type: ignore[attr-defined]

    return lambda x: inner(x, *box.v, **box.named), change  # type: ignore[attr-defined]


@case
def wrapped_functions() -> Pair:
    box = Box(1)

    def decorated(f):
        @functools.wraps(f)
        def inner(*args):
            return f(*args) * box.v

        return inner

    @decorated
    def go(x):
        return x + 1

    def change(n: int) -> None:
        box.v = n
        if n == 3:
            go.__wrapped__ = abs

    return lambda x: (go(x), go.__wrapped__ is abs, go.__name__), change


@case
def remembered_results() -> Pair:
    box = Box(1)

    @functools.cache
    def kept(k: int) -> int:
        return k * box.v

    def change(n: int) -> None:
        box.v = n
        if n % 2 == 0:
            kept.cache_clear()

    return lambda x: x * kept(2), change


@case
def dispatch_by_type() -> Pair:
    @functools.singledispatch
    def of(value: Any) -> int:
        return 1

    box = Box(1)

    def change(n: int) -> None:
        box.v = (1, "a", 2.0, [1])[n - 1]
        if n == 3:
            of.register(float, lambda value: 3)

    return lambda x: x * of(box.v), change


@case
def bound_methods() -> Pair:
    class A(Box):
        def go(self, x):
            return x * self.v

    held = Box(A(1).go)
    return lambda x: held.v(x), setting(held, lambda n: A(n).go)


@case
def builtins_that_are_patched() -> Pair:
    space: dict[str, Any] = {"held": [1, 2]}
    exec("def go(x):\n    return x * len(held)", space)  # noqa: S102
    space["__builtins__"] = {**vars(builtins)}
    exec("def go(x):\n    return x * len(held)", space)  # noqa: S102
    return space["go"], lambda n: space["__builtins__"].update(len=lambda items: n) if n > 1 else None


# ***** classes and objects *****


@case
def classes_made_inside() -> Pair:
    class Base:
        by = 1

    box = Box(Base)

    def go(x):
        class Inner(box.v):
            mine = box.v.by + 1

            def go(self, x):
                return x * self.by + self.mine

        return Inner().go(x), Inner.__mro__[1].by

    def change(n: int) -> None:
        Base.by = n
        if n == 3:
            box.v = type("Other", (Base,), {"by": 7})

    return go, change


@case
def bases_that_are_replaced() -> Pair:
    class A:
        def go(self) -> int:
            return 1

    class B(A):
        def go(self) -> int:
            return 2

    class C(A):
        def go(self) -> int:
            return super().go() + 10

    c = C()
    return lambda x: (x * c.go(), isinstance(c, B)), lambda n: setattr(C, "__bases__", (B if n % 2 == 0 else A,))


@case
def classes_of_objects() -> Pair:
    class A:
        def go(self) -> int:
            return 1

    class B:
        def go(self) -> int:
            return 2

    a = A()
    return lambda x: (x * a.go(), type(a).__name__), lambda n: setattr(a, "__class__", B if n % 2 == 0 else A)


@case
def abstract_classes() -> Pair:
    class Shape(ABC):  # noqa: B024
        pass

    class Round:
        pass

    held = Round()
    return lambda x: x + 1 if isinstance(held, Shape) else x, lambda n: Shape.register(Round) if n == 3 else None


@case
def metaclasses() -> Pair:
    class Meta(type):
        by = 1

        def __call__(cls, *args: Any) -> Any:
            made = super().__call__(*args)
            made.w = cls.by
            return made

        def __len__(cls) -> int:
            return cls.by

    class A(metaclass=Meta):
        pass

    return lambda x: (x * A().w, len(A)), lambda n: setattr(Meta, "by", n)  # type: ignore[attr-defined]


@case
def descriptors() -> Pair:
    class Scaled:
        by = 1

        def __get__(self, instance: Any, owner: Any) -> Any:
            return self.by if instance is None else instance.v * self.by

        def __set__(self, instance: Any, value: Any) -> None:
            instance.v = value + self.by

    class A(Box):
        scaled = Scaled()

    a = A(1)

    def go(x):
        a.scaled = 2
        return x * a.scaled, A.scaled

    return go, lambda n: setattr(Scaled, "by", n)


@case
def properties_that_are_replaced() -> Pair:
    class A(Box):
        w = property(lambda self: self.v)
        make = classmethod(lambda cls, n: cls(n))
        clip = staticmethod(lambda n: n)

    a = A(2)

    def change(n: int) -> None:
        if n == 2:
            A.w = property(lambda self: self.v * 10)
        if n == 3:
            A.make = classmethod(lambda cls, n: cls(n * 10))
        if n == 4:
            A.clip = staticmethod(lambda n: -n)

    return lambda x: x * a.w + A.make(3).v + a.clip(4), change


@case
def dataclasses_with_factories() -> Pair:
    box = Box(1)

    @dataclasses.dataclass(frozen=True)
    class D:
        a: int
        b: list[int] = dataclasses.field(default_factory=lambda: [box.v])
        c: int = 3

    held: Any = Box(D(1))

    def change(n: int) -> None:
        box.v = n
        if n == 3:
            held.v = D(2, [5])

    return lambda x: (x * D(1).b[0], held.v, held.v == D(2, [5]), hash(D.__name__)), change


@case
def named_tuples_with_methods() -> Pair:
    class Point(typing.NamedTuple):
        a: int
        b: int = 2

        def both(self) -> int:
            return self.a + self.b

    box = Box(Point(1))
    return lambda x: (x * box.v.both(), box.v._replace(b=5), [*box.v._asdict()]), setting(box, Point)


@case
def weak_references() -> Pair:
    held = [Box(1)]
    box = Box(weakref.ref(held[0]))

    def change(n: int) -> None:
        if n == 3:
            held.clear()
        elif held:
            held[0].v = n

    return lambda x: x * box.v().v if box.v() is not None else x - 1, change


@case
def patterns() -> Pair:
    class Point:
        __match_args__ = ("a", "b")

        def __init__(self, a: int, b: int) -> None:
            self.a, self.b = a, b

    box = Box(None)

    def go(x):
        match box.v:
            case {"a": k, **rest}:
                return x * k, rest
            case [first, *others]:
                return x * first, others
            case Point(a, b=3):
                return x * a
            case str() | None:
                return x
            case other:
                return x, type(other).__name__

    return go, setting(box, lambda n: ({"a": 1, "b": 2}, [5, 6], Point(4, 3), Point(4, 4))[n - 1])


# ***** `try`, `with`, loops *****


@case
def exceptions() -> Pair:
    box = Box(KeyError)

    def go(x):
        try:
            raise box.v("a")
        except LookupError as error:
            return x + 1, str(error)
        except Exception as error:
            return x - 1, type(error).__name__

    return go, setting(box, lambda n: (KeyError, IndexError, ValueError, type("Own", (LookupError,), {}))[n - 1])


@case
def classes_that_are_caught() -> Pair:
    box = Box(KeyError)

    def go(x):
        with suppress(box.v):
            try:
                raise IndexError
            except box.v:
                return x * 2
        return x

    return go, setting(box, lambda n: (IndexError, LookupError, (ValueError, IndexError), IndexError)[n - 1])


@case
def gradient_modes() -> Pair:
    box, weight = Box(True), torch.ones(2, requires_grad=True)

    def go(x):
        with torch.set_grad_enabled(box.v):
            y = x * weight
        return y.requires_grad, torch.is_grad_enabled(), y

    return go, setting(box, lambda n: n % 2 == 0)


@case
def casts() -> Pair:
    box = Box(torch.bfloat16)

    def go(x):
        with torch.autocast("cpu", dtype=box.v, enabled=box.on):
            return (x.expand(2, 2) @ x.expand(2, 2)).dtype

    def change(n: int) -> None:
        box.v, box.on = torch.float16 if n == 3 else torch.bfloat16, n != 2  # type: ignore[attr-defined]

    return go, change


@case
def devices() -> Pair:
    box = Box("cpu")

    def go(x):
        with torch.device(box.v):
            made = torch.zeros(2)
        return str(made.device), x + 1

    return go, setting(box, lambda n: ("cpu", "meta")[n % 2])


@case
def default_types() -> Pair:
    return lambda x: (x, torch.zeros(2).dtype, torch.tensor([0.5]).dtype), lambda n: torch.set_default_dtype(
        torch.float64 if n in (2, 3) else torch.float32
    )


@case
def managers_from_outside() -> Pair:
    class Manager(Box):
        def __enter__(self) -> Any:
            return self.v

        def __exit__(self, *error: Any) -> bool:
            return self.v == 3

    held = Box(Manager(1))

    def go(x):
        with held.v as v, ExitStack() as stack:
            stack.enter_context(nullcontext(v))
            y = x * v
            if v > 2:
                raise KeyError(v)
            return y
        return x

    return go, setting(held, lambda n: Manager(min(n, 3)))


@case
def loops() -> Pair:
    box = Box(1)

    def go(x):
        y = x
        for i in range(box.v):
            if i == box.stop:
                break
            y = y * 2
        else:
            y = y + 100
        while y.dim() + box.v < 4:
            y = y.unsqueeze(0)
        pairs = [a + b for a, b in itertools.product(range(box.v), repeat=2) if a != b]
        return y, pairs, {k: v + 1 for k, v in zip("abc", itertools.count(box.v), strict=False)}

    def change(n: int) -> None:
        box.v, box.stop = n, 2 if n == 4 else 9  # type: ignore[attr-defined]

    return go, change


@case
def texts() -> Pair:
    box = Box(".2f")

    def go(x):
        return x, f"{1.5:{box.v}}", f"{box!r:.9}", "%s" % (box.v,), "{0.v}".format(box), "-".join(box.v)  # noqa: UP030, UP031, UP032

    class Told(Box):
        def __repr__(self) -> str:
            return f"Told {self.v}"

    box = Told(".2f")
    return go, setting(box, lambda n: f".{n}f")


@case
def unpacking() -> Pair:
    box = Box([1, 2])

    def go(x):
        first, *others = box.v
        return x * first, others, [*box.v, *others], {**dict.fromkeys(box.v, 1)}

    return go, setting(box, lambda n: [*range(1, n + 1)])


# ***** modules *****


@case
def hooks() -> Pair:
    layer, handles = linear(), []

    def change(n: int) -> None:
        if n == 2:
            handles.append(layer.register_forward_hook(lambda m, a, r: r * 2))
        if n == 3:
            handles.append(layer.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))
        if n == 4:
            handles[0].remove()

    return lambda x: layer(x), change


@case
def hooks_that_are_replaced_or_read() -> Pair:
    layer, box = linear(), Box(1)
    layer.register_forward_hook(lambda m, a, r: r * box.v)
    return lambda x: layer(x), setting(box)


@case
def hooks_of_gradients() -> Pair:
    layer, box = linear(), Box(1)
    layer.register_full_backward_hook(lambda m, got, given: tuple(g * box.v for g in got))

    def go(x):
        x = x.requires_grad_()
        layer.zero_grad()
        layer(x).sum().backward()
        return x.grad, layer.weight.grad

    return go, setting(box)


@case
def hooks_of_all_modules() -> Pair:
    layer, handles = linear(), []

    def change(n: int) -> None:
        if n == 2:
            handles.append(nn.modules.module.register_module_forward_hook(lambda m, a, r: r * 3))
        if n == 4:
            handles.pop().remove()

    return lambda x: layer(x), change


@case
def parametrizations() -> Pair:
    class Scaled(nn.Module):
        by = 2

        def forward(self, x):
            return x * self.by

    layer = linear()

    def change(n: int) -> None:
        if n == 2:
            parametrize.register_parametrization(layer, "weight", Scaled())
        if n == 3:
            layer.parametrizations.weight[0].by = 5
        if n == 4:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)

    return lambda x: (layer(x), parametrize.is_parametrized(layer)), change


@case
def containers_of_modules() -> Pair:
    held = nn.ModuleDict({"a": linear(), "b": nn.ModuleList([linear(), nn.ReLU()])})

    def change(n: int) -> None:
        if n == 2:
            held["b"].append(nn.Tanh())
        if n == 3:
            held["b"][1] = nn.Sigmoid()
        if n == 4:
            del held["b"][0]

    def go(x):
        for layer in held["b"]:
            x = layer(x)
        return held["a"](x), len(held["b"]), [name for name, _ in held.named_modules()]

    return go, change


@case
def what_modules_hold() -> Pair:
    layer = linear()
    layer.register_buffer("kept", torch.ones(2))

    def change(n: int) -> None:
        if n == 2:
            layer.kept = None
        if n == 3:
            layer.weight.requires_grad_(False)
        if n == 4:
            layer.register_parameter("extra", nn.Parameter(torch.ones(2)))

    def go(x):
        y = layer(x) if layer.kept is None else layer(x) + layer.kept
        return y, [name for name, p in layer.named_parameters() if p.requires_grad], y.requires_grad

    return go, change


@case
def methods_of_modules() -> Pair:
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

        def extra_repr(self) -> str:
            return "net"

    net = Net()

    def change(n: int) -> None:
        if n == 2:
            Net.forward = lambda self, x: x * 3  # type: ignore[method-assign]
        if n == 3:
            net.forward = types.MethodType(lambda self, x: x * 4, net)  # type: ignore[method-assign]

    return lambda x: net(x), change


# ***** tensors *****


@case
def functions_of_autograd() -> Pair:
    class Scaled(torch.autograd.Function):
        by = 1

        @staticmethod
        def forward(ctx, x):
            ctx.by = Scaled.by
            return x * Scaled.by

        @staticmethod
        def backward(ctx, grad):
            return grad * (ctx.by + Scaled.by)

    def go(x):
        x = x.requires_grad_()
        y = Scaled.apply(x)
        y.sum().backward()
        return y, x.grad

    return go, lambda n: setattr(Scaled, "by", n)


@case
def backward_functions_that_are_replaced() -> Pair:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def change(n: int) -> None:
        if n == 2:
            Scaled.backward = staticmethod(lambda ctx, grad: grad * 5)  # type: ignore[method-assign]
        if n == 3:
            Scaled.forward = staticmethod(lambda ctx, x: x * 7)  # type: ignore[method-assign]

    def go(x):
        x = x.requires_grad_()
        y = Scaled.apply(x)
        y.sum().backward()
        return y, x.grad

    return go, change


@case
def transforms() -> Pair:
    box = Box(1)
    weight = torch.tensor([2.0, 3.0])

    def go(x):
        gradient = torch.func.grad(lambda k, w: (k * w * box.v).sum(), argnums=box.v % 2)(x, weight)
        rows = torch.func.vmap(lambda k: k * box.v, out_dims=box.v % 2)(x.expand(2, 2))
        return gradient, rows, torch.func.jvp(lambda k: k**box.v, (x,), (x,))

    return go, setting(box)


@case
def checkpoints() -> Pair:
    box, weight = Box(1), torch.ones(2, requires_grad=True)

    def go(x):
        weight.grad = None
        y = torch.utils.checkpoint.checkpoint(lambda k: (k * weight * box.v).sin(), x, use_reentrant=False)
        y.sum().backward()
        return y, weight.grad

    return go, setting(box)


@case
def subclasses() -> Pair:
    class Scaled(torch.Tensor):
        by = 1

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            found = super().__torch_function__(func, types, args, kwargs or {})
            return found * cls.by if func is torch.Tensor.add else found

    held = torch.ones(2).as_subclass(Scaled)

    def change(n: int) -> None:
        Scaled.by = n
        if n == 3:
            held.mark = 5

    return lambda x: (held.add(x).as_subclass(torch.Tensor), getattr(held, "mark", 0)), change


@case
def function_modes() -> Pair:
    class Doubled(torch.overrides.TorchFunctionMode):
        by = 1

        def __torch_function__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            return found * self.by if func is torch.sin else found

    mode = Doubled()

    def go(x):
        with mode:
            return torch.sin(x)

    return go, lambda n: setattr(mode, "by", n)


@case
def views() -> Pair:
    base = torch.arange(6.0)
    kinds = [base[:2], base[::3], base.view(3, 2).t()[0, :2], base[1:3].clone()]
    box = Box(kinds[0])

    def go(x):
        box.v.add_(1)
        return base * 2, box.v.stride(), box.v._base is base, box.v.storage_offset()

    return go, setting(box, lambda n: kinds[n - 1])


@case
def aliases_of_a_tensor() -> Pair:
    first, second = torch.ones(4), torch.ones(4)
    box, other = Box(first), Box(second)

    def change(n: int) -> None:
        other.v = (second, first, first.view(2, 2), second)[n - 1]

    def go(x):
        box.v.mul_(2)
        return other.v + 1, box.v is other.v

    return go, change


@case
def elements() -> Pair:
    held = torch.tensor([1.0, 2.0])

    def go(x):
        if held.sum() > 4:
            return x * 2, held.nonzero().shape
        return x[: int(held[0])], held.tolist()

    return go, lambda n: held.fill_(n)


@case
def attributes_of_a_tensor() -> Pair:
    held = torch.ones(2)

    def change(n: int) -> None:
        if n == 2:
            held.mark = 2  # type: ignore[attr-defined]
        if n == 3:
            held.requires_grad_()
        if n == 4:
            held.grad = torch.ones(2)

    return lambda x: (x * getattr(held, "mark", 1), held.requires_grad, held.grad is None), change


@case
def random_streams() -> Pair:
    box = Box(1)
    generator = torch.Generator().manual_seed(0)

    def change(n: int) -> None:
        box.v = n
        generator.manual_seed(n)

    def go(x):
        torch.manual_seed(box.v)
        return x * torch.rand(2), torch.randn(2, generator=generator), torch.initial_seed()

    return go, change


@case
def arrays() -> Pair:
    box, held = Box(None), np.ones(2, np.float32)

    def change(n: int) -> None:
        held.fill(n)
        box.v = np.full(2, n, np.float64 if n == 3 else np.float32)

    def go(x):
        return torch.from_numpy(held) * x, np.sum(x.numpy() * held), box.v.dtype.name, torch.as_tensor(box.v) + x

    return go, change


@case
def operators_that_are_patched() -> Pair:
    return lambda x: (torch.nn.functional.relu(x), x + 1), lambda n: setattr(
        torch.nn.functional, "relu", RELU if n != 3 else lambda x: x * 9
    )


RELU = torch.nn.functional.relu


# ***** the rest of Python *****


@case
def threads_and_contexts() -> Pair:
    variable, local = contextvars.ContextVar("variable", default=1), threading.local()
    local.v = 1

    def change(n: int) -> None:
        variable.set(n)
        local.v = n

    return lambda x: x * variable.get() + local.v, change


@case
def arrays_of_bytes() -> Pair:
    held, other = bytearray(b"\x01\x02"), array.array("i", [1])

    def change(n: int) -> None:
        held[0] = n
        other.append(n)

    return lambda x: (x * held[0], sum(other), len(other), bytes(held)), change


@case
def wrapped_containers() -> Pair:
    under: dict[str, Any] = {"a": 1}
    shown, user = types.MappingProxyType(under), collections.UserDict(a=1)

    def change(n: int) -> None:
        under["a"] = user["a"] = n

    return lambda x: (x * shown["a"], user["a"], [*shown.values()], len(user)), change


@case
def iterators_that_are_made() -> Pair:
    class Rows(Box):
        def __iter__(self) -> Iterator[int]:
            return iter(range(self.v))

        def __next__(self) -> int:
            return int(self.v)

    rows = Rows(1)
    return lambda x: (x * sum(rows), next(rows), [*map(abs, rows)], max(rows)), setting(rows)


@case
def coroutines() -> Pair:
    box = Box(1)

    async def inner(x):
        return x * box.v

    def go(x):
        made = inner(x)
        try:
            made.send(None)
        except StopIteration as stop:
            return stop.value

    return go, setting(box)


@case
def late_imports() -> Pair:
    module = types.ModuleType("rushlight_late_module")
    module.v = 1  # type: ignore[attr-defined]

    def go(x):
        import sys

        return x * sys.modules["rushlight_late_module"].v

    def change(n: int) -> None:
        import sys

        other = types.ModuleType("rushlight_late_module")
        other.v = n  # type: ignore[attr-defined]
        sys.modules["rushlight_late_module"] = other

    return go, change


@case
def receivers_of_side_effects() -> Pair:
    box = Box([])
    space: dict[str, Any] = {}

    def go(x):
        box.v.append(len(box.v))
        space[f"k{len(space)}"] = box.v
        box.w = x.sum()
        return [len(v) for v in space.values()], box.w

    return go, lambda n: setattr(box, "v", [0] * n) if n != 3 else None


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """States of the process that cases change."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.nn.functional.relu = RELU


@pytest.mark.filterwarnings("ignore:.*was compiled 8 times")
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_is_changed_is_seen(make: Callable[[], Pair]) -> None:
    see(make)


class Noted(torch.autograd.Function):
    """Writes down that it runs."""

    seen: list[str] = []

    @staticmethod
    def forward(ctx, x):
        Noted.seen.append("forward")
        ctx.by = len(Noted.seen)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Noted.seen.append("backward")
        return grad * ctx.by


class Telling(torch.Tensor):
    """Writes down what is asked of it."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Telling.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_side_effects_of_functions_of_autograd() -> None:
    """They happen at each call, within the program and in a backward call outside of it."""
    for behind in (False, True):

        def go(x, behind=behind):
            y = Noted.apply(x)
            if not behind:
                y.sum().backward()
            return y

        results = []
        for called in (go, torch.compile(go)):
            Noted.seen.clear()
            found: list[Any] = []
            for _ in range(3):
                x = torch.ones(2, requires_grad=True)
                y = called(x)
                if behind:
                    y.sum().backward()
                assert x.grad is not None
                found.append((y.tolist(), x.grad.tolist(), [*Noted.seen]))
            results.append(found)
        assert results[0] == results[1]


def test_overrides_of_subclasses_run_at_each_call() -> None:
    held = torch.ones(2).as_subclass(Telling)

    def go(x):
        return torch.relu(held + x) * 2

    results = []
    for called in (go, torch.compile(go)):
        Telling.seen.clear()
        found: list[Any] = []
        for _ in range(4):
            y = called(torch.ones(2))
            found.append((type(y), [*Telling.seen]))
        results.append(found)
    assert results[0] == results[1]


class Length(float):
    unit = 1.0


class Count(int):
    unit = 1.0


class Label(str):
    unit = 1.0


@pytest.mark.parametrize("value", [Length(2.0), Count(2), Label("2")])
def test_objects_of_classes_of_numbers_and_texts(value: Any) -> None:
    """Their attributes are guarded, as are those of their classes; they are made anew at each call."""
    kind, x = type(value), torch.ones(2)

    def read(x: Any, held: Any) -> Any:
        return x * held.unit

    def write(x: Any, held: Any) -> Any:
        held.last = x * 2
        return held

    def make(x: Any, scale: float) -> Any:
        made = kind(value)
        made.unit, made.seen, made.apply = x * 2, [], lambda y: y * scale
        return made

    compiled, held = torch.compile(read), kind(value)
    for unit in (3.0, 4.0):
        held.unit = unit
        assert compiled(x, held).tolist() == [unit, unit]
    other = kind(value)
    for unit in (1.0, 5.0):
        kind.unit = unit
        assert compiled(x, other).tolist() == [unit, unit]
    kind.unit = 1.0
    compiled = torch.compile(write)
    for each in (held, other):
        assert compiled(x * 3, each) is each and each.last.tolist() == [6, 6]
    compiled = torch.compile(make)
    first, second = compiled(x, 0.5), compiled(x * 2, 0.7)
    assert first is not second and first.seen is not second.seen
    assert (first.unit.tolist(), second.unit.tolist()) == ([2, 2], [4, 4])
    assert (first.apply(1), second.apply(1)) == (0.5, 0.7)


def test_values_of_objects_of_classes_of_numbers() -> None:
    def function(x: Any, held: Any) -> Any:
        return x * 2 if held > 2 else x * held, held

    compiled, x = torch.compile(function), torch.ones(2)
    for held in (Length(1.5), Length(0.0), Length(-0.0), Count(3), Length("nan"), 1.5, Length(1.5)):
        (found, same), (wanted, _) = compiled(x, held), function(x, held)
        assert same is held and repr(found.tolist()) == repr(wanted.tolist())


class Odd(int):
    def __index__(self) -> int:
        return 1


def test_conversions_that_a_native_class_does_come_first() -> None:
    def function(x: Any, held: Any) -> Any:
        return x * int(held) + float(held)

    assert torch.compile(function)(torch.ones(2), Odd(5)).tolist() == [10, 10]
