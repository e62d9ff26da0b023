"""Distributions to be tested: (class, parameters), from which both libraries build theirs.

Lists become float tensors that want gradients, numbers and tuples stay what they are, and a nested case becomes a distribution.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CASES", "build", "leaves"]

SPD = [[2.0, 0.5], [0.5, 1.0]]
TRIL = [[1.2, 0.0], [-0.3, 0.7]]


class Case:
    def __init__(self, name: str, /, **parameters: Any) -> None:
        self.name, self.parameters = name, parameters

    def __repr__(self) -> str:
        return f"{self.name}-{'-'.join(self.parameters)}"


def case(name: str, /, **parameters: Any) -> Case:
    return Case(name, **parameters)


CASES = [
    case("Bernoulli", probs=[[0.2, 0.5], [0.9, 0.4]]),
    case("Bernoulli", logits=[0.3, -2.0]),
    case("Beta", concentration1=[0.5, 2.0, 3.0], concentration0=[1.5, 1.2, 8.0]),
    case("Beta", concentration1=2.0, concentration0=1.5),
    case("Binomial", total_count=5, probs=[0.2, 0.7]),
    case("Binomial", total_count=30, logits=[0.3, -1.0]),
    case("Categorical", probs=[[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]]),
    case("Categorical", logits=[0.3, -1.0, 2.0, 0.0]),
    case("Cauchy", loc=[0.0, 1.0], scale=[1.0, 0.3]),
    case("Chi2", df=[1.0, 3.0, 7.5]),
    case("ContinuousBernoulli", probs=[0.2, 0.4995, 0.9]),
    case("ContinuousBernoulli", logits=[0.3, -2.0]),
    case("Dirichlet", concentration=[[1.0, 2.0, 3.0], [0.4, 0.6, 0.9]]),
    case("Exponential", rate=[[0.5, 2.0]]),
    case("FisherSnedecor", df1=[1.0, 3.0, 5.0], df2=[3.0, 5.0, 9.0]),
    case("Gamma", concentration=[0.5, 2.0, 9.0], rate=[1.0, 0.3, 2.0]),
    case("GeneralizedPareto", loc=[0.0, 1.0, 0.0, 0.0], scale=[1.0, 1.0, 2.0, 2.0], concentration=[0.0, 0.4, -0.5, 1.5]),
    case("Geometric", probs=[0.2, 0.7]),
    case("Geometric", logits=[0.2, -1.0]),
    case("Gumbel", loc=[0.0, 1.0], scale=[1.0, 0.3]),
    case("HalfCauchy", scale=[1.0, 0.3]),
    case("HalfNormal", scale=[1.0, 0.3]),
    case("Independent", base_distribution=case("Normal", loc=[[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]], scale=1.0), reinterpreted_batch_ndims=1),
    case("Independent", base_distribution=case("Bernoulli", probs=[[0.2, 0.5], [0.9, 0.4]]), reinterpreted_batch_ndims=2),
    case("InverseGamma", concentration=[0.5, 2.5, 9.0], rate=[1.0, 0.3, 2.0]),
    case("Kumaraswamy", concentration1=[0.5, 2.0], concentration0=[0.7, 3.0]),
    case("LKJCholesky", dim=3, concentration=[0.5, 2.0]),
    case("LKJCholesky", dim=2),
    case("Laplace", loc=[0.0, 1.0], scale=[1.0, 0.3]),
    case("LogNormal", loc=[0.0, 1.0], scale=[1.0, 0.3]),
    case("LogisticNormal", loc=[[0.0, 1.0, 0.4]], scale=[1.0, 0.3, 0.5]),
    case("LowRankMultivariateNormal", loc=[0.0, 1.0, 2.0], cov_factor=[[1.0, 0.3], [0.2, -1.0], [0.5, 0.5]], cov_diag=[1.0, 0.5, 2.0]),
    case("LowRankMultivariateNormal", loc=[[0.0, 1.0], [2.0, 1.0]], cov_factor=[[1.0], [0.2]], cov_diag=[[1.0, 0.5], [0.5, 2.0]]),
    case("MixtureSameFamily", mixture_distribution=case("Categorical", probs=[0.3, 0.7]), component_distribution=case("Normal", loc=[-1.0, 2.0], scale=[1.0, 0.5])),
    case(
        "MixtureSameFamily",
        mixture_distribution=case("Categorical", logits=[[0.3, 0.7], [1.0, -1.0]]),
        component_distribution=case("MultivariateNormal", loc=[[[-1.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [3.0, 0.0]]], scale_tril=TRIL),
    ),
    case("Multinomial", total_count=5, probs=[[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]]),
    case("Multinomial", total_count=3, logits=[0.1, 0.6, 0.3]),
    case("MultivariateNormal", loc=[0.0, 1.0], covariance_matrix=SPD),
    case("MultivariateNormal", loc=[[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]], precision_matrix=SPD),
    case("MultivariateNormal", loc=[0.0, 1.0], scale_tril=[TRIL, [[1.0, 0.0], [0.5, 2.0]]]),
    case("NegativeBinomial", total_count=[3.0, 5.5], probs=[0.2, 0.7]),
    case("NegativeBinomial", total_count=4, logits=[0.2, -1.0]),
    case("Normal", loc=[[0.0, 1.0], [2.0, -1.0]], scale=[1.0, 0.3]),
    case("Normal", loc=0.0, scale=2.0),
    case("OneHotCategorical", probs=[[0.1, 0.6, 0.3], [0.4, 0.4, 0.2]]),
    case("OneHotCategoricalStraightThrough", logits=[0.3, -1.0, 2.0, 0.0]),
    case("Pareto", scale=[1.0, 0.5, 2.0], alpha=[0.8, 1.5, 3.0]),
    case("Poisson", rate=[0.5, 3.0, 20.0]),
    case("RelaxedBernoulli", temperature=[0.7], probs=[0.2, 0.8]),
    case("RelaxedOneHotCategorical", temperature=[0.7], logits=[[0.2, 0.8, 1.0], [0.0, 0.0, 1.0]]),
    case("StudentT", df=[0.9, 1.5, 5.0], loc=[0.0, 1.0, 2.0], scale=[1.0, 2.0, 0.5]),
    case("TransformedDistribution", base_distribution=case("Normal", loc=[0.0, 1.0], scale=[1.0, 0.5]), transforms=("SigmoidTransform", "AffineTransform:1:-2")),
    case("Uniform", low=[0.0, -1.0], high=[1.0, 3.0]),
    case("VonMises", loc=[0.0, 1.0, 3.0], concentration=[0.1, 2.0, 50.0]),
    case("Weibull", scale=[1.0, 0.5], concentration=[0.8, 3.0]),
    case("Wishart", df=[3.0, 4.5], covariance_matrix=SPD),
    case("Wishart", df=[3.5], scale_tril=TRIL),
    case("Wishart", df=[3.5], precision_matrix=SPD),
]  # fmt: skip


def _value(t: Any, value: Any, dtype: str, grad: bool) -> Any:
    if isinstance(value, Case):
        return build(t, value, dtype, grad)
    if isinstance(value, list):
        return t.tensor(value, dtype=getattr(t, dtype), requires_grad=grad)
    if isinstance(value, tuple):
        made = []
        for text in value:
            name, *numbers = text.split(":")
            made.append(getattr(t.distributions, name)(*map(float, numbers)))
        return made
    return value


def build(t: Any, of: Case, dtype: str = "float64", grad: bool = False) -> Any:
    """The distribution in the library `t`; its tensors are in the attribute `given`."""
    values = {name: _value(t, value, dtype, grad) for name, value in of.parameters.items()}
    made = getattr(t.distributions, of.name)(**values)
    made.given = values
    return made


def leaves(distribution: Any) -> list[Any]:
    """The tensors that a distribution was built from, those of nested ones included."""
    found = []
    for value in getattr(distribution, "given", {}).values():
        found += [value] if hasattr(value, "requires_grad") else leaves(value)
    return found
