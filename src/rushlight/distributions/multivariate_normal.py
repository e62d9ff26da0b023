"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.distribution import Distribution, parametric
from rushlight.distributions.utils import lazy_property, standard_normal

__all__ = ["MultivariateNormal"]


def matrix_times(matrix: Any, vector: Any) -> Any:
    """Products of (batches of) matrices and vectors."""
    return rushlight.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def half_log_det(scale_tril: Any) -> Any:
    """Half the logarithm of the determinant of L L^T."""
    return scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def solved_square(scale_tril: Any, x: Any) -> Any:
    """|L^-1 x|^2 for lower triangular L [..., n, n] and x [..., n].

    Dims that x has in front of L's batch become columns of one right-hand side, so L is not copied for each sample.
    """
    batch = scale_tril.dim() - 2
    if x.dim() - 1 <= batch:
        solved = rushlight.linalg.solve_triangular(scale_tril, x.unsqueeze(-1), upper=False)
        return solved.pow(2).sum((-2, -1))
    front = x.shape[: x.dim() - 1 - batch]
    columns = x.reshape(-1, *x.shape[len(front) :]).movedim(0, -1)
    solved = rushlight.linalg.solve_triangular(scale_tril, columns, upper=False)
    square = solved.pow(2).sum(-2).movedim(-1, 0)
    return square.reshape(*front, *square.shape[1:])


def _precision_to_scale_tril(precision: Any) -> Any:
    """The Cholesky factor of a matrix's inverse.

    With the order of rows and columns reversed, P = U U^T with an upper U becomes an ordinary factorisation; then the
    inverse is U^-T U^-1, and U^-T is lower.
    """
    upper = rushlight.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1))
    identity = rushlight.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return rushlight.linalg.solve_triangular(upper.mT, identity, upper=False)


def one_given(matrices: dict[str, Any], refusal: type[Exception]) -> str:
    """The name of the one matrix that is not None."""
    given = [name for name, matrix in matrices.items() if matrix is not None]
    if len(given) != 1:
        raise refusal("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    return given[0]


class ByMatrix(Distribution):
    """Base of distributions that are given a covariance matrix, its inverse or its Cholesky factor: the others
    follow.
    """

    _unbroadcasted_scale_tril: Any

    def _factorise(self, name: str, matrix: Any) -> None:
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = rushlight.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def _full(self, matrix: Any) -> Any:
        side = self._event_shape[-1]
        return matrix.expand(*self._batch_shape, side, side)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower Cholesky factor of the covariance matrix."""
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance matrix."""
        return self._full(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance matrix."""
        return self._full(rushlight.cholesky_inverse(self._unbroadcasted_scale_tril))


@parametric
class MultivariateNormal(ByMatrix):
    """Normal vectors with the mean `loc` [..., n] and a covariance [..., n, n], given as the matrix, its inverse or its
    Cholesky factor.

    Working with `scale_tril` is the cheapest: from the others it is computed.

        >>> import rushlight as torch
        >>> torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)).variance
        tensor([1., 1.])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _kept = ("_unbroadcasted_scale_tril",)

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        name = one_given(matrices, ValueError)
        matrix = matrices[name]
        if matrix.dim() < 2:
            shown = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{shown} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = rushlight.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand(*batch_shape, -1, -1)
        self.loc = loc.expand(*batch_shape, -1)
        Distribution.__init__(self, batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._factorise(name, matrix)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:
        noise = standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + matrix_times(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        distance = solved_square(self._unbroadcasted_scale_tril, value - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + distance) - half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Any:
        n = self._event_shape[0]
        entropy = 0.5 * n * (1.0 + math.log(2 * math.pi)) + half_log_det(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape) if self._batch_shape else entropy
