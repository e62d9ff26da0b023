"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import dict as _dict, int as _int, set as _set, str as _str
from enum import IntFlag as _IntFlag
from rushlight.distributed.elastic.multiprocessing import LogsSpecs as _LogsSpecs, Std as _Std
from typing import Any as _Any

class DefaultLogsSpecs(_LogsSpecs):

    def __repr__(self) -> _str:
        ...
class LogsSpecs:

    def __init__(self, log_dir: _str | None=..., redirects: _Std | _dict[_int, _Std]=..., tee: _Std | _dict[_int, _Std]=..., local_ranks_filter: _set[_int] | None=...) -> None:
        ...

    @property
    def root_log_dir(self) -> _str | None:
        ...
from rushlight._distributed.launch.failures import ProcessFailure as ProcessFailure
from rushlight._distributed.launch.agent import SignalException as SignalException
class Std(_IntFlag):
    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

    @classmethod
    def from_str(cls, vm: _str) -> _Std | _dict[_int, _Std]:
        ...
from rushlight.distributed.elastic.multiprocessing import api as api
from rushlight.distributed.elastic.multiprocessing import errors as errors
def to_map(val_or_map: _Std | _dict[_int, _Std], local_world_size: _int) -> _dict[_int, _Std]: ...
