"""`torch.ao.quantization.fx.qconfig_mapping_utils`: qconfigs of nodes, for conversion with a mapping of its own."""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__: list[str] = []

_WHY = "conversion takes the qconfigs of the preparation; torch.ao.quantization.quantize_fx.convert_fx takes no other mapping"
_PAGE = "torch.ao.quantization.fx.qconfig_mapping_utils"
_compare_prepare_convert_qconfig_mappings = absent_function(f"{_PAGE}._compare_prepare_convert_qconfig_mappings", _WHY)
_generate_node_name_to_qconfig = absent_function(f"{_PAGE}._generate_node_name_to_qconfig", _WHY)
_is_qconfig_supported_by_dtype_configs = absent_function(f"{_PAGE}._is_qconfig_supported_by_dtype_configs", _WHY)
_update_qconfig_for_fusion = absent_function(f"{_PAGE}._update_qconfig_for_fusion", _WHY)
_update_qconfig_for_qat = absent_function(f"{_PAGE}._update_qconfig_for_qat", _WHY)
