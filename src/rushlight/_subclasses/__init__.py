"""PyTorch's tensors without data for its compiler (`torch._subclasses`): there are none here, `device="meta"` serves users."""

from __future__ import annotations

from rushlight._subclasses import fake_tensor
from rushlight._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode", "fake_tensor"]
