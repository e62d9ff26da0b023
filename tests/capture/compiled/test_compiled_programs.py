"""Compiled functions against the same functions run as they are: results, exceptions, side effects, gradients."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._capture.trace import COUNTERS, CompileSettings, compile_function
from rushlight.nn import functional as F

X = torch.arange(6.0).reshape(2, 3) / 4 - 0.5
Y = torch.arange(6.0).reshape(2, 3).flip(1) / 3


@pytest.fixture(autouse=True)
def _no_failures() -> Iterator[None]:
    """A failure inside of the compiler is an error here: it must not hide behind an eager run."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            type(a) is type(b) and a.dtype is b.dtype and a.shape == b.shape and a.stride() == b.stride()
            and a.requires_grad == b.requires_grad and repr(a.detach().tolist()) == repr(b.detach().tolist())
        )  # fmt: skip
    if isinstance(a, dict):
        return type(a) is type(b) and [*a] == [*b] and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if hasattr(a, "__dict__") and not callable(a):
        return type(a) is type(b) and same(vars(a), vars(b))
    return type(a) is type(b) and (a == b or a != a)


def outcome(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> Any:
    args = make()
    try:
        return function(*args), args
    except Exception as error:
        return type(error).__name__, str(error), args


def check(
    function: Callable[..., Any],
    *args: Any,
    make: Callable[[], tuple[Any, ...]] | None = None,
    breaks: int = 0,
    times: int = 2,
) -> None:
    """`function` compiled does what it does; it breaks so many times while it is traced."""
    make = make or (lambda: args)
    before = sum(COUNTERS["graph_break"].values())
    compiled = compile_function(function, CompileSettings(fullgraph=not breaks, suppress_errors=False))
    for _ in range(times):
        expected, found = outcome(function, make), outcome(compiled, make)
        assert same(expected, found), f"{expected}\n{found}"
    assert sum(COUNTERS["graph_break"].values()) - before == breaks, dict(COUNTERS["graph_break"])


# ***** functions that are one graph *****


def arithmetic(x, y):
    z = x * 2 + y / 3 - 1
    z **= 2
    return -z, z @ y.T, x // 2, x % 2, abs(x), ~(x > 0), x >= y


def loops(x):
    total = 0
    for i in range(4):
        if i == 2:
            continue
        total = total + x * i
    else:
        total = total + 100
    while total.ndim < 4:
        total = total.unsqueeze(0)
    return total


def comprehensions(x):
    rows = [row * i for i, row in enumerate(x)]
    pairs = {f"k{i}": r.sum() for i, r in enumerate(rows) if i >= 0}
    return rows, pairs, {i * 1 for i in range(3)}, tuple(r + 1 for r in rows), [a + b for a in rows for b in rows]


def generators(x):
    def parts(t):
        for row in t:
            got = yield row * 2
            assert got is None
        yield from (row + 1 for row in t)
        return None

    return torch.stack(list(parts(x))), sum(parts(x)), max(len(p) for p in parts(x))


def closures(x):
    count = 0

    def add(y, *more, scale=2, **named):
        nonlocal count
        count += 1
        return (x + y) * scale + sum(more) + sum(named.values())

    a = add(1)
    b = add(2, 3, scale=4, extra=5)
    return a, b, count, (lambda t=a: t + count)()


def exceptions(x):
    found = []
    try:
        [].pop()
    except IndexError as error:
        found.append(str(error))
    try:
        try:
            {}["a"]
        finally:
            found.append("finally")
    except (KeyError, ValueError) as error:
        found.append(error.args)
    try:
        raise ValueError("mine")
    except ValueError:
        x = x + 1
    else:
        x = x - 1
    return x, found


class Managed:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(kind.__name__ if kind else "out")
        return kind is ValueError


@contextlib.contextmanager
def managed(log):
    log.append("begin")
    try:
        yield 3
    finally:
        log.append("end")


def managers(x):
    log: list[Any] = []
    with Managed(log) as m, managed(log) as n:
        x = x * n
        assert m.log is log
    with Managed(log):
        raise ValueError
    with contextlib.suppress(KeyError):
        {}["x"]
    return x, log


def modes(x):
    w = x.clone().requires_grad_()
    with torch.no_grad():
        a = w * 2
    with torch.enable_grad():
        b = w * 3
    return a.requires_grad, b.requires_grad, torch.is_grad_enabled(), a


class Pair(NamedTuple):
    a: Any
    b: int


@dataclasses.dataclass
class Box:
    value: Any
    n: int = 3
    more: list[Any] = dataclasses.field(default_factory=list)

    @property
    def double(self):
        return self.value * 2

    def grow(self):
        self.more.append(self.n)
        self.n += 1
        return self


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    scale = 3

    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Plain(self.v + (other.v if isinstance(other, Plain) else other))

    __radd__ = __add__

    def __getitem__(self, i):
        return self.v[i]

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([self.v, self.v * 2])

    def __call__(self, t):
        return t * self.scale

    def __eq__(self, other):
        return isinstance(other, Plain)

    def __contains__(self, item):
        return item == 7

    @classmethod
    def of(cls, v):
        return cls(v)

    @staticmethod
    def twice(v):
        return v * 2

    def __getattr__(self, name):
        if name == "missing":
            return self.v + 1
        raise AttributeError(name)

    __hash__ = None  # type: ignore[assignment]


def objects(x):
    p = Pair(x, 2)
    b = Box(x).grow().grow()
    q = Plain(x) + 1 + Plain(x)
    r = 2 + q
    a, c = r
    return (p, b, b.double, q, r[0], len(r), a + c, q(x), q == r, 7 in q, Plain.of(x).missing, Plain.twice(x), Color.RED is Color(1),
            Color.BLUE.name, p._replace(b=5), hasattr(q, "other"), q.missing)  # fmt: skip


def strings(x):
    name = f"{x.shape[0]:03d}-{'a'!r}-{x.dtype}-{1.5:.2f}"
    return name.upper().split("-"), "%s %d".__mod__(("a", 3)), f"{7:>4}", str(x.shape), x.ndim


def containers(x):
    d = collections.OrderedDict(a=1)
    d.update(b=x)
    d["c"] = d.pop("a")
    e = collections.defaultdict(list)
    e["x"].append(x)
    q = collections.deque([1, 2], maxlen=2)
    q.append(3)
    s = {1, 2} | {3}
    a, *rest = [1, 2, 3]
    first, (second, third) = 1, (2, 3)
    return (
        d,
        e,
        list(q),
        sorted(s),
        a,
        rest,
        first + second + third,
        [*rest, *q],
        {**d, "z": 1},
        list(zip("ab", rest)),
        dict(sorted(d.items())[:1]),
    )


def matches(x, kind="pair"):
    out = []
    for item in ({"op": "add", "n": 2}, [1, 2, 3], Box(x, 5), "text", 7, None):
        match item:
            case {"op": str(op), **rest}:
                out.append((op, rest))
            case [a, *others]:
                out.append((a, others))
            case Box(n=n):
                out.append(n)
            case str() as s:
                out.append(s)
            case int(v) if v > 5:
                out.append(v)
            case _:
                out.append(None)
    return x, out


def views(x):
    y = x.clone()
    z = y[0]
    z.mul_(3)
    y[:, 1] = 7
    y.t()[2].add_(1)
    y[y > 5] = 0
    out = torch.zeros(3)
    torch.add(y[1], 1, out=out)
    return y, z, out, y.view(-1)[2:4], y.T.stride(), y.is_contiguous()


def tools(x):
    f = functools.partial(torch.add, x, alpha=2)
    pairs = list(itertools.product([1, 2], [3]))
    acc = functools.reduce(lambda a, b: a + b, [x, x, x])
    return (
        f(x),
        pairs,
        acc,
        sorted([3, 1, 2], key=lambda v: -v),
        list(map(functools.partial(torch.add, 1), [x])),
        list(filter(None, [0, 1])),
        math.sqrt(4),
        min(3, 2),
        any(v > 1 for v in [1, 2]),
        all([]),
        divmod(7, 2),
        list(reversed([1, 2])),
        isinstance(x, torch.Tensor),
        callable(f),
        type(x) is torch.Tensor,
    )


@functools.lru_cache
def cached(n):
    return n * 2


def wrapped(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs) + 1

    return inner


@wrapped
def decorated(x, k=2):
    return x * k


def decorators(x):
    return decorated(x), decorated(x, k=3), cached(4), decorated.__name__


def random_numbers(x):
    a = torch.rand(2, 3)
    b = torch.randn_like(x)
    return a + b, F.dropout(x, 0.5), torch.randint(0, 5, (3,)), torch.randperm(4)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x


def functions(x):
    y = x.clone().requires_grad_()
    z = Double.apply(y).sum()
    z.backward()
    return y.grad, torch.autograd.grad((y**2).sum(), y)[0]


def transforms(x):
    return (
        torch.func.grad(lambda t: (t**2).sum())(x),
        torch.vmap(lambda t: t * 2)(x),
        torch.func.jvp(torch.sin, (x,), (x,)),
    )


ONE_GRAPH: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (arithmetic, (X, Y)), (loops, (X,)), (comprehensions, (X,)), (generators, (X,)), (closures, (X,)), (exceptions, (X,)), (managers, (X,)),
    (modes, (X,)), (objects, (X,)), (strings, (X,)), (containers, (X,)), (matches, (X,)), (views, (X,)), (tools, (X,)), (decorators, (X,)),
    (functions, (X,)), (transforms, (X,)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args"), ONE_GRAPH, ids=lambda v: getattr(v, "__name__", ""))
def test_programs_of_one_graph(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    check(function, *args)


def test_random_numbers_are_those_of_eager() -> None:
    compiled = compile_function(random_numbers, CompileSettings(fullgraph=True))
    for seed in (0, 1):
        torch.manual_seed(seed)
        expected, after = random_numbers(X), torch.rand(2)
        torch.manual_seed(seed)
        assert same(expected, compiled(X)) and same(after, torch.rand(2))


# ***** breaks *****


def printed(x):
    y = x * 2
    print("sum", float(y.sum()))
    return y + 1


def branches(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def deep(x):
    def inner(t, n):
        if n == 0:
            print("bottom")
            return t + 1
        return inner(t * 2, n - 1) + n

    return inner(x, 3) * 2


def in_loops(x):
    found = []
    for i, row in enumerate(x):
        y = row * i
        found.append(y.sum().item())
        x = x + y
    return found, x


def in_managers(x):
    log: list[Any] = []
    with torch.no_grad(), Managed(log):
        y = x * 2
        print(log, torch.is_grad_enabled())
        y = y + 1
        log.append(y)
    return y, log, torch.is_grad_enabled()


def in_comprehensions(x):
    return [row.sum().item() for row in x], {i: row.max().item() for i, row in enumerate(x)}


def in_generators(x):
    def parts():
        for row in x:
            yield row.sum().item()
            yield row + 1

    return [p * 2 for p in parts()], list(parts())


def in_handlers(x):
    try:
        y = x * 2
        raise ValueError("a")
    except ValueError as error:
        print("caught", error)
        y = y + x.sum().item()
    finally:
        print("finally")
    return y


def in_methods(x):
    box = Box(x)
    print(box.n)
    box.value = box.value + 1
    box.grow()
    box.n += int(box.value.sum().item())
    return box, box.double


def raising(x):
    y = x * 2
    if y.shape[0] == 2:
        raise ValueError(f"bad shape {tuple(y.shape)}")
    return y


def raising_late(x):
    y = x * 2
    print("before")
    z = y + 1
    return z.view(7)


def masks(x):
    y = x[x > 0]
    return y * 2, torch.nonzero(x), torch.unique(x)


BREAKING: list[tuple[Callable[..., Any], int]] = [
    (printed, 2), (branches, 1), (deep, 1), (in_managers, 1), (in_methods, 2), (masks, 3),
]  # fmt: skip


@pytest.mark.parametrize(("function", "breaks"), BREAKING, ids=lambda v: getattr(v, "__name__", ""))
def test_breaks(function: Callable[..., Any], breaks: int, capsys: Any) -> None:
    function(X)
    expected = capsys.readouterr().out
    check(function, X, breaks=breaks, times=1)
    assert capsys.readouterr().out == expected * 2


@pytest.mark.parametrize("function", [in_loops, in_comprehensions, in_generators, in_handlers, raising, raising_late])
def test_breaks_in_the_middle(function: Callable[..., Any]) -> None:
    compiled = compile_function(function, CompileSettings(suppress_errors=False))
    for sign in (1, -1, 1):
        expected, found = outcome(function, lambda s=sign: (X * s,)), outcome(compiled, lambda s=sign: (X * s,))
        assert same(expected, found), f"{expected}\n{found}"


def test_exceptions_have_the_lines_of_the_program() -> None:
    import traceback

    for function in (raising, raising_late):
        lines = []
        for each in (function, compile_function(function)):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                each(X)
            lines.append([(f.name, f.lineno) for f in traceback.extract_tb(caught.tb) if f.filename == __file__][1:])
        assert lines[0] == lines[1], lines


# ***** what is guarded *****

SCALE = 2
TABLE = {"a": 1, "b": [1, 2]}


class Config:
    def __init__(self) -> None:
        self.n, self.flags, self.inner = 2, {"on": True}, Plain(3)

    def go(self, t):
        return t * self.n


def reads(x, config, items, k=None, function=None):
    y = x * SCALE + TABLE["a"] + TABLE["b"][1] + config.n + config.inner.v + len(items) + sum(items)
    if config.flags["on"]:
        y = y + 1
    if k is not None:
        y = y * k
    if function is not None:
        y = function(y)
    return config.go(y) * Plain.scale


def test_what_is_read_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    config, items = Config(), [1, 2]
    compiled = compile_function(reads, CompileSettings(fullgraph=True, recompile_limit=100, own_limit=True))

    def agree(count: int, *args: Any, **kwargs: Any) -> None:
        assert same(reads(X, config, items, *args, **kwargs), compiled(X, config, items, *args, **kwargs))
        assert len(compiled.entry.segments) == count, compiled.entry.segments[0].text

    agree(1)
    agree(1)
    steps: list[Callable[[], Any]] = [
        lambda: monkeypatch.setitem(globals(), "SCALE", 3), lambda: TABLE["b"].__setitem__(1, 5), lambda: setattr(config, "n", 7),
        lambda: config.flags.update(on=False), lambda: setattr(config.inner, "v", 1), lambda: items.append(4), lambda: items.__setitem__(0, 9),
        lambda: monkeypatch.setattr(Plain, "scale", 5), lambda: monkeypatch.setattr(Config, "go", lambda self, t: t - 1),
        lambda: setattr(config, "go", lambda t: t + 100), lambda: monkeypatch.setitem(globals(), "TABLE", {"a": 2, "b": [0, 1]}),
    ]  # fmt: skip
    for number, step in enumerate(steps):
        step()
        agree(2 + number)
    count = 1 + len(steps)
    agree(count + 1, 2)
    agree(count + 2, 2.0)
    agree(count + 3, True)
    agree(count + 4, 2, lambda t: t + 1)
    agree(count + 5, 2, lambda t: t + 2)
    with torch.no_grad():
        agree(count + 6)
    agree(count + 6)


def test_tensors_are_guarded() -> None:
    compiled = compile_function(lambda x: x * 2, CompileSettings(recompile_limit=100, own_limit=True))
    inputs = [
        X,
        X.double(),
        X[:1],
        X.t(),
        X.clone().requires_grad_(),
        X.clone().requires_grad_() * 1,
        nn.Parameter(X.clone()),
        X[:, ::2],
        X.int(),
    ]
    for number, x in enumerate(inputs):
        for _ in range(2):
            assert same(x * 2, compiled(x)) and len(compiled.entry.segments) == number + 1


# ***** side effects *****


def test_side_effects_happen_once() -> None:
    log: list[Any] = []
    table: dict[str, Any] = {"n": 0}

    class Counter:
        calls = 0
        __slots__ = ("last",)

    counter, config = Counter(), Config()

    def go(x, out):
        global SEEN
        log.append(x.shape[0])
        table["n"] += 1
        table.setdefault("all", []).append(x)
        counter.last = x.sum()
        config.n = config.n + 1
        config.new = [x]
        del config.flags
        SEEN = x * 2
        out.add_(1)
        x.mul_(2)
        out[0] = x[0]
        return log

    x, out = X.clone(), torch.zeros(2, 3)
    compiled = compile_function(go, CompileSettings(fullgraph=True))
    made = compiled(x, out)
    assert made is log and log == [2] and table["n"] == 1 and table["all"][0] is x and same(counter.last, X.sum())
    assert config.n == 3 and config.new[0] is x and not hasattr(config, "flags") and same(globals()["SEEN"], X * 2)
    assert same(x, X * 2) and same(out, torch.stack([X[0] * 2, torch.ones(3)]))


def test_identities_and_aliases() -> None:
    def go(x, y):
        both = [x]
        z = x[0]
        return x, both, both, z, x is y, z.add_(1)

    compiled = compile_function(go, CompileSettings(fullgraph=True))
    x, y = X.clone(), Y.clone()
    a, b, c, z, alike, w = compiled(x, y)
    assert a is x and b is c and b[0] is x and z is w and z._base is x and z.data_ptr() == x.data_ptr() and not alike
    assert compiled(x, x)[4] and same(x[0], X[0] + 2)


# ***** modules *****


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(()))
        self.seen: Any = None

    def forward(self, x):
        self.count += 1
        for i, layer in enumerate(self.layers):
            x = F.gelu(layer(x)) + i
        if self.training:
            self.seen = x.shape
        return self.drop(self.norm(x)), x


def test_modules() -> None:
    torch.manual_seed(0)
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    compiled = compile_function(nets[1], CompileSettings(fullgraph=True))
    for training in (True, True, False, False, True):
        results = []
        for net, call in zip(nets, (nets[0], compiled), strict=True):
            net.train(training)
            torch.manual_seed(1)
            a, b = call(X)
            ((a**2).sum() + b.sum()).backward()
            results.append(
                (
                    a.detach(),
                    b.detach(),
                    [p.grad for p in net.parameters()],
                    [b.clone() for b in net.buffers()],
                    net.seen,
                )
            )
        assert same(*results)
    assert len(compiled.entry.segments) == 2


def test_hooks_of_modules() -> None:
    net, log = nn.Linear(3, 3), []
    compiled = compile_function(net, CompileSettings(fullgraph=True))
    assert same(net(X), compiled(X))
    handle = net.register_forward_hook(lambda m, args, out: (log.append(1), out * 2)[1])
    expected = net(X)
    assert same(expected, compiled(X)) and log == [1, 1]
    handle.remove()
    assert same(net(X), compiled(X)) and log == [1, 1]


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), lambda p: torch.optim.Adam(p, lr=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.1),
], ids=["sgd", "momentum", "adam", "adamw"])  # fmt: skip
def test_whole_steps(make: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [make(net.parameters()) for net in nets]

    def step(net, optimizer, x):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), torch.ones(2, 2))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    compiled = compile_function(step)
    for number in range(6):
        x = X * (number + 1)
        assert same(step(nets[0], optimizers[0], x), compiled(nets[1], optimizers[1], x))
        assert same([p.detach() for p in nets[0].parameters()], [p.detach() for p in nets[1].parameters()])
    assert same(optimizers[0].state_dict()["state"], optimizers[1].state_dict()["state"])


