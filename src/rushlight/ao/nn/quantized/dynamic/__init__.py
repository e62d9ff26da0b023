"""`torch.ao.nn.quantized.dynamic`: modules of floats whose weight is of integers; inputs are quantized on the way."""

from __future__ import annotations

from rushlight.ao.nn.quantized.dynamic.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Linear,
)
from rushlight.ao.nn.quantized.dynamic.recurrent import GRU, LSTM, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU", "LSTM", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "GRUCell", "LSTMCell", "Linear",
    "RNNCell",
]  # fmt: skip
