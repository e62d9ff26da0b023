"""Switches for how modules convert their parameters, as `torch.__future__`."""

from __future__ import annotations

from rushlight._interface.base import trace_marks
from rushlight.nn.modules import conversion

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]


@trace_marks.changes_later_calls
def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `module.to(...)` and its kin put new parameters into the module, instead of new data into the old ones."""
    conversion.set_overwrite(bool(value))


def get_overwrite_module_params_on_conversion() -> bool:
    """See `set_overwrite_module_params_on_conversion`; False at first."""
    return conversion.overwrites()


@trace_marks.changes_later_calls
def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether modules change their parameters by `torch.utils.swap_tensors`: in `module.to(...)` and its kin, in
    `load_state_dict`, and where parametrizations set or remove the tensor that they are applied to.

    Parameters then keep their identity whatever they become, tensor subclasses and other devices included.
    `load_state_dict` swaps a tensor with what its `Tensor.module_load` makes of the entry. This goes before
    `set_overwrite_module_params_on_conversion`.

        >>> torch.__future__.set_swap_module_params_on_conversion(True)
        >>> layer = torch.nn.Linear(2, 2, device="meta")
        >>> weight = layer.weight
        >>> layer.to_empty(device="cpu").weight is weight
        True
        >>> torch.__future__.set_swap_module_params_on_conversion(False)
    """
    conversion.set_swap(bool(value))


def get_swap_module_params_on_conversion() -> bool:
    """See `set_swap_module_params_on_conversion`; False at first."""
    return conversion.swaps()
