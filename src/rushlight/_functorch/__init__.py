"""Parts of PyTorch's `torch._functorch` that packages name; transforms themselves are in `torch.func`."""

from __future__ import annotations

__all__ = ["vmap"]
