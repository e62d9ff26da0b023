"""Kernels of aten operators whose function in Python takes its arguments, or gives its results, in another way."""

from __future__ import annotations

import inspect
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


def _with_the_mean(name: str) -> Any:
    function = getattr(rushlight, name)
    place = list(inspect.signature(function).parameters).index("reduction")

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if len(args) > place else function(*args, **{"reduction": 1, **kwargs})

    return run


for _name in (
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss",
    "triplet_margin_loss",
):  # fmt: skip
    kernel(_name)(_with_the_mean(_name))
