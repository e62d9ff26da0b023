"""NVIDIA's GPUs: their backend, and why there is none."""

from __future__ import annotations

from rushlight._backends.registry import backend_of, why_absent

__all__ = [
    "backend_of",  # the backend of a device
    "why_absent",  # why a machine has no devices of a type, or None
]
