"""Masks of weights, and modules and tensors by name."""

from __future__ import annotations

from typing import Any

from rushlight import nn

__all__ = [
    "FakeSparsity", "fqn_to_module", "get_arg_info_from_tensor_fqn", "get_dynamic_sparse_quantized_mapping",
    "get_static_sparse_quantized_mapping", "module_to_fqn",
]  # fmt: skip


class FakeSparsity(nn.Module):
    """A parametrization: the weight times a mask of zeros and ones, which is no part of the state.

    >>> import rushlight as torch
    >>> torch.ao.pruning.FakeSparsity(torch.tensor([1.0, 0.0]))(torch.tensor([3.0, 4.0]))
    tensor([3., 0.])
    """

    mask: Any

    def __init__(self, mask: Any) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Any) -> Any:
        """The masked weight."""
        if self.mask.shape != x.shape:
            raise AssertionError("The mask and the weight must have one shape")
        return self.mask * x

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing: sparsifiers keep the masks."""
        return {}


def module_to_fqn(model: Any, module: Any, prefix: str = "") -> str | None:
    """The name of a module inside of a model; None where it is not there."""
    return next((name for name, found in model.named_modules(prefix=prefix) if found is module), None)


def fqn_to_module(model: Any, path: str) -> Any:
    """The module with this name; None where there is none."""
    found = model
    for name in path.split(".") if path else ():
        found = getattr(found, name, None)
        if found is None:
            return None
    return found


def get_arg_info_from_tensor_fqn(model: Any, tensor_fqn: str) -> dict[str, Any]:
    """The module, its name and the tensor's name, of a tensor's full name."""
    module_name, _, tensor_name = tensor_fqn.rpartition(".")
    return {
        "module_fqn": module_name,
        "module": fqn_to_module(model, module_name),
        "tensor_name": tensor_name,
        "tensor_fqn": tensor_fqn,
    }


def get_static_sparse_quantized_mapping() -> dict[Any, Any]:
    """Sparse quantized modules: none are here."""
    return {}


def get_dynamic_sparse_quantized_mapping() -> dict[Any, Any]:
    """Sparse dynamic modules: none are here."""
    return {}
