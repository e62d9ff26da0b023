"""Weights of eight or four bits under activations that are rounded to eight bits: products of bytes, four an instruction."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight._interface.operators import function_of
from rushlight.ao.quantization.weight_only import WeightOnlyLinear, four_bits, row_scales

__all__ = ["Int8ActivationLinear"]

_int8, _int4 = function_of("linear_int8_words"), function_of("linear_int4_words")
_GROUP = 32  # numbers of a row of activations that have a scale of their own


class Int8ActivationLinear(WeightOnlyLinear):
    """A linear layer of floats [N, K] whose weight has `bits` 8 (a scale for each row) or 4 (scale and start for each
    group), and whose input is rounded to integers of -127 to 127 with a scale for each 32 numbers.

    Its state: `weight` (int32 words of four numbers [N / R, K / 4, R], or of eight [N / R, K / 8, R], where those of R rows
    lie side by side), `scales` ([N], or [K / group_size, N]), `starts` (of four bits, as the scales), `bias`.

    >>> import rushlight as torch
    >>> layer = Int8ActivationLinear.from_float(torch.nn.Linear(64, 32), bits=4, group_size=32)
    >>> layer.weight.shape, layer(torch.ones(1, 64)).shape
    (torch.Size([1, 8, 32]), torch.Size([1, 32]))
    """

    starts: Any

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, bits: int = 8, group_size: int = 128
    ) -> None:
        if in_features % _GROUP or out_features % 16:
            raise ValueError(
                f"activations of eight bits need in_features divisible by {_GROUP} and out_features by 16; "
                f"got in_features {in_features}, out_features {out_features}"
            )
        super().__init__(in_features, out_features, bias, bits, group_size)
        self.weight = self.weight.to(torch.int32)
        if bits == 4:
            groups = in_features // group_size
            self.scales = torch.ones(groups, out_features)
            self.register_buffer("starts", torch.zeros(groups, out_features))

    def _weight_shape(self) -> tuple[int, ...]:
        rows = 32 if self.out_features % 32 == 0 else 16
        return self.out_features // rows, self.in_features * self.bits // 32, rows

    def _misread(self, weight: Any) -> str:
        if tuple(weight.shape) == self._weight_shape():
            return ""
        return (
            f"the weight {list(weight.shape)} does not lie in the order {list(self._weight_shape())} that is read here: "
            "pack the float layer anew (Int8ActivationLinear.from_float), or it is another layer's"
        )

    def forward(self, input: Any) -> Any:
        """The layer of floats [..., K]."""
        x = input.reshape(-1, self.in_features)
        y = _int8(x, self.weight, self.scales) if self.bits == 8 else _int4(x, self.weight, self.scales, self.starts)
        y = y if self.bias is None else y + self.bias.to(y.dtype)
        return y.reshape(*input.shape[:-1], self.out_features)

    @classmethod
    def from_float(cls, mod: Any, bits: int = 8, group_size: int = 128) -> Int8ActivationLinear:
        """The layer of a float one: numbers are rounded to the nearest of their row's, or their group's, integers."""
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, bits, group_size)
        weight = mod.weight.detach().float()
        blocks, words, rows = made.weight.shape
        if bits == 8:
            made.scales = row_scales(weight)
            ints = (weight / made.scales[:, None]).round().clamp(-127, 127) + 128
            parts = ints.to(torch.uint8).reshape(blocks, rows, words, 4)
        else:
            ints, starts, scales = four_bits(weight.reshape(mod.out_features, -1, group_size))
            low, high = ints.to(torch.uint8).reshape(blocks, rows, words, 2, 4).unbind(3)
            parts = low | (high << 4)
            made.scales, made.starts = scales.t().contiguous(), starts.t().contiguous()
        made.weight = parts.transpose(1, 2).contiguous().view(torch.int32).squeeze(3)
        made.bias = None if mod.bias is None else mod.bias.detach().clone()
        return made.train(mod.training)
