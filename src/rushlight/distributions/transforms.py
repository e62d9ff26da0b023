"""Invertible maps of tensors with the logarithm of their Jacobian's determinant, from which new distributions are made.

>>> import rushlight as torch
>>> from rushlight.distributions.transforms import ExpTransform
>>> t, x = ExpTransform(), torch.tensor([0.0, 1.0])
>>> y = t(x)
>>> t.log_abs_det_jacobian(x, y), t.inv(y)
(tensor([0., 1.]), tensor([0., 1.]))
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributions import constraints
from rushlight.distributions.utils import broadcast_all, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from rushlight.nn.functional import logsigmoid, pad, softplus

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftplusTransform", "TanhTransform", "SoftmaxTransform", "StackTransform", "StickBreakingTransform",
    "Transform", "identity_transform",
]  # fmt: skip


class Transform:
    """A map from `domain` to `codomain` (constraints), written by a subclass as `_call`, `_inverse` and
    `log_abs_det_jacobian`.

    With `cache_size=1` the latest pair (x, y) is kept, so that `t.inv(t(x))` is x itself, without rounding.
    `bijective` says whether `t.inv(t(x)) == x` for all x; without it the inverse is only one of the preimages.  `sign`
    is that of the derivative of a monotone map of numbers.
    """

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None
        if cache_size:
            self._cached_x_y: Any = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inv": None}  # a weak reference cannot be stored

    @property
    def event_dim(self) -> Any:
        """How many rightmost dims make one element, where this is the same on both sides."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse; `t.inv.inv is t`."""
        inverse = self._inv and self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """1 or -1 for increasing and decreasing maps of numbers."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same map with another cache."""
        if self._cache_size == cache_size:
            return self
        arguments = self._arguments()
        if arguments is None:
            raise NotImplementedError(f"{type(self)}.with_cache is not implemented")
        make: Any = type(self)
        return make(*arguments, cache_size=cache_size)

    def _arguments(self) -> tuple[Any, ...] | None:
        """Arguments of `__init__` before the cache's size; None for a subclass that does not declare them."""
        return () if type(self).__init__ is Transform.__init__ else None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        """y of x."""
        if not self._cache_size:
            return self._call(x)
        known, y = self._cached_x_y
        if x is known:
            return y
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        """x of y."""
        if not self._cache_size:
            return self._inverse(y)
        x, known = self._cached_x_y
        if y is known:
            return x
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |det dy/dx|, one for each element."""
        raise NotImplementedError

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for the shape of x."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for the shape of y."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """The inverse of `transform`, which keeps the common cache."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv: Any = transform

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    @property
    def domain(self) -> Any:
        return self._inv.codomain

    @property
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> Any:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Any:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and bool(self._inv == other._inv)

    __hash__ = None

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"


def _product(signs: Any) -> Any:
    total: Any = 1
    for sign in signs:
        total = total * sign
    return total


class ComposeTransform(Transform):
    """The maps `parts` one after another, the first one first.

    >>> ComposeTransform([ExpTransform(), AffineTransform(1.0, 2.0)])(rushlight.tensor(0.0))
    tensor(3.)
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)
        super().__init__(cache_size=cache_size)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.parts,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = None

    @staticmethod
    def _region(ends: list[Any]) -> Any:
        """The first constraint of `ends` (pairs of in and out), with the dims that the later parts need in addition."""
        region = ends[0][0]
        needed = ends[-1][1].event_dim
        for near, far in reversed(ends):
            needed = max(near.event_dim, needed + near.event_dim - far.event_dim)
        return constraints.independent(region, needed - region.event_dim) if needed > region.event_dim else region

    @property
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        return self._region([(part.domain, part.codomain) for part in self.parts])

    @property
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        return self._region([(part.codomain, part.domain) for part in reversed(self.parts)])

    @property
    def bijective(self) -> Any:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        return _product(part.sign for part in self.parts)

    @property
    def inv(self) -> Any:
        inverse = self._inv and self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return rushlight.zeros_like(x)
        total: Any = 0
        event_dim = self.domain.event_dim
        for number, part in enumerate(self.parts):
            result = y if number == len(self.parts) - 1 else part(x)
            own = part.log_abs_det_jacobian(x, result)
            total = total + sum_rightmost(own, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
            x = result
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {parts}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """`base_transform` whose Jacobian is taken over `reinterpreted_batch_ndims` further dims."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def _arguments(self) -> tuple[Any, ...]:
        return self.base_transform, self.reinterpreted_batch_ndims

    @property
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    @staticmethod
    def _require_dims(value: Any, region: Any) -> None:
        if value.dim() < region.event_dim:
            raise ValueError("Too few dimensions on input")

    def _call(self, x: Any) -> Any:
        self._require_dims(x, self.domain)
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        self._require_dims(y, self.codomain)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The rightmost dims, of shape `in_shape`, given the shape `out_shape`."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    def _arguments(self) -> tuple[Any, ...]:
        return self.in_shape, self.out_shape

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    @staticmethod
    def _replaced(shape: Any, old: Any, new: Any) -> Any:
        if len(shape) < len(old):
            raise ValueError("Too few dimensions on input")
        cut = len(shape) - len(old)
        if shape[cut:] != old:
            raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
        return shape[:cut] + new

    def forward_shape(self, shape: Any) -> Any:
        return self._replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._replaced(shape, self.out_shape, self.in_shape)


