"""Names in pickles of PyTorch's tensor classes: `torch._tensor`."""

from __future__ import annotations

from rushlight._engine.core.tensor import Tensor
from rushlight.serialization.rebuild import rebuild_from_type_v2 as _rebuild_from_type_v2

__all__ = ["Tensor", "_rebuild_from_type_v2"]
