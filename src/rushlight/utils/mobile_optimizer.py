"""`torch.utils.mobile_optimizer`: TorchScript modules for inference on small devices."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from rushlight import jit
from rushlight.jit.freezing import remove_dropout

__all__ = ["LintCode", "MobileOptimizerType", "generate_mobile_module_lints", "optimize_for_mobile"]


class LintCode(Enum):
    """Warnings of `generate_mobile_module_lints`."""

    BUNDLED_INPUT = 1
    REQUIRES_GRAD = 2
    DROPOUT = 3
    BATCHNORM = 4


class MobileOptimizerType(Enum):
    """Steps of `optimize_for_mobile` that can be left out."""

    CONV_BN_FUSION = 0
    INSERT_FOLD_PREPACK_OPS = 1
    REMOVE_DROPOUT = 2
    FUSE_ADD_RELU = 3
    HOIST_CONV_PACKED_PARAMS = 4
    CONV_1D_TO_2D = 5
    VULKAN_AUTOMATIC_GPU_TRANSFER = 6


_BACKENDS = ("cpu", "vulkan", "metal")


def optimize_for_mobile(
    script_module: Any,
    optimization_blocklist: set[MobileOptimizerType] | None = None,
    preserved_methods: Iterable[str] | None = None,
    backend: str = "CPU",
) -> Any:
    """A frozen copy of a TorchScript module in evaluation mode: parameters are constants, batch normalisation is
    folded into convolutions, and dropout is gone, unless these steps are in `optimization_blocklist`.

    Weights are packed when a graph runs here, so the other steps have nothing to do.  `preserved_methods` stay beside
    `forward`.  TypeError for other modules and backends, AttributeError for methods that there are not,
    NotImplementedError for the backends Vulkan and Metal.
    """
    _checked(script_module)
    kept = [str(name) for name in preserved_methods or ()]
    lacking = [name for name in kept if not hasattr(script_module, name)]
    if lacking:
        raise AttributeError(f"The following methods to preserve do not exist in script_module: {', '.join(lacking)}")
    if backend.lower() not in _BACKENDS:
        raise TypeError("Unknown backend, must be one of 'CPU', 'Vulkan' or 'Metal'")
    if backend.lower() in _BACKENDS[1:]:
        raise NotImplementedError(f"optimize_for_mobile(backend={backend!r}): rushlight makes no code for {backend}")
    left_out = optimization_blocklist or set()
    fold = MobileOptimizerType.CONV_BN_FUSION not in left_out
    modes = [(each, each.training) for each in script_module.modules()]
    script_module.eval()
    try:
        frozen = jit.freeze(script_module, preserved_attrs=kept, optimize_numerics=fold)
    finally:
        for each, training in modes:
            each.training = training
    if MobileOptimizerType.REMOVE_DROPOUT not in left_out:
        remove_dropout(frozen, kept)
    return frozen


def generate_mobile_module_lints(script_module: Any) -> list[dict[str, str]]:
    """Lints of a TorchScript module for small devices: gradients, dropout, batch normalisation."""
    _checked(script_module)
    found = []
    if not hasattr(script_module, "_generate_bundled_inputs_for_forward"):
        text = (
            "No bundled input for forward, please add bundled inputs before saving the module using "
            "torch.utils.bundled_inputs.augment_model_with_bundled_inputs."
        )
        found.append((LintCode.BUNDLED_INPUT, text))
    for name, parameter in script_module.named_parameters():
        if parameter.requires_grad:
            text = (
                f"Param {name} requires grad, please set torch.no_grad() to reduce memory usage and improve computation "
                "speed during inference phase."
            )
            found.append((LintCode.REQUIRES_GRAD, text))
    for name in jit.export_opnames(script_module):
        for part, code in (("dropout", LintCode.DROPOUT), ("batch_norm", LintCode.BATCHNORM)):
            if part in name:
                text = (
                    f"Operator {name} exists, remember to call eval() before saving the module and call "
                    f"torch.utils.mobile_optimizer.optimize_for_mobile to drop {part} operator."
                )
                found.append((code, text))
    return [{"name": code.name, "message": text} for code, text in found]


def _checked(module: Any) -> None:
    if not isinstance(module, jit.ScriptModule):
        raise TypeError(f"Got {type(module)}, but ScriptModule is expected.")
