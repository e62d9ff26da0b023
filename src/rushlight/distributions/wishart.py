"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from numbers import Number
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.chi2 import Chi2
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.exp_family import ExponentialFamily
from rushlight.distributions.multivariate_normal import ByMatrix, half_log_det, one_given
from rushlight.distributions.utils import lazy_property

__all__ = ["Wishart"]

ATTEMPTS = 10  # how often singular draws are drawn again


def _multivariate_digamma(x: Any, p: int) -> Any:
    """The derivative of the multivariate log gamma function."""
    steps = rushlight.arange(p, dtype=x.dtype, device=x.device)
    return (x.unsqueeze(-1) - 0.5 * steps).digamma().sum(-1)


@parametric
class Wishart(ByMatrix, ExponentialFamily):
    """Sums of `df` outer products of normal vectors with the given covariance: random positive definite matrices [...,
    p, p].

    `df` may be any number above p - 1; the covariance is given as the matrix, its inverse or its Cholesky factor.
    Draws are made by Bartlett's decomposition and are differentiable.

        >>> import rushlight as torch
        >>> torch.distributions.Wishart(torch.tensor(3.0), torch.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure: Any = 0
    _kept = ("_unbroadcasted_scale_tril",)

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        name = one_given(matrices, AssertionError)
        matrix = matrices[name]
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        event_shape = matrix.shape[-2:]
        if isinstance(df, Number):
            batch_shape = Size(matrix.shape[:-2])
            self.df = rushlight.tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch_shape = rushlight.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
        if self.df.le(event_shape[-1] - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}.")
        self.__dict__[name] = matrix.expand(*batch_shape, -1, -1)
        if self.df.lt(event_shape[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        Distribution.__init__(self, batch_shape, event_shape, validate_args=validate_args)
        self._factorise(name, matrix)

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    @lazy_property
    def _dist_chi2(self) -> Any:
        """The squares of the diagonal in Bartlett's decomposition."""
        less = rushlight.arange(self._event_shape[-1], dtype=self.df.dtype, device=self.df.device)
        return Chi2(self.df.unsqueeze(-1) - less, validate_args=False)

    @property
    def _df_of_matrix(self) -> Any:
        return self.df[..., None, None]

    @property
    def mean(self) -> Any:
        return self._df_of_matrix * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self._df_of_matrix - self.covariance_matrix.shape[-1] - 1
        return factor.masked_fill(factor <= 0, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        return self._df_of_matrix * (covariance.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = Size()) -> Any:
        p = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        row, column = rushlight.tril_indices(p, p, offset=-1)
        shape = Size((*sample_shape, *self._batch_shape, p * (p - 1) // 2))
        noise[..., row, column] = rushlight.randn(shape, dtype=noise.dtype, device=noise.device)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def _is_singular(self, sample: Any) -> Any:
        """Which draws are not positive definite, for any member of the batch."""
        singular = ~self.support.check(sample)
        return singular.flatten(-len(self._batch_shape)).any(-1) if self._batch_shape else singular

    def rsample(self, sample_shape: Any = Size(), max_try_correction: int | None = None) -> Any:
        """Draws; singular ones (roundings, for low `df`) are drawn again up to `max_try_correction` times, and a
        warning is given.
        """
        sample_shape = Size(sample_shape)
        # PyTorch draws once more than it uses: the second draws are the ones that it returns for a seed.
        self._bartlett_sampling(sample_shape)
        sample = self._bartlett_sampling(sample_shape)
        singular = self._is_singular(sample)
        if not singular.any():
            return sample
        warnings.warn("Singular sample detected.", stacklevel=2)
        for _ in range(ATTEMPTS if max_try_correction is None else max_try_correction):
            again = self._bartlett_sampling(singular[singular].shape)
            sample[singular] = again
            singular[singular.clone()] = self._is_singular(again)
            if not singular.any():
                break
        return sample

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        nu, p, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = rushlight.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (p * math.log(2.0) / 2 + half_log_det(factor))
            - rushlight.mvlgamma(nu / 2, p=p)
            + (nu - p - 1) / 2 * rushlight.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self) -> Any:
        nu, p, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        return (
            (p + 1) * (p * math.log(2.0) / 2 + half_log_det(factor))
            + rushlight.mvlgamma(nu / 2, p=p)
            - (nu - p - 1) / 2 * _multivariate_digamma(nu / 2, p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        p = self._event_shape[-1]
        half_df = y + (p + 1) / 2
        log_det = rushlight.linalg.slogdet(-2 * x).logabsdet
        return half_df * (-log_det + math.log(2.0) * p) + rushlight.mvlgamma(half_df, p=p)
