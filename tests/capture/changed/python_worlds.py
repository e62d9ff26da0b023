"""What is changed is Python's: names, containers, classes, functions, the process."""

from __future__ import annotations

import array
import builtins
import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import itertools
import math
import operator
import os
import sys
import time
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from tests.capture.changed.worlds import KEPT, Change, Plain, item, put, world

import rushlight as torch

HERE = sys.modules[__name__]
KEPT.append(HERE)
G_NUMBER: Any = 2
G_LIST: Any = [1, 2]


# ***** names *****


@world
def global_numbers():
    def change(value: Any) -> Change:
        return lambda: vars(HERE).update(G_NUMBER=value)

    kinds = [
        change(v)
        for v in (3, 3.0, True, -0.0, 0.0, None, "a", 1 << 70, float("nan"), np.float32(2), np.int64(5), 2 + 1j)
    ]
    return (
        lambda x: (
            x if G_NUMBER is None else (x * G_NUMBER if not isinstance(G_NUMBER, str) else G_NUMBER, type(G_NUMBER))
        ),
        *kinds,
    )


@world
def global_objects():
    def other() -> None:
        global G_LIST
        G_LIST = [*G_LIST, 4]

    def gone() -> None:
        vars(HERE).pop("G_LIST", None)

    vars(HERE)["G_LIST"] = [1, 2]
    return (
        lambda x: x * sum(G_LIST) + len(G_LIST),
        other,
        lambda: vars(HERE).setdefault("G_LIST", [1]).append(2),
        gone,
        lambda: vars(HERE).update(G_LIST=(5,)),
    )


@world
def globals_that_shadow_builtins():
    space: dict[str, Any] = {"held": [1, 2, 3]}
    exec("def f(x):\n    return x * len(held), max(held)", space)  # noqa: S102
    return (
        space["f"],
        item(space, "len", lambda v: 7),
        lambda: space.pop("len", None),
        item(space, "max", min),
        put(builtins, len=len),
        item(space, "held", [1]),
    )


@world
def patched_builtin():
    real = bin
    return (
        lambda x: (x * len(bin(7)), bin(5)),
        put(builtins, bin=lambda a: "abc"),
        put(builtins, bin=real),
        put(builtins, bin=str),
    )


@world
def closure_cells():
    a, b = 2, [1]

    def f(x):
        return x * a + b[0], type(a).__name__

    def change(value: Any) -> Change:
        def go() -> None:
            nonlocal a
            a = value

        return go

    def delete() -> None:
        nonlocal a
        del a

    return (
        f,
        change(3),
        change(2.5),
        change(True),
        delete,
        change(torch.ones(3)),
        change(torch.ones(3, dtype=torch.float64)),
        item(b, 0, 4),
        item(b, 0, 0.5),
    )


@world
def cell_contents():
    a = 2

    def f(x):
        return x * a

    cell = f.__closure__[0]
    return f, put(cell, cell_contents=3), put(cell, cell_contents=2.0), put(cell, cell_contents=torch.tensor(2.0))


@world
def module_attributes():
    module = types.ModuleType("made_a")
    module.k, module.sub = 1, types.ModuleType("made_a.sub")
    module.sub.go = lambda x: x + 1
    return (
        lambda x: module.sub.go(x) * module.k,
        put(module, k=4),
        put(module.sub, go=lambda x: x - 1),
        put(module, sub=types.SimpleNamespace(go=abs)),
        lambda: vars(module).pop("k", None),
        put(module, k=2.0),
        put(module, __getattr__=lambda name: 9),
    )


@world
def replaced_modules():
    def install(value: int) -> Change:
        def go() -> None:
            module = types.ModuleType("made_m")
            module.k = value
            sys.modules["made_m"] = module

        return go

    install(1)()

    def f(x):
        import made_m

        return x * made_m.k, sys.modules["made_m"].k

    return (
        f,
        install(2),
        install(3),
        lambda: setattr(sys.modules["made_m"], "k", 9),
        lambda: sys.modules.pop("made_m", None),
    )


# ***** containers *****


