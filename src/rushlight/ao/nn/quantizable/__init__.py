"""`torch.ao.nn.quantizable`: LSTM and attention written in modules that can be observed one by one."""

from __future__ import annotations

from rushlight.ao.nn.quantizable.modules import LSTM, LSTMCell, MultiheadAttention

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]
