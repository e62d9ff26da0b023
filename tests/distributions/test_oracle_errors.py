"""What distributions, constraints and transforms refuse, in PyTorch's words; and the printed forms of constraints and transforms."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rushlight  # noqa: E402

pytestmark = pytest.mark.oracle
NAN = float("nan")


def _mine(t: Any) -> Any:
    class Mine(t.distributions.Normal):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__(0.0, 1.0)

    return Mine()


def _bare(t: Any) -> Any:
    class Bare(t.distributions.Distribution):  # type: ignore[name-defined, misc]
        pass

    return Bare


def _transform(t: Any) -> Any:
    class Stretch(t.distributions.Transform):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()

    return Stretch()


WRONG = {
    "bare": lambda t, D: _bare(t)(),
    "bare mode": lambda t, D: _bare(t)(validate_args=False).mode,
    "bare mean": lambda t, D: _bare(t)(validate_args=False).mean,
    "bare expand": lambda t, D: _bare(t)(validate_args=False).expand([2]),
    "bare log_prob": lambda t, D: _bare(t)(validate_args=False).log_prob(t.ones(2)),
    "own init": lambda t, D: _mine(t).expand([2]),
    "parameter": lambda t, D: D.Normal(t.zeros(2), -1.0),
    "no number": lambda t, D: D.Normal("a", 1.0),
    "value is a number": lambda t, D: D.Normal(0.0, 1.0).log_prob(1.0),
    "value NaN": lambda t, D: D.Normal(0.0, 1.0).log_prob(t.tensor(NAN)),
    "value cdf": lambda t, D: D.Gamma(1.0, 1.0).cdf(t.tensor(-1.0)),
    "batch": lambda t, D: D.Normal(t.zeros(2), 1.0).log_prob(t.zeros(3)),
    "event": lambda t, D: D.Dirichlet(t.ones(3)).log_prob(t.zeros(4)),
    "no event": lambda t, D: D.Dirichlet(t.ones(3)).log_prob(t.ones(())),
    "scalar dirichlet": lambda t, D: D.Dirichlet(t.ones(())),
    "neither": lambda t, D: D.Bernoulli(),
    "both": lambda t, D: D.Categorical(t.ones(2), t.ones(2)),
    "probability": lambda t, D: D.Bernoulli(2.0),
    "scalar categorical": lambda t, D: D.Categorical(t.ones(())),
    "negative weight": lambda t, D: D.Categorical(t.tensor([-1.0, 1.0])),
    "default": lambda t, D: D.Distribution.set_default_validate_args(3),
    "sample_n": lambda t, D: D.Bernoulli(1.0).sample_n(3),
    "shape": lambda t, D: D.Normal(0.0, 1.0).rsample(3),
    "interval": lambda t, D: D.Uniform(1.0, 0.0),
    "outside": lambda t, D: D.Uniform(0.0, 1.0).log_prob(t.tensor(1.5)),
    "no rsample": lambda t, D: D.Bernoulli(0.1).rsample(),
    "no entropy": lambda t, D: D.Poisson(0.1).entropy(),
    "counts": lambda t, D: D.Binomial(t.tensor([3.0, 4.0]), 0.1).enumerate_support(),
    "counts entropy": lambda t, D: D.Binomial(t.tensor([3.0, 4.0]), 0.1).entropy(),
    "tensor count": lambda t, D: D.Multinomial(t.tensor([3, 4]), t.ones(3)),
    "wrong count": lambda t, D: D.Multinomial(3, t.ones(3)).log_prob(t.ones(3) * 2),
    "mvn loc": lambda t, D: D.MultivariateNormal(t.tensor(1.0), t.eye(1)),
    "mvn two": lambda t, D: D.MultivariateNormal(t.ones(1), t.eye(1), t.eye(1)),
    "mvn none": lambda t, D: D.MultivariateNormal(t.ones(1)),
    "mvn vector": lambda t, D: D.MultivariateNormal(t.ones(1), t.ones(1)),
    "mvn precision": lambda t, D: D.MultivariateNormal(t.ones(1), precision_matrix=t.ones(1)),
    "mvn tril": lambda t, D: D.MultivariateNormal(t.ones(1), scale_tril=t.ones(1)),
    "mvn singular": lambda t, D: D.MultivariateNormal(t.ones(2), t.ones(2, 2)),
    "mvn upper": lambda t, D: D.MultivariateNormal(t.ones(2), scale_tril=t.ones(2, 2)),
    "low loc": lambda t, D: D.LowRankMultivariateNormal(t.ones(()), t.ones(2, 2), t.ones(2)),
    "low vector": lambda t, D: D.LowRankMultivariateNormal(t.ones(2), t.ones(2), t.ones(2)),
    "low factor": lambda t, D: D.LowRankMultivariateNormal(t.ones(2), t.ones(3, 2), t.ones(2)),
    "low diagonal": lambda t, D: D.LowRankMultivariateNormal(t.ones(2), t.ones(2, 2), t.ones(3)),
    "low batch": lambda t, D: D.LowRankMultivariateNormal(t.ones(4, 2), t.ones(2, 2), t.ones(3, 2)),
    "lkj": lambda t, D: D.LKJCholesky(1),
    "wishart df": lambda t, D: D.Wishart(t.tensor(1.0), t.eye(2)),
    "wishart low df": lambda t, D: D.Wishart(t.tensor(1.5), t.eye(2)),
    "wishart vector": lambda t, D: D.Wishart(t.tensor(2.0), t.ones(2)),
    "wishart none": lambda t, D: D.Wishart(t.tensor(2.0)),
    "independent": lambda t, D: D.Independent(D.Normal(t.zeros(2), 1.0), 2),
    "cartesian": lambda t, D: D.Independent(D.Bernoulli(t.ones(2) * 0.5), 1).enumerate_support(),
    "mixture": lambda t, D: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)),
    "component": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(2)), 3),
    "components": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(2)), D.Normal(t.zeros(3), 1.0)),
    "mixture batch": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(4, 2)), D.Normal(t.zeros(3, 2), 1.0)),
    "mixture mode": lambda t, D: D.MixtureSameFamily(D.Categorical(t.ones(2)), D.Normal(t.zeros(2), 1.0)).mode,
    "transform": lambda t, D: D.TransformedDistribution(D.Normal(0.0, 1.0), 3),
    "transforms": lambda t, D: D.TransformedDistribution(D.Normal(0.0, 1.0), [3]),
    "base dims": lambda t, D: D.TransformedDistribution(D.Normal(0.0, 1.0), D.StickBreakingTransform()),
    "no kl": lambda t, D: D.kl_divergence(D.Normal(0.0, 1.0), D.StudentT(1.0)),
    "kl families": lambda t, D: D.kl_divergence(D.Poisson(1.0), D.Normal(0.0, 1.0)),
    "kl events": lambda t, D: D.kl_divergence(D.MultivariateNormal(t.zeros(2), t.eye(2)), D.MultivariateNormal(t.zeros(3), t.eye(3))),
    "geometric": lambda t, D: D.Geometric(t.tensor([0.0, 0.5])),
    "cache": lambda t, D: D.ExpTransform(cache_size=2),
    "with_cache": lambda t, D: _transform(t).with_cache(),
    "sign": lambda t, D: D.SoftmaxTransform().sign,
    "event_dim": lambda t, D: D.CorrCholeskyTransform().event_dim,
    "few dims": lambda t, D: D.SoftmaxTransform().forward_shape(()),
    "no triangle": lambda t, D: D.CorrCholeskyTransform().forward_shape((2,)),
    "no square": lambda t, D: D.CorrCholeskyTransform().inverse_shape((2, 3)),
    "reshape": lambda t, D: D.ReshapeTransform((2, 3), (5,)),
    "reshape shape": lambda t, D: D.ReshapeTransform((2, 3), (6,)).forward_shape(t.Size((3, 3))),
    "independent transform": lambda t, D: D.IndependentTransform(D.ExpTransform(), 1)(t.ones(())),
    "cat parts": lambda t, D: D.CatTransform([3]),
    "cat length": lambda t, D: D.CatTransform([D.ExpTransform(), D.ExpTransform()], lengths=[1, 2])(t.ones(2)),
    "stack length": lambda t, D: D.StackTransform([D.ExpTransform()])(t.ones(2)),
    "hash": lambda t, D: hash(D.ExpTransform()),
    "no jacobian": lambda t, D: D.PositiveDefiniteTransform().log_abs_det_jacobian(1, 2),
    "no constraint": lambda t, D: D.biject_to(D.constraints.boolean),
    "no constraint class": lambda t, D: D.biject_to(3),
    "registered": lambda t, D: D.biject_to.register(int, lambda c: None),
    "dependent check": lambda t, D: D.constraints.dependent.check(t.ones(2)),
    "dependent event_dim": lambda t, D: D.constraints.dependent.event_dim,
    "dependent discrete": lambda t, D: D.constraints.dependent.is_discrete,
    "independent check": lambda t, D: D.constraints.independent(D.constraints.real, 2).check(t.ones(2)),
    "independent base": lambda t, D: D.constraints.independent(3, 1),
    "cat constraints": lambda t, D: D.constraints.cat([1]),
    "abstract": lambda t, D: D.constraints.Constraint().check(1),
    "triangle": lambda t, D: D.utils.vec_to_tril_matrix(t.zeros(5)),
    "diagonal": lambda t, D: D.utils.tril_matrix_to_vec(t.zeros(3, 3), 3),
}  # fmt: skip


def told(t: Any, call: Any) -> list[str]:
    """What is raised and warned, without the places of modules."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = [f"made {call(t, t.distributions)}"]
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        found += [f"{w.category.__name__}: {w.message}" for w in caught]
    return [
        re.sub(r"<class '.*\.(\w+)'>|(?:torch|rushlight)\.(?=distributions)", r"\1", re.sub(" +", " ", line))
        for line in found
    ]


