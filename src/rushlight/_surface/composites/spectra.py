"""Short-time Fourier transforms, and a few functions that are sums of others."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import warn_once
from rushlight._engine.core import convert
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import no_grad
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._ops.forms import forms
from rushlight._surface.composites.measures import into as written
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.dtype import INT64

__all__: list[str] = []

T = SPACES["torch"]


# ***** short-time Fourier transforms *****


def _window(window: Any, win_length: int, n_fft: int, dtype: Any, device: Any) -> Any:
    """The window (ones without one) with zeros on both sides up to n_fft."""
    if window is None:
        window = T["ones"](win_length, dtype=dtype, device=device)
    elif window._spec.ndim != 1 or window._spec.shape[0] != win_length:
        raise RuntimeError(
            f"expected a 1D window tensor of size equal to win_length={win_length}, but got window with size {list(window.shape)}"
        )
    left = (n_fft - win_length) // 2
    return window if win_length == n_fft else function_of("pad")(window, (left, n_fft - win_length - left))


@composite("stft", method=True, refuses="bui", cached=True)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Fourier transforms of windows that move along a signal (*, T): (*, frequencies, frames)."""
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    complex_in = input._spec.dtype.is_complex
    if return_complex is None:
        return_complex = complex_in or (window is not None and window.is_complex())
        if not return_complex:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True in a future PyTorch release."
            )
    if input._spec.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input._spec.ndim}D")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={length}")
    x = input if input._spec.ndim == 2 else input.unsqueeze(0)
    if align_to_window:  # the first window, not the first transform, begins with the signal
        left = (n_fft - length) // 2
        x = function_of("pad")(x, (left, n_fft - length - left))
    if center:
        x = function_of("pad")(x.unsqueeze(1), (n_fft // 2, n_fft // 2), pad_mode).squeeze(1)
    if not 0 < n_fft <= x._spec.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {x._spec.shape[-1]}, but got n_fft={n_fft}")
    if onesided is None:
        onesided = not (complex_in or (window is not None and window.is_complex()))
    if window is None:
        warn_once(
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. Other windows such as "
            "torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage.To suppress this warning and use a rectangular window, "
            "explicitly set `window=torch.ones(n_fft, device=<device>)`."
        )
    weights = _window(window, length, n_fft, x._spec.dtype.to_real(), x.device)
    frames = function_of("unfold")(x, -1, n_fft, hop) * weights
    norm = "ortho" if normalized else None
    transform = SPACES["fft"]["rfft" if onesided and not frames.is_complex() else "fft"]
    found = transform(frames, dim=-1, norm=norm).transpose(-2, -1)
    if onesided and frames.is_complex():
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    found = found if input._spec.ndim == 2 else found.squeeze(0)
    return found if return_complex else T["view_as_real"](found)


@composite("istft", method=True)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal from its `stft`: frames are added up where they overlap, and divided by the sum of squared windows."""
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    if not input._spec.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if input._spec.ndim not in (2, 3) or not input._spec.numel:
        raise RuntimeError(f"istft: expected a non-empty tensor with 2 or 3 dimensions, but got {list(input.shape)}")
    x = input if input._spec.ndim == 3 else input.unsqueeze(0)
    rows, frames = x._spec.shape[1:]
    onesided = rows != n_fft if onesided is None else onesided
    if rows != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft {'/ 2 + 1 when onesided=True' if onesided else 'when onesided=False'}, but got {rows}"
        )
    if not 0 < hop <= size:
        raise RuntimeError("istft: expected 0 < hop_length <= win_length")
    if not 0 < size <= n_fft:
        raise RuntimeError("istft: expected 0 < win_length <= n_fft")
    if onesided and return_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if window is not None and window.is_complex() and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    if window is None:
        warn_once(
            "A window was not provided. A rectangular window will be applied.Please provide the same window used by stft to make the inversion lossless."
            "To suppress this warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`."
        )
    weights = _window(window, size, n_fft, x._spec.dtype.to_real(), x.device)
    norm = "ortho" if normalized else None
    turned = x.transpose(1, 2)
    if return_complex:
        pieces = SPACES["fft"]["ifft"](turned, None, -1, norm)
    else:
        pieces = SPACES["fft"]["irfft"](turned.narrow(-1, 0, n_fft // 2 + 1), n_fft, -1, norm)
    total = n_fft + hop * (frames - 1)
    found = _overlapped(pieces * weights, total, n_fft, hop)
    envelope = _overlapped((weights * weights).expand(1, frames, n_fft), total, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - (n_fft // 2 if center else 0)
    stop = min(end, total)
    found, envelope = found.narrow(-1, start, stop - start), envelope.narrow(-1, start, stop - start)
    known = isinstance(envelope, DispatchType) or envelope._storage is not None  # shapes alone say nothing of a window
    if known and convert.item(function_of("min_all")(T["abs"](envelope.detach()))) <= 1e-11:
        raise RuntimeError("window overlap add min: 1")
    found = found / envelope
    if end > total:
        found = function_of("pad")(found, (0, end - total))
    return found if input._spec.ndim == 3 else found.squeeze(0)


def _overlapped(pieces: Any, total: int, n_fft: int, hop: int) -> Any:
    """[B, frames, n_fft] added up at every `hop`: [B, total]."""
    batch, frames, _ = pieces._spec.shape
    device = pieces.device
    rows = T["arange"](frames, dtype=INT64, device=device).unsqueeze(1) * hop
    places = (rows + T["arange"](n_fft, dtype=INT64, device=device)).reshape(-1)
    start = T["zeros"]((batch, total), dtype=pieces.dtype, device=device)
    return function_of("index_add")(start, 1, places, pieces.reshape(batch, frames * n_fft))


# ***** names of the inner functions *****


def _into(found: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    return found if out is None else tuple(written(o, v) for o, v in zip(out, found, strict=True))


@composite("native_batch_norm")
@forms(
    "(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool, momentum: float, eps: float, *, out: tuple[Tensor, Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]"
)
def native_batch_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: Any = None,
) -> Any:
    """(batch norm, mean, 1 / deviation) of each channel; the last two empty in evaluation mode."""
    into = out
    if not training:
        out = function_of("batch_norm_eval")(input, running_mean, running_var, weight, bias, eps)
        empty = T["empty"](0, dtype=input.dtype, device=input.device)
        return _into((out, empty, empty.clone()), into)
    out, mean, var = function_of("batch_norm_train")(input, weight, bias, eps)
    dims = tuple(d for d in range(input._spec.ndim) if d != 1)
    with no_grad():
        plain, _ = function_of("var_mean")(input, dims, correction=0.0)
        for running, fresh in ((running_mean, mean), (running_var, var)):
            if running is not None:
                running.copy_(function_of("running_average")(running, fresh.detach(), momentum))
        return _into((out, mean.detach(), T["rsqrt"](plain + eps)), into)


@composite("adjoint", method=True, cached=True)
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dims."""
    if input._spec.ndim == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    turned = input.transpose(-2, -1)
    return T["conj"](turned) if input._spec.dtype.is_complex else turned