@world
def nested_containers():
    held: Any = {"a": [1, {"b": (2, [3, 4])}], "c": {}}
    inner = held["a"][1]
    return (
        lambda x: x * held["a"][0] + sum(held["a"][1]["b"][1]) + len(held["c"]),
        item(held["a"], 0, 5),
        lambda: inner["b"][1].append(1),
        item(inner, "b", (2, [9])),
        item(held["c"], "z", 0),
        lambda: held["c"].clear(),
        item(held, "a", [2, {"b": (0, [0])}]),
        item(held["a"], 0, 5.0),
        item(held["a"], 0, False),
    )


@world
def lists():
    held: Any = [1, 2, 3]
    return (
        lambda x: (x * held[-1], len(held), held[1:], 2 in held, held == [1, 2, 3]),
        lambda: held.append(4),
        lambda: held.insert(0, 7),
        held.reverse,
        lambda: held.sort(),
        held.clear,
        lambda: held.extend([1, 2]),
        item(held, slice(0, 1), [8, 9]),
        item(held, slice(None), [1, 2, 3]),
    )


@world
def dicts():
    held: Any = {"a": 1, "b": 2}
    return (
        lambda x: ([x * v for v in held.values()], list(held), held.get("z", 0), "b" in held),
        item(held, "b", 3),
        item(held, "z", 1),
        lambda: held.pop("a", None),
        lambda: held.update(a=held.pop("a", 1)),
        lambda: held.update(b=2.0),
        lambda: held.setdefault("q", 4),
        held.clear,
        lambda: operator.ior(held, {"a": 6}),
    )


@world
def dict_keys():
    held: Any = {1: 5, "1": 6, (1, 2): 7, None: 8, torch.float32: 9, int: 10}
    return (
        lambda x: x * held[1] + held.get("1", 0) + held[(1, 2)] + held[None] + held[torch.float32] + held[int],
        item(held, True, 3),
        item(held, 1.0, 4),
        lambda: held.pop("1", 0),
        item(held, (1, 2), 1),
        item(held, int, 2),
        lambda: (held.pop(1, 0), item(held, 1.0, 2)()),
    )


@world
def sets():
    held: Any = {1, 2}
    box = Plain(frozen=frozenset({1}))
    return (
        lambda x: (x * sum(held), 3 in held, held & {1, 5} == {1}, len(box.frozen), 7 in box.frozen),
        lambda: held.add(3),
        lambda: held.discard(1),
        held.clear,
        lambda: held.update({1, 2, 9}),
        put(box, frozen=frozenset({7})),
        put(box, frozen={7, 8}),
    )


@world
def deques():
    held: Any = collections.deque([1, 2, 3], maxlen=4)
    return (
        lambda x: (x * held[0], len(held), list(held), held.maxlen),
        lambda: held.append(5),
        lambda: held.appendleft(6),
        lambda: held.rotate(1),
        lambda: held and held.popleft(),
        held.clear,
        item(held, 0, 9) if held else held.clear,
    )


@world
def ordered_dicts():
    held: Any = collections.OrderedDict(a=1, b=2)
    return (
        lambda x: ([x * v for v in held.values()], list(held.items())),
        lambda: held.move_to_end(next(iter(held))),
        item(held, "c", 4),
        lambda: held.popitem(last=False) if held else None,
        item(held, "a", 7),
    )


@world
def defaults_and_counters():
    held: Any = collections.defaultdict(lambda: 3, a=1)
    counts: Any = collections.Counter("aab")
    chain: Any = collections.ChainMap({"a": 1}, {"b": 2})
    return (
        lambda x: (
            x * held["a"] + counts["a"] - counts["q"],
            held["new"],
            len(held),
            chain["b"],
            counts.most_common(1),
            chain.get("z"),
        ),
        item(held, "a", 2),
        put(held, default_factory=lambda: 8),
        put(held, default_factory=None),
        lambda: held.pop("new", 0),
        lambda: counts.update("aaz"),
        lambda: counts.subtract("a"),
        item(chain.maps[1], "b", 5),
        item(chain, "b", 6),
        lambda: chain.maps.insert(0, {"z": 1}),
        held.clear,
    )


