"""Shapes, checks, laziness, gradients of draws, and classes that users derive in PyTorch's style."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.distributions.cases import CASES, Case, build, leaves

import rushlight as torch
from rushlight.distributions import constraints
from rushlight.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

D = torch.distributions


def f(x: Any) -> Any:
    return torch.tensor(x, dtype=torch.float64)


# What has no formula, in PyTorch either.
WITHOUT_MOMENTS = {
    "LKJCholesky",
    "LogisticNormal",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "TransformedDistribution",
}
UNDEFINED = {
    "mean": WITHOUT_MOMENTS, "variance": WITHOUT_MOMENTS,
    "mode": WITHOUT_MOMENTS | {"ContinuousBernoulli", "MixtureSameFamily", "Multinomial"},
    "entropy": WITHOUT_MOMENTS | {"FisherSnedecor", "MixtureSameFamily", "NegativeBinomial", "Poisson", "VonMises"},
}  # fmt: skip


def result_of(d: Any, name: str) -> Any:
    found = getattr(d, name)
    return found() if callable(found) else found


@pytest.mark.parametrize("of", CASES, ids=repr)
def test_expanding(of: Case) -> None:
    d = build(torch, of)
    wide = d.expand((5, *d.batch_shape))
    assert type(wide) is type(d) and wide.batch_shape == (5, *d.batch_shape) and wide.event_shape == d.event_shape
    torch.manual_seed(0)
    value = d.sample((5,))
    np.testing.assert_allclose(wide.log_prob(value).numpy(), d.log_prob(value).numpy(), rtol=1e-9)
    assert wide.sample((2, 3)).shape == (2, 3, *wide.batch_shape, *wide.event_shape)
    again = wide.expand((4, *wide.batch_shape))
    assert again.batch_shape == (4, 5, *d.batch_shape) and again.log_prob(value).shape == (4, 5, *d.batch_shape)
    for name in ("entropy", "mean", "variance", "mode"):
        if of.name in UNDEFINED[name]:
            with pytest.raises(NotImplementedError):
                result_of(d, name)
            continue
        narrow, spread = result_of(d, name), result_of(wide, name)
        np.testing.assert_allclose(spread.detach().numpy(), np.broadcast_to(narrow.detach().numpy(), spread.shape))


@pytest.mark.parametrize("of", CASES, ids=repr)
def test_copies(of: Case) -> None:
    d = build(torch, of)
    torch.manual_seed(1)
    value = d.sample()
    for other in (copy.deepcopy(d), pickle.loads(pickle.dumps(d))):
        assert torch.equal(other.log_prob(value), d.log_prob(value))
        assert repr(other).split("(")[0] == repr(d).split("(")[0]


def test_dtypes_and_broadcasting() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        d = D.Normal(torch.zeros(3, 1, dtype=dtype), torch.ones(2, dtype=dtype))
        assert d.batch_shape == (3, 2) and d.sample().dtype is dtype and d.log_prob(d.sample((4,))).dtype is dtype
    assert D.Normal(0, 1).loc.dtype is torch.float32
    assert D.Normal(f(0.0), 1).scale.dtype is torch.float64
    a, b, c = broadcast_all(1, torch.zeros(2), torch.zeros(3, 1))
    assert a.shape == b.shape == c.shape == (3, 2)
    with pytest.raises(ValueError, match="Number, torch.Tensor"):
        broadcast_all("1", 2)
    assert D.Binomial(torch.tensor([3, 4]), 0.25).mean.tolist() == [0.75, 1.0]


def test_validation_can_be_turned_off() -> None:
    assert D.Normal(0.0, -1.0, validate_args=False).scale == -1
    d = D.Uniform(0.0, 1.0, validate_args=False)
    assert d.log_prob(torch.tensor(2.0)) == -torch.inf
    assert not d.expand((2,))._validate_args
    try:
        D.Distribution.set_default_validate_args(False)
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match=r"parameter scale .* of distribution Normal\(loc: 0.0, scale: -1.0\)"):
        D.Normal(0.0, -1.0)


def test_lazy_properties() -> None:
    class Thing:
        count = 0

        @lazy_property
        def value(self) -> Any:
            """What it is."""
            type(self).count += 1
            return torch.ones(2, requires_grad=True) * 2

    thing = Thing()
    with torch.no_grad():
        first = thing.value
    assert first is thing.value and Thing.count == 1 and first.requires_grad
    assert isinstance(Thing.value, property) and Thing.value.__doc__ == "What it is."
    thing.value = 3
    assert thing.value == 3
    d = D.Bernoulli(torch.tensor([0.5]))
    assert "logits" not in d.__dict__ and d.logits is d.logits and "logits" in d.__dict__
    assert "logits" in d.expand((2,)).__dict__


def test_conversions() -> None:
    p = f([0.2, 0.3, 0.5])
    for binary in (False, True):
        np.testing.assert_allclose(logits_to_probs(probs_to_logits(p, binary), binary).numpy(), p.numpy(), rtol=1e-12)
        assert probs_to_logits(f([0.0, 1.0]), binary).isfinite().all()
    for diag in (-2, -1, 0, 1):
        matrix = f(np.arange(1.0, 17.0).reshape(4, 4)).tril(diag)
        assert torch.equal(vec_to_tril_matrix(tril_matrix_to_vec(matrix, diag), diag), matrix)


STORED = {
    "Gamma": [0.45486847, 5.7186294, 10.04624],
    "Beta": [0.10416972, 0.90589416, 0.95475233],
    "Dirichlet": [0.028044133, 0.35257226, 0.61938363],
    "StudentT": [-0.11331606, 1.3062502],
    "VonMises": [0.32644424, 1.3190234],
    "NegativeBinomial": [3.0, 5.0],
    "Categorical": [1, 1],
    "LKJCholesky": [[1.0, 0.0], [0.082823947, 0.99656421]],
    "Wishart": [[0.88495809, -0.59439427], [-0.59439427, 0.45991004]],
    "RelaxedBernoulli": [0.1954844, 0.12167619],
    "Gumbel": [0.46899068, 0.52039254],
}  # fmt: skip


def test_numbers_for_a_seed() -> None:
    """Draws that PyTorch 2.13 makes, stored."""
    stored = {
        "Gamma": (lambda: D.Gamma(torch.tensor([0.5, 2.0, 9.0]), 1.0), STORED["Gamma"]),
        "Beta": (lambda: D.Beta(torch.tensor([0.5, 2.0, 9.0]), 1.0), STORED["Beta"]),
        "Dirichlet": (lambda: D.Dirichlet(torch.tensor([0.5, 2.0, 9.0])), STORED["Dirichlet"]),
        "StudentT": (lambda: D.StudentT(torch.tensor([3.0, 5.0])), STORED["StudentT"]),
        "VonMises": (lambda: D.VonMises(torch.tensor([0.0, 1.0]), 2.0), STORED["VonMises"]),
        "NegativeBinomial": (lambda: D.NegativeBinomial(5.0, torch.tensor([0.3, 0.6])), STORED["NegativeBinomial"]),
        "Categorical": (lambda: D.Categorical(torch.ones(2, 5)), STORED["Categorical"]),
        "LKJCholesky": (lambda: D.LKJCholesky(2, 1.5), STORED["LKJCholesky"]),
        "Wishart": (lambda: D.Wishart(torch.tensor(3.0), torch.eye(2)), STORED["Wishart"]),
        "RelaxedBernoulli": (
            lambda: D.RelaxedBernoulli(torch.tensor(0.5), torch.tensor([0.3, 0.6])),
            STORED["RelaxedBernoulli"],
        ),
        "Gumbel": (lambda: D.Gumbel(torch.tensor([0.0, 1.0]), 1.0), STORED["Gumbel"]),
    }
    for name, (make, expected) in stored.items():
        torch.manual_seed(7)
        np.testing.assert_allclose(make().sample().numpy(), expected, rtol=1e-5, atol=1e-7, err_msg=name)


# ***** gradients of draws *****


@pytest.mark.parametrize(
    "of", [c for c in CASES if c.name not in ("Wishart", "OneHotCategoricalStraightThrough")], ids=repr
)
def test_draws_can_be_differentiated(of: Case) -> None:
    d = build(torch, of, grad=True)
    if not d.has_rsample:
        with pytest.raises(NotImplementedError):
            d.rsample()
        return
    torch.manual_seed(0)
    draws = d.rsample((3,))
    if leaves(d):
        assert draws.requires_grad
        (draws * torch.arange(1, draws.numel() + 1).reshape(draws.shape)).sum().backward()
        assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in leaves(d))
    assert not d.sample().requires_grad


def _quantile_slope(family: Any, values: list[float], place: int, q: float) -> float:
    """How the q-quantile moves with a parameter, by central differences."""
    step = 1e-5 * values[place]
    moved = [[*values[:place], values[place] + s * step, *values[place + 1 :]] for s in (-1, 1)]
    low, high = (family(*v).ppf(q) for v in moved)
    return float((high - low) / (2 * step))


IMPLICIT = {
    "Gamma": (D.Gamma, lambda a, b: stats.gamma(a, scale=1 / b), [[0.3, 2.0], [2.5, 0.7], [40.0, 3.0]]),
    "Beta": (D.Beta, lambda a, b: stats.beta(a, b), [[0.6, 2.0], [2.5, 0.7], [40.0, 30.0]]),
}


@pytest.mark.parametrize("name", ["Gamma", "Beta"])
def test_gamma_and_beta_draws_move_like_quantiles(name: str) -> None:
    """A draw stays at its probability while a parameter changes."""
    cls, family, parameters = IMPLICIT[name]
    for values in parameters:
        given = [f(v).requires_grad_() for v in values]
        for seed in range(4):
            torch.manual_seed(seed)
            draw = cls(*given).rsample()
            slopes = torch.autograd.grad(draw, given)
            q = family(*values).cdf(draw.item())
            for place, slope in enumerate(slopes):
                np.testing.assert_allclose(
                    slope.item(), _quantile_slope(family, values, place, q), rtol=2e-5, atol=1e-9
                )


def test_mean_slopes() -> None:
    """The mean of the draws' slopes is the slope of the mean."""
    a = f([0.4, 2.0, 3.0]).requires_grad_()
    torch.manual_seed(0)
    x = D.Dirichlet(a).rsample((20_000,))
    for i in range(3):
        found = torch.autograd.grad(x[:, i].mean(), a, retain_graph=True)[0]
        mean = D.Dirichlet(a).mean
        expected = torch.autograd.grad(mean[i], a)[0]
        assert (found - expected).abs().max() < 5e-3


