"""From observed modules: quantized weights, scales of results, and the base of all quantized modules."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn

__all__ = ["Quantized", "float_of", "output_parameters", "quantized_weight", "weight_observer"]

_CHANNELS = (torch.per_channel_symmetric, torch.per_channel_affine)


def quantized_weight(weight: Any, observer: Any) -> Any:
    """A weight quantized by the scales that its observer found."""
    scale, zero = observer.calculate_qparams()
    if observer.qscheme in (torch.per_tensor_symmetric, torch.per_tensor_affine):
        return torch.quantize_per_tensor(weight.detach(), float(scale), int(zero), torch.qint8)
    if observer.qscheme in _CHANNELS:
        return torch.quantize_per_channel(
            weight.detach(), scale.to(torch.double), zero.to(torch.int64), observer.ch_axis, torch.qint8
        )
    if observer.qscheme == torch.per_channel_affine_float_qparams:
        return torch.quantize_per_channel(
            weight.detach(), scale.float(), zero.float(), observer.ch_axis, observer.dtype
        )
    raise ValueError(f"Unexpected qscheme {observer.qscheme}")


def weight_observer(mod: Any, weight: Any, precomputed: bool = False) -> Any:
    """The observer of a module's weight, which has seen it."""
    found = getattr(mod, "weight_fake_quant", None)
    if found is None:
        found = mod.qconfig.weight()
    if not precomputed or not hasattr(mod, "weight_fake_quant"):
        found(weight.detach())
    if found.dtype is not torch.qint8:
        raise AssertionError(f"Weight observer must have a dtype of qint8, got {found.dtype}")
    return found


def output_parameters(mod: Any) -> tuple[float, int]:
    """Scale and zero point of what a module returned while it was observed."""
    watch = getattr(mod, "activation_post_process", None)
    if (
        watch is None
        or not hasattr(watch, "calculate_qparams")
        or type(watch).__name__ in ("NoopObserver", "PlaceholderObserver")
    ):
        return 1.0, 0
    scale, zero = watch.calculate_qparams()
    return float(scale), int(zero)


def float_of(mod: Any) -> Any:
    """The layer with the weight: the first of a fused module."""
    return mod[0] if isinstance(mod, nn.Sequential) else mod


class Quantized(nn.Module):
    """Base of modules whose result is quantized by `scale` and `zero_point`, which are part of its state."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: Any,
        unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:
        for name, kind in (("scale", float), ("zero_point", int)):
            if prefix + name in state_dict:
                setattr(self, name, kind(state_dict.pop(prefix + name)))
            elif strict:
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs
        )
