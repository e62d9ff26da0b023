"""The order in memory of the weights of convolutions."""

from __future__ import annotations

from typing import Any

from rushlight.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, memory_format: Any, kinds: Any) -> Any:
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Give the weights of all `Conv2d` and `ConvTranspose2d` in `module` this order in memory; returns the module.

    Unlike `module.to(memory_format=...)` it leaves other parameters alone.

        >>> import rushlight as torch
        >>> net = torch.nn.utils.convert_conv2d_weight_memory_format(torch.nn.Conv2d(8, 4, 3), torch.channels_last)
        >>> net.weight.stride()
        (72, 1, 24, 8)
    """
    return _convert(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Give the weights of all `Conv3d` and `ConvTranspose3d` in `module` this order in memory; returns the module."""
    return _convert(module, memory_format, (Conv3d, ConvTranspose3d))
