"""Dtypes that PyTorch's CPU operators refuse although a body could compute with them: kinds by operator.

`REFUSED` lists those without a kernel (NotImplementedError), `CHECKED` those that are checked before any kernel
(RuntimeError), `ALIKE` the arguments that must have one dtype (RuntimeError too).

A kind is a letter of `DType.kind` (b u i f c), `h` stands for the half formats (float16, bfloat16), `n` for signed
integers other than int64, `8` for the floats of eight bits.  Dtypes that no primitive supports need no entry: the
body's own error becomes the operator's.  The checked dtype is the promoted one if the operator promotes, else the first
tensor's.
"""

from __future__ import annotations

from collections.abc import Mapping

from rushlight._ops.bodies import C_NAME, CPP_NAME, not_implemented
from rushlight._types.dtype import FLOAT32, DType

__all__ = [
    "ALIKE",
    "CHECKED",
    "CHECKED_ARGUMENTS",
    "JOINED",
    "REFUSED",
    "check_alike",
    "check_arguments",
    "not_implemented",
    "refuse_dtype",
]

_NO_HALF = (
    "zeta", "ndtri", "log_ndtr", "erfcx", "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0",
    "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    *(f"{shifted}chebyshev_polynomial_{letter}" for shifted in ("", "shifted_") for letter in "tuvw"),
)  # fmt: skip

REFUSED: dict[str, str] = {
    **{f"special_{name}": "hc" if "polynomial" in name else "hc8" for name in _NO_HALF},
    # activations
    "softsign": "b", "threshold": "b", "rms_norm": "bui",
    # pooling, windows
    "avg_pool1d": "bun8", "avg_pool2d": "bun8", "avg_pool3d": "bunh8", "local_response_norm": "bunc8", "adaptive_avg_pool3d": "8",
    "im2col": "ui8", "col2im": "ui8", "pixel_shuffle": "8", "flip": "8", **dict.fromkeys(("tril", "triu", "gather", "index_fill", "take", "pixel_unshuffle", "channel_shuffle", "logcumsumexp"), "8"), "cumsum": "8", "cumprod": "8", "masked_fill": "8", "frexp": "8",
    "conv_transpose1d": "u", "conv_transpose2d": "u", "conv_transpose3d": "u",
    # losses
    "mse_loss": "buic", "smooth_l1_loss": "buic", "huber_loss": "buic",
    "binary_cross_entropy_with_logits": "buic", "multilabel_soft_margin_loss": "buic", "multi_margin_loss": "buich",
    "multilabel_margin_loss": "buich", "nll_loss": "ui", "cross_entropy": "bui",
    # the rest
    "mvlgamma": "b", "batch_norm_train": "buic", "batch_norm_eval": "buic", "trace": "b",
}  # fmt: skip

CHECKED: dict[str, str] = {
    "relu": "b", "tanhshrink": "b", "hardtanh": "b", "relu6": "b", "deg2rad": "c", "rad2deg": "c", "heaviside": "c", "isposinf": "c", "isneginf": "c",
    "max_dim": "c", "min_dim": "c", "argmax": "bc", "argmin": "bc", "sort": "c", "nansum": "c", "nanmean": "c", "topk": "bc", "dist": "bui", "isin": "bc", "cosine_similarity": "buic",
    "kl_div": "buic", "soft_margin_loss": "bui", "margin_ranking_loss": "b", "triplet_margin_loss": "b", "hinge_embedding_loss": "b",
}  # fmt: skip

# PyTorch's words for some of `CHECKED`; {kind} is "bool" or "complex".
_CHECKED_WORDS = {
    "argmax": "argmax(): does not support {kind} input", "argmin": "argmin(): does not support {kind} input",
    "topk": "topk does not support {kind} dtypes on CPU", "sort": "Sort does not support {kind} dtypes on CPU",
    "dist": "norm(): input dtype should be either floating point or complex. Got {scalar} instead.",
    "isin": "Unsupported input type encountered for isin(): {scalar}", "nansum": "nansum on CPU does not support complex inputs",
}  # fmt: skip

# Operator -> argument -> kinds that it may not have, whatever the others are: a subtraction of bool, a product in
# place.
CHECKED_ARGUMENTS: dict[str, dict[str, str]] = {
    "l1_loss": {"input": "b", "target": "b"},
    "margin_ranking_loss": {"input1": "b", "input2": "b", "target": "b"},
    "triplet_margin_loss": {"anchor": "b", "positive": "b", "negative": "b"},
    "binary_cross_entropy_with_logits": {"target": "bui", "weight": "c", "pos_weight": "bc"},
    "kl_div": {"input": "buic", "target": "buic"},
    "dist": {"input": "b", "other": "b"},
    "multilabel_soft_margin_loss": {"target": "b"},
}

