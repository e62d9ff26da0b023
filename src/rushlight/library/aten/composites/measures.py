"""Functions that PyTorch's native code makes of several operators above autograd: statistics, distances, short-time
Fourier transforms.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.library.aten.composites import aten, flatten, to_copy
from rushlight.library.aten.handlers import handles

__all__: list[str] = []

Tensor = rushlight.Tensor
Pair = tuple[Any, Any]


def slices(x: Any, dim: int, start: Any, end: Any = None) -> Any:
    """A slice along a dim."""
    return aten("slice.Tensor")(x, dim, start, 9223372036854775807 if end is None else end)


def is_true(x: Any) -> Any:
    """Whether a bool without dims is true, asked as native code asks."""
    return aten("equal")(x, aten("new_ones")(x, [], dtype=rushlight.bool))


# ***** covariances *****


def _checked_weights(name: str, weights: Any, observations: int) -> Any:
    if observations and not is_true(aten("ge.Scalar")(aten("min")(weights), 0)):
        raise RuntimeError(f"cov(): {name} cannot be negative")
    return weights


@handles("cov")
def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    x = aten("view")(input, [1, -1]) if input.dim() < 2 else input
    count = x.shape[1]
    w = None if fweights is None else _checked_weights("fweights", fweights, count)
    if aweights is not None:
        more = _checked_weights("aweights", aweights, count)
        w = more if w is None else aten("mul.Tensor")(w, more)
    long = {"dtype": rushlight.int64, "layout": x.layout, "device": x.device}
    total = aten("scalar_tensor")(count, **long) if w is None else aten("sum")(w)
    if w is not None and not is_true(aten("ne.Scalar")(total, 0)):
        raise ZeroDivisionError("cov(): weights sum to zero, can't be normalized")
    weighted = x if w is None else aten("mul.Tensor")(x, w)
    average = aten("div.Tensor")(aten("sum.dim_IntList")(weighted, [1]), total)
    if w is not None and aweights is not None and correction:
        squares = aten("mul.Scalar")(aten("sum")(aten("mul.Tensor")(w, aweights)), correction)
        factor = aten("sub.Tensor")(total, aten("div.Tensor")(squares, total))
    elif w is not None and not correction:
        factor = total
    elif w is not None:
        factor = aten("sub.Scalar")(total, correction)
    else:
        factor = aten("scalar_tensor")(max(0, count - correction), **long)
    if is_true(aten("le.Scalar")(factor, 0)):
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
            stacklevel=2,
        )
        factor = aten("zeros_like")(factor)
    x = aten("sub.Tensor")(x, aten("unsqueeze")(average, 1))
    second = aten("t")(x if w is None else aten("mul.Tensor")(x, w))
    second = aten("_conj")(second) if second.is_complex() else second
    return aten("squeeze")(aten("div.Tensor")(aten("mm")(x, second), factor))


@handles("corrcoef")
def corrcoef(input: Any) -> Any:
    c = cov(input)
    if not c.dim():
        return aten("div.Tensor")(c, c)
    d = aten("diagonal")(c)
    if d.is_complex():
        d = aten("select.int")(aten("view_as_real")(d), -1, 0)
    deviation = aten("sqrt")(d)
    c = aten("div.Tensor")(c, aten("view")(deviation, [-1, 1]))
    c = aten("div.Tensor")(c, aten("view")(deviation, [1, -1]))
    if c.is_complex():
        parts = aten("view_as_real")(c)
        parts = [aten("clamp")(aten("select.int")(parts, -1, k), -1, 1) for k in (0, 1)]
        return aten("complex")(*parts)
    return aten("clamp")(c, -1, 1)


# ***** quantiles *****


def _quantile(missing: bool) -> Any:
    def run(
        input: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None
    ) -> Any:
        if out is not None or interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
            return NotImplemented
        if not isinstance(q, Tensor):
            if not 0 <= q <= 1:
                raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}")
            q = aten("scalar_tensor")(q, dtype=input.dtype, layout=input.layout, device=input.device)
        if (
            not input.numel()
            or q.dim() > 1
            or not q.numel()
            or q.dtype is not input.dtype
            or not input.is_floating_point()
        ):
            return NotImplemented
        return _of_sorted(input, q, dim, keepdim, interpolation, missing)

    return run


handles("quantile")(_quantile(False))
handles("nanquantile")(_quantile(True))


def _of_sorted(x: Any, q: Any, dim: Any, keepdim: bool, interpolation: str, missing: bool) -> Any:
    n = x.dim()
    shape = [q.numel()] if q.dim() else []
    if dim is None:
        rows = aten("sort")(flatten(x))[0]
        shape += [1] * n if keepdim else []
    else:
        dim = dim % n if n else 0
        shape += [1 if d == dim else s for d, s in enumerate(x.shape) if keepdim or d != dim]
        last = dim == n - 1 or not n
        rows = aten("sort")(x if last else aten("transpose.int")(aten("unsqueeze")(x, -1), dim, -1))[0]
    if not q.dim():
        shape.append(1)
    else:
        shape = [*shape[1:], shape[0]]
    rows = aten("view")(rows, [*shape[:-1], rows.shape[-1] if rows.dim() else 1])
    ranks = _ranks(rows, q, missing)
    rounding = {"lower": "floor_", "higher": "ceil_", "nearest": "round_"}.get(interpolation)
    ranks = aten(rounding)(ranks) if rounding else ranks
    below = to_copy(ranks, dtype=rushlight.int64)
    found = aten("gather")(rows, -1, below)
    if rounding is None:
        weights = aten("full_like")(ranks, 0.5) if interpolation == "midpoint" else aten("sub.Tensor")(ranks, below)
        above = to_copy(aten("ceil_")(ranks), dtype=rushlight.int64)
        found = aten("lerp_.Tensor")(found, aten("gather")(rows, -1, above), weights)
    if not q.dim():
        return aten("squeeze_.dim")(found, -1)
    return aten("squeeze_.dim")(aten("transpose_")(aten("unsqueeze_")(found, 0), 0, -1), -1)


def _ranks(rows: Any, q: Any, missing: bool) -> Any:
    """Places in sorted rows, the last one in rows with NaN."""
    if missing:
        kept = aten("sum.dim_IntList")(aten("logical_not_")(aten("isnan")(rows)), [-1], True)
        ranks = aten("mul.Tensor")(q, aten("sub.Scalar")(kept, 1))
        return aten("masked_fill_.Scalar")(ranks, aten("lt.Scalar")(ranks, 0), 0)
    last = rows.shape[-1] - 1
    ranks = aten("mul.Scalar")(q, last)
    gone = aten("any.dim")(aten("isnan")(rows), -1, True)
    shape = list(rushlight.broadcast_shapes(tuple(ranks.shape), tuple(gone.shape)))
    ranks = aten("expand")(ranks, shape) if list(ranks.shape) != shape else ranks
    gone = aten("expand")(gone, shape) if list(gone.shape) != shape else gone
    return aten("masked_fill.Scalar")(ranks, gone, last)


# ***** differences, distances, sets *****


@handles("gradient")
def gradient(input: Any, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> Any:
    dims = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if (
        edge_order != 1
        or any(isinstance(s, Tensor) for s in steps)
        or not input.is_floating_point()
        or len(steps) != len(dims)
    ):
        return NotImplemented
    if any(input.shape[d] < 2 for d in dims):
        return NotImplemented
    found = []
    for d, step in zip(dims, steps, strict=True):

        def difference(high: Pair, low: Pair, d: int = d, step: Any = step) -> Any:
            top = slices(input, d, *high)
            return aten("div.Scalar")(aten("sub.Tensor")(top, slices(input, d, *low)), step)

        first = difference((1, 2), (0, 1))
        last = difference((-1, None), (-2, -1))
        middle = aten("div.Scalar")(difference((2, None), (0, -2)), 2)
        found.append(aten("cat")([first, middle, last], d))
    return tuple(found)


_MODES = {"use_mm_for_euclid_dist_if_necessary": None, "use_mm_for_euclid_dist": 1, "donot_use_mm_for_euclid_dist": 2}


@handles("cdist")
def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: Any = "use_mm_for_euclid_dist_if_necessary") -> Any:
    mode = _MODES.get(compute_mode, compute_mode)
    large = x1.dim() > 1 and x2.dim() > 1 and (x1.shape[-2] > 25 or x2.shape[-2] > 25)
    if p == 2 and (mode == 1 or mode in (None, 0) and large) or x1.dim() < 2 or x2.dim() < 2:
        return NotImplemented
    return aten("_cdist_forward")(x1, x2, float(p), mode)


@handles("unique")
def unique(
    input: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    if dim is None:
        found = aten("_unique2")(input, sorted, return_inverse, return_counts)
    else:
        found = aten("unique_dim")(input, dim, sorted, return_inverse, return_counts)
    return _asked(found, return_inverse, return_counts)


@handles("unique_consecutive")
def unique_consecutive(input: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    found = aten("unique_consecutive")(input, return_inverse, return_counts, dim)
    return _asked(found, return_inverse, return_counts)


def _asked(found: Sequence[Any], inverse: bool, counts: bool) -> Any:
    """Those of three results that the call asks for: values, inverse, counts."""
    wanted = [found[0], *([found[1]] if inverse else []), *([found[2]] if counts else [])]
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


@handles("histogramdd")
def histogramdd(input: Any, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    options = {"weight": weight, "density": density}
    named: Any = rushlight.return_types.histogramdd
    if isinstance(bins, (list, tuple)) and bins and isinstance(bins[0], Tensor):
        edges = tuple(bins)
        return named((aten("_histogramdd_from_bin_tensors")(input, list(bins), **options), edges))
    counts = [bins] * input.shape[-1] if isinstance(bins, int) else list(bins)
    options["range"] = None if range is None else list(range)
    edges = tuple(aten("_histogramdd_bin_edges")(input, counts, **options))
    return named((aten("_histogramdd_from_bin_cts")(input, counts, **options), edges))


# ***** short-time Fourier transforms *****


@handles("stft")
def stft(
    input: Any,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: Any = None,
    return_complex: Any = None,
    align_to_window: Any = None,
) -> Any:
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    complexes = input.is_complex() or window is not None and window.is_complex()
    if align_to_window or not return_complex and not complexes or pad_mode != "reflect" or input.is_complex():
        return NotImplemented
    x = input
    if center:
        x = aten("view")(x, [1] * (3 - x.dim()) + list(x.shape))
        x = aten("reflection_pad1d")(x, [n_fft // 2, n_fft // 2])
        x = aten("view")(x, list(x.shape[-input.dim() :]))
    x = aten("unsqueeze")(x, 0) if x.dim() == 1 else x
    if width < n_fft:
        window = _centred_window(window, x, n_fft, width)
    frames = 1 + (x.shape[1] - n_fft) // hop
    s0, s1 = x.stride()
    x = aten("as_strided")(x, [x.shape[0], frames, n_fft], [s0, hop * s1, s1])
    x = aten("mul.Tensor")(x, window) if window is not None else x
    if x.is_complex():
        out = aten("_fft_c2c")(x, [2], int(normalized), True)
    else:
        out = aten("_fft_r2c")(x, [2], int(normalized), True if onesided is None else onesided)
    out = aten("transpose_")(out, 1, 2)
    return aten("squeeze_.dim")(out, 0) if input.dim() == 1 else out


def _centred_window(window: Any, like: Any, n_fft: int, width: int) -> Any:
    """A window in the middle of a transform's length."""
    source = like if window is None else window
    whole = aten("zeros")([n_fft], dtype=source.dtype, layout=source.layout, device=source.device)
    left = (n_fft - width) // 2
    part = slices(whole, 0, left, left + width)
    aten("fill_.Scalar")(part, 1) if window is None else aten("copy_")(part, window)
    return whole


