"""Futures of what other workers answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight.distributed.autograd.contexts as contexts
from rushlight._interface.calls import Frame
from rushlight.distributed.rpc.exceptions import RemoteError, as_error
from rushlight.distributed.rpc.payload import unpacked
from rushlight.distributed.rpc.running import CONTEXT
from rushlight.futures import Future

__all__ = ["PooledFuture", "Reply"]


class PooledFuture(Future[Any]):
    """A future whose callbacks run in the agent's pool, never on a thread that reads messages."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self._agent = agent

    def _run_callbacks(self, callbacks: list[Callable[[Any], None]]) -> None:
        if callbacks:
            self._agent.callbacks.run(lambda: [run(self) for run in callbacks])

    def _complete(self, value: Any, error: Exception | None) -> None:
        with self._completed:
            if self._done:
                raise RuntimeError("Attempting to mark a completed Future as complete again.")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._completed.notify_all()
        self._run_callbacks(callbacks)


class Reply(PooledFuture):
    """The result of a call: unpickled by the first thread that reads it, in the context of the call."""

    def __init__(self, agent: Any, peer: int) -> None:
        super().__init__(agent)
        self._peer, self._context = peer, CONTEXT.current
        self._frame: Frame | None = None
        self._checks: list[Callable[[Any], Any]] = []

    def came(self, frame: Frame | None, error: Exception | None) -> None:
        """The answer, or why there is none."""
        self._frame = frame
        self._complete(None, error)

    def value(self) -> Any:
        """The result of a future that is done, or its exception raised; RuntimeError while it is not done."""
        if self._done and self._frame is not None:
            self._unpack()
        return super().value()

    def _unpack(self) -> None:
        with self._completed:  # an RLock: callbacks of others see a value or none
            frame, self._frame = self._frame, None
            if frame is None:
                return
            try:
                message = frame.integers[0] if frame.integers else 0
                link = contexts.receiver(self._context, message, self._peer)
                found = unpacked(frame.parts, self._agent, self._peer, link) if frame.parts else None
                if isinstance(found, RemoteError):
                    self._error = as_error(found)
                else:
                    self._value = found
            except Exception as error:
                self._error = error
