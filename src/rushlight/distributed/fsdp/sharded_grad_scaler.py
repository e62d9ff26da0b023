"""`ShardedGradScaler`: scaling of losses where every process has parts of the gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight import Tensor
from rushlight.amp import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """`GradScaler`: gradients of sharded parameters are `DTensor`s, so all processes find the same infinities anyway.

    `process_group` is taken and not needed.
    """

    def __init__(
        self,
        device: str = "cpu",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        self.process_group = process_group

    def scale(self, outputs: Any) -> Any:
        """Scaled losses, each in the dtype that it has: of a model in mixed precision that is the low one."""
        if isinstance(outputs, Tensor):
            return super().scale(outputs).to(outputs.dtype)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(map(self.scale, outputs))
        return map(self.scale, outputs) if isinstance(outputs, Iterable) else super().scale(outputs)