@world
def dataclasses_enums_namedtuples():
    @dataclasses.dataclass
    class Data:
        a: int = 1
        b: list[int] = dataclasses.field(default_factory=lambda: [1])

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: int = 1

    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    class Flag(enum.IntFlag):
        A = 1
        B = 2

    class Named(NamedTuple):
        a: int
        b: float = 2.0

    box = Plain(data=Data(), frozen=Frozen(), color=Color.RED, flag=Flag.A, named=Named(1))

    def f(x):
        by = 3 if box.color is Color.RED else 5
        return (x * by + box.data.a + sum(box.data.b) + box.frozen.a + box.named.b, dataclasses.replace(box.data, a=0).a, box.color.name,
                box.flag | Flag.B, box.flag.value, box.data == Data(), box.frozen == Frozen(2), dataclasses.asdict(box.data), box.named._replace(a=5))  # fmt: skip

    return (
        f,
        put(box, color=Color.BLUE),
        put(box, color=Color.RED),
        put(box, flag=Flag.A | Flag.B),
        put(box, named=Named(1, 3.0)),
        lambda: box.data.b.append(2),
        put(box, data=Data(a=4)),
        lambda: setattr(box.data, "a", 2.0),
        put(box, frozen=Frozen(2)),
        lambda: object.__setattr__(box.frozen, "a", 9),
        lambda: setattr(Color.RED, "_name_", "PINK"),
    )


@world
def ranges_slices_bytes_arrays():
    box: Any = Plain(
        r=range(3),
        s=slice(0, 2),
        b=bytearray(b"ab"),
        a=array.array("i", [1, 2]),
        c=1 + 2j,
        m=memoryview(b"xyz"),
        e=...,
        t=(1, (2,)),
    )
    return (
        lambda x: (
            x[:, box.s] * sum(box.r),
            box.b[0],
            len(box.b),
            box.a[0],
            box.c.imag,
            box.m[0],
            box.e is ...,
            box.t[1][0],
        ),
        put(box, r=range(1, 5)),
        put(box, s=slice(1, 3)),
        item(box.b, 0, 9),
        lambda: box.b.append(3),
        item(box.a, 0, 7),
        lambda: box.a.append(1),
        put(box, c=1j),
        put(box, m=memoryview(b"q")),
        put(box, e=None),
        put(box, t=(1, (3,))),
        put(box, t=(True, (2.0,))),
    )


@world
def iterators_kept():
    box: Any = Plain(
        it=iter([1, 2, 3, 4, 5, 6]),
        count=itertools.count(),
        cycle=itertools.cycle([1, 2]),
        z=zip([1, 2, 3], "abc", strict=False),
        en=enumerate("abcdefgh"),
    )
    return (
        lambda x: (x * next(box.it, 0), next(box.count), next(box.cycle), next(box.z, None), next(box.en, None)),
        lambda: next(box.it, 0),
        put(box, it=iter((9, 8))),
        lambda: next(box.count),
        put(box, count=itertools.count(5, 2)),
        put(box, it=iter(range(3))),
        put(box, it=(k for k in (4, 5))),
        put(box, it=map(abs, [-3, 4])),
    )


# ***** objects and classes *****


@world
def instance_dicts():
    box: Any = Plain(v=1, w=[1])

    def swap() -> None:
        box.__dict__ = {"v": 5, "w": [2, 3]}

    return (
        lambda x: (x * box.v + len(box.w), sorted(vars(box)), hasattr(box, "z"), getattr(box, "z", 4)),
        put(box, v=2),
        swap,
        lambda: vars(box).update(v=3.0),
        lambda: vars(box).pop("v", 0),
        put(box, z=1),
        lambda: vars(box).pop("z", 0),
        put(Plain, kind=1),
        lambda: box.w.append(0),
        put(box, v=True),
    )


@world
def slots():
    class S:
        __slots__ = ("v", "w")

    s: Any = S()
    s.v, s.w = 1, [2]

    def delete() -> None:
        with contextlib.suppress(AttributeError):
            del s.v

    return (
        lambda x: (x * s.v + s.w[0], hasattr(s, "v")),
        put(s, v=2),
        put(s, v=2.0),
        item(s.w, 0, 5),
        put(s, w=[7]),
        delete,
        put(s, v=None),
    )


