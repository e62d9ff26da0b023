"""Second derivatives: which exist, which are refused, and values where formulas divide by zero or overflow."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import rushlight
from rushlight.autograd import grad
from rushlight.nn import functional as F

INDICES = rushlight.tensor([0, 0, 1, 2])


def leaf(*values: float) -> Any:
    return rushlight.tensor(values, dtype=rushlight.float64, requires_grad=True)


def twice(f: Callable[..., Any], *leaves: Any) -> tuple[Any, ...]:
    """The diagonal of the second derivative of an elementwise function of one argument, or all blocks summed over rows."""
    first = grad(f(*leaves).sum(), leaves, create_graph=True)
    return tuple(
        None if g is None or not g.requires_grad else grad(g.sum(), leaves, retain_graph=True, allow_unused=True)
        for g in first
    )


def images(f: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: f(x.reshape(1, 1, -1))


FLAT = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "prelu": lambda x: F.prelu(x, rushlight.tensor([0.2], dtype=x.dtype)),
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "threshold": lambda x: F.threshold(x, 0.1, 7.0),
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "relu_": lambda x: (x * 1).relu_(),
    "max_pool1d": images(lambda x: F.max_pool1d(x, 2)),
    "avg_pool1d": images(lambda x: F.avg_pool1d(x, 2)),
    "adaptive_avg_pool1d": images(lambda x: F.adaptive_avg_pool1d(x, 2)),
    "reflect": images(lambda x: F.pad(x, (1, 1), mode="reflect")),
    "replicate": images(lambda x: F.pad(x, (1, 1), mode="replicate")),
    "nll_loss": lambda x: F.nll_loss(x.reshape(1, -1), rushlight.tensor([1])),
}


@pytest.mark.parametrize("name", FLAT)
def test_what_is_made_of_planes_has_second_derivatives_of_zero(name: str) -> None:
    x = leaf(-0.5, 0.3, 2.0, 7.0)
    (first,) = grad(FLAT[name](x).sum(), x, create_graph=True)
    assert first.requires_grad
    assert grad(first.sum(), x)[0].tolist() == [0, 0, 0, 0]
    hessian = rushlight.autograd.functional.hessian(lambda v: FLAT[name](v).sum(), x)
    assert hessian.tolist() == [[0.0] * 4] * 4


@pytest.mark.parametrize(
    "f", [lambda x: x * 3, lambda x: x.clamp(0, 1), lambda x: -x, lambda x: x.floor(), lambda x: x.sum(), lambda x: x.maximum(-x), F.dropout,
          lambda x: F.pad(x, (1, 1))],
)  # fmt: skip
def test_other_constant_slopes_want_no_gradient(f: Any) -> None:
    x = leaf(-0.5, 0.3, 2.0, 7.0)
    (first,) = grad(f(x).sum(), x, create_graph=True)
    assert not first.requires_grad


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a * b,
        rushlight.dot,
        lambda a, b: a.reshape(1, -1) @ b,
        lambda a, b: rushlight.addcmul(a.detach(), a, b),
        rushlight.linalg.vecdot,
    ],
)
def test_each_factor_of_a_product_has_a_slope_that_does_not_depend_on_it(f: Any) -> None:
    a, b = leaf(1.0, 2.0), leaf(3.0, 5.0)
    found = twice(f, a, b)
    assert found[0][0] is None
    assert found[1][1] is None
    assert found[0][1].tolist() == found[1][0].tolist() == [1, 1]


def test_a_mixed_second_derivative_is_not_lost_in_infinities() -> None:
    for f in (lambda a, b: a / b, rushlight.xlogy, lambda a, b: b.sigmoid() * a):
        a, b = leaf(math.inf), leaf(1e300)
        found = twice(f, a, b)[0]
        assert found[0] is None
        assert found[1].item() == pytest.approx(0.0, abs=1e-300)


# Name: arguments with their second derivatives.
VALUES: dict[str, tuple[Any, dict[float, float]]] = {
    "silu": (F.silu, {-1e300: 0.0, -1e4: 0.0, 0.0: 0.5, 1e4: 0.0}),
    "mish": (F.mish, {-1e300: 0.0, -1e4: 0.0, 1e4: 0.0}),
    "softplus": (F.softplus, {-math.inf: 0.0, -1e4: 0.0, 0.0: 0.25, 30.0: 0.0}),
    "logsigmoid": (F.logsigmoid, {-1e4: 0.0, 0.0: -0.25, 1e4: 0.0, math.inf: 0.0}),
    "logaddexp": (
        lambda x: rushlight.logaddexp(x, leaf(0.0).detach()),
        {-math.inf: 0.0, -1e4: 0.0, 0.0: 0.25, 1e4: 0.0, math.inf: 0.0},
    ),
    "logaddexp2": (
        lambda x: rushlight.logaddexp2(x, leaf(0.0).detach()),
        {-1e4: 0.0, 0.0: 0.25 * math.log(2.0), 1e4: 0.0},
    ),
    "log_ndtr": (rushlight.special.log_ndtr, {-1e12: -1.0, -1e4: -0.99999999, 0.0: -2 / math.pi, 100.0: 0.0}),
    "erfcx": (rushlight.special.erfcx, {0.0: 2.0, 1e9: 0.0}),
    "sinc": (rushlight.sinc, {0.0: -(math.pi**2) / 3, 1e-300: -(math.pi**2) / 3, 1.0: 2.0}),
    "i0": (rushlight.special.i0, {0.0: 0.5, 1e-300: 0.5}),
    "i1": (rushlight.special.i1, {0.0: 0.0, 1e-300: 0.0}),
}


@pytest.mark.parametrize("name", VALUES)
def test_second_derivatives_at_zero_and_far_out(name: str) -> None:
    f, wanted = VALUES[name]
    x = leaf(*wanted)
    found = twice(f, x)[0][0].tolist()
    assert found == pytest.approx(list(wanted.values()), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("include_self", [True, False])
def test_products_of_what_is_scattered_have_second_derivatives_at_zeros(include_self: bool) -> None:
    x, source = leaf(2.0, 0.0, 4.0), leaf(0.0, 7.0, 0.0, 13.0)
    first = grad(
        x.scatter_reduce(0, INDICES, source, "prod", include_self=include_self).sum(), (x, source), create_graph=True
    )
    mixed = grad(first[1].sum(), (x, source), allow_unused=True)
    a = x.detach() if include_self else rushlight.ones(3)
    assert mixed[1].tolist() == [a[0].item(), a[0].item(), 0, 0]
    assert mixed[0] is None if not include_self else mixed[0].tolist() == [7.0, 1.0, 1.0]


def test_only_what_depends_on_the_argument_wants_a_gradient() -> None:
    matrix = rushlight.eye(3, dtype=rushlight.float64).add(0.1).requires_grad_()
    P, L, U = rushlight.linalg.lu(matrix)
    assert (P.requires_grad, L.requires_grad, U.requires_grad) == (False, True, True)
    P, L, U = rushlight.lu_unpack(*rushlight.linalg.lu_factor(matrix))
    assert (P.requires_grad, L.requires_grad, U.requires_grad) == (False, True, True)


def test_what_is_empty_takes_part() -> None:
    empty, x = rushlight.zeros(0, requires_grad=True), rushlight.ones(2, requires_grad=True)
    found = grad(rushlight.cat([empty, x]).sum(), (empty, x))
    assert [tuple(g.shape) for g in found] == [(0,), (2,)]


SAMPLED = (
    "nn.functional.hardtanh",
    "nn.functional.prelu",
    "nn.functional.max_pool2d",
    "clamp",
    "addmm",
    "div",
    "fmod",
    "pow",
)


@pytest.mark.oracle
@pytest.mark.parametrize("name", SAMPLED)
def test_second_derivatives_are_pytorchs(name: str) -> None:
    pytest.importorskip("expecttest")
    from tools.sweeps import second_derivatives as sweep
    from torch.testing._internal.common_methods_invocations import op_db

    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in (i for i in op_db if i.name == name):
            samples = list(info.sample_inputs("cpu", sweep.DTYPE, requires_grad=True))
            for linked in (False, True):
                wrong.append(sweep.compare(info, samples[len(samples) // 2], linked)[1])
    assert not any(wrong), wrong


class Tanh(rushlight.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        x.tanh_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.tanh_(), lambda part: part.exp_(), lambda part: part.sigmoid_(), lambda part: part.sqrt_(),
        lambda part: part.reciprocal_(), lambda part: part.pow_(2.5), lambda part: part.cumprod_(0),
        lambda part: F.celu(part - 0.5, inplace=True), lambda part: Tanh.apply(part),
    ],
    ids=["tanh", "exp", "sigmoid", "sqrt", "reciprocal", "pow", "cumprod", "celu", "function"],
)  # fmt: skip
def test_a_part_changed_in_place(change: Any) -> None:
    # A saved result of the change has the history of the part, which is that of the base.
    found = []
    for apart in (False, True):
        rushlight.manual_seed(1)
        x = (rushlight.rand(4, 5, dtype=rushlight.float64) * 0.8 + 0.1).requires_grad_()
        made = (x * 1.1).clone()
        if apart:
            middle = made[:, 1:4].clone()
            change(middle)
            made = rushlight.cat([made[:, :1], middle, made[:, 4:]], 1)
        else:
            change(made[:, 1:4])
        (first,) = grad((made * made.cos()).sum(), x, create_graph=True)
        (second,) = grad((first * first).sum() + made.exp().sum(), x, create_graph=True)
        found.append((first, second, *grad((second * second).sum(), x)))
    for a, b in zip(*found, strict=True):
        assert rushlight.allclose(a, b, rtol=1e-9)
