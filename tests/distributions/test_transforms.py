"""Transforms: inverses, Jacobians against autograd's, shapes, caching, equality; the registries and constraints."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.distributions import constraints as C
from rushlight.distributions import transforms as T

D = torch.distributions


def f(x: Any) -> Any:
    return torch.tensor(x, dtype=torch.float64)


MAPS = {
    "Abs": lambda n=0: T.AbsTransform(cache_size=n),
    "Affine": lambda n=0: T.AffineTransform(1.0, -2.0, cache_size=n),
    "Affine vector": lambda n=0: T.AffineTransform(f([1.0, 0.0, 2.0]), f([-1.0, 2.0, 0.5]), event_dim=1, cache_size=n),
    "Cat": lambda n=0: T.CatTransform([T.ExpTransform(), T.SigmoidTransform()], dim=-1, lengths=[1, 2], cache_size=n),
    "Cat first": lambda n=0: T.CatTransform([T.ExpTransform(), T.TanhTransform()], dim=0, lengths=[1, 1], cache_size=n),
    "Compose": lambda n=0: T.ComposeTransform([T.AffineTransform(0.0, 0.5), T.ExpTransform(), T.PowerTransform(f(1.5))], cache_size=n),
    "Compose vector": lambda n=0: T.ComposeTransform([T.AffineTransform(0.0, 0.5), T.StickBreakingTransform()], cache_size=n),
    "CorrCholesky": lambda n=0: T.CorrCholeskyTransform(cache_size=n),
    "CumulativeDistribution": lambda n=0: T.CumulativeDistributionTransform(D.Normal(f(0.5), f(1.5)), cache_size=n),
    "Exp": lambda n=0: T.ExpTransform(cache_size=n),
    "Independent": lambda n=0: T.IndependentTransform(T.ExpTransform(), 1, cache_size=n),
    "Inverse": lambda n=0: T.ExpTransform(cache_size=n).inv,
    "LowerCholesky": lambda n=0: T.LowerCholeskyTransform(cache_size=n),
    "PositiveDefinite": lambda n=0: T.PositiveDefiniteTransform(cache_size=n),
    "Power": lambda n=0: T.PowerTransform(f(-0.5), cache_size=n),
    "Reshape": lambda n=0: T.ReshapeTransform((3,), (3, 1), cache_size=n),
    "Sigmoid": lambda n=0: T.SigmoidTransform(cache_size=n),
    "Softmax": lambda n=0: T.SoftmaxTransform(cache_size=n),
    "Softplus": lambda n=0: T.SoftplusTransform(cache_size=n),
    "Stack": lambda n=0: T.StackTransform([T.ExpTransform(), T.TanhTransform(), T.AffineTransform(0.0, 2.0)], dim=-1, cache_size=n),
    "StickBreaking": lambda n=0: T.StickBreakingTransform(cache_size=n),
    "Tanh": lambda n=0: T.TanhTransform(cache_size=n),
}  # fmt: skip
ONTO_MATRICES = {"LowerCholesky", "PositiveDefinite"}


def argument(name: str) -> Any:
    """A value of the domain, [2, 3] or a batch of matrices."""
    x = f([[0.3, -1.2, 0.7], [1.5, 0.2, -0.4]])
    if name in ONTO_MATRICES:
        return f([[[0.3, 5.0], [-1.2, 0.7]], [[1.5, 5.0], [0.2, -0.4]]])
    return x.exp() if name in ("Power", "Inverse") else x


@pytest.mark.parametrize("name", MAPS)
def test_there_and_back(name: str) -> None:
    t, x = MAPS[name](), argument(name)
    y = t(x)
    assert t.domain.check(x).all() and t.codomain.check(y).all()
    assert y.shape == t.forward_shape(x.shape) and t.inverse_shape(y.shape) == x.shape
    back = t.inv(y)
    if t.bijective:
        np.testing.assert_allclose(back.numpy(), x.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(t(back).numpy(), y.numpy(), rtol=1e-9, atol=1e-12)
    assert t.inv.inv is t or name == "Inverse"
    assert t.inv.domain.event_dim == t.codomain.event_dim
    assert t.inv.bijective == t.bijective


def free(name: str, y: Any) -> Any:
    """As many of the result's numbers as there are in the argument."""
    if name in ("StickBreaking", "Compose vector"):
        return y[:-1]
    if name == "CorrCholesky":
        return D.utils.tril_matrix_to_vec(y, diag=-1)
    return y.reshape(-1)


