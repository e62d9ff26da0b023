"""Biases for attention that are known by their kind and never written out where the kernel can do without.

>>> import rushlight as torch
>>> from rushlight.nn.attention.bias import causal_lower_right
>>> causal_lower_right(2, 3)
tensor([[ True,  True, False],
        [ True,  True,  True]])
"""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._C import DisableTorchFunctionSubclass

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Where the diagonal of a causal mask begins: at the first key, or so that it ends at the last one."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask for `seq_len_q` queries and `seq_len_kv` keys, to be given as `attn_mask`.

    `scaled_dot_product_attention` takes it without writing the mask out where the diagonal starts at the corner.
    AssertionError for a `variant` that is no `CausalVariant`.  With LOWER_RIGHT and more queries than keys, the first
    queries attend to nothing.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        if variant is CausalVariant.LOWER_RIGHT and seq_len_q > seq_len_kv:
            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!",
                UserWarning,
                stacklevel=3,
            )
        # The shape is the one that PyTorch's object has; nobody reads the elements.
        made: Any = rushlight.zeros(int(variant), seq_len_q, seq_len_kv).as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        """Everything is done by `__new__`."""

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask written out: bool (seq_len_q, seq_len_kv)."""
        shift = self.seq_len_kv - self.seq_len_q if self.variant is CausalVariant.LOWER_RIGHT else 0
        ones = rushlight.ones(self.seq_len_q, self.seq_len_kv, device=device, dtype=rushlight.bool)
        return ones.tril(shift)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._materialize())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is rushlight.nn.functional.scaled_dot_product_attention:
            return _attend(*args, **kwargs)
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if is_causal:
        raise ValueError("CausalBias should not be used with causal=True")
    attend = rushlight.nn.functional.scaled_dot_product_attention
    options: dict[str, Any] = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
    if attn_mask.variant is CausalVariant.UPPER_LEFT or attn_mask.seq_len_q == attn_mask.seq_len_kv:
        return attend(query, key, value, None, is_causal=True, **options)
    return attend(query, key, value, attn_mask._materialize(query.device), **options)


def _pair(name: str, size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors")
    return size[0], size[1]


def causal_upper_left(*size: int) -> CausalBias:
    """A causal mask of `size` (queries, keys): query i attends to the keys up to i.

    >>> from rushlight.nn.attention.bias import causal_upper_left
    >>> causal_upper_left(2, 3)
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    return CausalBias(CausalVariant.UPPER_LEFT, *_pair("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """A causal mask of `size` (queries, keys) in which the last query attends to all keys, as in generation with a
    cache.
    """
    return CausalBias(CausalVariant.LOWER_RIGHT, *_pair("causal_lower_right", size))
