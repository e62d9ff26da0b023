"""How float32 products are rounded: PyTorch's switches for TF32.

`ieee` multiplies float32 as it is; `tf32` rounds operands to 10 bits of mantissa, on tensor cores; `tf32x3` sums three
such products and is nearly as exact as float32.
"""

from __future__ import annotations

__all__ = ["float32_precision", "set_float32_precision"]

_CHOICES = ("ieee", "tf32", "tf32x3")
_chosen = ["ieee"]


def float32_precision() -> str:
    """What products and convolutions of float32 use now."""
    return _chosen[0]


def set_float32_precision(choice: str) -> None:
    """Programs compiled from now on use it; ValueError for an unknown choice."""
    if choice not in _CHOICES:
        raise ValueError(f"the precision of float32 products is one of {', '.join(_CHOICES)}, not {choice!r}")
    _chosen[0] = choice
