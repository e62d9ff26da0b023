"""Arithmetic as modules, so that its results can be observed: `FloatFunctional` becomes `QFunctional`."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.nn.quantized.sources import Quantized, output_parameters
from rushlight.ao.operators.namespace import operators as ops

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]


class FXFloatFunctional(nn.Module):
    """Arithmetic of floats, for graph mode, which finds observers by itself.

    >>> import rushlight as torch
    >>> torch.ao.nn.quantized.FloatFunctional().add_relu(torch.tensor([-3.0, 1.0]), torch.ones(2))
    tensor([0., 2.])
    """

    def forward(self, x: Any) -> Any:
        """RuntimeError: its functions are called by name."""
        raise RuntimeError(
            f"{type(self).__name__} is not intended to use the 'forward'. Please use the underlying operation"
        )

    def _watched(self, r: Any) -> Any:
        return r

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self._watched(torch.add(x, y))

    def add_scalar(self, x: Any, y: float) -> Any:
        """x + y, for a number y; not observed, as integers need no new scale."""
        return torch.add(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """x y."""
        return self._watched(torch.mul(x, y))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """x y, for a number y; not observed."""
        return torch.mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Tensors joined along `dim`."""
        return self._watched(torch.cat(x, dim=dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        """relu(x + y)."""
        return self._watched(torch.relu(torch.add(x, y)))

    def matmul(self, x: Any, y: Any) -> Any:
        """The product of matrices."""
        return self._watched(torch.matmul(x, y))


class FloatFunctional(FXFloatFunctional):
    """Arithmetic of floats that can be observed; `convert` makes a `QFunctional` of it."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Any = nn.Identity()

    def _watched(self, r: Any) -> Any:
        return self.activation_post_process(r)


class QFunctional(Quantized):
    """Arithmetic of quantized numbers, whose results are quantized by `scale` and `zero_point`."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Any = nn.Identity()

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        """Scale and zero point."""
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> Any:
        """RuntimeError: its functions are called by name."""
        raise RuntimeError("Functional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self.activation_post_process(ops.add(x, y, self.scale, self.zero_point))

    def add_scalar(self, x: Any, y: float) -> Any:
        """x + y, for a number y."""
        return ops.add_scalar(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """x y."""
        return self.activation_post_process(ops.mul(x, y, self.scale, self.zero_point))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """x y, for a number y."""
        return ops.mul_scalar(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """Tensors joined along `dim`."""
        return self.activation_post_process(ops.cat(x, dim, self.scale, self.zero_point))

    def add_relu(self, x: Any, y: Any) -> Any:
        """relu(x + y), in one kernel."""
        return self.activation_post_process(ops.add_relu(x, y, self.scale, self.zero_point))

    def matmul(self, x: Any, y: Any) -> Any:
        """The product of matrices."""
        return self.activation_post_process(ops.matmul(x, y, self.scale, self.zero_point))

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The functions of an observed `FloatFunctional`."""
        if type(mod) is not FloatFunctional:
            raise AssertionError("QFunctional.from_float expects an instance of FloatFunctional")
        made = cls()
        made.scale, made.zero_point = output_parameters(mod)
        return made
