"""Affine maps: `Linear`, `Bilinear`, and `Identity`."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.modules.lazy import LazyModuleMixin
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Returns its input; it takes any arguments, so it can stand in for any layer.

    >>> import rushlight as torch
    >>> torch.nn.Identity(54, unused=True)(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return `input`."""
        return input


class Linear(Module):
    """y = x Wᵀ + b.

    Shapes: input (*, in_features) to output (*, out_features); `weight` (out_features, in_features), `bias`
    (out_features). Both start uniform on [-1/sqrt(in_features), 1/sqrt(in_features)].

    Example: `nn.Linear(20, 30)(torch.randn(128, 20)).shape  # (128, 30)`
    """

    __constants__ = ["in_features", "out_features"]

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(rushlight.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(rushlight.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        # With a = sqrt(5) the He bound becomes 1/sqrt(in_features).
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Map `input` (*, in_features) to (*, out_features)."""
        # Attributes that are parameters are found last and at some cost, so look where they are kept first.
        members = self.__dict__["_parameters"]
        if "weight" in members and "bias" in members:
            return F.linear(input, members["weight"], members["bias"])
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes, as PyTorch prints them."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A linear layer under the name with which PyTorch prints the last projection of attention."""


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` that takes `in_features` from the last dimension of its first input, and is a `Linear` from then on.

    Example: `nn.LazyLinear(30)(torch.randn(128, 20)).shape  # (128, 30)`
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        # Without a bias: it would be made for no features and thrown away.
        super().__init__(0, 0, False)
        self.weight = rushlight.nn.UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = rushlight.nn.UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new initial values, if the parameters have shapes."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Any) -> None:
        """Make the parameters for an input (*, in_features)."""
        if self.has_uninitialized_params():
            with rushlight.no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:
            # The weight came from a state dict.
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from self.weight: "
                    f"{self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


class Bilinear(Module):
    """y = x1ᵀ A x2 + b, one matrix A for each output feature.

    Shapes: (*, in1_features) and (*, in2_features) to (*, out_features); `weight` (out, in1, in2).

    Example: `nn.Bilinear(20, 30, 40)(torch.randn(8, 20), torch.randn(8, 30)).shape  # (8, 40)`
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        size = (out_features, in1_features, in2_features)
        self.weight = Parameter(rushlight.empty(size, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(rushlight.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        if self.in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={self.in1_features})")
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Combine the two inputs."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes, as PyTorch prints them."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
