"""Kernels of aten operators whose function in Python takes its arguments, or gives its results, in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.library.aten.kernels import kernel

# ***** values that occur: always three results, the empty ones not asked for *****


@kernel("_unique")
def unique(x: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
    values, inverse = rushlight.unique(x, return_inverse=True)
    return values, inverse if return_inverse else _empty(x)


@kernel("_unique2")
def unique2(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return _asked(x, rushlight.unique(x, return_inverse=True, return_counts=True), return_inverse, return_counts)


@kernel("unique_dim")
def unique_dim(x: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    return rushlight.unique(x, return_inverse=True, return_counts=True, dim=dim)


@kernel("unique_consecutive")
def unique_consecutive(x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    found = rushlight.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)
    return found if dim is not None else _asked(x, found, return_inverse, return_counts)


def _asked(x: Any, found: Sequence[Any], inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    return found[0], found[1] if inverse else _empty(x), found[2] if counts else _empty(x)


def _empty(x: Any) -> Any:
    return rushlight.empty(0, dtype=rushlight.int64, device=x.device)


# ***** arguments by place *****


@kernel("tensordot")
def tensordot(x: Any, other: Any, dims_self: Sequence[int], dims_other: Sequence[int], **into: Any) -> Any:
    return rushlight.tensordot(x, other, (list(dims_self), list(dims_other)), **into)


@kernel("cdist")
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    ways = "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"
    return rushlight.cdist(x1, x2, p, ways[compute_mode or 0])


@kernel("_lu_with_info")
def lu_with_info(x: Any, pivot: bool = True, check_errors: bool = True) -> Any:
    return rushlight.linalg.lu_factor_ex(x, pivot=pivot, check_errors=check_errors)


@kernel("nuclear_norm.default", "nuclear_norm.out")
def nuclear_norm(x: Any, keepdim: bool = False, **into: Any) -> Any:
    return rushlight.nuclear_norm(x, keepdim=keepdim, **into)


@kernel("stft.default")
def stft(
    x: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    normalized: bool = False, onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    return rushlight.stft(
        x,
        n_fft,
        hop_length,
        win_length,
        window,
        False,
        "reflect",
        normalized,
        onesided,
        return_complex,
        align_to_window,
    )


@kernel("stft")
def stft_by_arguments(*args: Any, **kwargs: Any) -> Any:
    """The overload that takes the arguments: `center` has a word where the other has a flag."""
    centred = {"center", "pad_mode"} & kwargs.keys() or len(args) > 6 and isinstance(args[6], str)
    return (rushlight.stft if centred else stft)(*args, **kwargs)


# ***** losses: the schema's default is the mean, that of the functions in Python no reduction *****


@kernel("kl_div")
def kl_div(x: Any, target: Any, reduction: int = 1, *, log_target: bool = False) -> Any:
    return rushlight.kl_div(x, target, reduction, log_target=log_target)


@kernel("hinge_embedding_loss")
def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: int = 1) -> Any:
    return rushlight.hinge_embedding_loss(x, target, margin, reduction)


@kernel("margin_ranking_loss")
def margin_ranking_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: int = 1) -> Any:
    return rushlight.margin_ranking_loss(x1, x2, target, margin, reduction)


@kernel("cosine_embedding_loss")
def cosine_embedding_loss(x1: Any, x2: Any, target: Any, margin: float = 0.0, reduction: int = 1) -> Any:
    return rushlight.cosine_embedding_loss(x1, x2, target, margin, reduction)


@kernel("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    return rushlight.binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction)


@kernel("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: int = 1
) -> Any:  # fmt: skip
    return rushlight.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)


@kernel("ctc_loss")
def ctc_loss(
    log_probs: Any, targets: Any, inputs: Any, sizes: Any, blank: int = 0, reduction: int = 1, zero_infinity: bool = False
) -> Any:  # fmt: skip
    return rushlight.ctc_loss(log_probs, targets, inputs, sizes, blank, reduction, zero_infinity)
