"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import method as _method, set as _set, str as _str
from typing import Any as _Any

Array: _method
from multiprocessing.context import AuthenticationError as AuthenticationError
Barrier: _method
BoundedSemaphore: _method
from multiprocessing.context import BufferTooShort as BufferTooShort
Condition: _method
ENV_VAR_PARALLEL_START: _str
Event: _method
JoinableQueue: _method
Lock: _method
Manager: _method
Pipe: _method
Pool: _method
from multiprocessing.context import Process as Process
from rushlight.multiprocessing.spawn import ProcessContext as ProcessContext
from multiprocessing.context import ProcessError as ProcessError
from rushlight.multiprocessing.spawn import ProcessExitedException as ProcessExitedException
from rushlight.multiprocessing.spawn import ProcessRaisedException as ProcessRaisedException
Queue: _method
RLock: _method
RawArray: _method
RawValue: _method
Semaphore: _method
SimpleQueue: _method
from rushlight.multiprocessing.spawn import SpawnContext as SpawnContext
from multiprocessing.context import TimeoutError as TimeoutError
Value: _method
from multiprocessing.process import active_children as active_children
allow_connection_pickling: _method
cpu_count: _method
from multiprocessing.process import current_process as current_process
freeze_support: _method
def get_all_sharing_strategies() -> _set[_str]: ...
get_all_start_methods: _method
get_context: _method
get_logger: _method
def get_sharing_strategy() -> _str: ...
get_start_method: _method
from rushlight.multiprocessing.reductions import init_reductions as init_reductions
log_to_stderr: _method
from multiprocessing.process import parent_process as parent_process
from rushlight.multiprocessing import pool as pool
from rushlight.multiprocessing import queue as queue
from multiprocessing import reduction as reducer
from rushlight.multiprocessing import reductions as reductions
set_executable: _method
set_forkserver_preload: _method
def set_sharing_strategy(new_strategy: _str) -> None: ...
set_start_method: _method
from rushlight.multiprocessing.spawn import spawn as spawn
from rushlight.multiprocessing.spawn import start_processes as start_processes
