"""Kernels of the Triton language in operators; traces follow what is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["wrap_triton"]


def wrap_triton(triton_kernel: Callable[..., Any], /) -> Any:
    """The kernel itself (under `triton.jit`, with or without `triton.autotune`), whose launches a `triton_op` may contain.
    RuntimeError for anything else.
    """
    if not hasattr(triton_kernel, "arg_names") or not hasattr(triton_kernel, "run"):
        raise RuntimeError("wrap_triton only works on functions annotated with triton.jit or triton.autotune")
    return triton_kernel
