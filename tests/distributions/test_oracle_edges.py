"""The ends of supports and parameters, infinities and what lies outside, with and without checks: as PyTorch has it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import rushlight  # noqa: E402

pytestmark = pytest.mark.oracle
VALUES = [-math.inf, -5.0, -1.0, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 1e3, 1e30, math.inf]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Normal", dict(loc=0.0, scale=1e-3)), ("Uniform", dict(low=0.0, high=1.0)), ("Exponential", dict(rate=2.0)),
    ("Laplace", dict(loc=1.0, scale=2.0)), ("Cauchy", dict(loc=0.0, scale=1.0)), ("Gamma", dict(concentration=1.0, rate=1.0)),
    ("Gamma", dict(concentration=0.5, rate=1e3)), ("Beta", dict(concentration1=1.0, concentration0=1.0)),
    ("Beta", dict(concentration1=0.5, concentration0=2.0)), ("Beta", dict(concentration1=0.5, concentration0=0.5)), ("Chi2", dict(df=2.0)),
    ("HalfNormal", dict(scale=1.0)), ("HalfCauchy", dict(scale=1.0)), ("Gumbel", dict(loc=0.0, scale=1.0)),
    ("LogNormal", dict(loc=0.0, scale=1.0)), ("Pareto", dict(scale=1.0, alpha=2.0)), ("Weibull", dict(scale=1.0, concentration=2.0)),
    ("InverseGamma", dict(concentration=2.0, rate=2.0)), ("StudentT", dict(df=2.0)), ("FisherSnedecor", dict(df1=2.0, df2=3.0)),
    ("GeneralizedPareto", dict(loc=0.0, scale=1.0, concentration=0.5)), ("GeneralizedPareto", dict(loc=0.0, scale=1.0, concentration=0.0)),
    ("VonMises", dict(loc=0.0, concentration=1.0)), ("Poisson", dict(rate=0.0)), ("Poisson", dict(rate=4.0)), ("Geometric", dict(probs=1.0)),
    ("NegativeBinomial", dict(total_count=0, probs=0.5)), ("NegativeBinomial", dict(total_count=3, probs=0.0)),
    ("Binomial", dict(total_count=3, probs=0.0)), ("Binomial", dict(total_count=3, probs=1.0)), ("Binomial", dict(total_count=0, probs=0.5)),
    ("ContinuousBernoulli", dict(probs=0.0)), ("ContinuousBernoulli", dict(probs=1.0)), ("Bernoulli", dict(probs=0.0)),
    ("Bernoulli", dict(probs=1e-8)), ("Bernoulli", dict(probs=1.0)), ("Bernoulli", dict(logits=-200.0)), ("Bernoulli", dict(logits=math.inf)),
    ("Kumaraswamy", dict(concentration1=2.0, concentration0=2.0)),
]  # fmt: skip
MOMENTS = ("entropy", "perplexity", "mean", "mode", "variance", "stddev", "logits", "probs")


def _get(f: Any, *args: Any) -> Any:
    try:
        return f(*args)
    except Exception as error:
        return type(error).__name__


def facts(t: Any, name: str, parameters: dict[str, Any], checked: bool) -> dict[str, Any]:
    d = getattr(t.distributions, name)(**parameters, validate_args=checked)
    found: dict[str, Any] = {}
    for method in ("log_prob", "cdf"):
        if checked:
            for value in (-1.0, -0.0, 0.5, 1.5, math.inf):
                found[f"{method}({value})"] = _get(getattr(d, method), t.tensor(value))
        else:
            found[method] = _get(getattr(d, method), t.tensor(VALUES))
    found["icdf"] = _get(d.icdf, t.tensor([-0.1, 0.0, 0.3, 1.0, 1.1]))
    for name in MOMENTS:
        value = _get(getattr, d, name)
        found[name] = _get(value) if callable(value) else value
    return found


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    ("name", "parameters"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.values()))
)
def test_edges(name: str, parameters: dict[str, Any], checked: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, mine = (facts(t, name, parameters, checked) for t in (torch, rushlight))
    for what, expected in theirs.items():
        if (name, what) == ("Kumaraswamy", "mode"):  # PyTorch's is always NaN
            continue
        found = mine[what]
        if isinstance(expected, str) or isinstance(found, str):
            assert expected == found, what
        else:
            expected, found = expected.numpy(), found.numpy()
            assert expected.dtype == found.dtype and expected.shape == found.shape, what
            np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-6, err_msg=what)
