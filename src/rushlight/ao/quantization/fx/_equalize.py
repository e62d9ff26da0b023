"""`torch.ao.quantization.fx._equalize`: scales that move range from inputs into weights.

No observer of this kind exists here, so a prepared graph has none and conversion has nothing to scale.
"""

from __future__ import annotations

from typing import Any

__all__ = ["convert_eq_obs", "is_equalization_observer", "update_obs_for_equalization"]


def is_equalization_observer(observer: Any) -> bool:
    """Whether an observer equalizes ranges of inputs and weights: none does."""
    return False


def update_obs_for_equalization(model: Any, modules: dict[str, Any]) -> dict[str, Any]:
    """The weight's equalization observer by name of node: an empty dict."""
    return {name: module for name, module in modules.items() if is_equalization_observer(module)}


def convert_eq_obs(model: Any, modules: dict[str, Any], weight_eq_obs_dict: dict[str, Any]) -> None:
    """Scale inputs and weights; NotImplementedError where there are observers to do it by."""
    if weight_eq_obs_dict:
        raise NotImplementedError("rushlight does not equalize ranges of inputs and weights (_equalization_config)")