def test_wishart_draws_move_with_the_covariance() -> None:
    covariance = f([[2.0, 0.5], [0.5, 1.0]]).requires_grad_()
    slope = torch.zeros(2, 2, dtype=torch.float64)
    torch.manual_seed(0)
    draws = D.Wishart(f(4.0), covariance).rsample((4000,))
    draws[:, 0, 0].mean().backward()
    slope[0, 0] = 4.0  # the mean is df times the covariance
    assert (covariance.grad - slope).abs().max() < 0.3


def test_second_derivatives_of_gamma_draws_are_refused() -> None:
    a = f([2.0]).requires_grad_()
    (slope,) = torch.autograd.grad(D.Gamma(a, 1.0).rsample().sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="_standard_gamma_grad"):
        slope.backward()


def test_straight_through() -> None:
    logits = f([0.1, 1.0, -0.3]).requires_grad_()
    d = D.OneHotCategoricalStraightThrough(logits=logits)
    draw = d.rsample()
    np.testing.assert_allclose(np.sort(draw.detach().numpy()), [0, 0, 1], atol=1e-12)
    weights = f([1.0, 2.0, 3.0])
    (found,) = torch.autograd.grad((draw * weights).sum(), logits)
    (expected,) = torch.autograd.grad((torch.softmax(logits, -1) * weights).sum(), logits)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