@handles("istft")
def istft(
    input: Any,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: Any = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    if not input.is_complex() or input.is_conj():
        return NotImplemented
    x = aten("view_as_real")(input)
    if window is None:
        window = aten("ones")([width], dtype=x.dtype, layout=x.layout, device=x.device)
    if width != n_fft:
        left = (n_fft - width) // 2
        window = aten("constant_pad_nd")(window, [left, n_fft - width - left], 0)
    single = x.dim() == 3
    x = aten("unsqueeze")(x, 0) if single else x
    frames = x.shape[2]
    whole = n_fft + hop * (frames - 1)
    x = aten("view_as_complex")(aten("transpose.int")(x, 1, 2))
    scaling = 1 if normalized else 2
    if return_complex:
        x = aten("_fft_c2c")(x, [2], scaling, False)
    else:
        if onesided is False or onesided is None and input.shape[-2] == n_fft:
            x = slices(x, -1, 0, n_fft // 2 + 1)
        x = aten("_fft_c2r")(x, [2], scaling, n_fft)
    y = aten("mul.Tensor")(x, aten("view")(window, [1, 1, n_fft]))
    y = aten("unfold_backward")(y, [y.shape[0], whole], 1, n_fft, hop)
    power = aten("expand")(aten("pow.Tensor_Scalar")(window, 2), [1, frames, n_fft])
    envelope = aten("unfold_backward")(power, [1, whole], 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else -(n_fft // 2) if center and n_fft > 1 else whole
    y, envelope = slices(y, 1, start, end), slices(envelope, 1, start, end)
    if is_true(aten("lt.Scalar")(aten("min")(aten("abs")(envelope)), 1e-11)):
        raise RuntimeError(
            "istft: window overlap add min: the window leaves samples out; choose a longer one or a smaller hop_length"
        )
    y = aten("div.Tensor")(y, envelope)
    y = aten("squeeze.dim")(y, 0) if single else y
    if end > whole:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail.",
            stacklevel=2,
        )
        y = aten("constant_pad_nd")(y, [0, end - whole], 0)
    return y
