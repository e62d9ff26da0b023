"""Parts of distributions: joint broadcasting, conversions between probabilities and logits, lazy properties."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from numbers import Number
from typing import Any

import rushlight

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """The values as tensors of one shape; numbers take dtype and device of the first tensor, or the default dtype.

    Raises `ValueError` for what is neither a number nor a tensor (nor has `__torch_function__`).

        >>> import rushlight as torch
        >>> torch.distributions.utils.broadcast_all(torch.zeros(2), 1)
        (tensor([0., 0.]), tensor([1., 1.]))
    """
    tensors = [v for v in values if isinstance(v, rushlight.Tensor)]
    if len(tensors) != len(values):
        if not all(isinstance(v, Number) or hasattr(v, "__torch_function__") for v in values):
            raise ValueError(
                "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
            )
        dtype, device = (tensors[0].dtype, tensors[0].device) if tensors else (rushlight.get_default_dtype(), None)
        values = tuple(rushlight.tensor(v, dtype=dtype, device=device) if isinstance(v, Number) else v for v in values)
    return tuple(rushlight.broadcast_tensors(*values))


def standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Standard normal numbers."""
    return rushlight.randn(shape, dtype=dtype, device=device)


_standard_normal = standard_normal  # the name under which programs import it from PyTorch


def sum_rightmost(value: Any, dims: int) -> Any:
    """The sum over the last `dims` dims."""
    return value.reshape(*value.shape[: value.dim() - dims], -1).sum(-1) if dims else value


_sum_rightmost = sum_rightmost


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities: the sigmoid of each logit if `is_binary`, else the softmax over the last dim."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Any) -> Any:
    """The probabilities kept away from 0 and 1 by the dtype's epsilon."""
    eps = rushlight.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Logits: log(p / (1 - p)) of each if `is_binary`, else log p; finite also for 0 and 1."""
    inside = clamp_probs(probs)
    return inside.log() - (-inside).log1p() if is_binary else inside.log()


class lazy_property:
    """A property that is computed at the first access, with gradients recorded, and kept in the object's `__dict__`."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _lazy_property_of_class(self.wrapped)
        with rushlight.enable_grad():
            value = instance.__dict__[self.wrapped.__name__] = self.wrapped(instance)
        return value


class _lazy_property_of_class(lazy_property, property):
    """Value of the attribute on the class itself: a property to documentation tools, lazy to those who ask."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)
        self.wrapped = wrapped


def _places(n: int, diag: int) -> int:
    """How many places of an n x n matrix are on or below the diagonal `diag`."""
    return sum(min(max(row + 1 + diag, 0), n) for row in range(n))


def _lower(n: int, diag: int, device: Any) -> Any:
    return rushlight.ones(n, n, dtype=rushlight.bool, device=device).tril(diag)


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """[..., D] -> [..., n, n]: the elements, row by row, on and below the diagonal `diag`; zeros elsewhere.

    Raises `ValueError` if no n has so many places.
    """
    length = vec.shape[-1]
    n = max(1, -diag)
    while _places(n, diag) < length:
        n += 1
    if _places(n, diag) != length:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as the lower triangular part of a square D x D matrix."
        )
    made = vec.new_zeros((*vec.shape[:-1], n, n))
    made[..., _lower(n, diag, vec.device)] = vec
    return made


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """[..., n, n] -> [..., D]: the elements on and below the diagonal `diag`, row by row.  `ValueError` if `diag` is
    outside.
    """
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower(n, diag, mat.device)]