def _classes() -> Any:
    class Meta(type):
        by = 2

        @property
        def tag(cls) -> Any:
            return cls.by + 1

        def __call__(cls, *args: Any) -> Any:
            made = super().__call__(*args)
            made.fresh = cls.by
            return made

        def __getattr__(cls, name: str) -> Any:
            if name == "later":
                return 11
            raise AttributeError(name)

    class Base(metaclass=Meta):
        k = 1

        def go(self) -> Any:
            return self.k

        @classmethod
        def made(cls) -> Any:
            return cls.k

        @staticmethod
        def plain() -> Any:
            return 3

        @property
        def prop(self) -> Any:
            return self.k * 2

    class Child(Base):
        pass

    class Cousin(Base):
        k = 50

    return Meta, Base, Child, Cousin


@world
def class_attributes():
    _, base, child, cousin = _classes()
    c = child()
    return (
        lambda x: (
            x * c.k + c.go(),
            c.prop,
            child.made(),
            c.plain(),
            type(c).__name__,
            isinstance(c, cousin),
            c.__class__.__name__,
        ),
        put(base, k=2),
        put(child, k=3),
        lambda: "k" in vars(child) and delattr(child, "k"),
        put(base, go=lambda self: 9),
        put(child, go=lambda self: 8),
        put(c, go=lambda: 7),
        put(c, __class__=cousin),
        put(c, __class__=child),
        put(base, prop=property(lambda self: 5)),
        put(base, made=classmethod(lambda cls: 4)),
        put(base, plain=staticmethod(lambda: 6)),
        put(child, __name__="Renamed"),
        put(child, __bases__=(cousin,)),
        put(base, __getattribute__=object.__getattribute__),
    )


@world
def metaclasses():
    meta, base, child, _ = _classes()
    return (
        lambda x: (x * child.tag + child.later, child.by, child().fresh, isinstance(child, meta)),
        put(meta, by=7),
        put(meta, tag=property(lambda cls: 1)),
        put(child, by=4),
        put(base, by=5),
        put(child, later=1),
        put(meta, __instancecheck__=lambda cls, o: True),
        put(meta, __call__=lambda cls, *a: types.SimpleNamespace(fresh=3)),
    )


@world
def properties_and_descriptors():
    class Data:
        def __init__(self, v: Any) -> None:
            self.v = v

        def __get__(self, owner: Any, kind: Any = None) -> Any:
            return self.v if owner is None else self.v + owner.own

        def __set__(self, owner: Any, value: Any) -> None:
            owner.own = value

    class Weak:
        def __get__(self, owner: Any, kind: Any = None) -> Any:
            return 5

    data = Data(1)

    class A:
        own = 2
        d, w = data, Weak()

        @property
        def p(self) -> Any:
            return self.own * 3

        @functools.cached_property
        def once(self) -> Any:
            return self.own + 100

        def __getattr__(self, name: str) -> Any:
            return name.count("q")

    a: Any = A()
    return (
        lambda x: (x * a.d + a.w, a.p, a.once, a.qq, A.d),
        put(data, v=3),
        put(a, d=7),
        put(A, d=6),
        put(a, w=8),
        put(A, w=9),
        put(A, p=property(lambda self: self.own)),
        lambda: vars(a).pop("once", 0),
        put(a, once=1),
        put(a, qq=5),
        put(A, __getattr__=lambda self, n: 8),
        put(Weak, __get__=lambda self, o, k=None: 6),
        put(Weak, __set__=lambda self, o, v: None),
        put(Data, __get__=lambda self, o, k=None: 4),
    )


