"""Fourier transforms, and the matrix of mel filters."""

from __future__ import annotations

import math
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.shapes import as_list
from rushlight.onnx.importing.table import Numbers, operator
from rushlight.onnx.importing.values import dtype_of

__all__: list[str] = []


def _complex(x: Any) -> Any:
    """A signal whose last dim holds the real part, or both parts."""
    if x.shape[-1] == 2:
        return torch.view_as_complex(x.contiguous())
    if x.shape[-1] != 1:
        raise ValueError(f"the last dim of a signal is 1 or 2, not {x.shape[-1]}")
    return x[..., 0]


def _transform(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    if not 0 <= axis < x.ndim - 1:
        raise ValueError(f"axis {axis} of {x.ndim} dims is no axis of a signal")
    wide = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    signal = _complex(wide)
    count = None if length is None else int(as_list(length)[0])
    if inverse and onesided:
        return torch.fft.irfft(signal, count, axis).unsqueeze(-1).to(x.dtype)
    count = x.shape[axis] if count is None else count
    if inverse:
        result = torch.fft.ifft(signal, count, axis)
    else:
        result = torch.fft.fft(signal, count, axis)
    if onesided:
        result = result.narrow(axis, 0, count // 2 + 1)
    return torch.view_as_real(result.contiguous()).to(x.dtype)


@operator("DFT", since=17)
def dft_by_attribute(x: Any, length: Numbers = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Any:
    return _transform(x, length, axis, inverse, onesided)


@operator("DFT", since=20)
def dft(x: Any, length: Numbers = None, axis: Numbers = -2, *, inverse: int = 0, onesided: int = 0) -> Any:
    return _transform(x, length, -2 if axis is None else int(as_list(axis)[0]), inverse, onesided)


@operator("STFT", since=17)
def stft(signal: Any, step: Numbers, window: Any = None, length: Numbers = None, *, onesided: int = 1) -> Any:
    """The transform of every frame: (batch, frames, frequencies, 2)."""
    count = window.shape[0] if length is None and window is not None else int(as_list(length)[0])
    frames = signal.transpose(1, 2).unfold(2, count, int(as_list(step)[0])).permute(0, 2, 3, 1)
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    return _transform(frames, None, 2, 0, onesided)


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(
    bins: Numbers, length: Numbers, rate: Numbers, low: Numbers, high: Numbers, *, output_datatype: int = 1
) -> Any:
    """Triangles over the frequencies of a transform, evenly spaced in mels: (length // 2 + 1, bins)."""
    bins, length, rate, low, high = (as_list(one)[0] for one in (bins, length, rate, low, high))
    bottom, top = (2595 * math.log10(1 + edge / 700) for edge in (low, high))
    step = (top - bottom) / (bins + 2)
    hertz = [700 * (10 ** ((bottom + i * step) / 2595) - 1) for i in range(bins + 2)]
    edges = [int((length + 1) * one // rate) for one in hertz]
    table = [[0.0] * bins for _ in range(length // 2 + 1)]
    for i in range(bins):
        left, middle, right = edges[i : i + 3]
        if left == middle:
            table[middle][i] = 1.0
        for j in range(left, middle + 1) if middle > left else ():
            table[j][i] = (j - left) / (middle - left)
        for j in range(middle, right):
            table[j][i] = (right - j) / (right - middle)
    return torch.tensor(table, dtype=dtype_of(output_datatype))


def _enter_window(name: str, weights: tuple[float, ...]) -> None:
    """A window that is a sum of cosines."""

    def window(size: Numbers, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        count = int(as_list(size)[0])
        angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi / max(count - (not periodic), 1))
        total: Any = sum((-1) ** k * weight * torch.cos(angle * k) for k, weight in enumerate(weights))
        return total.to(dtype_of(output_datatype))

    operator(name, since=17)(window)


_enter_window("HannWindow", (0.5, 0.5))
_enter_window("HammingWindow", (25 / 46, 21 / 46))
_enter_window("BlackmanWindow", (0.42, 0.5, 0.08))