# ***** classes that users derive *****


class Shifted(D.Distribution):
    """A distribution as users write them for PyTorch, with an `expand` of its own."""

    arg_constraints = {"start": constraints.real}
    has_rsample = True

    def __init__(self, start: Any, validate_args: bool | None = None) -> None:
        (self.start,) = broadcast_all(start)
        super().__init__(self.start.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.start)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Shifted, _instance)
        new.start = self.start.expand(torch.Size(batch_shape))
        super(Shifted, new).__init__(torch.Size(batch_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    def rsample(self, sample_shape: Any = torch.Size()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.start + torch.rand(shape, dtype=self.start.dtype)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return torch.where(value < self.start + 1, 0.0, -torch.inf)


def test_a_class_of_ones_own() -> None:
    d = Shifted(f([1.0, 2.0]))
    assert repr(d) == "Shifted(start: torch.Size([2]))"
    assert d.expand((3, 2)).sample((4,)).shape == (4, 3, 2)
    assert D.Independent(d, 1).log_prob(f([1.5, 2.5])).shape == ()
    with pytest.raises(ValueError, match="GreaterThanEq"):
        d.log_prob(f([0.5, 2.5]))
    scaled = D.TransformedDistribution(d, [D.AffineTransform(0.0, 2.0)])
    assert scaled.log_prob(f([3.0, 5.0])).exp().tolist() == pytest.approx([0.5, 0.5])


def test_a_normal_with_another_init() -> None:
    class Centered(D.Normal):
        def __init__(self, scale: Any) -> None:
            super().__init__(0.0, scale)

    with pytest.raises(NotImplementedError, match="Subclass Centered of Normal that defines a custom __init__"):
        Centered(1.0).expand((2,))

    class Complete(Centered):
        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            return super().expand(batch_shape, _instance=self._get_checked_instance(Complete, _instance))

    d = Complete(1.0)
    wide = d.expand((2,))
    assert type(wide) is Complete and wide.sample().shape == (2,)
    assert D.kl_divergence(d, D.Normal(0.0, 1.0)) == 0


def test_subclasses_keep_what_they_inherit() -> None:
    class Quiet(D.Bernoulli):
        pass

    d = Quiet(torch.tensor([0.25])).expand((3, 1))
    assert type(d) is Quiet and d.mean.shape == (3, 1) and d._new(torch.Size([2])).shape == (2,)


def test_without_constraints() -> None:
    class Bare(D.Distribution):
        def log_prob(self, value: Any) -> Any:
            self._validate_sample(value)
            return value

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        bare = Bare()
    with pytest.warns(UserWarning, match="does not define `support`"):
        bare.log_prob(torch.ones(2))
    for name in ("mean", "variance", "stddev", "mode", "support", "arg_constraints"):
        with pytest.raises(NotImplementedError):
            getattr(bare, name)
    for name in ("sample", "rsample", "entropy", "perplexity", "enumerate_support"):
        with pytest.raises(NotImplementedError):
            getattr(bare, name)()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Bare(validate_args=False)


def test_mixtures_of_vectors() -> None:
    locs = f([[[0.0, 0.0], [10.0, 10.0]]])
    d = D.MixtureSameFamily(D.Categorical(f([[0.5, 0.5]])), D.Independent(D.Normal(locs, f(0.1)), 1))
    torch.manual_seed(0)
    x = d.sample((500,))
    assert x.shape == (500, 1, 2) and d.batch_shape == (1,) and d.event_shape == (2,)
    near = (x - 10).abs().amax(-1) < 1
    assert 0.3 < near.double().mean().item() < 0.7
    assert ((x.abs().amax(-1) < 1) | near).all()  # both elements come from one component
    assert d.variance.shape == (1, 2) and d.expand((3,)).sample().shape == (3, 2)