@world
def special_methods():
    class N:
        v = 2

        def __mul__(self, other: Any) -> Any:
            return other * self.v

        def __len__(self) -> int:
            return 3

        def __bool__(self) -> bool:
            return self.v > 2

        def __call__(self, x: Any) -> Any:
            return x + self.v

        def __getitem__(self, k: Any) -> Any:
            return k + self.v

        def __eq__(self, other: object) -> bool:
            return self.v == 2

        def __hash__(self) -> int:
            return 1

        def __contains__(self, k: Any) -> bool:
            return k == self.v

        def __iter__(self) -> Any:
            return iter((self.v, 1))

        def __enter__(self) -> Any:
            return self.v

        def __exit__(self, *args: Any) -> Any:
            return self.v == 5

        def __format__(self, spec: str) -> str:
            return f"<{self.v}{spec}>"

    n: Any = N()

    def f(x):
        with n as entered:
            x = x + entered
            if n.v == 5:
                raise ValueError
        return n * x, len(n), bool(n), n(x), n[1], n == 3, 2 in n, list(n), f"{n:a}", [*n], {n: 1}[n], entered

    return (
        f,
        put(n, v=3),
        put(N, v=4),
        put(N, __len__=lambda self: 1),
        put(N, __bool__=lambda self: True),
        put(N, __call__=lambda self, x: x),
        put(n, __call__=abs),
        put(N, __mul__=lambda self, o: 0),
        put(N, __iter__=lambda self: iter("ab")),
        put(N, __contains__=None),
        put(N, __eq__=object.__eq__),
        put(n, v=5),
        put(N, __exit__=lambda self, *a: None),
        put(N, __radd__=lambda self, o: 1),
        lambda: "v" in vars(n) and delattr(n, "v"),
    )


@world
def receivers():
    class A:
        def go(self) -> Any:
            return self.v

    a, b = Plain(v=1), Plain(v=5)
    box = Plain(
        m=a.go,
        p=functools.partial(pow, 2),
        g=operator.attrgetter("v"),
        i=operator.itemgetter(0),
        w=weakref.ref(a),
        f=A.go,
        s=None,
    )
    held = [3, 4]

    def f(x):
        return x * box.m(), box.p(3), box.g(a), box.i(held), box.f(a), box.w() is a, box.w().v, box.m.__self__ is a

    return (
        f,
        put(box, m=b.go),
        put(a, v=2),
        put(Plain, go=Plain.go),
        put(box, p=functools.partial(pow, 3)),
        put(box, p=functools.partial(pow, exp=2)),
        put(box, g=operator.attrgetter("kind")),
        put(box, i=operator.itemgetter(1)),
        put(box, w=weakref.ref(b)),
        put(box, f=Plain.go),
        item(held, 0, 8),
        lambda: box.p.__setstate__((pow, (5,), {}, None)),
        put(a, go=lambda: 3),
    )


@world
def lru_caches():
    box = Plain(v=2)

    @functools.lru_cache(maxsize=2)
    def kept(k: int) -> Any:
        return k * box.v

    @functools.cache
    def tensor_kept() -> Any:
        return torch.ones(3) * box.v

    @functools.cache
    def list_kept() -> Any:
        return [1, 2]

    return (
        lambda x: (x * kept(3), tensor_kept() + x, len(list_kept())),
        put(box, v=3),
        kept.cache_clear,
        tensor_kept.cache_clear,
        list_kept.cache_clear,
        lambda: [kept(k) for k in range(5)],
        lambda: kept(3),
        lambda: list_kept().append(box.v),
        lambda: tensor_kept().requires_grad_(),
        lambda: tensor_kept().mul_(2) if not tensor_kept().requires_grad else None,
    )


@world
def defaults_and_code():
    def inner(x, by=2, *, plus=[1]):  # noqa: B006
        return x * by + plus[0]

    def other(x, by=2, *, plus=[1]):  # noqa: B006
        return x - by

    def third(x, by=3, *, plus=[4]):  # noqa: B006
        return x.t() * by

    codes = [inner.__code__, other.__code__, third.__code__]
    return (
        lambda x: (inner(x), inner.__name__, inner.__defaults__),
        put(inner, __defaults__=(3,)),
        put(inner, __defaults__=(2.5,)),
        put(inner, __kwdefaults__={"plus": [2]}),
        put(inner, __kwdefaults__=None),
        put(inner, __defaults__=None),
        lambda: (inner.__kwdefaults__ or {}).update(plus=[6]),
        *[put(inner, __code__=c) for c in codes],
        put(inner, __name__="renamed"),
        put(inner, note=1),
        lambda: ((inner.__kwdefaults__ or {}).get("plus") or []).append(3),
    )


@world
def own_code_and_defaults():
    def f(x, by=2, *, plus=1):
        return x * by + plus

    def g(x, by=2, *, plus=1):
        return x / by

    return (
        f,
        put(f, __defaults__=(3,)),
        put(f, __kwdefaults__={"plus": 4}),
        put(f, __code__=g.__code__),
        put(f, __defaults__=(2,)),
        put(f, __kwdefaults__={"plus": 2.0}),
    )


