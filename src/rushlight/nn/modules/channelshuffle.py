"""Reordering channels."""

from __future__ import annotations

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Takes the channels of (*, C, H, W) group by group in turn: `groups` groups become interleaved.

    >>> import rushlight as torch
    >>> torch.nn.ChannelShuffle(2)(torch.arange(4.0).reshape(1, 4, 1, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """Reorder the channels."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"groups={self.groups}"
