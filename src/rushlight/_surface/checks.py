"""Conditions that programs state about their arguments: `torch._check` and its kin raise the error of one's choice."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from rushlight._engine.core.convert import deferred
from rushlight._engine.core.creation import tensor
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import as_device
from rushlight._types.dtype import BOOL, DType
from rushlight._types.shape_env import Undecided, require_between

__all__ = [
    "_assert", "_assert_async", "_assert_tensor_metadata", "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_tensor_all_with", "_check_type",
    "_check_value", "_check_with", "_reshape_from_tensor", "_shape_as_tensor",
]  # fmt: skip

_Message = Callable[[], Any] | None


def _text(message: _Message) -> str:
    if message is None:
        return "Expected cond to be True, but got False. (The caller gave no message of its own.)"
    if not callable(message):
        raise TypeError("message must be a callable")
    return str(message())


def _check_with(error_type: type[Exception], cond: Any, message: _Message) -> None:
    """Raise `error_type` with the text that `message()` gives, unless `cond` is True.  TypeError if `cond` is no bool."""
    if isinstance(cond, Undecided):
        cond.require()
        return
    if not isinstance(cond, bool):
        if isinstance(cond, Tensor):
            raise TypeError(
                "cond must be a bool, but got a Tensor. For all elements of a tensor there is torch._check_tensor_all()."
            )
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if not cond:
        raise error_type(_text(message))


def _assert_tensor_metadata(
    a: Tensor,
    size: Any = None,
    stride: Any = None,
    dtype: DType | None = None,
    *,
    device: Any = None,
    layout: Any = None,
) -> None:
    """RuntimeError unless sizes, strides, dtype, device and layout of a tensor are those given.

    >>> torch._assert_tensor_metadata(torch.ones(2), [2], dtype=torch.float32)
    """
    facts: tuple[tuple[str, Any, Callable[[Any], Any], Any], ...] = (
        ("sizes", size, list, a.shape),
        ("strides", stride, list, a.stride if stride is None else a.stride()),
        ("dtype", dtype, lambda v: v, a.dtype),
        ("device", device, as_device, a.device),
        ("layout", layout, lambda v: v, a.layout),
    )
    for name, wanted, shown, got in facts:
        if wanted is not None and shown(wanted) != shown(got):
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {shown(wanted)}, Got: {shown(got)}")


def _check(cond: Any, message: _Message = None) -> None:
    """RuntimeError unless `cond` is True.

    >>> torch._check(True, lambda: "sizes must agree")
    """
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: _Message = None) -> None:
    """IndexError unless `cond` is True."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: _Message = None) -> None:
    """ValueError unless `cond` is True."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: _Message = None) -> None:
    """TypeError unless `cond` is True."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: _Message = None) -> None:
    """NotImplementedError unless `cond` is True."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: _Message = None, *, max: Any = None) -> None:
    """RuntimeError unless `i` can be a size: not negative, and not above `max`."""
    warnings.warn(
        "_check_is_size will go in a future version of PyTorch; use _check(i >= 0)", FutureWarning, stacklevel=2
    )
    if require_between(i, 0, math.inf if max is None else max):
        return
    _check(bool(i >= 0), message)
    _check(max is None or bool(i <= max), message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: _Message = None) -> None:
    """Raise `error_type` unless all elements of a tensor of bools are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not BOOL:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    if not deferred(cond, lambda held: held.logical_not()):
        _check_with(error_type, bool(cond.all().item()), message)


_check_tensor_all = partial(_check_tensor_all_with, RuntimeError)


def _assert(condition: Any, message: str) -> None:
    """AssertionError with this text unless a condition holds; a tensor's truth counts.  Classes with
    `__torch_function__` may override it.
    """
    if type(condition) is not bool and hasattr(type(condition), "__torch_function__"):
        handled, made = HOOKS.override(_assert, (condition, message), {})
        if handled:
            return made
    if (
        isinstance(condition, Tensor)
        and condition._spec.numel == 1
        and deferred(condition, lambda held: held.logical_not())
    ):
        return None
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """RuntimeError unless a tensor of one element is not zero; on the CPU at once."""
    if input._spec.numel == 1 and deferred(input, lambda held: held.logical_not()):
        return
    if not bool(input):
        raise RuntimeError(assert_msg)


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes as a tensor of int64."""
    return tensor(list(input.shape))


def _reshape_from_tensor(input: Tensor, shape: Tensor) -> Tensor:
    """The tensor with the sizes that a tensor of integers [n] holds."""
    if shape.ndim != 1:
        raise RuntimeError(f"_reshape_from_tensor: expected a shape of one dimension, got {shape.ndim}")
    return input.reshape(shape.tolist())
