"""Calls of functions on other workers: `rpc_sync` and `rpc_async`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._interface.calls import FrameType
from rushlight.distributed.rpc import constants
from rushlight.distributed.rpc.running import Call, current_agent
from rushlight.futures import Future

__all__ = ["call_of", "rpc_async", "rpc_sync"]


def call_of(function: Any, args: Any, kwargs: Any) -> Call:
    """A function and its arguments; TypeError for what cannot be called."""
    if not callable(function):
        raise TypeError("function should be callable.")
    return Call(function, tuple(args or ()), dict(kwargs or {}))


def rpc_async(
    to: Any,
    func: Callable[..., Any],
    args: Any = None,
    kwargs: Any = None,
    timeout: float = constants.UNSET_RPC_TIMEOUT,
) -> Future[Any]:
    """Run `func(*args, **kwargs)` on worker `to` (name, rank or `WorkerInfo`); a `torch.futures.Future` of its result.

    The arguments are copied before this returns. The future fails with what the function raised (its class, and a text
    with its traceback), with a RuntimeError after `timeout` seconds (0: never; negative: that of `init_rpc`), and with one
    that names the worker if it dies.
    """
    agent = current_agent()
    call = call_of(func, args, kwargs)
    return agent.ask(agent.worker(to).id, FrameType.CALL, (), call, agent.seconds(timeout))


def rpc_sync(
    to: Any,
    func: Callable[..., Any],
    args: Any = None,
    kwargs: Any = None,
    timeout: float = constants.UNSET_RPC_TIMEOUT,
) -> Any:
    """The result of `func(*args, **kwargs)` on worker `to`; raises what the future of `rpc_async` would.

    >>> import rushlight as torch
    >>> from rushlight.distributed import rpc
    >>> options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://localhost:0")
    >>> rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    >>> rpc.rpc_sync("alone", torch.add, args=(torch.ones(2), 3))
    tensor([4., 4.])
    >>> rpc.rpc_async("alone", max, args=(1, 2)).wait()
    2
    >>> rpc.shutdown()
    """
    return rpc_async(to, func, args, kwargs, timeout).wait()
