"""Processes that share tensors: Python's `multiprocessing`, in whose queues and pipes tensors travel without being copied.

A tensor that is sent has its memory moved to shared memory; the receiver looks at the same bytes.

    >>> import rushlight as torch
    >>> x = torch.zeros(2)
    >>> context = torch.multiprocessing.get_context("fork")
    >>> child = context.Process(target=x.share_memory_().fill_, args=(3,))
    >>> child.start(); child.join(); x
    tensor([3., 3.])
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # all of its names, whatever this version of Python has

from rushlight._engine import shared
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
__all__ = ["get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]
__all__ += multiprocessing.__all__  # type: ignore[attr-defined]


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how shared memory is handed over from now on.

    `"file_descriptor"` (the default): anonymous memory, sent as an open descriptor; the sender must live until it is received, and every
    block in use costs a descriptor. `"file_system"`: memory with a name, no descriptors. AssertionError for any other name.
    """
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"invalid sharing strategy '{new_strategy}', expected one of {get_all_sharing_strategies()}")
    shared.set_strategy(new_strategy)


def get_sharing_strategy() -> str:
    """How shared memory is handed over: see `set_sharing_strategy`."""
    return shared.strategy()


def get_all_sharing_strategies() -> set[str]:
    """The strategies that this system can do."""
    return set(shared.STRATEGIES)


init_reductions()
