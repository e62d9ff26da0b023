"""Batches in pinned memory, from which an accelerator copies while the program goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rushlight as torch
from rushlight._interface.base import trace_marks

__all__ = ["pin_memory"]


@trace_marks.changes_later_calls
def pin_memory(data: Any, device: Any = None) -> Any:
    """A batch with its tensors in pinned memory: in mappings and sequences, and in objects with a method `pin_memory`.

    Containers that cannot be made from their parts are left as lists, or as they are.
    """
    if isinstance(data, torch.Tensor):
        return data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        made = {key: pin_memory(value) for key, value in data.items()}
        return _like(data, made, made)
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(pin_memory, data))
    if isinstance(data, tuple):
        return [pin_memory(value) for value in data]  # as PyTorch has it
    if isinstance(data, Sequence):
        parts = [pin_memory(value) for value in data]
        return _like(data, parts, parts)
    return data


def _like(container: Any, parts: Any, otherwise: Any) -> Any:
    try:
        return type(container)(parts)
    except TypeError:
        return otherwise
