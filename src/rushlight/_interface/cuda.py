"""NVIDIA's GPUs: their backend, and why there is none."""

from __future__ import annotations

from rushlight._backends.registry import backend_of, why_absent
from rushlight._engine.random.random import generator_of

__all__ = [
    "backend_of",  # the backend of a device
    "generator_of",  # the default random generator of a device
    "why_absent",  # why a machine has no devices of a type, or None
]