@world
def generators_and_contexts():
    box: Any = Plain(items=[1, 2], enter=1, token=None)
    variable: Any = contextvars.ContextVar("v", default=1)

    @contextlib.contextmanager
    def scaled() -> Iterator[Any]:
        box.depth = getattr(box, "depth", 0) + 1
        try:
            yield box.enter
        finally:
            box.depth -= 1

    def numbers() -> Iterator[Any]:
        for k in box.items:
            got = yield k
            if got:
                yield got

    def f(x):
        with scaled() as by, contextlib.ExitStack() as stack:
            stack.callback(lambda: box.items.append(1) if len(box.items) < 4 else None)
            return [x * k * by for k in numbers()], variable.get(), box.depth

    return (
        f,
        put(box, enter=2),
        lambda: box.items.append(3),
        box.items.clear,
        lambda: variable.set(5),
        put(box, items=(7,)),
        put(box, depth=3),
    )


# ***** the process *****


@world
def external_functions():
    return (
        lambda x: (x * os.getpid(), time.time() > 1e6),
        put(os, getpid=lambda: 4),
        put(time, time=lambda: 5.0),
        put(time, time=lambda: 6.0),
        put(os, getpid=lambda: 3),
        put(time, time=lambda: 2e6),
    )


@world
def environment():
    return (
        lambda x: (x * len(os.environ.get("MADE_UP", "")), os.getenv("MADE_UP"), "MADE_UP" in os.environ),
        lambda: os.environ.update(MADE_UP="ab"),
        lambda: os.environ.update(MADE_UP="abc"),
        lambda: os.environ.pop("MADE_UP", None),
        lambda: os.putenv("MADE_UP", "z"),
        item(os.environ, "MADE_UP", ""),
    )


@world
def interpreter_state():
    return (
        lambda x: (
            x * len(sys.path),
            sys.getrecursionlimit(),
            sys.argv[:0],
            sys.flags.optimize,
            sys.getswitchinterval(),
        ),
        lambda: sys.path.append("made"),
        lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 10),
        lambda: sys.setswitchinterval(0.01),
        lambda: sys.path.pop(),
    )


@world
def warning_filters():
    def f(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=2)
        return x + 1

    def g(x):
        with warnings.catch_warnings():
            if box.v == "error":
                warnings.simplefilter("error")
            elif box.v:
                warnings.simplefilter(box.v, UserWarning)
            return f(x)

    box: Any = Plain(v=None)
    return g, put(box, v="ignore"), put(box, v="error"), put(box, v=None), put(box, v="once")


# ***** control *****


@world
def exceptions():
    class Own(ValueError):
        pass

    box: Any = Plain(kind=None, catch=ValueError)

    def f(x):
        try:
            if box.kind:
                raise box.kind("told")
            return x + 1
        except box.catch as error:
            return x * 2, str(error), type(error).__name__, error.__context__ is None
        else:
            return x
        finally:
            box.last = sys.exc_info()[0]

    return (
        f,
        put(box, kind=Own),
        put(box, kind=KeyError),
        put(box, catch=(KeyError, Own)),
        put(box, kind=None),
        put(box, catch=Exception),
        put(box, catch=ArithmeticError),
        lambda: setattr(Own, "__str__", lambda self: "changed"),
        lambda: setattr(Own, "__bases__", (ValueError,)),
    )


@world
def super_and_mro():
    class A:
        v = 1

        def go(self, x: Any) -> Any:
            return x + self.v

    class B(A):
        def go(self, x: Any) -> Any:
            return super().go(x) * 2

    class C(A):
        def go(self, x: Any) -> Any:
            return super().go(x) - 1

    class D(B, C):
        def go(self, x: Any) -> Any:
            return super().go(x) / 4

    d: Any = D()
    return (
        lambda x: (d.go(x), [k.__name__ for k in type(d).__mro__]),
        put(A, go=lambda self, x: x * 10),
        put(C, go=lambda self, x: x),
        put(D, __bases__=(C, B)),
        put(D, __bases__=(B, C)),
        put(D, __bases__=(C,)),
        put(A, v=4),
        put(d, v=3),
        put(B, go=C.go),
        put(d, __class__=C),
    )


