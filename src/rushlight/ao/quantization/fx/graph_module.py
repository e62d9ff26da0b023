"""`torch.ao.quantization.fx.graph_module`: what preparation notes of a graph module for conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ObservedGraphModuleAttrs"]


@dataclass
class ObservedGraphModuleAttrs:
    """Notes of preparation: qconfigs and scopes by node, settings, and which nodes are observed."""

    node_name_to_qconfig: dict[str, Any]
    node_name_to_scope: dict[str, tuple[str, type]]
    prepare_custom_config: Any
    equalization_node_name_to_qconfig: dict[str, Any]
    qconfig_mapping: Any
    is_qat: bool
    observed_node_names: set[str]
    is_observed_standalone_module: bool = False
    standalone_module_input_quantized_idxs: list[int] | None = None
    standalone_module_output_quantized_idxs: list[int] | None = None


def _is_observed_module(module: Any) -> bool:
    """Whether a module comes from preparation."""
    return "_observed_graph_module_attrs" in getattr(module, "meta", {})


def _is_observed_standalone_module(module: Any) -> bool:
    """Whether a module was prepared by itself, inside of another."""
    return _is_observed_module(module) and module.meta["_observed_graph_module_attrs"].is_observed_standalone_module
