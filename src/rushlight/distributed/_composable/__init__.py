"""Ways to spread a module over processes, or to compute it again, that leave it the class it is."""

from __future__ import annotations

from rushlight._interface.base import lazy_files
from rushlight.distributed._composable.checkpoint_activation import checkpoint
from rushlight.distributed._composable.replicate import replicate

__all__ = ["checkpoint", "fsdp", "replicate"]

__getattr__ = lazy_files(__name__, {}, ["fsdp", "replicate_with_fsdp"])
