"""The older place of `rushlight.func.functional_call`."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight.func.modules import functional_call as _functional_call
from rushlight.func.modules import swapped as _swapped

__all__ = ["functional_call"]


def _reparametrize_module(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Any:
    """A context in which the module holds these tensors in place of its own."""
    return _swapped(module, parameters_and_buffers, tie_weights, strict)


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with other parameters and buffers; use `rushlight.func.functional_call`, which does the
    same.
    """
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future version of PyTorch. "
        "Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
