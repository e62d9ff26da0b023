"""The softmax family with PyTorch's Python signature, where the dimension may be left out, and as its native library
has it, where it may not.
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.base import warn_user
from rushlight._interface.operators import not_cacheable, only_tensors

__all__ = [
    "_log_softmax",
    "_log_softmax_backward_data",
    "_softmax",
    "_softmax_backward_data",
    "log_softmax",
    "softmax",
    "softmin",
]


def _dim(name: str, input: Any) -> int:
    """The dim where none is given."""
    not_cacheable()  # the warning belongs to every call
    warn_user(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument."
    )
    return 0 if input.dim() in (0, 1, 3) else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: rushlight.dtype | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; with `dtype` the input is converted first.

    Example: `F.softmax(torch.randn(2, 3), dim=-1)`
    """
    try:
        return rushlight.softmax(input, dim if dim is not None else _dim("softmax", input), dtype=dtype)
    except TypeError:
        only_tensors("nn.functional.softmax", input=input)
        raise


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: rushlight.dtype | None = None
) -> Tensor:
    """log(softmax(x)) along `dim`, without overflow."""
    try:
        return rushlight.log_softmax(input, dim if dim is not None else _dim("log_softmax", input), dtype=dtype)
    except TypeError:
        only_tensors("nn.functional.log_softmax", input=input)
        raise


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: rushlight.dtype | None = None
) -> Tensor:
    """softmax(-x) along `dim`."""
    return softmax(-input, dim if dim is not None else _dim("softmin", input), dtype=dtype)


# ***** the native forms, which packages call *****


def _refuse_half_to_float(name: str, half_to_float: bool) -> None:
    if half_to_float:
        raise RuntimeError(f"{name} with half to float conversion is not supported on CPU")


def _softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`torch.softmax(input, dim)`; RuntimeError for `half_to_float`, which is a form of other devices."""
    _refuse_half_to_float("softmax", half_to_float)
    return rushlight.softmax(input, dim)


def _log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`torch.log_softmax(input, dim)`; RuntimeError for `half_to_float`, which is a form of other devices."""
    _refuse_half_to_float("log_softmax", half_to_float)
    return rushlight.log_softmax(input, dim)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax from its result: (g - sum(g * y)) * y.

    >>> y = rushlight.tensor([0.25, 0.75])
    >>> rushlight._softmax_backward_data(rushlight.tensor([1.0, 0.0]), y, 0, rushlight.float32)
    tensor([ 0.1875, -0.1875])
    """
    weighted = grad_output * output
    return (weighted - output * weighted.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of log_softmax from its result: g - exp(y) * sum(g)."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)
