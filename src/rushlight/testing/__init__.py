"""Comparisons and random tensors for tests, as `torch.testing`.

>>> import rushlight as torch
>>> torch.testing.assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-6]))
"""

from __future__ import annotations

from rushlight.testing.comparison import assert_allclose, assert_close
from rushlight.testing.creation import make_tensor
from rushlight.testing.file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]
