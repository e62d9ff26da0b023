"""`torch.distributed.elastic.multiprocessing.errors`: which worker failed, and why."""

from __future__ import annotations

from rushlight._distributed.launch.failures import ChildFailedError as ChildFailedError
from rushlight._distributed.launch.failures import ErrorHandler as ErrorHandler
from rushlight._distributed.launch.failures import ProcessFailure as ProcessFailure
from rushlight._distributed.launch.failures import get_error_handler as get_error_handler
from rushlight._distributed.launch.failures import record as record

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]
