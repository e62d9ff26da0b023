"""What PyTorch's CPU operators refuse to compute with, though a body would give an answer: by operator, kinds of dtype.

A kind is a letter of `DType.kind` (b u i f c), `h` stands for the half formats (float16, bfloat16).  What no primitive takes needs no entry:
the body's own error becomes the operator's.  The dtype that is looked at is the one to which all were joined where the operator joins
them, else the first tensor's.
"""

from __future__ import annotations

from rushlight._ops.bodies import CPP_NAME
from rushlight._types.dtype import DType

__all__ = ["REFUSED", "not_implemented", "refuse_dtype"]

_NO_HALF = (
    "zeta", "ndtri", "log_ndtr", "erfcx", "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    *(f"{shifted}chebyshev_polynomial_{letter}" for shifted in ("", "shifted_") for letter in "tuvw"),
)  # fmt: skip

REFUSED: dict[str, str] = {
    **{f"special_{name}": "h" for name in _NO_HALF},
    # activations
    "prelu": "bui", "softsign": "b", "tanhshrink": "b", "threshold": "b", "relu": "b",
    # pooling, windows
    "avg_pool1d": "bu", "avg_pool2d": "bu", "avg_pool3d": "buh", "local_response_norm": "buc",
    "im2col": "ui", "conv_transpose1d": "u", "conv_transpose2d": "u", "conv_transpose3d": "u",
    # losses
    "mse_loss": "buic", "smooth_l1_loss": "buic", "huber_loss": "buic", "kl_div": "buic", "gaussian_nll_loss": "bui",
    "binary_cross_entropy_with_logits": "buic", "soft_margin_loss": "bui", "multilabel_soft_margin_loss": "buic", "multi_margin_loss": "buich",
    "multilabel_margin_loss": "buich", "nll_loss": "ui", "cross_entropy": "bui", "poisson_nll_loss": "b", "l1_loss": "b",
    "hinge_embedding_loss": "b", "cosine_similarity": "buic",
    # the rest
    "dist": "bui", "mvlgamma": "b", "topk": "b", "trace": "b", "nanmean": "c",
}  # fmt: skip


def refuse_dtype(name: str, kinds: str, dtype: DType) -> None:
    """NotImplementedError in PyTorch's words where `dtype` is of one of the kinds."""
    if dtype.kind in kinds or ("h" in kinds and dtype.kind == "f" and dtype.itemsize == 2):
        raise not_implemented(name, dtype)


def not_implemented(name: str, dtype: DType) -> NotImplementedError:
    """The error for an operator that does not take a dtype."""
    return NotImplementedError(f"\"{name}\" not implemented for '{CPP_NAME.get(dtype.name, dtype.scalar)}'")