# Operators checked for the promoted dtype, though they compute in a float in any case.
JOINED = frozenset(("cosine_similarity", "mse_loss", "smooth_l1_loss", *(f"special_{name}" for name in _NO_HALF)))

# Operator -> its arguments that must have one dtype.  "mixed" at the end allows parameters in float32 with an input in
# a half type.
ALIKE: dict[str, tuple[str, ...]] = {
    "linear": ("input", "weight", "bias"), "bilinear": ("input1", "input2", "weight", "bias"), "prelu": ("input", "weight"),
    "cross_entropy": ("input", "weight"), "nll_loss": ("input", "weight"), "binary_cross_entropy": ("input", "target"),
    **dict.fromkeys(("layer_norm", "group_norm", "batch_norm_train", "instance_norm_core"), ("input", "weight", "bias", "mixed")),
    "batch_norm_eval": ("input", "weight", "bias", "running_mean", "running_var", "mixed"),
}  # fmt: skip


def check_arguments(name: str, dtypes: Mapping[str, DType]) -> None:
    """RuntimeError if one of an operator's arguments, by name, has a dtype that it may not have."""
    for argument, kinds in CHECKED_ARGUMENTS[name].items():
        if argument in dtypes and dtypes[argument].kind in kinds:
            cure = "" if dtypes[argument].is_complex else f"; convert it first, for example {argument}.float()"
            raise RuntimeError(f"{name}(): {argument} may not be of dtype {dtypes[argument].name}{cure}")


def _words(name: str, dtype: DType, other_dtype: DType, other: str, biased: bool) -> str:
    """PyTorch's message for two dtypes that should be one, if it has a specific one: people search for it."""
    ours, theirs = CPP_NAME[dtype.name], CPP_NAME[other_dtype.name]
    if name == "linear" and other == "bias":
        words = f"self and mat2 must have the same dtype, but got {theirs} and {ours}"
    elif name == "linear" and biased:
        words = f"mat1 and mat2 must have the same dtype, but got {ours} and {theirs}"
    elif name == "linear":
        words = (
            f"expected m1 and m2 to have the same dtype, but got: {C_NAME[dtype.name]} != {C_NAME[other_dtype.name]}"
        )
    elif name in ("cross_entropy", "nll_loss"):
        words = f"expected scalar type {ours} but found {theirs}"
    elif name == "binary_cross_entropy":
        words = f"Found dtype {theirs} but expected {ours}"
    elif name == "prelu":
        words = f"prelu: Type promoting not supported. Got {ours} and {theirs}"
    elif "mixed" in ALIKE[name]:
        words = "mixed dtype (CPU): all inputs must share same datatype"
    else:
        return ""
    return words + "; "


def check_alike(name: str, dtypes: Mapping[str, DType]) -> None:
    """RuntimeError if an operator's arguments, by name, do not have the required common dtype."""
    first, *others = ALIKE[name]
    dtype = dtypes[first]
    mixed = "mixed" in others and dtype.kind == "f" and dtype.itemsize == 2
    for other in others:
        other_dtype = dtypes.get(other)
        if other_dtype is not None and other_dtype is not dtype and not (mixed and other_dtype is FLOAT32):
            # the target of a conversion in the message
            wide = other_dtype if other_dtype.kind in "fc" and dtype.kind not in "fc" else dtype
            way, target = (first, other_dtype) if wide is other_dtype else (other, dtype)
            raise RuntimeError(
                f"{_words(name, dtype, other_dtype, other, 'bias' in dtypes)}{name}(): expected {other} to have the dtype of {first}, {dtype.name}, but found "
                f"{other_dtype.name}; one of them must be converted, for example {way}.to(torch.{target.name})"
            )


def refuse_dtype(name: str, kinds: str, dtype: DType, checked: bool = False) -> None:
    """NotImplementedError in PyTorch's words if `dtype` is of one of the kinds; RuntimeError if it is `checked`."""
    narrow = {"f": "h8"[dtype.itemsize == 1] if dtype.itemsize < 4 else "", "i": "n" if dtype.itemsize < 8 else ""}.get(
        dtype.kind, ""
    )
    if dtype.kind in kinds or (narrow and narrow in kinds):
        if checked:
            words = _CHECKED_WORDS.get(name, "{name}() does not support inputs of dtype {dtype}")
            kind = {"b": "bool", "c": "complex"}.get(dtype.kind, dtype.name)
            raise RuntimeError(words.format(name=name, dtype=dtype.name, kind=kind, scalar=dtype.scalar))
        raise not_implemented(name, dtype)