def test_floats_that_change_are_passed_on() -> None:
    compiled = compile_function(
        lambda x, config: x * config["a"] + (1 - config["b"]) ** 2, CompileSettings(fullgraph=True)
    )
    for number in range(6):
        config = {"a": 0.1 * number, "b": 0.3}
        assert same(X * config["a"] + (1 - config["b"]) ** 2, compiled(X, config))
    assert len(compiled.entry.segments) == 2
    asking = compile_function(lambda x, a: x * a if a > 0.25 else x, CompileSettings(fullgraph=True))
    for number in range(5):
        assert same(X * (0.1 * number) if 0.1 * number > 0.25 else X, asking(X, 0.1 * number))
    assert len(asking.entry.segments) == 3  # the first value, and one for each way
    kinds = compile_function(
        lambda x, a: x + (a if isinstance(a, float) and type(a) is float else 5), CompileSettings(fullgraph=True)
    )
    for number in range(4):
        assert same(X + 0.1 * number, kinds(X, 0.1 * number))


def test_ints_that_change_are_passed_on() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x, n):
            self.calls += 1
            return x * self.calls + n, self.calls

    modules = [Counting(), Counting()]
    compiled = compile_function(modules[1], CompileSettings(fullgraph=True))
    for number in range(6):
        assert same(modules[0](X, number // 2), compiled(X, number // 2))
    assert len(compiled.entry.segments) <= 3 and modules[1].calls == 6
    asking = compile_function(
        lambda x, n, a: x.repeat(n, 1) * a if n % 2 else x[:n] + n * a, CompileSettings(fullgraph=True)
    )
    for number in range(5):
        assert same(X.repeat(number, 1) * 0.5 if number % 2 else X[:number] + number * 0.5, asking(X, number, 0.5))
    for a in (0.1, 0.2, 0.3):
        assert same(X.repeat(3, 1) * a, asking(X, 3, a))
    kinds = compile_function(
        lambda x, n: x + n if isinstance(n, int) and type(n) is int and not isinstance(n, bool) else x,
        CompileSettings(fullgraph=True),
    )
    for n in (2, 3, 4, True, 2.5):
        assert same(X + n if type(n) is int else X, kinds(X, n))


def test_whole_steps_with_schedulers() -> None:
    torch.manual_seed(0)
    nets = [nn.Linear(3, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.1) for net in nets]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]

    def step(net, optimizer, x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = compile_function(step, CompileSettings(fullgraph=True))
    for _ in range(12):
        assert same(step(nets[0], optimizers[0], X).detach(), compiled(nets[1], optimizers[1], X).detach())
        for scheduler in schedulers:
            scheduler.step()
    assert same([p.detach() for p in nets[0].parameters()], [p.detach() for p in nets[1].parameters()])
    assert len(compiled.entry.segments) <= 4


def test_what_only_native_code_reads_is_not_burnt_in() -> None:
    import numpy as np

    array = np.arange(3.0)

    def go(x, a):
        b = float(a.sum()) if a[0] < 100 else 0.0
        return x * b + float(a[1]) + (a + 1).max()

    compiled = compile_function(go, CompileSettings(suppress_errors=False))
    for _ in range(3):
        assert same(go(X, array), compiled(X, array))
        array += 1


def test_checkpoints_are_recorded() -> None:
    from rushlight.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2))
    compiled = compile_function(
        lambda x: checkpoint(net, x, use_reentrant=False).sum(), CompileSettings(fullgraph=True)
    )
    grads = []
    for call in (lambda x: net(x).sum(), compiled, compiled):
        net.zero_grad()
        torch.manual_seed(0)
        call(X).backward()
        grads.append([p.grad for p in net.parameters()])
    assert same(grads[0], grads[1]) and same(grads[0], grads[2])
