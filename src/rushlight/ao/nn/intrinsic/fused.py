"""Modules in a row that quantization turns into one: `Sequential`s of known types."""

from __future__ import annotations

from typing import Any

from rushlight import nn

__all__: list[str] = []


class _FusedModule(nn.Sequential):
    """Modules that become one when they are quantized; `_PARTS` are the types it takes."""

    _PARTS: tuple[Any, ...] = ()

    def __init__(self, *parts: Any) -> None:
        if self._PARTS and not (
            len(parts) == len(self._PARTS) and all(isinstance(p, t) for p, t in zip(parts, self._PARTS, strict=True))
        ):
            raise AssertionError(f"Incorrect types for input modules: {''.join(str(type(p)) for p in parts)}")
        super().__init__(*parts)


class ConvReLU1d(_FusedModule):
    """Conv1d and ReLU."""

    _PARTS = (nn.Conv1d, nn.ReLU)

    def __init__(self, conv: Any, relu: Any) -> None:
        super().__init__(conv, relu)


class ConvReLU2d(_FusedModule):
    """Conv2d and ReLU."""

    _PARTS = (nn.Conv2d, nn.ReLU)

    def __init__(self, conv: Any, relu: Any) -> None:
        super().__init__(conv, relu)


class ConvReLU3d(_FusedModule):
    """Conv3d and ReLU."""

    _PARTS = (nn.Conv3d, nn.ReLU)

    def __init__(self, conv: Any, relu: Any) -> None:
        super().__init__(conv, relu)


class LinearReLU(_FusedModule):
    """Linear and ReLU."""

    _PARTS = (nn.Linear, nn.ReLU)

    def __init__(self, linear: Any, relu: Any) -> None:
        super().__init__(linear, relu)


class ConvBn1d(_FusedModule):
    """Conv1d and BatchNorm1d."""

    _PARTS = (nn.Conv1d, nn.BatchNorm1d)

    def __init__(self, conv: Any, bn: Any) -> None:
        super().__init__(conv, bn)


class ConvBn2d(_FusedModule):
    """Conv2d and BatchNorm2d."""

    _PARTS = (nn.Conv2d, nn.BatchNorm2d)

    def __init__(self, conv: Any, bn: Any) -> None:
        super().__init__(conv, bn)


class ConvBn3d(_FusedModule):
    """Conv3d and BatchNorm3d."""

    _PARTS = (nn.Conv3d, nn.BatchNorm3d)

    def __init__(self, conv: Any, bn: Any) -> None:
        super().__init__(conv, bn)


class ConvBnReLU1d(_FusedModule):
    """Conv1d, BatchNorm1d and ReLU."""

    _PARTS = (nn.Conv1d, nn.BatchNorm1d, nn.ReLU)

    def __init__(self, conv: Any, bn: Any, relu: Any) -> None:
        super().__init__(conv, bn, relu)


class ConvBnReLU2d(_FusedModule):
    """Conv2d, BatchNorm2d and ReLU."""

    _PARTS = (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)

    def __init__(self, conv: Any, bn: Any, relu: Any) -> None:
        super().__init__(conv, bn, relu)


class ConvBnReLU3d(_FusedModule):
    """Conv3d, BatchNorm3d and ReLU."""

    _PARTS = (nn.Conv3d, nn.BatchNorm3d, nn.ReLU)

    def __init__(self, conv: Any, bn: Any, relu: Any) -> None:
        super().__init__(conv, bn, relu)


class BNReLU2d(_FusedModule):
    """BatchNorm2d and ReLU."""

    _PARTS = (nn.BatchNorm2d, nn.ReLU)

    def __init__(self, batch_norm: Any, relu: Any) -> None:
        super().__init__(batch_norm, relu)


class BNReLU3d(_FusedModule):
    """BatchNorm3d and ReLU."""

    _PARTS = (nn.BatchNorm3d, nn.ReLU)

    def __init__(self, batch_norm: Any, relu: Any) -> None:
        super().__init__(batch_norm, relu)


class LinearBn1d(_FusedModule):
    """Linear and BatchNorm1d."""

    _PARTS = (nn.Linear, nn.BatchNorm1d)

    def __init__(self, linear: Any, bn: Any) -> None:
        super().__init__(linear, bn)


class LinearLeakyReLU(_FusedModule):
    """Linear and LeakyReLU."""

    _PARTS = (nn.Linear, nn.LeakyReLU)

    def __init__(self, linear: Any, leaky_relu: Any) -> None:
        super().__init__(linear, leaky_relu)


class LinearTanh(_FusedModule):
    """Linear and Tanh."""

    _PARTS = (nn.Linear, nn.Tanh)

    def __init__(self, linear: Any, tanh: Any) -> None:
        super().__init__(linear, tanh)


class ConvAdd2d(_FusedModule):
    """Conv2d of the first input, and a function that adds the second."""

    def __init__(self, conv: Any, add: Any) -> None:
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Any, x2: Any) -> Any:
        """add(conv(x1), x2)."""
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """Conv2d of the first input, a function that adds the second, and ReLU."""

    def __init__(self, conv: Any, add: Any, relu: Any) -> None:
        super().__init__(conv)
        self.add, self.relu = add, relu

    def forward(self, x1: Any, x2: Any) -> Any:
        """relu(add(conv(x1), x2))."""
        return self.relu(self.add(self[0](x1), x2))
