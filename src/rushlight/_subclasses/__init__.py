"""Tensors without data (`torch._subclasses`): shapes, dtypes and devices of a program's values."""

from __future__ import annotations

from rushlight._subclasses import fake_tensor
from rushlight._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

__all__ = [
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
    "fake_tensor",
]