# ***** maps of numbers *****


class _Plain(Transform):
    """A map without parameters: all of one class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = None


class _Increasing(_Plain):
    """A bijection of numbers that grows."""

    domain = constraints.real
    bijective = True
    sign: Any = +1


class ExpTransform(_Increasing):
    """y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """y = x ** exponent, for positive x."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.exponent,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all().item())

    __hash__ = None

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return rushlight.broadcast_shapes(shape, self.exponent.shape)

    def inverse_shape(self, shape: Any) -> Any:
        return rushlight.broadcast_shapes(shape, self.exponent.shape)


def _clipped_sigmoid(x: Any) -> Any:
    finfo = rushlight.finfo(x.dtype)
    return rushlight.sigmoid(x).clamp(min=finfo.tiny, max=1.0 - finfo.eps)


class SigmoidTransform(_Increasing):
    """y = 1 / (1 + exp(-x)), kept away from 0 and 1."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        finfo = rushlight.finfo(y.dtype)
        y = y.clamp(min=finfo.tiny, max=1.0 - finfo.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Increasing):
    """y = log(1 + exp(x)); as `softplus` does, the identity from 20 on."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x)


class TanhTransform(_Increasing):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return rushlight.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # log(1 - tanh(x)^2), in a form that keeps its digits for large x
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(_Plain):
    """y = |x|; of the two preimages the inverse takes the positive one."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


def _same(a: Any, b: Any) -> bool:
    """Whether two parameters, numbers or tensors, are equal."""
    equal = a == b
    return bool(equal.all().item()) if isinstance(equal, rushlight.Tensor) else bool(equal)


class AffineTransform(Transform):
    """y = loc + scale * x; with `event_dim` the last dims make one element."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    def _arguments(self) -> tuple[Any, ...]:
        return self.loc, self.scale, self._event_dim

    @property
    def event_dim(self) -> Any:
        return self._event_dim

    def _region(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._region()

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._region()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = None

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, (int, float)):
            each = rushlight.full_like(x, math.log(abs(self.scale)))
        else:
            each = self.scale.abs().log().expand(x.shape)
        return sum_rightmost(each, self._event_dim)

    def _broadcast_shape(self, shape: Any) -> Any:
        return rushlight.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    forward_shape = inverse_shape = _broadcast_shape


# ***** maps of vectors and matrices *****


def _shifted(x: Any, first: float) -> Any:
    """x moved by one along the last dim, with `first` in front and the last element dropped."""
    return pad(x[..., :-1], [1, 0], value=first)


class CorrCholeskyTransform(Transform):
    """A vector of D (D - 1) / 2 numbers to the Cholesky factor (D x D) of a correlation matrix.

    tanh makes partial correlations of the numbers; in each row stick breaking distributes the length 1 by them
    (Lewandowski, Kurowicka and Joe, 2009).
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = rushlight.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial**2).sqrt().cumprod(-1)
        diagonal = rushlight.eye(partial.shape[-1], dtype=partial.dtype, device=partial.device)
        return (partial + diagonal) * _shifted(left, 1.0)

    def _inverse(self, y: Any) -> Any:
        left = _shifted(1 - (y * y).cumsum(-1), 1.0)
        return rushlight.atanh(tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt())

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        # each partial correlation is scaled by the root of what the ones before it have left of the row ...
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        # ... and is tanh(x), whose derivative is 1 / cosh(x)^2
        return 0.5 * left.log().sum(-1) - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        length = shape[-1]
        side = round((0.25 + 2 * length) ** 0.5 + 0.5)
        if side * (side - 1) // 2 != length:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (side, side)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


