"""Plans of new sizes: cast from what was derived for other sizes, they are what would be derived in full.

The knob `check_shape_classes` has every such plan derived in full as well and compared: kernels with the numbers of their calls, specs of results,
graphs of backward.  The tests here run operators over sizes, strides and layouts with it, and compare values with NumPy.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rushlight as rl
import rushlight._ops.families
import rushlight._ops.samples.arrays
import rushlight._ops.samples.linalg
import rushlight._ops.samples.numbers
import rushlight._ops.samples.recurrent
from rushlight._backends.cpu import compile as compile_module
from rushlight._backends.cpu import kernels
from rushlight._engine.core import state
from rushlight._engine.core.state import clear_plans, plan_counts
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.plans import shape_classes
from rushlight._ops.samples import Draw, samples_of
from rushlight._ops.table import OPERATORS
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.symbols import SpecializationError, as_double, is_symbolic, truncated

F = rl.nn.functional


@pytest.fixture
def checked() -> Iterator[None]:
    with shape_classes.CHECK.scoped(True):
        yield


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each plan template that is made."""
    made: list[Any] = []
    derive = shape_classes._derive

    def counted(*args: Any) -> Any:
        made.append(args[2])
        return derive(*args)

    monkeypatch.setattr(shape_classes, "_derive", counted)
    return made


# ***** symbolic numbers *****


# What schedulers do with sizes a and b and a constant c: sums, products, quotients, choices.
STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, c: a + b, lambda a, b, c: a - b, lambda a, b, c: a * b, lambda a, b, c: a // c, lambda a, b, c: a % c, lambda a, b, c: -(-a // c),
    lambda a, b, c: max(a, b), lambda a, b, c: min(a, c), lambda a, b, c: a if a == b else b + 1, lambda a, b, c: a if a % c == 0 else a + c,
    lambda a, b, c: a // b if b > 0 else a, lambda a, b, c: truncated(as_double(a) * 0.3) if a >= 0 else 0,
    lambda a, b, c: a if as_double(a) / c > b else c, lambda a, b, c: {1: 5, 2: 7}.get(a, a), lambda a, b, c: len(range(abs(a) % 7)) + c,
    lambda a, b, c: a % b if b > 0 else b * 2, lambda a, b, c: round(as_double(a) / c), lambda a, b, c: c // b if b else c,
]  # fmt: skip


def arithmetic(steps: list[tuple[int, int, int, int]], given: list[Any]) -> list[Any]:
    held = list(given)
    for what, i, j, c in steps:
        found = STEPS[what](held[i % len(held)], held[j % len(held)], c)
        held.append(found % 1000 if abs(found) > 10**7 else found)
    return held


@pytest.mark.parametrize("seed", range(8))
def test_what_is_recorded_holds_for_other_sizes(seed: int) -> None:
    rng, used = random.Random(seed), 0
    for _ in range(150):
        sizes = rng.sample(range(3, 200), rng.randint(1, 3))
        steps = [
            (rng.randrange(len(STEPS)), rng.randrange(20), rng.randrange(20), rng.choice([1, 2, 3, 4, 8, 16, 64]))
            for _ in range(rng.randint(1, 14))
        ]
        shape_env = ShapeEnv(sizes)
        try:
            found = arithmetic(steps, shape_env.symbols)
        except SpecializationError:
            continue
        assert [n.value if is_symbolic(n) else n for n in found] == arithmetic(steps, sizes)
        again = shape_env.compiled(found)
        for _ in range(12):
            others = (
                [max(3, n + rng.randint(-2, 2)) for n in sizes]
                if rng.random() < 0.4
                else rng.sample(range(3, 200), len(sizes))
            )
            values = again(*others)
            if values is not None:
                used += 1
                assert list(values) == arithmetic(steps, others), (sizes, others, steps)
    assert used > 200


def test_what_reads_a_plain_number_says_so() -> None:
    shape_env = ShapeEnv([12])
    (n,) = shape_env.symbols
    assert isinstance(n, int)
    assert len([0] * (n - 9)) == 3
    again = shape_env.compiled([n * n])
    assert again(12) == (144,)
    assert again(13) is None


def test_an_attempt_that_reads_plain_numbers_leaves_no_trace() -> None:
    shape_env = ShapeEnv([12])
    (n,) = shape_env.symbols
    assert shape_env.tried(lambda: list(range(n)) if n > 5 else None) is None
    assert shape_env.conditions() == []
    assert shape_env.tried(lambda: n + 1) is not None


