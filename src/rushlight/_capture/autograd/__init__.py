"""Backward calls that nobody traces, compiled: the engine's walk over a recorded history becomes a program."""

from rushlight._capture.autograd.walks import Walks

__all__ = ["Walks"]
