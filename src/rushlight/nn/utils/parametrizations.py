"""Ready-made parametrizations: weight normalisation, spectral normalisation, orthogonal matrices."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.nn.modules.module import Module
from rushlight.nn.utils.parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor_of(module: Module, name: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return found


# ***** orthogonal matrices *****


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _diagonal(matrix: Any) -> Any:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _is_orthogonal(Q: Any, eps: float | None = None) -> bool:
    n, k = Q.size(-2), Q.size(-1)
    eye = rushlight.eye(k, dtype=Q.dtype, device=Q.device)
    eps = 10.0 * n * rushlight.finfo(Q.dtype).eps if eps is None else eps
    return bool(rushlight.allclose(Q.mH @ Q, eye, atol=eps))


def _make_orthogonal(A: Any) -> Any:
    """The orthogonal factor of A = QR whose R has a positive diagonal."""
    X, tau = rushlight.geqrf(A)
    Q = rushlight.linalg.householder_product(X, tau)
    Q *= _diagonal(X).sgn().unsqueeze(-2)
    return Q


class _Orthogonal(Module):
    """Matrices with orthonormal columns (or rows, if there are fewer) from matrices without constraints.

    With `use_trivialization` the result is `base` times the map of the parameter (Lezcano-Casado, "Trivializations for
    gradient-based optimization on manifolds", 2019), so any orthogonal matrix can be assigned: it becomes the base, and
    the parameter starts anew.
    """

    base: Any

    def __init__(self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        """The orthogonal matrix for X (*, n, k)."""
        wide = X.size(-2) < X.size(-1)
        tall: Any = X.mT if wide else X
        Q = self._reflections(tall) if self.orthogonal_map == _OrthMaps.householder else self._rotation(tall)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _rotation(self, X: Any) -> Any:
        """The exponential, or the Cayley transform, of the skew-Hermitian matrix whose lower triangle is X's."""
        n, k = X.size(-2), X.size(-1)
        lower = X.tril()
        if n != k:
            lower = rushlight.cat([lower, lower.new_zeros(n, n - k).expand(*lower.shape[:-2], -1, -1)], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map == _OrthMaps.matrix_exp:
            Q = rushlight.matrix_exp(skew)
        else:
            eye = rushlight.eye(n, dtype=skew.dtype, device=skew.device)
            Q = rushlight.linalg.solve(rushlight.add(eye, skew, alpha=-0.5), rushlight.add(eye, skew, alpha=0.5))
        return Q if n == k else Q[..., :k]

    @staticmethod
    def _reflections(X: Any) -> Any:
        """The product of the Householder reflections whose vectors stand below the diagonal of X; the diagonal gives
        the signs.
        """
        lower = X.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (lower * lower).sum(dim=-2))
        return rushlight.linalg.householder_product(lower, tau) * _diagonal(X).int().unsqueeze(-2)

    def right_inverse(self, Q: Tensor) -> Tensor:
        """The parameter for Q; a matrix that is not orthogonal is replaced by the Q of its QR decomposition."""
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        wide = Q.size(-2) < Q.size(-1)
        tall: Any = Q.mT if wide else Q
        if hasattr(self, "base"):
            self.base = self._completed(tall)
            # Of this every map makes the identity: Householder's reflections along the axes need minus ones for it.
            start = rushlight.zeros_like(Q)
            _diagonal(start).fill_(-1.0)
            return start
        if self.orthogonal_map != _OrthMaps.householder:
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."
            )
        A, tau = rushlight.geqrf(tall)
        signs = _diagonal(A)
        signs.sign_()
        # LAPACK's tau is exactly zero where it has no need of a reflection.
        signs[tau == 0.0] *= -1
        return A.mT if wide else A

    @staticmethod
    def _completed(Q: Any) -> Any:
        """A square orthogonal matrix whose first columns are those of Q."""
        n, k = Q.size(-2), Q.size(-1)
        if n == k:
            return Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        more = rushlight.randn(*Q.size()[:-2], n, n - k, dtype=Q.dtype, device=Q.device)
        return _make_orthogonal(rushlight.cat([Q, more], dim=-1))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Make the matrix (or batch of matrices) `module.<name>` orthogonal: Q^H Q = I, or Q Q^H = I if it is wide.

    - `orthogonal_map`: "matrix_exp" (default for square and complex matrices), "cayley" or "householder" (default
      otherwise).
    - `use_trivialization`: any orthogonal matrix may be assigned, at the price of one more matrix and one more product.

    A weight that is not orthogonal is replaced by one that is. Returns the module. ValueError for other maps and
    shapes.

        >>> import rushlight as torch
        >>> layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 3))
        >>> bool(torch.allclose(layer.weight @ layer.weight.T, torch.eye(3), atol=1e-5))
        True
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


# ***** weight normalisation *****


class _WeightNorm(Module):
    """Length and direction apart: g * v / |v|."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """`weight_v` with the norms `weight_g`."""
        return rushlight._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        """The norms of `weight`, and itself."""
        return rushlight.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train the norms and the direction of `module.<name>` apart (Salimans and Kingma, "Weight normalization", 2016).

    There is a norm for each index of `dim`; for `dim=None` one for the whole tensor. The two are
    `module.parametrizations.<name>.original0` (norms) and `original1`. Returns the module.

        >>> import rushlight as torch
        >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(20, 40))
        >>> layer.parametrizations.weight.original0.shape
        torch.Size([40, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *_: Any) -> None:
        # State dicts of the older `nn.utils.weight_norm`.
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


# ***** spectral normalisation *****


class _SpectralNorm(Module):
    """A matrix divided by its largest singular value, which a few steps of power iteration follow while training."""

    _u: Any
    _v: Any

    def __init__(self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            for name, size in zip(("_u", "_v"), matrix.size(), strict=True):
                start = matrix.new_empty(size).normal_(0, 1)
                self.register_buffer(name, F.normalize(start, dim=0, eps=self.eps))
            # Close to the singular vectors from the start.
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Any) -> Any:
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    def _power_method(self, weight_mat: Any, n_power_iterations: int) -> None:
        with rushlight.no_grad():
            for _ in range(n_power_iterations):
                # In place: the buffers are those that other processes and devices know.
                self._u = F.normalize(rushlight.mv(weight_mat, self._v), dim=0, eps=self.eps, out=self._u)
                self._v = F.normalize(rushlight.mv(weight_mat.H, self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight: Tensor) -> Tensor:
        """`weight` over its largest singular value; a vector over its length."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Copies: backward needs these values, and the next call changes the buffers.
        u, v = (x.clone(memory_format=rushlight.contiguous_format) for x in (self._u, self._v))
        return weight / rushlight.vdot(u, rushlight.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself: what was normalised once stays so."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide `module.<name>` by its largest singular value (Miyato et al., "Spectral normalization for GANs", 2018).

    More than two dimensions count as a matrix whose rows are the indices of `dim` (default 1 for transposed
    convolutions, else 0).  In training each use makes `n_power_iterations` steps of power iteration. Returns the
    module.

        >>> import rushlight as torch
        >>> layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(20, 40))
        >>> sorted(name for name, _ in layer.named_buffers())
        ['parametrizations.weight.0._u', 'parametrizations.weight.0._v']
    """
    weight = _tensor_of(module, name)
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module
