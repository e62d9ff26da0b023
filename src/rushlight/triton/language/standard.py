"""`triton.language.standard`: functions that the language could write itself."""

from __future__ import annotations

from .._semantics.constants import constexpr_function
from .._semantics.mathematics import cdiv, sigmoid
from .._semantics.reductions import (
    argmax,
    argmin,
    bitonic_merge,
    cumprod,
    cumsum,
    max,
    min,
    reduce_or,
    softmax,
    sort,
    sum,
    topk,
    xor_sum,
)
from .._semantics.shapes import flip, interleave, ravel, squeeze, swizzle2d, unsqueeze, zeros, zeros_like


@constexpr_function
def _log2(i: int) -> int:
    """The logarithm of a power of 2 to base 2."""
    return i.bit_length() - 1


@constexpr_function
def _is_power_of_two(i: int) -> bool:
    return i > 0 and i & (i - 1) == 0


__all__ = [
    "argmax",
    "argmin",
    "bitonic_merge",
    "cdiv",
    "cumprod",
    "cumsum",
    "flip",
    "interleave",
    "max",
    "min",
    "ravel",
    "reduce_or",
    "sigmoid",
    "softmax",
    "sort",
    "squeeze",
    "sum",
    "swizzle2d",
    "topk",
    "unsqueeze",
    "xor_sum",
    "zeros",
    "zeros_like",
]
