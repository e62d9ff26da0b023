"""`torch.distributed.elastic.multiprocessing.api`: the same names at their other place."""

from __future__ import annotations

from rushlight._distributed.launch.agent import SignalException as SignalException
from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, Std, to_map

__all__ = ["DefaultLogsSpecs", "LogsSpecs", "SignalException", "Std", "to_map"]