class _OfVectors(_Plain):
    """A map of the last dim, by `grows` longer on the other side."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    _grows = 0

    def _reshaped(self, shape: Any, change: int) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return shape[:-1] + (shape[-1] + change,) if change else shape

    def forward_shape(self, shape: Any) -> Any:
        return self._reshaped(shape, self._grows)

    def inverse_shape(self, shape: Any) -> Any:
        return self._reshaped(shape, -self._grows)


class SoftmaxTransform(_OfVectors):
    """y = exp(x) normalised to the sum 1; no bijection, and meant for coordinate-wise optimisation rather than for
    densities.
    """

    def _call(self, x: Any) -> Any:
        weights = (x - x.max(-1, True)[0]).exp()
        return weights / weights.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(_OfVectors):
    """n numbers to n + 1 positive ones with the sum 1: each takes its share (a sigmoid) of what the ones before have
    left.

    The numbers are shifted so that zeros become equal parts (Stan Reference Manual, "Unit simplex").
    """

    bijective = True
    _grows = 1

    @staticmethod
    def _log_remaining(x: Any) -> Any:
        """log of n, n - 1, ..., 1: how many parts follow each."""
        return rushlight.arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Any) -> Any:
        share = _clipped_sigmoid(x - self._log_remaining(x))
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=rushlight.finfo(y.dtype).tiny)
        return parts.log() - left.log() + self._log_remaining(parts)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._log_remaining(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)


class LowerCholeskyTransform(_Plain):
    """A square matrix to a lower triangular one with a positive diagonal: what is above is dropped, the diagonal
    exponentiated.
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """A square matrix to the positive definite one whose Cholesky factor `LowerCholeskyTransform` makes."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(rushlight.linalg.cholesky(y))


# ***** several maps side by side *****


class _Joined(Transform):
    """Maps `transforms`, each of a piece of the dim `dim`."""

    transforms: list[Any]
    dim: int

    def _take(self, tseq: Sequence[Transform], cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        Transform.__init__(self, cache_size=cache_size)

    def _pieces(self, value: Any, name: str) -> list[Any]:
        """The pieces of a value, as many as there are maps; AssertionError if it does not fit."""
        raise NotImplementedError

    def _join(self, pieces: list[Any]) -> Any:
        raise NotImplementedError

    def _in_range(self, value: Any) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for tensor with {value.dim()} dims")

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    def _call(self, x: Any) -> Any:
        return self._join([t(piece) for t, piece in zip(self.transforms, self._pieces(x, "x"), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._join([t.inv(piece) for t, piece in zip(self.transforms, self._pieces(y, "y"), strict=True)])


class CatTransform(_Joined):
    """The maps `tseq` of pieces of the given `lengths` along `dim`."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        self._take(tseq, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"{len(self.lengths)} lengths for {len(self.transforms)} transforms")
        self.dim = dim

    def _arguments(self) -> tuple[Any, ...]:
        return self.transforms, self.dim, self.lengths

    @property
    def event_dim(self) -> Any:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of `dim`."""
        return sum(self.lengths)

    def _pieces(self, value: Any, name: str) -> list[Any]:
        self._in_range(value)
        size = value.size(self.dim)
        if size != self.length:
            raise AssertionError(f"{name}.size({self.dim}) = {size} must equal length {self.length}")
        return list(value.split(self.lengths, self.dim))

    def _join(self, pieces: list[Any]) -> Any:
        return rushlight.cat(pieces, dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        each = []
        for t, a, b in zip(self.transforms, self._pieces(x, "x"), self._pieces(y, "y"), strict=True):
            own = t.log_abs_det_jacobian(a, b)
            each.append(sum_rightmost(own, self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        # along a dim of the event the pieces' determinants multiply
        return rushlight.cat(each, dim=dim) if dim < 0 else sum(each)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Joined):
    """The maps `tseq`, one for each index of `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        self._take(tseq, cache_size)
        self.dim = dim

    def _arguments(self) -> tuple[Any, ...]:
        return self.transforms, self.dim

    def _pieces(self, value: Any, name: str) -> list[Any]:
        self._in_range(value)
        size = value.size(self.dim)
        if size != len(self.transforms):
            raise AssertionError(f"{name}.size({self.dim}) = {size} must equal len(transforms) {len(self.transforms)}")
        return list(value.unbind(self.dim))

    def _join(self, pieces: list[Any]) -> Any:
        return rushlight.stack(pieces, dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        pieces = zip(self.transforms, self._pieces(x, "x"), self._pieces(y, "y"), strict=True)
        return rushlight.stack([t.log_abs_det_jacobian(a, b) for t, a, b in pieces], dim=self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)


class CumulativeDistributionTransform(Transform):
    """y = the cumulative distribution function of `distribution`: its draws become uniform numbers.

    >>> from rushlight.distributions import Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(rushlight.tensor(0.0))
    tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign: Any = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    def _arguments(self) -> tuple[Any, ...]:
        return (self.distribution,)

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)
