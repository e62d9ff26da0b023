"""`torch._functorch.vmap`: the inner functions of PyTorch's vmap.

Packages with containers of their own put theirs in the places of these.  Nothing here calls them: such a container
passes through `torch.vmap` where it is registered as a node of trees (`torch.utils._pytree.register_pytree_node`).
"""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._interface.base import absent_function
from rushlight.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = [
    "Tensor", "_add_batch_dim", "_broadcast_to_and_flatten", "_create_batched_inputs", "_get_name", "_maybe_remove_batch_dim",
    "_process_batched_inputs", "_remove_batch_dim", "_unwrap_batched", "tree_flatten", "tree_unflatten",
]  # fmt: skip

_WHY = "the steps of torch.vmap are no functions of their own here; register containers with torch.utils._pytree"
(
    _add_batch_dim,
    _remove_batch_dim,
    _maybe_remove_batch_dim,
    _process_batched_inputs,
    _create_batched_inputs,
    _unwrap_batched,
) = (
    absent_function(f"torch._functorch.vmap.{name}", _WHY)
    for name in (
        "_add_batch_dim",
        "_remove_batch_dim",
        "_maybe_remove_batch_dim",
        "_process_batched_inputs",
        "_create_batched_inputs",
        "_unwrap_batched",
    )
)


def _get_name(func: Any) -> str:
    """How messages call a function."""
    return getattr(func, "__name__", None) or repr(func)