@world
def strings_and_formats():
    box: Any = Plain(s="a{}b", n=3, w=4.5)
    return (
        lambda x: (
            x * len(box.s),
            f"{box.s!r:>{box.n}} {box.w:.{box.n}f}",
            box.s.format(box.n),
            box.s.split("{"),
            box.s[0] in "abc",
            box.s.upper(),
            int(box.w),
        ),
        put(box, s="z{}"),
        put(box, n=5),
        put(box, w=1.25),
        put(box, s="aa{}b"),
        put(box, n=True),
        put(box, w=2),
    )


@world
def numbers_and_identity():
    box: Any = Plain(a=1, b=1, big=1000, f=0.0, o=object())
    o = box.o
    return (
        lambda x: (
            x * box.a,
            box.a is box.b,
            box.a == box.b,
            math.copysign(1, box.f),
            box.big > 999,
            box.o is o,
            isinstance(box.a, bool),
            type(box.a) is int,
            box.f == 0,
            id(box.o) == id(o),
            hash(box.a),
        ),
        put(box, a=True),
        put(box, a=1.0),
        put(box, a=2),
        put(box, f=-0.0),
        put(box, f=float("nan")),
        put(box, f=float("inf")),
        put(box, big=999),
        put(box, o=object()),
        put(box, b=True),
        put(box, a=1 << 65),
    )


@world
def functools_and_dispatch():
    @functools.singledispatch
    def of(v: Any) -> Any:
        return 1

    box: Any = Plain(v=1, red=operator.add, items=[1, 2, 3], key=None)

    @functools.wraps(of)
    def wrapped(v: Any) -> Any:
        return of(v) * 2

    return (
        lambda x: (
            x * wrapped(box.v),
            functools.reduce(box.red, box.items),
            sorted(box.items, key=box.key),
            max(box.items, key=box.key),
            list(map(box.red, box.items, box.items)),
            wrapped.__name__,
        ),
        put(box, v="a"),
        lambda: of.register(int, lambda v: 5),
        lambda: of.register(str, lambda v: 6),
        put(box, red=operator.mul),
        put(box, key=lambda v: -v),
        lambda: box.items.append(-4),
        put(wrapped, __wrapped__=abs),
        put(box, red=max),
    )


@world
def threads_and_locals():
    import threading

    local = threading.local()
    local.v = 1
    lock = threading.Lock()
    event = threading.Event()

    def f(x):
        with lock:
            return x * local.v, hasattr(local, "w"), event.is_set(), lock.locked()

    return (
        f,
        put(local, v=2),
        put(local, w=1),
        put(local, v=2.5),
        event.set,
        event.clear,
        lambda: vars(local).pop("w", 0),
    )


@world
def class_made_inside():
    box: Any = Plain(base=object, k=1)

    def f(x):
        class Made(box.base):
            k = box.k

            def go(self) -> Any:
                return self.k * 2

        made = Made()
        return x * made.go(), Made.__mro__[1].__name__, getattr(made, "extra", 0), Made.__qualname__

    class Extra:
        extra = 5

    return (
        f,
        put(box, k=2),
        put(box, base=Extra),
        put(Extra, extra=6),
        put(box, base=dict),
        put(box, base=object),
        put(box, k=2.5),
        put(Extra, __init_subclass__=classmethod(lambda cls, **kw: setattr(cls, "k", 100))),
    )


@world
def side_effects():
    box: Any = Plain(n=0, seen=[], text="a")
    named: Any = {}

    def f(x):
        box.n += 1
        box.seen.append(box.n)
        named[box.text] = x * box.n
        box.text += "b" if len(box.text) < 3 else ""
        print("n", box.n, sorted(named))
        vars(HERE)["G_NUMBER"] = box.n
        return [*box.seen], {**named}, box.text, len(named), G_NUMBER

    return (
        f,
        put(box, n=5),
        box.seen.clear,
        put(box, text="z"),
        named.clear,
        put(box, n=2.5),
        put(box, seen=[9]),
        put(box, text=""),
    )
