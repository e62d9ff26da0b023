"""`swap_tensors`: two tensors become each other, for everybody who holds them."""

from __future__ import annotations

import weakref
from typing import Any

from rushlight import Tensor

__all__ = ["set_module", "swap_tensors"]


def set_module(obj: Any, mod: str) -> None:
    """Say which module an object belongs to; TypeError unless it is a text."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange all that two tensors are: memory, class, attributes, gradient.  Whoever holds one of them sees the
    other.

    RuntimeError where one has weak references, which would then lead to the other one.

        >>> a, b = torch.ones(2), torch.zeros(3)
        >>> torch.utils.swap_tensors(a, b)
        >>> a
        tensor([0., 0., 0.])
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"swap_tensors: expected {name} to be a tensor, found {type(tensor).__name__}")
        own = 1 if _accumulator(tensor) is not None else 0
        if weakref.getweakrefcount(tensor) > own:
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    slots = ("_storage", "_spec", "_ptr", "_rg", "_node", "_autograd_meta", "__dict__", "__class__")
    first, second = ([getattr(t, slot) for slot in slots] for t in (t1, t2))
    for tensor, values in ((t1, second), (t2, first)):
        for slot, value in zip(slots, values, strict=True):
            setattr(tensor, slot, value)
    for tensor in (t1, t2):
        node = _accumulator(tensor)
        if node is not None:
            node._variable = weakref.ref(tensor)


def _accumulator(tensor: Tensor) -> Any:
    """The node that adds to the gradient of a leaf; it knows the leaf by a weak reference."""
    return tensor._autograd_meta.accumulator if tensor._autograd_meta is not None else None
