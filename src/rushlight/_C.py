"""The few names of PyTorch's native module that programs use."""

from __future__ import annotations

from rushlight._engine.override import DisableTorchFunctionSubclass, disabled_torch_function

__all__ = ["DisableTorchFunctionSubclass", "_disabled_torch_function_impl"]

_disabled_torch_function_impl = disabled_torch_function
