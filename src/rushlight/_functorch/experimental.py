"""The functions of the package `functorch.experimental`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_, vmap
from rushlight.utils._pytree import _broadcast_to_and_flatten, tree_flatten

__all__ = ["chunk_vmap", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_"]


def chunk_vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2
) -> Callable[..., Any]:
    """`vmap` in so many parts, one after the other, which needs less memory.  ValueError for `chunks` below 1.

    >>> import rushlight as torch
    >>> chunk_vmap(torch.dot, chunks=2)(torch.ones(4, 3), torch.ones(4, 3))
    tensor([3., 3., 3., 3.])
    """
    if chunks < 1:
        raise ValueError(f"chunk_vmap: chunks should be 1 or greater. (got {chunks})")

    def called(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten(list(args))
        dims = _broadcast_to_and_flatten(list(in_dims) if isinstance(in_dims, tuple) else in_dims, structure)
        sizes = [x.shape[d] for x, d in zip(leaves, dims or (), strict=False) if d is not None]
        rows = -(-sizes[0] // chunks) if sizes and sizes[0] else None  # without any, vmap says what is missing
        return vmap(func, in_dims, out_dims, randomness, chunk_size=rows)(*args, **kwargs)

    return called
