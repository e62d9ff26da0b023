"""Every distribution beside PyTorch: draws for the same seed, densities, moments, shapes, text and gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.distributions.cases import CASES, Case, build, leaves  # noqa: E402

import rushlight  # noqa: E402

pytestmark = pytest.mark.oracle
LIBRARIES = (torch, rushlight)
# Draws that differ in the last bit, because a sum or product is rounded in another order.
LOOSE = {"float32": (2e-5, 1e-6)}


# PyTorch fails to compute these in float64 ("Double did not match Float") ...
ONLY_FLOAT32 = {"GeneralizedPareto"}
# ... approximates these (n! is a float32), the Bessel functions in densities and the derivatives of gamma and beta draws ...
APPROXIMATE = {"VonMises": 1e-4, "Multinomial": 1e-6}
APPROXIMATE_DRAWS = {"Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT"}
# ... and cannot differentiate these (a saved mask is changed in place).
NO_GRADIENT = {"Wishart"}


def pair_of(of: Case, grad: bool = False) -> list[Any]:
    return [build(t, of, "float32" if of.name in ONLY_FLOAT32 else "float64", grad) for t in LIBRARIES]


def array(x: Any) -> Any:
    return x.detach().numpy() if hasattr(x, "detach") else np.asarray(x)


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """The value, or the class of what was raised."""
    try:
        return f(*args)
    except (NotImplementedError, ValueError, AttributeError, RuntimeError) as error:
        return type(error).__name__


def agree(theirs: Any, mine: Any, what: str, least: float = 1e-9) -> None:
    if isinstance(theirs, str) or isinstance(mine, str):
        assert theirs == mine, f"{what}: {theirs} and {mine}"
        return
    a, b = array(theirs), array(mine)
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape} and {b.dtype}{b.shape}"
    rtol, atol = LOOSE.get(a.dtype.name, (1e-9, 1e-11))
    np.testing.assert_allclose(b, a, rtol=max(rtol, least), atol=max(atol, least * 1e-2), err_msg=what)


def seeded(t: Any, f: Callable[..., Any], *args: Any) -> Any:
    t.manual_seed(11)
    return f(*args)


def to_mine(x: Any) -> Any:
    return rushlight.from_numpy(x.detach().numpy().copy())


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("of", CASES, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws(of: Case, dtype: str) -> None:
    pair = [build(t, of, dtype) for t in LIBRARIES]
    for shape in ((), (3,), (2, 5)):
        for kind in ("sample", "rsample"):
            a, b = (seeded(t, outcome, getattr(d, kind), shape) for t, d in zip(LIBRARIES, pair, strict=True))
            agree(a, b, f"{kind}{shape}")


@pytest.mark.parametrize("of", CASES, ids=repr)
def test_densities_and_moments(of: Case) -> None:
    theirs, mine = pair_of(of)
    least = APPROXIMATE.get(of.name, 0.0)
    value = seeded(torch, lambda: theirs.sample((4,)))
    given = to_mine(value)
    for name in ("log_prob", "cdf"):
        agree(outcome(getattr(theirs, name), value), outcome(getattr(mine, name), given), name, least)
    part = torch.rand((4, *theirs.batch_shape), dtype=value.dtype if value.is_floating_point() else torch.float64)
    if of.name not in ("LogisticNormal", "RelaxedOneHotCategorical"):  # icdf of vectors: neither has a meaning
        agree(outcome(lambda: theirs.icdf(part)), outcome(lambda: mine.icdf(to_mine(part))), "icdf")
    for name in ("entropy", "perplexity"):
        agree(outcome(getattr(theirs, name)), outcome(getattr(mine, name)), name, least)
    for name in ("mean", "mode", "variance", "stddev"):
        if (of.name, name) != ("Kumaraswamy", "mode"):  # PyTorch's is always NaN
            agree(outcome(getattr, theirs, name), outcome(getattr, mine, name), name, least)
    for name in (
        "covariance_matrix",
        "precision_matrix",
        "scale_tril",
        "logits",
        "probs",
        "df",
        "param_shape",
        "temperature",
    ):
        if hasattr(theirs, name):
            agree(getattr(theirs, name), getattr(mine, name), name)


@pytest.mark.parametrize("of", CASES, ids=repr)
def test_shapes_and_text(of: Case) -> None:
    pair = pair_of(of)
    wide = [d.expand((3, *d.batch_shape)) for d in pair]
    for theirs, mine in (pair, wide, [d.expand((2, *d.batch_shape)) for d in wide if not d.batch_shape] or pair):
        assert repr(theirs) == repr(mine)
        assert str(theirs.support) == str(mine.support)
        assert theirs.support.event_dim == mine.support.event_dim
        assert theirs.support.is_discrete == mine.support.is_discrete
        assert type(theirs) is not type(mine) and type(theirs).__name__ == type(mine).__name__
        for name in ("batch_shape", "event_shape"):
            assert tuple(getattr(theirs, name)) == tuple(getattr(mine, name))
            assert type(getattr(mine, name)) is rushlight.Size
        for name in ("has_rsample", "has_enumerate_support", "_validate_args"):
            assert getattr(theirs, name) == getattr(mine, name), name
        assert {k: str(v) for k, v in theirs.arg_constraints.items()} == {
            k: str(v) for k, v in mine.arg_constraints.items()
        }
    value = seeded(torch, lambda: wide[0].sample((2,)))
    agree(wide[0].log_prob(value), wide[1].log_prob(to_mine(value)), "log_prob", APPROXIMATE.get(of.name, 0.0))
    agree(seeded(torch, wide[0].sample), seeded(rushlight, wide[1].sample), "sample of the expanded")
    for expand in (True, False):
        agree(*(outcome(d.enumerate_support, expand) for d in pair), "support")


@pytest.mark.parametrize("of", CASES, ids=repr)
def test_gradients(of: Case) -> None:
    pair = pair_of(of, True)
    value = seeded(torch, lambda: pair[0].sample((3,)))

    def slopes(t: Any, d: Any, f: Callable[[], Any]) -> Any:
        result = seeded(t, f)
        if not result.requires_grad:
            return [None] * len(leaves(d))
        (result * t.arange(1, result.numel() + 1).reshape(result.shape).to(result.dtype)).sum().backward()
        return [leaf.grad for leaf in leaves(d)]

    def compare(what: str, rtol: float, f: Callable[[Any, Any], Any]) -> None:
        fresh = list(zip(LIBRARIES, pair_of(of, True), strict=True))
        a, b = (slopes(t, d, lambda t=t, d=d: f(t, d)) for t, d in fresh)
        for theirs, mine in zip(a, b, strict=True):
            if theirs is None or mine is None:
                assert theirs is None and (mine is None or not array(mine).any()), what
            else:
                agree(theirs, mine, what, rtol)

    values = {torch: value, rushlight: to_mine(value)}
    compare("log_prob", APPROXIMATE.get(of.name, 1e-7), lambda t, d: d.log_prob(values[t]))
    if isinstance(outcome(pair[0].entropy), torch.Tensor):
        compare("entropy", 1e-7, lambda t, d: d.entropy())
    if pair[0].has_rsample and of.name not in NO_GRADIENT:
        compare("rsample", 3e-3 if of.name in APPROXIMATE_DRAWS else 1e-7, lambda t, d: d.rsample((2,)))


# ***** divergences *****

SAME = {
    "Bernoulli": {"probs": [0.3, 0.6, 0.9]},
    "Beta": {"concentration1": [0.6, 1.0, 3.0], "concentration0": [1.5, 4.0, 0.7]},
    "Binomial": {"total_count": 5, "probs": [0.3, 0.6, 0.9]},
    "Categorical": {"probs": [[0.3, 0.3, 0.4], [0.1, 0.2, 0.7]]},
    "Cauchy": {"loc": [0.3, 0.6, 0.9], "scale": [1.0, 2.0, 0.4]},
    "ContinuousBernoulli": {"probs": [0.3, 0.6, 0.9]},
    "Dirichlet": {"concentration": [[0.3, 2.0, 1.0], [1.0, 2.0, 7.0]]},
    "Exponential": {"rate": [0.3, 1.6, 0.9]},
    "Gamma": {"concentration": [0.3, 1.6, 7.0], "rate": [0.4, 2.0, 3.0]},
    "Geometric": {"probs": [0.3, 0.6, 0.9]},
    "Gumbel": {"loc": [0.3, 0.6, -0.9], "scale": [1.0, 2.0, 0.4]},
    "HalfNormal": {"scale": [0.3, 1.6, 0.9]},
    "Laplace": {"loc": [0.3, 0.6, -0.9], "scale": [1.0, 2.0, 0.4]},
    "LogNormal": {"loc": [0.3, 0.6, -0.9], "scale": [1.0, 2.0, 0.4]},
    "LowRankMultivariateNormal": {"loc": [0.0, 1.0], "cov_factor": [[1.0], [0.2]], "cov_diag": [1.0, 0.5]},
    "MultivariateNormal": {"loc": [[0.0, 1.0], [1.0, 1.0]], "scale_tril": [[1.2, 0.0], [-0.3, 0.7]]},
    "Normal": {"loc": [0.3, 0.6, -0.9], "scale": [1.0, 2.0, 0.4]},
    "OneHotCategorical": {"probs": [[0.3, 0.3, 0.4], [0.1, 0.2, 0.7]]},
    "Pareto": {"scale": [0.5, 1.0, 2.0], "alpha": [0.8, 1.5, 4.0]},
    "Poisson": {"rate": [0.3, 1.6, 9.0]},
    "Uniform": {"low": [0.1, 0.2, -1.0], "high": [0.9, 0.5, 2.0]},
}
OTHER = {
    "Bernoulli": {"probs": [0.4, 0.0, 1.0]},
    "Beta": {"concentration1": [1.6, 2.0, 0.3], "concentration0": [0.5, 3.0, 2.7]},
    "Binomial": {"total_count": [5.0, 4.0, 5.0], "probs": [0.4, 0.5, 0.2]},
    "Categorical": {"logits": [[0.3, 1.3, 0.4]]},
    "LowRankMultivariateNormal": {
        "loc": [[1.0, 1.0], [0.0, 0.0]],
        "cov_factor": [[0.5, 0.2], [0.2, -1.0]],
        "cov_diag": [0.3, 0.9],
    },
    "MultivariateNormal": {"loc": [0.4, 1.0], "covariance_matrix": [[2.0, 0.5], [0.5, 1.0]]},
    "Pareto": {"scale": [0.4, 2.0, 0.1], "alpha": [1.8, 2.5, 0.7]},
    "Uniform": {"low": [-0.1, 0.3, -1.5], "high": [1.2, 0.7, 2.5]},
}
KL_PAIRS = sorted((p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY)
ABSTRACT = {"ExponentialFamily", "Independent", "TransformedDistribution"}


def _ours(cls: type) -> bool:
    """Not what another test (or an example in a docstring) has registered."""
    return cls.__module__.startswith("rushlight.")


def test_the_same_pairs_are_registered() -> None:
    mine = sorted((p.__name__, q.__name__) for p, q in rushlight.distributions.kl._KL_REGISTRY if _ours(p))
    assert mine == KL_PAIRS


@pytest.mark.parametrize(("p", "q"), [pair for pair in KL_PAIRS if not ABSTRACT & set(pair)])
def test_divergences(p: str, q: str) -> None:
    results = []
    for t in LIBRARIES:
        a = build(t, Case(p, **SAME[p]), grad=True)
        b = build(t, Case(q, **OTHER.get(q, SAME[q])), grad=True)
        both = [t.distributions.kl_divergence(a, b), t.distributions.kl_divergence(a, a) if p == q else a.mean]
        finite = both[0][t.isfinite(both[0])]
        if finite.requires_grad and finite.numel():
            finite.sum().backward()
        results.append((both, [leaf.grad for leaf in leaves(a) + leaves(b)]))
    (theirs, slopes), (mine, my_slopes) = results
    for x, y in zip(theirs, mine, strict=True):
        agree(x, y, "value", 1e-8)
    for x, y in zip(slopes, my_slopes, strict=True):
        if x is not None and torch.isfinite(x).all():
            agree(x, y if y is not None else rushlight.zeros(x.shape).double(), "gradient", 1e-6)


@pytest.mark.parametrize("name", ["LogNormal", "Normal"])
def test_divergences_of_wrapped_distributions(name: str) -> None:
    values = []
    for t in LIBRARIES:
        p, q = (
            t.distributions.Independent(build(t, Case(name, loc=[0.0, k], scale=[1.0, 2.0])), 1) for k in (1.0, 3.0)
        )
        values.append(t.distributions.kl_divergence(p, q))
    agree(*values, "value")
