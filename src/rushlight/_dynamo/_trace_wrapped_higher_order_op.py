"""The one name of this page of PyTorch's that packages use: a mode in which `x[i]` with batched indices stays an
operation.
"""

from __future__ import annotations

import contextlib

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(contextlib.nullcontext[None]):
    """A context in which indices may be batched tensors without dims: here they always may, under `vmap` too."""