@pytest.mark.parametrize("name", [n for n in MAPS if n not in ("Abs", "Softmax", *ONTO_MATRICES)])
def test_jacobians(name: str) -> None:
    """log |det| of autograd's Jacobian, for each element of the event."""
    t, x = MAPS[name](), argument(name)
    y = t(x)
    found = t.log_abs_det_jacobian(x, y)
    np.testing.assert_allclose(t.inv.log_abs_det_jacobian(y, x).numpy(), -found.numpy(), rtol=1e-9)
    if t.domain.event_dim == 0 or name == "Stack":  # a stack of maps of numbers counts its dim as part of the event
        assert found.shape == x.shape
        jacobian = torch.autograd.functional.jacobian(lambda v: t(v.reshape(x.shape)).reshape(-1), x.reshape(-1))
        np.testing.assert_allclose(
            found.reshape(-1).numpy(), jacobian.diagonal().abs().log().numpy(), rtol=1e-8, atol=1e-12
        )
        return
    assert found.shape == x.shape[:-1]
    for row, value in zip(x, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda v: free(name, t(v)), row)
        np.testing.assert_allclose(value.item(), np.linalg.slogdet(jacobian.numpy())[1], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_caching(name: str) -> None:
    t, x = MAPS[name](1), argument(name)
    y = t(x)
    assert t(x) is y and t.inv(y) is x
    assert t(x.clone()) is not y
    assert t.with_cache(1) is t
    plain = t.with_cache(0)
    if not name.startswith("Compose"):  # whose parts keep their caches
        assert t.inv.with_cache(1) is t.inv
        assert plain._cache_size == 0 and (plain(x) is not plain(x) or name == "Reshape")


@pytest.mark.parametrize("name", MAPS)
def test_copies(name: str) -> None:
    for size in (0, 1):
        t, x = MAPS[name](size), argument(name)
        y = t(x)
        t.inv
        fresh = MAPS[name]()
        for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
            assert torch.equal(other(x.clone()), y)
            assert torch.equal(other.inv(y.clone()), fresh.inv(y))


def test_equality() -> None:
    assert T.ExpTransform() == T.ExpTransform() and T.ExpTransform() != T.TanhTransform()
    assert T.ExpTransform().inv == T.ExpTransform().inv and T.ExpTransform().inv != T.ExpTransform()
    assert T.AffineTransform(0, 1) == T.AffineTransform(0.0, f(1.0)) and T.AffineTransform(0, 1) != T.AffineTransform(
        0, 2
    )
    assert T.PowerTransform(2.0) == T.PowerTransform(f(2.0)) and T.PowerTransform(2.0) != T.PowerTransform(3.0)
    assert T.ComposeTransform([T.ExpTransform()]) == T.ComposeTransform([T.ExpTransform()]) != T.identity_transform
    assert T.Transform() != T.Transform()


def test_signs() -> None:
    assert T.ExpTransform().sign == 1 and T.AffineTransform(0, -3).sign == -1 and T.AffineTransform(0, 0).sign == 0
    assert T.AffineTransform(0, f([-1.0, 2.0])).sign.tolist() == [-1, 1] and T.PowerTransform(-2.0).sign == -1
    assert T.ComposeTransform([T.ExpTransform(), T.AffineTransform(0, -1)]).sign == -1
    assert T.ComposeTransform([T.AffineTransform(0, -1)]).inv.sign == -1


def test_far_out_values_stay_finite() -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([-1e3, 1e3], dtype=dtype)
        t: Any
        for t in (T.SigmoidTransform(), T.StickBreakingTransform(), T.TanhTransform(), T.SoftplusTransform()):
            y = t(x)
            assert y.isfinite().all() and t.log_abs_det_jacobian(x, y).isfinite().all()
        assert T.SigmoidTransform().inv(torch.tensor([0.0, 1.0], dtype=dtype)).isfinite().all()
        partial = T.CorrCholeskyTransform()(torch.tensor([-50.0, 50.0, 0.0], dtype=dtype))
        assert C.lower_cholesky.check(partial)


def test_composing_counts_the_dims_of_events() -> None:
    both = T.ComposeTransform([T.ExpTransform(), T.StickBreakingTransform()])
    assert both.domain.event_dim == both.codomain.event_dim == 1
    x = argument("Exp")
    assert both.log_abs_det_jacobian(x, both(x)).shape == (2,)
    mixed = T.ComposeTransform([T.ReshapeTransform((4,), (2, 2)), T.LowerCholeskyTransform()])
    assert (mixed.domain.event_dim, mixed.codomain.event_dim) == (1, 2)
    assert mixed.forward_shape((5, 4)) == (5, 2, 2) and mixed.inverse_shape((5, 2, 2)) == (5, 4)
    assert T.identity_transform(3) == 3


# ***** registries *****


@pytest.mark.parametrize("registry", [D.biject_to, D.transform_to])
def test_transforms_lead_into_the_region(registry: Any) -> None:
    regions = [
        C.real, C.positive, C.nonnegative, C.greater_than(2.0), C.less_than(f([1.0, 2.0, 3.0])), C.unit_interval, C.interval(-1.0, f(2.0)),
        C.half_open_interval(0.0, 1.0), C.simplex, C.real_vector, C.corr_cholesky, C.independent(C.positive, 1),
        C.cat([C.positive, C.unit_interval], -1, [1, 2]), C.stack([C.positive, C.unit_interval, C.real], -1),
    ]  # fmt: skip
    x = argument("Exp")
    for region in regions:
        t = registry(region)
        assert region.check(t(x)).all(), region
        assert t.bijective or registry is D.transform_to
    for region in (C.lower_cholesky, C.positive_definite, C.positive_semidefinite):
        assert region.check(D.transform_to(region)(argument("LowerCholesky"))).all()
        with pytest.raises(NotImplementedError, match="Cannot transform"):
            D.biject_to(region)


def test_registering() -> None:
    class Even(C.Constraint):
        pass

    registry = D.constraint_registry.ConstraintRegistry()
    assert registry.register(Even, lambda c: "made")(None) == "made"
    assert registry(Even()) == "made"

    @registry.register(Even())
    def again(constraint: Any) -> Any:
        return constraint

    even = Even()
    assert registry(even) is even
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        registry.register(int, again)


# ***** constraints *****


def test_checks() -> None:
    nan = float("nan")
    table = [
        (C.boolean, [0.0, 1.0, 0.5], [1, 1, 0]),
        (C.real, [0.0, nan, float("inf")], [1, 0, 1]),
        (C.positive, [0.0, 1.0, nan], [0, 1, 0]),
        (C.nonnegative, [0.0, 1.0, -1.0], [1, 1, 0]),
        (C.nonnegative_integer, [0.0, 1.5, -1.0], [1, 0, 0]),
        (C.positive_integer, [0.0, 1.0, 2.5], [0, 1, 0]),
        (C.integer_interval(1, 3), [0.0, 1.0, 2.5, 3.0], [0, 1, 0, 1]),
        (C.interval(0, 1), [0.0, 1.0, 1.5], [1, 1, 0]),
        (C.half_open_interval(0, 1), [0.0, 1.0, 0.5], [1, 0, 1]),
        (C.less_than(f([1.0, 2.0])), [1.5, 1.5], [0, 1]),
        (C.simplex, [[0.2, 0.8], [0.2, 0.7], [-0.1, 1.1]], [1, 0, 0]),
        (C.one_hot, [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5]], [1, 0, 0]),
        (C.multinomial(3), [[0.0, 3.0], [2.0, 2.0], [-1.0, 2.0]], [1, 0, 0]),
        (C.real_vector, [[0.0, 3.0], [nan, 2.0]], [1, 0]),
        (C.lower_triangular, [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]], [1, 0]),
        (C.lower_cholesky, [[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [3.0, 1.0]]], [0, 1]),
        (C.corr_cholesky, [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.9]]], [1, 0]),
        (C.symmetric, [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [1.0, 1.0]]], [1, 0]),
        (C.positive_semidefinite, [[[1.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]], [1, 0]),
        (C.positive_definite, [[[1.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]], [1, 0]),
        (C.square, [[[1.0, 1.0]]], [0]),
    ]  # fmt: skip
    for constraint, values, expected in table:
        found = constraint.check(f(values))
        assert found.dtype is torch.bool and found.tolist() == [bool(e) for e in expected], constraint
        assert found.dim() == f(values).dim() - constraint.event_dim


def test_constraints_of_constraints() -> None:
    x = f([[0.5, 2.0], [-1.0, 0.5]])
    assert C.cat([C.positive, C.unit_interval], 1, [1, 1]).check(x).tolist() == [[True, False], [False, True]]
    assert C.stack([C.positive, C.unit_interval], 1).check(x).tolist() == [[True, False], [False, True]]
    assert C.MixtureSameFamilyConstraint(C.interval(f([0.0, -2.0]), 3.0)).check(x).tolist() == [
        [True, True],
        [False, True],
    ]
    assert C.independent(C.positive, 1).check(x).tolist() == [True, False]
    assert not C.is_dependent(C.real) and C.is_dependent(C.dependent(event_dim=1))
    assert C.dependent(event_dim=1).event_dim == 1
    with pytest.raises(TypeError, match="lower_bound"):
        C.greater_than()


def test_dependent_properties() -> None:
    class Box(D.Distribution):
        arg_constraints = {"size": C.positive}

        def __init__(self, size: Any) -> None:
            self.size = size
            super().__init__(size.shape)

        @C.dependent_property(is_discrete=False, event_dim=0)
        def support(self) -> Any:
            return C.interval(0, self.size)

        @C.dependent_property
        def bare(self) -> Any:
            return C.real

    assert Box.support.event_dim == 0 and not Box.support.is_discrete and C.is_dependent(Box.support)
    assert repr(Box(f(2.0)).support) == "Interval(lower_bound=0, upper_bound=2.0)"
    assert Box(f(2.0)).bare is C.real
    with pytest.raises(NotImplementedError, match="event_dim"):
        Box.bare.event_dim
