"""`torch.distributed.elastic`: what launchers and their workers share."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__: list[str] = []

__getattr__ = lazy_files(
    __name__, {}, ("agent", "events", "metrics", "multiprocessing", "rendezvous", "timer", "utils")
)
