"""`checkpoint`: computing a module again in backward, without a wrapper."""

from __future__ import annotations

from typing import Any

from rushlight.nn import Module
from rushlight.utils.checkpoint import checkpoint as computed_again

__all__ = ["checkpoint"]


def checkpoint(module: Module, **kwargs: Any) -> Module:
    """A module whose forward backward computes again; it is changed in place, and returned.

    Settings are those of `torch.utils.checkpoint.checkpoint`; NotImplementedError for `use_reentrant=True`.
    """
    if kwargs.pop("use_reentrant", False):
        raise NotImplementedError("use_reentrant=True is not supported in composable checkpoint")
    forward = module.forward

    def again(*args: Any, **given: Any) -> Any:
        return computed_again(forward, *args, use_reentrant=False, **kwargs, **given)

    object.__setattr__(module, "forward", again)
    return module
