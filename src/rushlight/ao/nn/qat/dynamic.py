"""`torch.ao.nn.qat.dynamic`: training for dynamic quantization."""

from __future__ import annotations

from typing import Any

from rushlight.ao.nn import qat

__all__ = ["Linear"]


class Linear(qat.Linear):
    """`nn.Linear` with a rounded weight, whose input is rounded by the scale of each batch."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        if not getattr(qconfig.activation(), "is_dynamic", False):
            raise ValueError("Dynamic QAT requires a memoryless observer. This means a MovingAverage observer with averaging constant equal to 1")  # fmt: skip
