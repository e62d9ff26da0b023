"""Streams and events, as `torch.cuda.streams`: classes without objects."""

from __future__ import annotations

from rushlight.cuda.refusals import gpu_class

__all__ = ["Event", "ExternalStream", "Stream"]

Event, ExternalStream, Stream = gpu_class("Event"), gpu_class("ExternalStream"), gpu_class("Stream")
