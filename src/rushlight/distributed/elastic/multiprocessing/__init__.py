"""`torch.distributed.elastic.multiprocessing`: workers of one machine, where their output goes, and how they end.

>>> from rushlight.distributed.elastic.multiprocessing import Std
>>> Std.from_str("0:1,1:3")
{0: <Std.OUT: 1>, 1: <Std.ALL: 3>}
"""

from __future__ import annotations

from rushlight._distributed.launch.agent import SignalException as SignalException
from rushlight._distributed.launch.failures import ProcessFailure as ProcessFailure
from rushlight._interface.base import lazy_files
from rushlight.distributed.elastic.multiprocessing.streams import Std as Std
from rushlight.distributed.elastic.multiprocessing.streams import to_map as to_map

__all__ = [
    "DefaultLogsSpecs", "LogsDest", "LogsSpecs", "MultiprocessContext", "PContext", "ProcessFailure", "RunProcsResult", "SignalException", "Std",
    "SubprocessContext", "start_processes", "to_map",
]  # fmt: skip

_LOGS = ("DefaultLogsSpecs", "LogsDest", "LogsSpecs")
_PROCESSES = ("MultiprocessContext", "PContext", "RunProcsResult", "SubprocessContext", "start_processes")
__getattr__ = lazy_files(
    __name__,
    {**dict.fromkeys(_LOGS, "logs"), **dict.fromkeys(_PROCESSES, "api")},
    ("api", "errors", "logs", "redirects", "streams", "tail_log"),
)