def test_a_trail_needs_no_more_than_it_was_asked() -> None:
    shape_env = ShapeEnv([40, 64])
    n, m = shape_env.symbols
    assert n * m > 100
    assert n * m > 50
    assert n != m
    again = shape_env.compiled([n * m // 8])
    assert again(41, 64) == (328,)
    assert again(3, 4) is None
    assert again(5, 5) is None


# ***** every operator *****


def tensor_of(draw: Draw, sizes: dict[int, int], layout: str, grad: bool, rng: Any) -> Tensor:
    shape = draw.shape if draw.values is not None else tuple(sizes.get(s, s) for s in draw.shape)
    array = Draw(*shape, dtype=draw.dtype, low=draw.low, high=draw.high, values=draw.values).array(rng)
    made = rl.from_numpy(np.ascontiguousarray(array))
    if layout == "turned" and made.ndim > 1:
        made = made.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout == "part" and made.ndim:
        made = rl.cat([made, made], dim=-1)[..., : made.shape[-1]]
    elif layout == "channels last" and made.ndim == 4:
        made = made.contiguous(memory_format=rl.channels_last)
    return made.detach().requires_grad_() if grad and draw.dtype.is_floating_point else made


def in_sizes(value: Any, *rest: Any) -> Any:
    if isinstance(value, Draw):
        return tensor_of(value, *rest)
    return [in_sizes(v, *rest) for v in value] if isinstance(value, list) else value


def dims_of(value: Any) -> set[int]:
    if isinstance(value, Draw):
        return {s for s in value.shape if s > 1 and value.values is None}
    return set().union(*map(dims_of, value)) if isinstance(value, list) else set()


def results_of(function: Any, call: Any, rest: tuple[Any, ...], seed: int) -> list[Any]:
    """Results and gradients of a call as arrays; an error, of the call or of its derivative, as its type and text."""
    rng, op, (sizes, layout, grad) = np.random.default_rng(seed), function.operator, rest

    def drawn(name: str, value: Any) -> Any:
        return in_sizes(value, sizes, layout, grad and name not in op.constants, rng)

    names = [a.name for a in op.schema.arguments]
    args = [drawn(names[min(k, len(names) - 1)], value) for k, value in enumerate(call.args)]
    kwargs = {name: drawn(name, value) for name, value in call.kwargs.items()}
    rl.manual_seed(seed)
    try:
        made = function(*args, **kwargs)
    except (RuntimeError, IndexError, ValueError) as error:  # these sizes do not fit this operator
        return [told(error)]
    results = [r for r in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(r, Tensor)]
    found = [r.detach().resolve_conj().numpy().copy() for r in results]
    wanted = [r for r in results if r.requires_grad]
    if wanted:
        try:
            rl.autograd.backward(wanted, [rl.ones_like(r) for r in wanted])
        except RuntimeError as error:
            assert str(error).startswith("derivative for aten::"), error
            found.append(told(error))
    given = [
        t
        for a in (*args, *kwargs.values())
        for t in (a if isinstance(a, list) else [a])
        if isinstance(t, Tensor) and t.grad is not None
    ]
    return [*found, *[t.grad.resolve_conj().numpy().copy() for t in given]]


def told(error: Exception) -> tuple[type, str]:
    """An error's type and text, sizes left out: with `RUSHLIGHT_CHECK_SHAPE_CLASSES` they are named by their symbols."""
    return type(error), re.sub(r"<[^<>]*>|\d+", "#", str(error))


def same(found: list[Any], wanted: list[Any]) -> bool:
    if len(found) != len(wanted):
        return False
    return all(
        a == b
        if isinstance(a, tuple) or isinstance(b, tuple)
        else a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for a, b in zip(found, wanted, strict=True)
    )


UNSET = {"empty_like"}  # what lies there is anybody's


@pytest.mark.parametrize("key", sorted(k for k, op in OPERATORS.items() if k not in UNSET))
def test_operators_in_other_sizes(key: str) -> None:
    """The same bits, and the same errors, as without families; and what is cast is what would be derived."""
    with_families, without, choose = (
        make_function(Caller(OPERATORS[key])),
        make_function(Caller(OPERATORS[key])),
        random.Random(key),
    )
    for call in samples_of(OPERATORS[key])[:1]:
        values = [*call.args, *call.kwargs.values()]
        for layout, grad in (("rows", True), ("turned", False), ("channels last", True)):
            if layout == "channels last" and not any(isinstance(v, Draw) and len(v.shape) == 4 for v in values):
                continue
            ran = 0
            for seed in range(3):
                sizes = {
                    s: s + (choose.choice([0, 1, 6, choose.randrange(40)]) if seed else 0)
                    for s in set().union(*map(dims_of, values))
                }
                with shape_classes.SHAPE_CLASSES.scoped(False):
                    wanted = results_of(without, call, (sizes, layout, grad), seed)
                with shape_classes.CHECK.scoped(True):
                    found = results_of(with_families, call, (sizes, layout, grad), seed)
                assert same(found, wanted), (key, call, sizes, layout, found, wanted)
                ran += not isinstance(wanted[0], tuple)
            assert ran or (key, layout) == ("view", "turned"), (
                key,
                call,
                layout,
                wanted,
            )  # a call that is refused in all sizes compares nothing


# ***** values *****


def half_filled(_: Any, x: Any) -> Any:
    x[..., : x.shape[-1] // 2] = 7.0
    x[..., 0] = x[..., -1]
    return x


CASES = {
    "add": (lambda x: x + x * 2.0, lambda x: x + x * 2.0),
    "mean": (lambda x: x.mean(), np.mean),
    "sum of rows": (lambda x: x.sum(-1), lambda x: x.sum(-1)),
    "softmax": (lambda x: rl.softmax(x, -1), lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)),
    "variance": (lambda x: rl.var(x, 0, correction=0), lambda x: x.var(0)),
    "product": (lambda x: x @ x.transpose(-1, -2), lambda x: x @ np.swapaxes(x, -1, -2)),
    "cat": (lambda x: rl.cat([x, x * 3.0], 0), lambda x: np.concatenate([x, x * 3.0], 0)),
    "cumsum": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "in place": (lambda x: x.clone().add_(x, alpha=3).mul_(0.5).clamp_(-1, 1).sub_(1.0), lambda x: np.clip(2 * x, -1, 1) - 1),
    "in place, rows": (lambda x: x.clone().sub_(x.amax(-1, keepdim=True)).exp_(), lambda x: np.exp(x - x.max(-1, keepdims=True))),
    "in a part": (lambda x: half_filled(rl, x.clone()), lambda x: half_filled(np, x.copy())),
    "copied into another dtype": (
        lambda x: rl.empty_like(x, dtype=rl.float32).copy_(x), lambda x: x.astype(np.float32).astype(np.float64)),
    "masked": (lambda x: x.clone().masked_fill_(x > 0, 0.5), lambda x: np.where(x > 0, 0.5, x)),
    "out": (lambda x: rl.add(x, x, alpha=2, out=rl.empty(x.shape, dtype=x.dtype)), lambda x: 3 * x),
    "product, out": (
        lambda x: rl.matmul(x, x.transpose(-1, -2), out=rl.empty((*x.shape[:-1], x.shape[-2]), dtype=x.dtype)), lambda x: x @ np.swapaxes(x, -1, -2)),
    "factories": (
        lambda x: rl.full(x.shape, 2.5) + rl.arange(1, x.shape[-1] + 1) * rl.linspace(0, 1, x.shape[-1], dtype=x.dtype) + rl.eye(*x.shape[-2:]),
        lambda x: 2.5 + np.arange(1, x.shape[-1] + 1) * np.linspace(0, 1, x.shape[-1]) + np.eye(*x.shape[-2:]) + 0 * x,
    ),
    "layer norm": (
        lambda x: F.layer_norm(x, (x.shape[-1],)),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_in_changing_sizes(name: str, checked: None) -> None:
    ours, theirs = CASES[name]
    rng, choose = np.random.default_rng(1), random.Random(name)
    for k in range(24):
        shape = tuple(choose.choice([1, 2, 3, 4, 5, 17, 33, 64, 129]) for _ in range(choose.choice([2, 2, 3])))
        array = rng.standard_normal(shape)
        given = rl.from_numpy(array)
        if k % 3 == 1:
            given, array = given.transpose(0, -1), np.swapaxes(array, 0, -1)
        elif k % 3 == 2:
            given, array = given[..., ::2], array[..., ::2]
        np.testing.assert_allclose(ours(given).numpy(), theirs(array), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sizes", [(0, 1, 2, 3, 4, 5, 3, 0, 1), (7, 9, 300, 2000, 11, 2001)])
def test_gradients_in_changing_sizes(sizes: tuple[int, ...], checked: None) -> None:
    """Of a loss with a bias that is broadcast: against what is derived by hand."""
    rng = np.random.default_rng(5)
    for n in sizes:
        x, b = rng.standard_normal((n, 6)), rng.standard_normal(6)
        given, bias = rl.tensor(x, requires_grad=True), rl.tensor(b, requires_grad=True)
        (rl.tanh(given + bias) ** 2).sum().backward()
        t = np.tanh(x + b)
        slope = 2 * t * (1 - t * t)
        np.testing.assert_allclose(given.grad.numpy(), slope, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(bias.grad.numpy(), slope.sum(0), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("channels", "outs", "kernel", "stride", "groups"), [(3, 8, 3, 1, 1), (3, 8, 3, 2, 1), (1, 4, 5, 1, 1), (24, 24, 3, 1, 24), (24, 24, 5, 2, 24), (8, 8, 1, 1, 1)]
)  # fmt: skip
def test_convolutions_of_few_channels_in_changing_sizes(
    channels: int, outs: int, kernel: int, stride: int, groups: int, checked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_classes, "ASKED", 2)  # plan templates of both kinds
    clear_plans()
    rng = np.random.default_rng(0)
    w = rl.from_numpy(
        rng.standard_normal((outs, channels // groups, kernel, kernel)).astype(np.float32)
    ).requires_grad_()
    for k in range(16):
        high, wide = (11 + 3 * k, 16) if k < 10 else (int(rng.integers(8, 90)), int(rng.integers(8, 90)))
        x = rl.from_numpy(rng.standard_normal((2, channels, high, wide)).astype(np.float32)).requires_grad_()
        F.conv2d(x, w, padding=1, stride=stride, groups=groups).sum().backward()
        a = np.pad(x.detach().numpy(), ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.float64)
        size = [(n + 2 - kernel) // stride + 1 for n in (high, wide)]
        windows = np.lib.stride_tricks.sliding_window_view(a, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
        assert windows.shape[2:4] == tuple(size)
        sums = windows.sum((0, 2, 3)).reshape(groups, 1, channels // groups, kernel, kernel)  # of a sum of results
        np.testing.assert_allclose(
            w.grad.numpy(),
            np.broadcast_to(sums, (groups, outs // groups, *sums.shape[2:])).reshape(w.shape),
            rtol=1e-4,
            atol=2e-3,
        )
        w.grad = None


def test_special_templates_are_made_while_they_are_of_use(derivations: list[Any]) -> None:
    clear_plans()
    w = rl.randn(8, 3, 3, 3)
    for n in range(40, 40 + 3 * shape_classes.ASKED):
        F.conv2d(rl.randn(2, 3, n, 21), w)
    assert len(derivations) == 2  # one that looks up how to cut the work, and after some uses one that does not
    found = [family for held in shape_classes._all for family in held._known.values() if family.special]
    assert [(f.special, len(f.general), len(f.plan_templates)) for f in found] == [(1, 1, 1)] and found[0].spared > 0


@pytest.mark.parametrize("sizes", [(0, 1, 2, 3, 4, 5, 3, 0, 1), (7, 9, 300, 2000, 11, 2001)])
def test_gradients_of_changes_in_place_in_changing_sizes(sizes: tuple[int, ...], checked: None) -> None:
    """What is kept for them is the result, an operand, the values before, or a mask: against what is derived by hand."""
    rng = np.random.default_rng(6)
    for n in sizes:
        x, b, a = rng.standard_normal((n, 6)), rng.standard_normal(6), rng.standard_normal((n, 1))
        given, bias, scale = (rl.tensor(v, requires_grad=True) for v in (x, b, a))
        y = (given * 2).add_(bias).sigmoid_() * scale
        y.pow_(2)
        y[: n // 2].clamp_(min=0.25)
        y.sum().backward()
        s = 1 / (1 + np.exp(-(2 * x + b)))
        kept = np.where((np.arange(n)[:, None] < n // 2) & ((s * a) ** 2 < 0.25), 0.0, 1.0)
        slope = kept * 2 * s * a * a * s * (1 - s)
        np.testing.assert_allclose(given.grad.numpy(), 2 * slope, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(bias.grad.numpy(), slope.sum(0), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(
            scale.grad.numpy(), (kept * 2 * s * a * s).sum(1, keepdims=True), rtol=1e-9, atol=1e-10
        )


def test_second_derivatives_of_plans_that_were_cast() -> None:
    for n in range(20, 30):
        x = rl.linspace(0.1, 1.0, n, dtype=rl.float64, requires_grad=True)
        (slope,) = rl.autograd.grad((x**3).sum(), x, create_graph=True)
        (curve,) = rl.autograd.grad(slope.sum(), x)
        np.testing.assert_allclose(curve.numpy(), 6 * np.linspace(0.1, 1.0, n), rtol=1e-12)


# ***** how often, and how much is kept *****


def test_new_sizes_are_not_derived(derivations: list[Any]) -> None:
    weight, bias = rl.ones(24, requires_grad=True), rl.zeros(24, requires_grad=True)

    def step(n: int) -> None:
        x = rl.ones(n, 24, requires_grad=True)
        F.layer_norm(F.gelu(x), (24,), weight, bias).sum().backward()

    for n in range(100, 170, 2):
        step(n)
    before = len(derivations)
    for n in range(101, 170, 2):
        step(n)
    assert len(derivations) <= before + 2  # of some 170 plans


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators whose calls were read in Python."""
    names: list[str] = []
    plan = Caller.plan

    def counted(self: Caller, template: tuple[Any, ...], tensors: list[Tensor]) -> Any:
        names.append(self.name)
        return plan(self, template, tensors)

    monkeypatch.setattr(Caller, "plan", counted)
    return names


def test_calls_of_new_sizes_are_not_read_in_python(prepared: list[str]) -> None:
    def steps(n: int, m: int) -> tuple[Any, np.ndarray[Any, Any]]:
        x = np.arange(n * m, dtype=np.float32).reshape(n, m) / (n * m)
        y = rl.tensor(x)
        made = (y + y).softmax(-1).view(m, n).sum(0) @ rl.ones(n)
        e = np.exp(2 * x - (2 * x).max(-1, keepdims=True))
        return made.item(), (e / e.sum(-1, keepdims=True)).reshape(m, n).sum()

    for n, m in ((20, 30), (21, 31), (22, 28)):
        steps(n, m)
    prepared.clear()
    for n, m in ((23, 29), (19, 27), (18, 25)):
        made, wanted = steps(n, m)
        assert made == pytest.approx(wanted, rel=1e-5)
    assert prepared == []


@pytest.mark.slow
def test_what_differs_in_more_than_sizes_is_another_family(checked: None) -> None:
    """Equal sizes, sizes that follow from others, layouts, values, names in any order: every call is as NumPy says, whatever was met before."""
    rng = random.Random(3)
    for _ in range(150):
        n, m = rng.choice([1, 2, 3, 4, 5, 9, 16, 33]), rng.choice([1, 2, 3, 5, 8, 16, 17])
        a = np.arange(n * m, dtype=np.float64).reshape(n, m) % 7
        b = np.arange(n * m, dtype=np.float64).reshape(m, n) % 5
        x, y = rl.tensor(a), rl.tensor(b)
        k = rng.randint(-1, 1)
        np.testing.assert_array_equal(rl.add(other=y.t(), input=x, alpha=rng.choice([2, 2.0])).numpy(), a + 2 * b.T)
        np.testing.assert_array_equal(rl.where(condition=x > 3, other=y.t(), input=x).numpy(), np.where(a > 3, a, b.T))
        np.testing.assert_array_equal(rl.sum(x, dim=k).numpy(), a.sum(k))
        np.testing.assert_array_equal(x.view(m * n).numpy(), a.reshape(-1))
        np.testing.assert_array_equal(x.view(-1, m).numpy(), a.reshape(-1, m))
        np.testing.assert_array_equal(y.t().contiguous().numpy(), b.T)
        np.testing.assert_array_equal(x.narrow(0, n // 2, n - n // 2).numpy(), a[n // 2 :])
        np.testing.assert_array_equal(x[:, : rng.choice([m, 1, -1])].shape[0], n)
        np.testing.assert_array_equal(
            x.unsqueeze(k).expand(*((3, n, m) if k == 0 else (n, 3, m) if k == 1 else (n, m, 3))).sum().item(),
            a.sum() * 3,
        )
        np.testing.assert_array_equal(rl.cat([x, y.t(), x], k).numpy(), np.concatenate([a, b.T, a], k))
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)


def test_what_is_watched_is_not_cast(prepared: list[str]) -> None:
    for n in range(30, 40):
        rl.ones(n, 5).exp()
    prepared.clear()
    assert rl.explain(lambda: rl.ones(51, 5).exp()).__call__().operators.count("exp") == 1
    assert "exp" in prepared
    with shape_classes.SHAPE_CLASSES.scoped(False):
        prepared.clear()
        rl.ones(52, 5).exp()
        assert "exp" in prepared


def test_changes_in_place_and_fills_of_new_sizes_are_not_derived(derivations: list[Any]) -> None:
    def step(n: int) -> None:
        x = rl.full((n, 6), 2.0)
        x.add_(1).mul_(x).copy_(rl.arange(n, dtype=rl.float32)[:, None])
        rl.add(x, x, out=rl.empty(n, 6))

    for n in range(100, 140, 2):
        step(n)
    before = len(derivations)
    for n in range(101, 160, 2):
        step(n)
    assert len(derivations) <= before + 2  # of some 180 plans


def test_changes_in_place_that_are_recorded_are_not_derived(derivations: list[Any]) -> None:
    def step(n: int) -> None:
        x = rl.ones(n, 6, requires_grad=True)
        (x * 2).add_(x).mul_(0.5).sigmoid_().sum().backward()

    for n in range(100, 140, 2):
        step(n)
    before = len(derivations)
    for n in range(101, 160, 2):
        step(n)
    assert len(derivations) <= before + 2  # of some 180 plans


def test_library_calls_of_several_kernels_are_not_derived(derivations: list[Any]) -> None:
    """Recurrent layers pack weights, their gradients add sums up, large products pack operands and go through activations."""
    layer, weight, bias = rl.nn.LSTM(4, 5), rl.ones(600, 600), rl.ones(600)

    def step(n: int) -> None:
        layer(rl.ones(n, 2, 4, requires_grad=True))[0].sum().backward()
        F.relu(F.linear(rl.ones(n, 600), weight, bias))

    for n in range(200, 240, 2):
        step(n)
    before = len(derivations)
    for n in range(201, 240, 2):
        step(n)
    assert len(derivations) <= before + 4  # of some 120 plans


def test_layers_of_several_sizes_are_not_derived(derivations: list[Any]) -> None:
    """They are of one family, and each is cut differently for short and for long inputs: more ways than a few."""
    layers = [
        (rl.ones(a, b, requires_grad=True), rl.ones(a))
        for a, b in ((24, 64), (64, 24), (192, 64), (64, 256), (256, 64), (10, 64), (65, 66))
    ]
    lengths = random.Random(0).sample(range(12, 300), 240)

    def step(n: int) -> None:
        for weight, bias in layers:
            F.linear(rl.ones(n, weight.shape[1]), weight, bias)

    for n in lengths[:120]:
        step(n)
    before = len(derivations)
    for n in lengths[120:]:
        step(n)
    assert len(derivations) <= before + 8  # of some 840 plans


def test_numbers_that_follow_from_sizes_are_no_part_of_kernels(
    derivations: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither n / (n - 1), by which the variance of a batch is made unbiased, nor small sizes, by which means are divided."""
    compiled: list[str] = []
    monkeypatch.setattr(
        kernels,
        "load_kernel",
        lambda data, symbol, load=kernels.load_kernel: compiled.append(symbol) or load(data, symbol),
    )
    layer = rl.nn.BatchNorm2d(8)

    def step(n: int) -> None:
        layer(rl.ones(2, 8, n, 24))
        rl.ones(40, n % 97 % 13 + 3).softmax(1).mean(1)

    for n in range(100, 140, 2):
        step(n)
    before, known = len(derivations), len(compiled)
    for n in range(101, 140, 2):
        step(n)
    assert len(derivations) <= before + 2  # of some 60 plans
    assert len(compiled) <= known + 2


def test_joining_another_number_of_tensors_makes_no_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, made = np.random.default_rng(0), set[str]()
    kernel_of = compile_module.kernel_of
    monkeypatch.setattr(compile_module, "kernel_of", lambda step: made.add(step.key) or kernel_of(step))
    clear_plans()
    counts = [1, 2, 15, 16, 17, 18, 31, 33, 64, 100, 47, 130]
    for known, count in enumerate([*range(1, 34), *counts]):
        arrays = [rng.standard_normal((3, 2)).astype(np.float32) for _ in range(count)]
        before = len(made)
        for dim in (0, 1):
            tensors = [rl.from_numpy(a).requires_grad_() for a in arrays]
            joined = rl.cat(tensors, dim)
            np.testing.assert_array_equal(joined.detach().numpy(), np.concatenate(arrays, dim))
            np.testing.assert_array_equal(rl.stack(tensors, dim).detach().numpy(), np.stack(arrays, dim))
            joined.backward(joined.detach() * 2)
            assert all((x.grad.numpy() == 2 * a).all() for x, a in zip(tensors, arrays, strict=True))  # type: ignore[union-attr]
        assert known < 33 or len(made) == before


@pytest.mark.slow
def test_plans_of_many_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_PLANS", 500)
    clear_plans()
    for n in range(3, 1200):
        x = rl.zeros(n, 2).add_(1.0)
        x.norm()
        rl.cross(rl.ones(n, 3), rl.ones(n, 3))
        assert plan_counts() <= 500


def test_templates_that_are_in_use_outlive_plans(monkeypatch: pytest.MonkeyPatch, derivations: list[Any]) -> None:
    monkeypatch.setattr(state, "MAX_PLANS", 500)
    clear_plans()
    for n in range(100, 900):
        rl.ones(n, 3).logsumexp(1)
        assert plan_counts() <= 500
    assert (
        len([shape for shape in derivations if len(shape) == 1]) <= 12
    )  # made once for each way of cutting, not after each thinning


def test_a_family_that_is_of_no_use_gives_up(derivations: list[Any]) -> None:
    clear_plans()  # so that tables are not thinned out meanwhile
    family = shape_classes.ShapeClasses()
    spec = rl.ones(2)._spec

    def make(shape_env: ShapeEnv, outlines: list[Any]) -> Any:
        plan_template = type("ProgramTemplate", (), {})()
        plan_template.numbers = [int(shape_env.symbols[0])]
        return plan_template

    for n in range(3, 100):
        family.find((), [type(spec).of(spec.dtype, spec.device, (n,))], make)
    assert len(derivations) == shape_classes.TRIES
    (kept,) = family._known.values()
    assert len(kept.plan_templates) == shape_classes.TRIES


# Functions of x [n + 40, 9] and n, whose numbers are sizes.
SIZED: dict[str, Callable[[Any, int], Any]] = {
    "roll": lambda x, n: x.roll(n, 0), "repeat": lambda x, n: x.repeat(n, 1), "tile": lambda x, n: x.tile(n),
    "repeat_interleave": lambda x, n: x.repeat_interleave(n, 0), "pad": lambda x, n: F.pad(x, (n, 1), value=2.0),
    "pad by what is reflected": lambda x, n: F.pad(x.T, (n, n + 1), mode="reflect"), "cut": lambda x, n: F.pad(x, (0, 0, -n, n)),
    "constant_pad_nd": lambda x, n: rl.constant_pad_nd(x, (n, 3, 5, n), 3.0), "topk": lambda x, n: x.topk(n, dim=0)[0],
    "kthvalue": lambda x, n: x.kthvalue(n, 0)[0], "tril": lambda x, n: x.tril(n - 20), "triu": lambda x, n: x.triu(n),
    "one_hot": lambda x, n: F.one_hot(rl.arange(5), n + 5), "select_scatter": lambda x, n: x.select_scatter(x[0] * 2, 0, n),
    "slice_scatter": lambda x, n: x.slice_scatter(x[n : n + 8] * 2, 0, n, n + 8), "linspace": lambda x, n: rl.linspace(0, 2, n),
    "nearest": lambda x, n: F.interpolate(x[None, None], size=(n, n + 3)), "linear": lambda x, n: F.interpolate(x[None], size=n, mode="linear"),
    "bilinear": lambda x, n: F.interpolate(x[None, None], size=(n, 2 * n), mode="bilinear"),
    "bilinear by a factor": lambda x, n: F.interpolate(x[None, None], scale_factor=1.5, mode="bilinear"),
    "bicubic": lambda x, n: F.interpolate(x[None, None, :, :4], size=(n, 7), mode="bicubic", align_corners=True),
    "antialias": lambda x, n: F.interpolate(x[None, None], size=(n, 5), mode="bilinear", antialias=True),
    "affine_grid": lambda x, n: F.affine_grid(x[:4, :3].reshape(2, 2, 3), (2, 3, n, n + 2), align_corners=False),
    "grid_sample": lambda x, n: F.grid_sample(x[None, None], F.affine_grid(x[:2, :3][None], (1, 1, n, 5), align_corners=True), align_corners=False),
    "adaptive_avg_pool2d": lambda x, n: F.adaptive_avg_pool2d(x[None], (7, 4)), "adaptive_max_pool2d": lambda x, n: F.adaptive_max_pool2d(x[None], (7, 4)),
    "adaptive_avg_pool1d to another size": lambda x, n: F.adaptive_avg_pool1d(x.T, n), "irfft": lambda x, n: rl.fft.irfft(rl.complex(x, x), n, dim=0),
    "window": lambda x, n: rl.hann_window(n),
    "embedding_bag": lambda x, n: F.embedding_bag(rl.arange(n + 5) % 9, x[:9], rl.tensor([0, 4]), mode="sum"),
    "embedding_bag, mean": lambda x, n: F.embedding_bag(rl.arange(n + 5) % 9, x[:9], rl.tensor([0, 4]), padding_idx=3),
}  # fmt: skip


def same_without_families(run: Callable[[], list[Any]]) -> None:
    """What a program gives is the same, to the last bit, where each plan is derived for its sizes."""
    clear_plans()
    found = run()
    clear_plans()
    with shape_classes.SHAPE_CLASSES.scoped(False):
        wanted = run()
    clear_plans()
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", SIZED)
def test_numbers_that_are_sizes(name: str, checked: None) -> None:
    """The same bits as without families, of results and gradients, and what is cast is what would be derived."""
    numbers, rng = (3, 4, 5, 9, 17, 16, 64, 28), np.random.default_rng(0)
    arrays = [rng.standard_normal((n + 40, 9)).astype(np.float32) for n in numbers]

    def run() -> list[Any]:
        found: list[Any] = []
        for n, array in zip(numbers, arrays, strict=True):
            x = rl.from_numpy(array.copy()).requires_grad_()
            made = SIZED[name](x, n)
            found.append(made.detach().numpy())
            if made.requires_grad:
                made.backward(rl.from_numpy(np.cos(np.arange(made.numel(), dtype=np.float32)).reshape(made.shape)))
                assert x.grad is not None
                found.append(x.grad.numpy())
        return found

    same_without_families(run)


def test_numbers_that_are_sizes_are_not_derived(derivations: list[Any]) -> None:
    clear_plans()
    for n in range(200, 280):
        x = rl.ones(300, n)
        (
            x.roll(n, 1),
            x.repeat(n // 50 + 3, 1),
            F.pad(x, (n, 3)),
            x.topk(n),
            x.tril(n),
            F.interpolate(x[None], size=n + 7, mode="linear"),
        )
        F.grid_sample(x[None, None], rl.zeros(1, 4, 4, 2), align_corners=False)
    assert len(derivations) < 60


def test_uneven_windows_of_new_sizes_are_no_new_derivations(derivations: list[Any]) -> None:
    """How many elements the longest window has is a size like others, also where there is a gradient."""
    clear_plans()
    for n in range(100, 190):
        x = rl.arange(6.0 * n).reshape(2, 3, n).requires_grad_()
        F.adaptive_avg_pool1d(x, 4).sum().backward()
        windows = np.zeros(n)
        for i in range(4):
            start, stop = i * n // 4, -(-(i + 1) * n // 4)
            windows[start:stop] += 1 / (stop - start)
        np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(windows, (2, 3, n)), rtol=1e-5)
    assert len(derivations) < 60


def test_the_templates_of_a_shape_class_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was used least recently goes, wherever it is kept; what is found is always for the sizes that were asked for."""
    monkeypatch.setattr(shape_classes, "MAX_TEMPLATES", 3)
    monkeypatch.setattr(shape_classes, "MAX_NEAR", 4)
    family = shape_classes.ShapeClasses()
    spec = rl.ones(2)._spec

    def make(shape_env: ShapeEnv, outlines: list[Any]) -> Any:
        plan_template = type("ProgramTemplate", (), {})()
        plan_template.numbers = [shape_env.symbols[0] + int(shape_env.symbols[0] // 100)]
        return plan_template

    rng = random.Random(3)
    for _ in range(150):
        n = rng.randrange(3, 900)
        found = family.find((), [type(spec).of(spec.dtype, spec.device, (n,))], make, again=True)
        assert found is None or found[1] == (n + n // 100,)
        assert all(len(kept.plan_templates) <= 3 and len(kept.near) <= 4 for kept in family._known.values())
        assert all(
            entry in kept.plan_templates
            for kept in family._known.values()
            for near in kept.near.values()
            for entry in near
        )


def test_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_classes, "MAX_HELD", 10)
    for k in range(30):
        for n in (10, 11, 12):
            rl.ones(n, 5).logsumexp((0, 1) if k % 2 else 0) * rl.ones((1,) * (1 + k // 2))
    assert shape_classes._held[0] <= 10


def test_without_families_the_same_comes_out() -> None:
    def run() -> list[Any]:
        found = []
        for n in range(30, 40):
            x = rl.linspace(-2, 2, n * 8).reshape(n, 8).requires_grad_()
            F.softmax(x, -1).square().sum().backward()
            found.append(x.grad.numpy())
        return found

    same_without_families(run)
