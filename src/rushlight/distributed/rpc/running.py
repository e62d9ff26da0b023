"""Running what another worker has sent: a function and its arguments, in the caller's autograd context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight.distributed.rpc.exceptions import RemoteError, as_error
from rushlight.futures import Future

__all__ = ["AGENT", "CONTEXT", "Awaited", "Call", "answer_with", "current_agent", "run_call", "within"]


class _Context(threading.local):
    """The autograd context of this thread."""

    current: Any = None


CONTEXT = _Context()


class within:
    """A context manager: this autograd context, or none, on this thread."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def __enter__(self) -> None:
        self.outer, CONTEXT.current = CONTEXT.current, self.context

    def __exit__(self, *raised: object) -> None:
        CONTEXT.current = self.outer


class Call(NamedTuple):
    """A function and its arguments."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Awaited(NamedTuple):
    """A future whose result is the answer."""

    future: Any


class _Holder:
    """The agent of this process, where there is one."""

    current: Any = None


AGENT = _Holder()


def current_agent() -> Any:
    """The agent; RuntimeError before `init_rpc`."""
    if AGENT.current is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return AGENT.current


def _worker() -> Any:
    return None if AGENT.current is None else AGENT.current.me


def run_call(call: Any, context: Any, done: Callable[[Any], None]) -> None:
    """Run a call; `done` gets its result, or a `RemoteError`: later, for a function marked by `async_execution`."""
    with within(context):
        try:
            if not isinstance(call, Call):
                raise TypeError(f"a call is a function and its arguments, not {type(call).__name__}")
            result: Any = call.function(*call.args, **call.kwargs)
            later = is_async(call.function) or isinstance(result, Awaited)
            result = result.future if isinstance(result, Awaited) else result
            if later and not isinstance(result, Future):
                raise RuntimeError(
                    f"Functions decorated with @rpc.functions.async_execution must return a torch.futures.Future object, but got {type(result).__name__}"
                )
        except BaseException as error:
            result, later = RemoteError.of(error, _worker()), False
    if not later:
        done(result)
        return

    def finished(future: Any) -> None:
        try:
            value = future.value()
        except BaseException as error:
            value = RemoteError.of(error, _worker())
        done(value)

    result._when_done(finished)


def is_async(function: Any) -> bool:
    """Whether a function's future is awaited before the answer; also a bound or partial one's."""
    inner = getattr(function, "func", function)  # functools.partial
    return bool(getattr(inner, "_wrapped_async_rpc_function", None) is not None)


def answer_with(agent: Any, peer: int, number: int, value: Any, context: Any) -> None:
    """Send a result."""
    agent.answer_value(peer, number, value, context)


def result_of(value: Any) -> Any:
    """A result of `run_call` here: raised if it is an error."""
    if isinstance(value, RemoteError):
        raise as_error(value)
    return value
