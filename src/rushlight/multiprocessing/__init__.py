"""Processes that share tensors: Python's `multiprocessing`, in whose queues and pipes tensors travel without being
copied.

A tensor that is sent has its memory moved to shared memory; the receiver looks at the same bytes.

    >>> import rushlight as torch
    >>> x = torch.zeros(2)
    >>> context = torch.multiprocessing.get_context("fork")
    >>> child = context.Process(target=x.share_memory_().fill_, args=(3,))
    >>> child.start(); child.join(); x
    tensor([3., 3.])
"""

from __future__ import annotations

from multiprocessing import Array as Array
from multiprocessing import AuthenticationError as AuthenticationError
from multiprocessing import Barrier as Barrier
from multiprocessing import BoundedSemaphore as BoundedSemaphore
from multiprocessing import BufferTooShort as BufferTooShort
from multiprocessing import Condition as Condition
from multiprocessing import Event as Event
from multiprocessing import JoinableQueue as JoinableQueue
from multiprocessing import Lock as Lock
from multiprocessing import Manager as Manager
from multiprocessing import Pipe as Pipe
from multiprocessing import Pool as Pool
from multiprocessing import Process as Process
from multiprocessing import ProcessError as ProcessError
from multiprocessing import Queue as Queue
from multiprocessing import RawArray as RawArray
from multiprocessing import RawValue as RawValue
from multiprocessing import RLock as RLock
from multiprocessing import Semaphore as Semaphore
from multiprocessing import SimpleQueue as SimpleQueue
from multiprocessing import TimeoutError as TimeoutError
from multiprocessing import Value as Value
from multiprocessing import active_children as active_children
from multiprocessing import allow_connection_pickling as allow_connection_pickling
from multiprocessing import cpu_count as cpu_count
from multiprocessing import current_process as current_process
from multiprocessing import freeze_support as freeze_support
from multiprocessing import get_all_start_methods as get_all_start_methods
from multiprocessing import get_context as get_context
from multiprocessing import get_logger as get_logger
from multiprocessing import get_start_method as get_start_method
from multiprocessing import log_to_stderr as log_to_stderr
from multiprocessing import parent_process as parent_process
from multiprocessing import reducer as reducer
from multiprocessing import set_executable as set_executable
from multiprocessing import set_forkserver_preload as set_forkserver_preload
from multiprocessing import set_start_method as set_start_method

from rushlight._interface.base import trace_marks
from rushlight._interface.processes import STRATEGIES, set_strategy, strategy
from rushlight.multiprocessing import reductions as reductions
from rushlight.multiprocessing.reductions import init_reductions as init_reductions
from rushlight.multiprocessing.spawn import ENV_VAR_PARALLEL_START as ENV_VAR_PARALLEL_START
from rushlight.multiprocessing.spawn import ProcessContext as ProcessContext
from rushlight.multiprocessing.spawn import ProcessExitedException as ProcessExitedException
from rushlight.multiprocessing.spawn import ProcessRaisedException as ProcessRaisedException
from rushlight.multiprocessing.spawn import SpawnContext as SpawnContext
from rushlight.multiprocessing.spawn import spawn as spawn
from rushlight.multiprocessing.spawn import start_processes as start_processes

# `spawn` is here the function, as in PyTorch; `import rushlight.multiprocessing.spawn` finds the module.
__all__ = [
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "Array", "AuthenticationError", "Barrier",
    "BoundedSemaphore", "BufferTooShort", "Condition", "Event", "JoinableQueue", "Lock", "Manager", "Pipe", "Pool", "Process",
    "ProcessError", "Queue", "RLock", "RawArray", "RawValue", "Semaphore", "SimpleQueue", "TimeoutError", "Value", "active_children",
    "allow_connection_pickling", "cpu_count", "current_process", "freeze_support", "get_all_start_methods", "get_context", "get_logger",
    "get_start_method", "log_to_stderr", "parent_process", "reducer", "set_executable", "set_forkserver_preload", "set_start_method",
]  # fmt: skip


@trace_marks.changes_later_calls
def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how shared memory is handed over from now on.

    `"file_descriptor"` (the default): anonymous memory, sent as an open descriptor; the sender must live until it is
    received, and every block in use costs a descriptor. `"file_system"`: memory with a name, no descriptors.
    AssertionError for any other name.
    """
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(
            f"invalid sharing strategy '{new_strategy}', expected one of {get_all_sharing_strategies()}"
        )
    set_strategy(new_strategy)


def get_sharing_strategy() -> str:
    """How shared memory is handed over: see `set_sharing_strategy`."""
    return strategy()


def get_all_sharing_strategies() -> set[str]:
    """The strategies that this system can do."""
    return set(STRATEGIES)


init_reductions()
