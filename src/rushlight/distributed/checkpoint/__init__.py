"""The names of `torch.distributed.checkpoint` that libraries import; checkpoints of several processes are not there yet."""

from __future__ import annotations

from rushlight._interface.base import absent_function, lazy_files

__all__ = ["load", "save"]

_WHY = "checkpoints of several processes are not written yet; `torch.save` on one of them is"
load, save = (absent_function(f"torch.distributed.checkpoint.{name}", _WHY) for name in ("load", "save"))

__getattr__ = lazy_files(__name__, {}, ("hf_storage",))
