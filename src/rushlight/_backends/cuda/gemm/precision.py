"""How precise products of float32 are: PyTorch's switches for TF32.

`ieee` multiplies float32 as it is; `tf32` gives them to tensor cores, which read 11 significant bits
of each (10 are stored) and drop the others.
`torch.backends.cuda.matmul.allow_tf32` and `torch.set_float32_matmul_precision` choose for products,
`torch.backends.cudnn.allow_tf32` for convolutions, which here are exact until a program has set it.
"""

from __future__ import annotations

from rushlight._backends.precision import FP32_PRECISION

__all__ = ["float32_precision"]


def float32_precision(operation: str = "matmul") -> str:
    """Precision of products (`matmul`) or convolutions (`conv`) that are compiled now."""
    return "tf32" if FP32_PRECISION.allowed("cuda", operation) in ("tf32", "bf16") else "ieee"
