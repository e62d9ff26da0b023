"""`torch.ao.nn.quantized`: modules over quantized tensors."""

from __future__ import annotations

from rushlight._interface.base import lazy_files
from rushlight.ao.nn.quantized.activation import (
    ELU,
    Hardswish,
    LeakyReLU,
    MultiheadAttention,
    PReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)
from rushlight.ao.nn.quantized.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from rushlight.ao.nn.quantized.embedding import Embedding, EmbeddingBag
from rushlight.ao.nn.quantized.functional_modules import FloatFunctional, FXFloatFunctional, QFunctional
from rushlight.ao.nn.quantized.linear import Linear
from rushlight.ao.nn.quantized.normalization import (
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
)
from rushlight.ao.nn.quantized.recurrent import LSTM
from rushlight.ao.nn.quantized.stubs import DeQuantize, Dropout, MaxPool2d, Quantize

__all__ = [
    "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "DeQuantize", "Dropout", "ELU", "Embedding", "EmbeddingBag", "FXFloatFunctional", "FloatFunctional", "GroupNorm", "Hardswish",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LSTM", "LayerNorm", "LeakyReLU", "Linear", "MaxPool2d",
    "MultiheadAttention", "PReLU", "QFunctional", "Quantize", "ReLU6", "Sigmoid", "Softmax",
]  # fmt: skip

__getattr__ = lazy_files(__name__, {}, ["dynamic", "functional", "reference"])
