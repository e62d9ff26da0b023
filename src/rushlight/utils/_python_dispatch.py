"""Classes and modes below autograd, as `torch.utils._python_dispatch`: what can be asked of them.

Operators here are whole graphs with derived gradients, so there is no layer of small operators below autograd that a mode could see: entering a
`TorchDispatchMode` raises NotImplementedError.  `torch.overrides.TorchFunctionMode` sees every call of a function of tensors.
"""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight import Tensor
from rushlight._interface.base import refuse

__all__ = [
    "TorchDispatchMode",
    "is_in_torch_dispatch_mode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
]


class TorchDispatchMode:
    """Base of modes that see operators below autograd.  There is nothing below autograd here: using one raises NotImplementedError."""

    supports_higher_order_operators = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_dispatch__")

    def __enter__(self) -> NoReturn:
        refuse(
            "TorchDispatchMode",
            "operators run as whole graphs, forward and backward; torch.overrides.TorchFunctionMode sees calls of functions",
        )

    def __exit__(self, *exc: object) -> None:
        pass

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether the mode belongs to PyTorch's compiler."""
        return False


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """False: none can be entered."""
    return False


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class of tensors says how its objects are taken apart and put together: `__tensor_flatten__`, `__tensor_unflatten__`."""
    return (
        issubclass(t, Tensor)
        and t is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether an object is a tensor of such a class.

    >>> import rushlight as torch
    >>> is_traceable_wrapper_subclass(torch.ones(2))
    False
    """
    return is_traceable_wrapper_subclass_type(type(t))


def _get_current_dispatch_mode() -> None:
    """None: no mode can be entered."""


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return []
