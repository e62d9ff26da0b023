"""Exchange of a module's parameters and buffers by name, as `torch.nn.utils._named_member_accessor`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.nn.modules.module import Module

__all__ = ["swap_tensor"]


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor, or None, in the place of a module's own parameter or buffer; returns what was there.

    KeyError for a name with a dot, AttributeError for one that the module has not (unless `allow_missing`), TypeError
    for what is no tensor.

    >>> import rushlight as torch
    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> before = swap_tensor(layer, "weight", torch.zeros(1, 1))
    >>> layer.weight
    tensor([[0.]])
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name or not name:
        raise KeyError('tensor name can\'t contain "."' if name else 'tensor name can\'t be empty string ""')
    for table in (module._parameters, module._buffers):
        if name in table:
            before = table[name]
            table[name] = tensor
            return before
    before = getattr(module, name, None)
    if before is None and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    setattr(module, name, tensor)
    return before