@pytest.mark.parametrize("name", WRONG)
def test_refusals(name: str) -> None:
    assert told(rushlight, WRONG[name]) == told(torch, WRONG[name])


FORMS = {
    "regions": lambda D, C: [getattr(C, n) for n in C.__all__ if isinstance(getattr(C, n), C.Constraint)],
    "made": lambda D, C: [
        C.independent(C.real, 1), C.integer_interval(0, 3), C.greater_than(2), C.greater_than_eq(2), C.less_than(3.0), C.interval(0, 1),
        C.half_open_interval(0, 1), C.multinomial(3), C.cat([C.real, C.positive]), C.stack([C.real, C.simplex], 0), C._IntegerLessThan(3),
        C.MixtureSameFamilyConstraint(C.real), C.dependent_property(is_discrete=False, event_dim=0), C.dependent(is_discrete=True, event_dim=1),
    ],
    "supports": lambda D, C: [getattr(D, n).support for n in sorted(D.__all__) if isinstance(getattr(getattr(D, n), "support", 0), C.Constraint)],
    "to": lambda D, C: [
        to(c)
        for to in (D.biject_to, D.transform_to)
        for c in (
            C.real, C.positive, C.nonnegative, C.greater_than(2.0), C.less_than(2.0), C.unit_interval, C.interval(0.0, 2.0), C.simplex, C.real_vector,
            C.half_open_interval(0.0, 1.0), C.corr_cholesky, C.cat([C.real, C.positive], 0, [1, 2]), C.stack([C.real, C.positive], 0),
            C.independent(C.positive, 1),
        )
    ],
    "matrices": lambda D, C: [D.transform_to(c) for c in (C.lower_cholesky, C.positive_definite, C.positive_semidefinite)],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_printed_forms(name: str) -> None:
    theirs, mine = (FORMS[name](t.distributions, t.distributions.constraints) for t in (torch, rushlight))
    assert [repr(x) for x in mine] == [repr(x) for x in theirs]
    for a, b in zip(theirs, mine, strict=True):
        for attribute in ("event_dim", "is_discrete", "bijective", "domain", "codomain", "sign"):
            x, y = (_attribute(c, attribute) for c in (a, b))
            assert x == y, (a, attribute, x, y)


def _attribute(c: Any, name: str) -> str:
    try:
        return str(getattr(c, name, None))
    except (NotImplementedError, ValueError) as error:
        return str(error)


@pytest.mark.parametrize("name", torch.distributions.__all__)
def test_classes_have_the_same_signature(name: str) -> None:
    theirs, mine = getattr(torch.distributions, name), getattr(rushlight.distributions, name)
    assert type(theirs).__name__ == type(mine).__name__ or callable(mine)
    if isinstance(theirs, type):
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters)
        public = {n for n in dir(theirs) if not n.startswith("_")}
        assert public <= set(dir(mine)), public - set(dir(mine))
