"""Weights of eight or four bits: under activations in floats, where they are widened in registers while they stream by, and
under activations that are rounded to eight bits, where bytes are multiplied, four products an instruction.
"""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight._interface.operators import function_of
from rushlight._interface.quantized import rows_together

__all__ = ["Int8ActivationLinear", "WeightOnlyLinear", "quantize_weights"]

_int8, _int4 = function_of("linear_int8_words"), function_of("linear_int4_words")
_GROUP = 32  # numbers of a row of activations that have a scale of their own


class WeightOnlyLinear(nn.Module):
    """A linear layer [N, K] of floats whose weight has `bits` 8 (a scale for each row) or 4 (scale and zero for each group).

    Its state: `weight` (int8 [N, K], or two numbers a byte [N / R, K / 2, R], where the bytes of R rows lie side by side),
    `scales` ([N], or [K / group_size, N, 2]), `bias`.  The shape tells the order of the bytes, so RuntimeError for
    weights of four bits in another order, and for those of [N, K / 2] that do not tell.

    >>> import rushlight as torch
    >>> layer = WeightOnlyLinear.from_float(torch.nn.Linear(64, 32), bits=4, group_size=32)
    >>> layer.weight.shape, layer(torch.ones(1, 64)).shape
    (torch.Size([1, 32, 32]), torch.Size([1, 32]))
    """

    weight: Any
    scales: Any
    bias: Any

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, bits: int = 8, group_size: int = 128
    ) -> None:
        super().__init__()
        if bits not in (4, 8):
            raise ValueError(f"bits must be 4 or 8, got {bits}")
        if bits == 4 and (group_size not in (32, 64, 128, 256) or in_features % group_size or out_features % 16):
            raise ValueError(
                "weights of four bits need groups of 32, 64, 128 or 256 that divide in_features, and out_features divisible by 16; "
                f"got group_size {group_size}, in_features {in_features}, out_features {out_features}"
            )
        self.in_features, self.out_features, self.bits, self.group_size = in_features, out_features, bits, group_size
        dtype, scales = (torch.int8, (out_features,)) if bits == 8 else (torch.uint8, (in_features // group_size, out_features, 2))  # fmt: skip
        self.register_buffer("weight", torch.zeros(self._weight_shape(), dtype=dtype))
        self.register_buffer("scales", torch.ones(scales))
        self.register_buffer("bias", torch.zeros(out_features) if bias else None)

    def _weight_shape(self) -> tuple[int, ...]:
        if self.bits == 8:
            return self.out_features, self.in_features
        rows = rows_together(self.out_features)
        return self.out_features // rows, self.in_features // 2, rows

    def _misread(self, weight: Any) -> str:
        """Why a weight cannot be read; empty where it can."""
        if self.bits == 8 or tuple(weight.shape) == self._weight_shape():
            return ""
        return (
            f"the weight of four bits {list(weight.shape)} does not lie in the order {list(self._weight_shape())} that is read here: an earlier "
            "version packed it (pack the float layer anew: WeightOnlyLinear.from_float), or it is another layer's"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:  # fmt: skip
        given = state_dict.get(f"{prefix}weight")
        why = self._misread(given) if isinstance(given, torch.Tensor) else ""
        if why:
            errors.append(f"{prefix}weight: {why}")
        else:
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        why = self._misread(self.weight)
        if why:
            raise RuntimeError(why)

    def extra_repr(self) -> str:
        """Sizes and bits."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, bits={self.bits}"
        return text + (f", group_size={self.group_size}" if self.bits == 4 else "")

    def forward(self, input: Any) -> Any:
        """The layer of floats [..., K]."""
        rows = input.reshape(-1, self.in_features)
        if self.bits == 8:
            y = torch._weight_int8pack_mm(rows, self.weight, self.scales)
        else:
            packed = self.weight.view(self.out_features, self.in_features // 2)
            y = torch._weight_int4pack_mm_for_cpu(rows, packed, self.group_size, self.scales)
        y = y if self.bias is None else y + self.bias.to(y.dtype)
        return y.reshape(*input.shape[:-1], self.out_features)

    @classmethod
    def from_float(cls, mod: Any, bits: int = 8, group_size: int = 128) -> WeightOnlyLinear:
        """The layer of a float one: numbers are rounded to the nearest of their row's, or their group's, integers."""
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, bits, group_size)
        weight = mod.weight.detach().float()
        if bits == 8:
            scales = _row_scales(weight)
            made.weight = (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
            made.scales = scales
        else:
            ints, low, scales = _four_bits(weight.reshape(mod.out_features, -1, group_size))
            made.weight = torch._convert_weight_to_int4pack_for_cpu(ints.reshape(weight.shape), 1).view(
                made.weight.shape
            )
            made.scales = torch.stack([scales.t(), (low + 8 * scales).t()], -1).contiguous()
        made.bias = None if mod.bias is None else mod.bias.detach().clone()
        return made.train(mod.training)


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
            made.scales = _row_scales(weight)
            ints = (weight / made.scales[:, None]).round().clamp(-127, 127) + 128
            parts = ints.to(torch.uint8).reshape(blocks, rows, words, 4)
        else:
            ints, starts, scales = _four_bits(weight.reshape(mod.out_features, -1, group_size))
            low, high = ints.to(torch.uint8).reshape(blocks, rows, words, 2, 4).unbind(3)
            parts = low | (high << 4)
            made.scales, made.starts = scales.t().contiguous(), starts.t().contiguous()
        made.weight = parts.transpose(1, 2).contiguous().view(torch.int32).squeeze(3)
        made.bias = None if mod.bias is None else mod.bias.detach().clone()
        return made.train(mod.training)


def _row_scales(weight: Any) -> Any:
    """Scales [N] by which the rows of a weight [N, K] become integers of -127 to 127."""
    return (weight.abs().amax(1) / 127).clamp(min=1e-12)


_RANGES = (1.0, 0.93, 0.86)  # of the numbers of a group: outliers are cut off where that serves the others
_FITTED = 2  # times that scale and start are fitted to the integers, and these rounded anew


def _four_bits(groups: Any) -> tuple[Any, Any, Any]:
    """Integers from 0 to 15 of groups of numbers [N, G, K], the starts and the scales of the groups [N, G].

    Of some ranges the one with the least squared error is taken, then scale and start are fitted by least squares.
    """
    low, high = groups.amin(2), groups.amax(2)
    best: tuple[Any, ...] = ()
    for part in _RANGES:
        cut = (high - low) * (1 - part) / 2
        found = _rounded(groups, low + cut, ((high - low) * part / 15).clamp(min=1e-12))
        best = found if not best else _better(best, found)
    mean = groups.mean(2, keepdim=True)
    for _ in range(_FITTED):
        ints = best[0]
        apart = ints - ints.mean(2, keepdim=True)
        scales = (apart * (groups - mean)).sum(2) / (apart * apart).sum(2).clamp(min=1e-12)
        scales = torch.where(scales > 0, scales, best[2])
        best = _better(best, _rounded(groups, mean[..., 0] - scales * ints.mean(2), scales))
    return best[0].to(torch.int32), best[1], best[2]


def _rounded(groups: Any, low: Any, scales: Any) -> tuple[Any, Any, Any, Any]:
    """The integers of groups, with starts, scales, and the squared errors of the groups."""
    ints = ((groups - low[..., None]) / scales[..., None]).round().clamp(0, 15)
    wrong = ints * scales[..., None] + low[..., None] - groups
    return ints, low, scales, (wrong * wrong).sum(2)


def _better(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """The one with the lesser error, group by group."""
    take = other[3] < one[3]
    return (
        torch.where(take[..., None], other[0], one[0]),
        *(torch.where(take, b, a) for a, b in zip(one[1:], other[1:], strict=True)),
    )


def quantize_weights(
    model: Any, bits: int = 8, group_size: int = 128, skip: Any = (), activations: str = "float"
) -> Any:
    """Replace the linear layers of a model by ones with weights of `bits` bits, in place, but those named in `skip`.

    `activations` are "float", or "int8": rounded while the model runs, which is faster and costs accuracy.  Layers whose
    sizes groups of four bits do not fit get eight, and those that products of bytes do not fit keep floats.  ValueError
    for other activations.
    """
    if activations not in ("float", "int8"):
        raise ValueError(f"activations must be 'float' or 'int8', got {activations!r}")
    kind = Int8ActivationLinear if activations == "int8" else WeightOnlyLinear
    for name, child in list(model.named_modules()):
        if type(child) is not nn.Linear or name in skip:
            continue
        fits = child.in_features % group_size == 0 and child.out_features % 16 == 0
        whole = child.in_features % 32 == 0 and child.out_features % 16 == 0
        layer = kind if whole else WeightOnlyLinear
        made = layer.from_float(child, bits if bits == 8 or fits else 8, group_size)
        if not name:
            return made
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, made)
    return model
