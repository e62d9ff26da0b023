"""`repr(tensor)`: gathers what the printer needs to know."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.elements import elements_of
from rushlight._engine.core.memory import is_host_memory
from rushlight._engine.core.printing import tensor_repr
from rushlight._engine.core.tensor import Tensor, was_changed
from rushlight._types.promotion import default_dtype

__all__ = ["describe"]


def describe(x: Tensor, contents: Any = None, tangent: str | None = None) -> str:
    """The printed form of a tensor; `contents` replace the text of its elements."""
    node = x._node
    name = None if node is None else node.name().rsplit("::", 1)[-1] if node._refusal is None else "Invalid"
    if was_changed(x):
        name = "Invalid"
    host = is_host_memory(x._spec) or x._spec.device.type == "cpu"  # what is being recorded too
    device = None if host else str(x._spec.device)
    plain = type(x) is Tensor or type(x).__dict__.get("_printed_plainly", False)
    text = tensor_repr(
        None if x._storage is None else elements_of(x),
        dtype=x._spec.dtype,
        default_dtype=default_dtype(),
        shape=tuple(x._spec.shape),
        device=device,
        requires_grad=x._rg and node is None,
        grad_fn=name,
        tangent=tangent,
        type_name="tensor" if plain else type(x).__name__,
        text=contents,
    )
    return f"Parameter({text})" if not plain and getattr(x, "_is_param", False) else text
