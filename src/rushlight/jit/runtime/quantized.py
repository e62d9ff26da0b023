"""Operators over packed weights in graphs: those of `torch.ops.quantized`, and the recurrent layers over cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule

__all__ = ["RECURRENT", "quantized_function"]

recurrent: Any = LazyModule("rushlight.ao.nn.quantized.dynamic.recurrent")


def quantized_function(name: str) -> Callable[..., Any]:
    """The function of `quantized::name`."""
    found: Callable[..., Any] = getattr(rushlight.ops.quantized, name)
    return _of_one_dim(found) if name in ("conv1d", "conv1d_relu", "conv1d_dynamic", "conv_transpose1d") else found


def _of_one_dim(function: Callable[..., Any]) -> Callable[..., Any]:
    """Archives hold the weights of a convolution over one dim as those over two, the first of which is 1."""

    def run(x: Any, packed: Any, *rest: Any) -> Any:
        if packed.weight.dim() == 3:
            return function(x, packed, *rest)
        return function(x.unsqueeze(2), packed, *rest).squeeze(2)

    return run


def _over_cells(mode: str, x: Any, sizes: Any, hx: Any, params: Any, numbers: tuple[Any, ...]) -> Any:
    """A recurrent layer over [T, B, C], or over rows packed as `sizes` says: output and the last states."""
    num_layers, dropout, training, bidirectional = numbers
    layer = getattr(recurrent, mode).over_cells(params, num_layers, dropout, bidirectional, training)
    return layer._layers(x, hx, sizes)


def _input(mode: str) -> Callable[..., Any]:
    def run(
        x: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
        batch_first: bool, *more: Any,
    ) -> Any:  # fmt: skip
        hx = tuple(hx) if mode == "LSTM" else hx
        x = x.transpose(0, 1) if batch_first else x
        y, last = _over_cells(mode, x, None, hx, params, (num_layers, dropout, train, bidirectional))
        y = y.transpose(0, 1) if batch_first else y
        return (y, *last) if mode == "LSTM" else (y, last)

    return run


def _data(mode: str) -> Callable[..., Any]:
    def run(
        data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, *more: Any,
    ) -> Any:  # fmt: skip
        hx = tuple(hx) if mode == "LSTM" else hx
        numbers = (num_layers, dropout, train, bidirectional)
        y, last = _over_cells(mode, data, batch_sizes.tolist(), hx, params, numbers)
        return (y, *last) if mode == "LSTM" else (y, last)

    return run


RECURRENT = {
    f"aten::quantized_{mode.lower()}.{form}": made(mode)
    for mode in ("LSTM", "GRU")
    for form, made in (("input", _input), ("data", _data))
}
