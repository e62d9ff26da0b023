"""Reordering channels."""

from __future__ import annotations

from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Takes the channels of (*, C, H, W) group by group in turn: `groups` groups become interleaved."""

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
