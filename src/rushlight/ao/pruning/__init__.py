"""`torch.ao.pruning`: sparsifiers, which choose the weights that become zero, and schedules of how many."""

from __future__ import annotations

from rushlight.ao.pruning.masks import (
    FakeSparsity,
    fqn_to_module,
    get_arg_info_from_tensor_fqn,
    get_dynamic_sparse_quantized_mapping,
    get_static_sparse_quantized_mapping,
    module_to_fqn,
)
from rushlight.ao.pruning.scheduler import BaseScheduler, CubicSL, LambdaSL
from rushlight.ao.pruning.sparsifier import BaseSparsifier, NearlyDiagonalSparsifier, WeightNormSparsifier

__all__ = [
    "BaseScheduler", "BaseSparsifier", "CubicSL", "FakeSparsity", "LambdaSL", "NearlyDiagonalSparsifier", "WeightNormSparsifier",
    "fqn_to_module", "get_arg_info_from_tensor_fqn", "get_dynamic_sparse_quantized_mapping", "get_static_sparse_quantized_mapping",
    "module_to_fqn",
]  # fmt: skip
