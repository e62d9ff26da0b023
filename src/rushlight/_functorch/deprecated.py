"""The functions of the package `functorch`: those of `torch.func`, with a warning that says so."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from rushlight import func
from rushlight._functorch import make_functional as _modules
from rushlight._interface.base import absent_function

__all__ = [
    "combine_state_for_ensemble", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "make_functional",
    "make_functional_with_buffers", "vjp", "vmap",
]  # fmt: skip


def _older(function: Callable[..., Any], instead: str) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function)
    def older(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(
            f"`functorch.{name}` is deprecated: functorch is a part of PyTorch. Please use `{instead}` instead",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    return older


vmap = _older(func.vmap, "torch.vmap")
grad, grad_and_value, vjp, jvp, jacrev, jacfwd, hessian = (
    _older(function, f"torch.func.{function.__name__}")
    for function in (func.grad, func.grad_and_value, func.vjp, func.jvp, func.jacrev, func.jacfwd, func.hessian)
)
make_functional = _older(_modules.make_functional, "torch.func.functional_call")
make_functional_with_buffers = _older(_modules.make_functional_with_buffers, "torch.func.functional_call")
combine_state_for_ensemble = _older(_modules.combine_state_for_ensemble, "torch.func.stack_module_state")
functionalize: Callable[..., Any] = getattr(func, "functionalize", None) or absent_function(
    "functorch.functionalize", "nothing traces a function here"
)
