"""References to values of other workers: who owns a value, who refers to it, and when it is free.

The owner keeps a value while a *fork* refers to it: each `RRef` object on another worker is a fork with a number of its
own. Rules:

- The owner counts a fork that it sends itself.  Another worker's `RRef` that is sent on stays alive until the receiver says
  so (`ACCEPT`): it does when the owner knows the new fork (`FORK`), or is the owner.
- A fork that ends tells the owner (`DELETE`), once the owner knows it.
- Forks of workers that have died end with them.

So a message that is late never finds its value gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import rushlight.distributed.autograd.contexts as contexts
from rushlight._interface.calls import Frame, FrameType
from rushlight.distributed.autograd.contexts import WORKER_BITS
from rushlight.distributed.rpc.exceptions import RemoteError
from rushlight.distributed.rpc.payload import CURRENT, unpacked
from rushlight.distributed.rpc.results import PooledFuture, Reply
from rushlight.distributed.rpc.running import CONTEXT, run_call

__all__ = ["OwnedValue", "References", "shown"]

NO_PARENT = -1


def shown(number: int) -> str:
    """A number of a reference or fork as users see it."""
    return f"GloballyUniqueId(created_on={number >> WORKER_BITS}, local_id={number & ((1 << WORKER_BITS) - 1)})"


class OwnedValue:
    """A value of this worker that others refer to, or will."""

    def __init__(self, agent: Any, number: int) -> None:
        self.number = number
        self.future = PooledFuture(agent)
        self.forks: dict[int, int] = {}  # fork -> the worker that has it
        self.pending = False  # its function has not run yet


class References:
    """The references of one worker."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._lock = threading.RLock()
        self.owned: dict[int, OwnedValue] = {}
        self.children: dict[int, tuple[Any, int]] = {}  # fork -> the reference it was made of, and the receiver
        self.running = 0
        self._count = 0
        self._ends: SimpleQueue[tuple[str, Any] | None] = SimpleQueue()
        self.users = 0  # forks that this worker has
        threading.Thread(target=self._end_forks, name="rpc-references", daemon=True).start()

    def number(self) -> int:
        """A number that no other worker gives."""
        with self._lock:
            self._count += 1
            return (self._agent.me.id << WORKER_BITS) | (self._count - 1)

    # ***** at the owner *****

    def value_of(self, number: int) -> OwnedValue:
        """The value with a number; made where the message that names it first came before the one that makes it."""
        with self._lock:
            found = self.owned.get(number)
            if found is None:
                found = self.owned[number] = OwnedValue(self._agent, number)
            return found

    def expect(self, source: int, frame: Frame) -> None:
        """A function is about to run whose result stays here."""
        _, _, number, fork = frame.integers
        with self._lock:
            value = self.value_of(number)
            value.pending = True
            self.running += 1
            if fork >= 0:
                value.forks[fork] = source

    def create(self, source: int, frame: Frame) -> None:
        """Run a function whose result stays here."""
        context_number, message, number, _ = frame.integers
        context, value = contexts.arrived(context_number, source), self.value_of(number)

        def finished(result: Any) -> None:
            value.future.set_result(result)
            with self._lock:
                value.pending = False
                self.running -= 1
                self._free(value)
            self._agent.count_handled()

        try:
            call = unpacked(frame.parts, self._agent, source, contexts.receiver(context, message, source))
        except BaseException as error:
            finished(RemoteError.of(error, self._agent.me))
            return
        run_call(call, context, finished)

    def fetch(self, source: int, frame: Frame) -> None:
        """Another worker wants a value: it gets it when it is there."""
        agent, context = self._agent, contexts.arrived(frame.integers[0], source)
        value = self.value_of(frame.integers[1])
        value.future._when_done(lambda future: agent.answer_value(source, frame.number, future.value(), context))

    def fork(self, source: int, frame: Frame) -> None:
        """Another worker has got a reference from a third one."""
        number, fork = frame.integers
        with self._lock:
            self.value_of(number).forks[fork] = source
        self._agent.callbacks.run(lambda: self._agent.answer(source, frame.number))

    def delete(self, source: int, frame: Frame) -> None:
        """A fork has ended; what was the value may do anything at its end, so that is not done here."""
        self._ends.put(("owned", frame.integers))

    def _free(self, value: OwnedValue) -> None:
        if not value.forks and not value.pending:
            self.owned.pop(value.number, None)

    def lost(self, peer: int) -> None:
        """A worker has gone, and its forks with it."""
        with self._lock:
            gone = [(v.number, fork) for v in self.owned.values() for fork, holder in v.forks.items() if holder == peer]
            kept = [fork for fork, (_, to) in self.children.items() if to == peer]
        for pair in gone:
            self._ends.put(("owned", pair))
        self.take_back(kept)

    # ***** sending and receiving references *****

    def send_on(self, reference: Any, to: int) -> tuple[int, int, int, int, str]:
        """The data that a receiver makes its own reference of: owner, number, fork, who waits for an `ACCEPT`, type."""
        fork = self.number()
        owner: int = reference._owner.id
        with self._lock:
            if reference._value is not None:
                value = self.owned.setdefault(reference._number, reference._value)
                value.forks[fork] = to
                parent = NO_PARENT
            else:
                self.children[fork] = (reference, to)
                parent = self._agent.me.id
        return owner, reference._number, fork, parent, reference._type_name

    def take_back(self, forks: list[int]) -> None:
        """Forks that were made for a message, and do not go."""
        for fork in forks:
            with self._lock:
                child = self.children.pop(fork, None)
                found = [] if child else [v.number for v in self.owned.values() if fork in v.forks]
            for number in found:
                self._ends.put(("owned", (number, fork)))
            del child

    def accept(self, source: int, frame: Frame) -> None:
        """The receiver of a reference has its own now."""
        self._ends.put(("child", frame.integers[0]))

    def receive(self, number: int, fork: int, parent: int, owner: int) -> tuple[OwnedValue | None, Any]:
        """Take a reference that came: the value, where this worker owns it, else the future of the owner's word."""
        agent = self._agent
        if owner == agent.me.id:
            value = self.value_of(number)
            if parent == NO_PARENT:
                self._ends.put(("owned", (number, fork)))  # from this worker to itself
            else:
                self._when_received(lambda: agent.tell(parent, FrameType.ACCEPT, fork))
            return value, None
        known = PooledFuture(agent)
        if parent == NO_PARENT:
            known.set_result(None)
            return None, known

        def answered(frame: Frame | None, error: Exception | None) -> None:
            known._complete(None, error)
            agent.callbacks.run(lambda: agent.tell(parent, FrameType.ACCEPT, fork))

        self._when_received(lambda: agent.request(owner, FrameType.FORK, (number, fork), [], answered))
        return None, known

    def _when_received(self, function: Callable[[], None]) -> None:
        """Send from the pool: references are unpickled on any thread."""
        self._agent.callbacks.run(function)

    # ***** the end of references *****

    def end(self, owner: int, number: int, fork: int, known: Any) -> None:
        """A fork of this worker is gone.  Called by the collector, on any thread: it only leaves a note."""
        self._ends.put(("fork", (owner, number, fork, known)))

    def _end_forks(self) -> None:
        while (note := self._ends.get()) is not None:
            what, about = note
            if what == "owned":
                with self._lock:
                    value = self.owned.get(about[0])
                    if value is not None:
                        value.forks.pop(about[1], None)
                        self._free(value)
                del value
            elif what == "child":
                with self._lock:
                    child = self.children.pop(about, None)
                del child
            else:
                self._tell_owner(*about)
            del note, about

    def _tell_owner(self, owner: int, number: int, fork: int, known: Any) -> None:
        """Tell the owner that a fork is gone, once it knows it."""

        def tell(future: Any) -> None:
            if future._error is None:
                self._agent.tell(owner, FrameType.DELETE, number, fork)
            with self._lock:
                self.users -= 1

        known._when_done(tell)

    def close(self) -> None:
        """The thread ends."""
        self._ends.put(None)

    # ***** asking *****

    def fetched(self, owner: int, number: int, seconds: float) -> Reply:
        """The future of a value of another worker."""
        reply, context = Reply(self._agent, owner), CONTEXT.current
        contexts.record_sent(context, (), owner)
        self._agent.count_sent()
        integers = (0 if context is None else context.number, number)
        self._agent.request(owner, FrameType.FETCH, integers, [], reply.came, seconds)
        return reply


def current_source() -> Any:
    """(worker, agent) of the payload that is being unpacked on this thread."""
    return CURRENT.source
