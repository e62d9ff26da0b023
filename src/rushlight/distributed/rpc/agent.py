"""The agent of this process: its workers' names, requests to them, and what is done when theirs come."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import rushlight.distributed.autograd.contexts as contexts
import rushlight.distributed.autograd.passes as passes
from rushlight._interface.calls import Frame, FrameType, Network, Pool, Requests, WorkerGoneError
from rushlight.distributed.rpc.exceptions import RemoteError
from rushlight.distributed.rpc.members import Members, WorkerInfo
from rushlight.distributed.rpc.payload import Packed, packed, unpacked
from rushlight.distributed.rpc.references import References
from rushlight.distributed.rpc.results import Reply
from rushlight.distributed.rpc.running import CONTEXT, answer_with, run_call

__all__ = ["Agent"]


class Agent:
    """This process as a worker: requests, and the pool of threads that answers those of others."""

    def __init__(self, members: Members, host: str, threads: int, timeout: float) -> None:
        self.members, self.me, self.timeout = members, members.me, timeout
        self.pool, self.callbacks = Pool("rpc-call", threads), Pool("rpc-callback", None)
        self.requests = Requests(self._late)
        self.references = References(self)
        self.sent = self.handled = self.rounds = 0  # requests of users, for the graceful end
        self.size: int | None = None  # of a group that nobody joins or leaves
        self._counting = threading.Lock()
        self._handlers: dict[int, Callable[[int, Frame], None]] = {
            FrameType.ANSWER: lambda peer, frame: self.requests.settle(frame.number, peer, frame),
            FrameType.FAILURE: self._failed,
            FrameType.CALL: self._pooled(self._call),
            FrameType.REMOTE: self._pooled(self.references.create, acknowledged=True),
            FrameType.FETCH: self._pooled(self.references.fetch),
            FrameType.FORK: self.references.fork,
            FrameType.ACCEPT: self.references.accept,
            FrameType.DELETE: self.references.delete,
            FrameType.MARK: self._pooled(passes.mark),
            FrameType.GRADIENTS: self._pooled(passes.receive),
            FrameType.CLEANUP: self._pooled(contexts.clean_up),
        }
        self.network = Network(
            self.me.id, members.token, host, address_of=members.address_of, name_of=members.name_of, receive=self._receive, lost=self._lost,
        )  # fmt: skip

    # ***** asking *****

    def request(
        self, peer: int, kind: int, integers: tuple[int, ...], parts: list[Any], done: Callable[[Frame | None, Exception | None], None],
        seconds: float = math.inf,
    ) -> None:  # fmt: skip
        """Send a request; `done(frame, None)` or `done(None, error)` is called when it is over."""
        if peer in self.network.gone:
            done(None, self._gone(peer, self.network.gone[peer]))
            return
        number = self.requests.open(peer, done, seconds)
        try:
            self._send(peer, Frame(kind, number, integers, parts))
        except (WorkerGoneError, OSError) as error:
            self.requests.settle(
                number, peer, None, error if isinstance(error, WorkerGoneError) else RuntimeError(str(error))
            )

    def tell(self, peer: int, kind: int, *integers: int) -> None:
        """Send what has no answer; nothing happens where the worker has gone."""
        try:
            self._send(peer, Frame(kind, 0, integers, []))
        except (WorkerGoneError, OSError):
            pass  # its references and contexts are gone with it

    def ask(self, peer: int, kind: int, integers: tuple[int, ...], value: Any, seconds: float) -> Reply:
        """Send a function and its arguments; the future of its result."""
        reply = Reply(self, peer)
        context = CONTEXT.current
        payload = packed(value, self, peer)
        message = contexts.record_sent(context, payload.differentiable, peer)
        self.count_sent()
        number = 0 if context is None else context.number
        self.request(peer, kind, (number, message, *integers), payload.parts, reply.came, seconds)
        return reply

    def seconds(self, timeout: float) -> float:
        """A time limit as users give it: 0 is none, negative ones are the default."""
        chosen = self.timeout if timeout < 0 else timeout
        return math.inf if chosen == 0 else chosen

    def _send(self, peer: int, frame: Frame) -> None:
        """Send a frame; one to this worker is copied, as others are."""
        if peer == self.me.id:
            self._receive(peer, frame._replace(parts=[bytearray(memoryview(part).cast("B")) for part in frame.parts]))
        else:
            self.network.send(peer, frame)

    # ***** answering *****

    def _receive(self, peer: int, frame: Frame) -> None:
        self._handlers[frame.kind](peer, frame)

    def _pooled(
        self, handler: Callable[[int, Frame], None], acknowledged: bool = False
    ) -> Callable[[int, Frame], None]:
        """A handler that runs in the pool; what it raises is the answer."""

        def handle(peer: int, frame: Frame) -> None:
            if acknowledged:
                self.references.expect(peer, frame)
                self.callbacks.run(lambda: self.answer(peer, frame.number))
            self.pool.run(lambda: self._handled(handler, peer, frame))

        return handle

    def _handled(self, handler: Callable[[int, Frame], None], peer: int, frame: Frame) -> None:
        try:
            handler(peer, frame)
        except Exception as error:
            self.fail(peer, frame.number, error)

    def count_sent(self) -> None:
        """A request of a user is on its way."""
        with self._counting:
            self.sent += 1

    def count_handled(self) -> None:
        """A request of a user was worked on."""
        with self._counting:
            self.handled += 1

    def _call(self, peer: int, frame: Frame) -> None:
        context = contexts.arrived(frame.integers[0], peer)
        try:
            value = unpacked(frame.parts, self, peer, contexts.receiver(context, frame.integers[1], peer))
        except BaseException as error:  # what cannot be unpickled, and what users' classes raise
            self.answer_value(peer, frame.number, RemoteError.of(error, self.me), None)
            return
        run_call(value, context, lambda result: answer_with(self, peer, frame.number, result, context))

    def answer(self, peer: int, number: int, payload: Packed | None = None, message: int = 0) -> None:
        """Answer a request."""
        integers = (message,) if message else ()
        try:
            self._send(peer, Frame(FrameType.ANSWER, number, integers, [] if payload is None else payload.parts))
        except (WorkerGoneError, OSError):
            pass  # nobody waits for it any more

    def answer_value(self, peer: int, number: int, value: Any, context: contexts.Context | None) -> None:
        """Answer a request with a value; one that cannot be sent becomes an error."""
        try:
            payload = packed(value, self, peer)
        except BaseException as error:
            payload, context = packed(RemoteError.of(error, self.me), self, peer), None
        self.answer(peer, number, payload, contexts.record_sent(context, payload.differentiable, peer))
        self.count_handled()

    def fail(self, peer: int, number: int, error: Exception) -> None:
        """Answer a request of ours with an error."""
        text = RemoteError.of(error, self.me).text.encode()
        try:
            self._send(peer, Frame(FrameType.FAILURE, number, (), [text]))
        except (WorkerGoneError, OSError):
            pass

    def _failed(self, peer: int, frame: Frame) -> None:
        text = bytes(frame.parts[0]).decode("utf-8", "replace")
        self.requests.settle(frame.number, peer, None, RuntimeError(text))

    # ***** failures *****

    def _late(self, peer: int, seconds: float) -> Exception:
        return RuntimeError(
            f"RPC to {self.members.name_of(peer)} ran for more than set timeout ({round(1000 * seconds)} ms) and will now be marked with an error"
        )

    def _gone(self, peer: int, why: str) -> WorkerGoneError:
        return WorkerGoneError(f"{self.members.name_of(peer)} is gone: {why}")

    def _lost(self, peer: int, why: str) -> None:
        error = self._gone(peer, why)

        def fail_all() -> None:
            self.requests.lost(peer, error)
            self.references.lost(peer)

        self.callbacks.run(fail_all)

    def check_alive(self, workers: list[int], ask: bool) -> None:
        """RuntimeError if one of these workers has died; with `ask`, those are asked to which there is no connection."""
        for worker in workers:
            if ask and worker != self.me.id:
                self.network.reach(worker)
            if worker in self.network.gone:
                raise self._gone(worker, self.network.gone[worker])

    @property
    def idle(self) -> bool:
        """Whether nothing is asked of others, and nothing worked on."""
        return not len(self.requests) and not self.pool.busy and not self.references.running

    def close(self) -> None:
        """End it: the port is free, what waits fails."""
        self.network.close()
        self.references.close()
        self.requests.close(RuntimeError("RPC has shut down"))
        self.pool.close()
        self.callbacks.close()

    def worker(self, to: Any) -> WorkerInfo:
        """The worker that a name, a number or a `WorkerInfo` stands for."""
        return self.members.worker(to)
