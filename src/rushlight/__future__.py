"""Switches for how modules convert their parameters, as `torch.__future__`."""

from __future__ import annotations

from rushlight.nn.modules import conversion

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `module.to(...)` and its kin put new parameters into the module, instead of new data into the old ones."""
    conversion.set_overwrite(bool(value))


def get_overwrite_module_params_on_conversion() -> bool:
    """See `set_overwrite_module_params_on_conversion`; False at first."""
    return conversion.overwrites()


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions swap the contents of old and new parameters.  Raises NotImplementedError for True."""
    if value:
        raise NotImplementedError("rushlight does not swap parameters on conversion yet")


def get_swap_module_params_on_conversion() -> bool:
    """False."""
    return False
