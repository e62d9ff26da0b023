"""`torch.distributed.rpc.api`: begin, call, end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight._interface.calls import WorkerGoneError
from rushlight.distributed import DistError, PrefixStore, rendezvous
from rushlight.distributed.autograd.contexts import CONTEXTS
from rushlight.distributed.rpc import constants
from rushlight.distributed.rpc.agent import Agent
from rushlight.distributed.rpc.calling import rpc_async, rpc_sync
from rushlight.distributed.rpc.constants import DEFAULT_SHUTDOWN_TIMEOUT as DEFAULT_SHUTDOWN_TIMEOUT
from rushlight.distributed.rpc.constants import UNSET_RPC_TIMEOUT as UNSET_RPC_TIMEOUT
from rushlight.distributed.rpc.members import Members, WorkerInfo, own_host
from rushlight.distributed.rpc.options import BackendType, TensorPipeRpcBackendOptions
from rushlight.distributed.rpc.rref import RRef, remote
from rushlight.distributed.rpc.running import AGENT, current_agent

__all__ = [
    "AllGatherStates", "get_rpc_timeout", "get_worker_info", "init_rpc", "method_factory", "new_method", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

_MOST_WORKERS = 1 << 15


# ***** begin *****


def init_rpc(
    name: str, backend: BackendType | None = None, rank: int = -1, world_size: int | None = None,
    rpc_backend_options: TensorPipeRpcBackendOptions | None = None,
) -> None:  # fmt: skip
    """Make this process a worker, that calls functions on others and runs theirs.

    `name` is unique among the workers. They meet in the store of `rpc_backend_options.init_method` (the environment's, as
    `torchrun` sets it), where `rank` and `world_size` come from too if they are not given.  With a `rank` and no
    `world_size`, workers come and go: this one is there at once, and others are found when they are named.

    Listens on loopback, unless the store is on another machine, or `TP_SOCKET_IFNAME` names an interface. Who does not
    know the token that is in the store is refused. Functions, arguments and results are pickled: whoever is a worker can
    run anything on the others.

    RuntimeError for a second call before `shutdown`, and where the others do not come.
    """
    if backend is not None and not isinstance(backend, BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    options = TensorPipeRpcBackendOptions() if rpc_backend_options is None else rpc_backend_options
    if not isinstance(options, TensorPipeRpcBackendOptions):
        raise TypeError(
            f"Argument rpc_backend_options must be an instance of TensorPipeRpcBackendOptions, not {type(options).__name__}"
        )
    if AGENT.current is not None:
        raise RuntimeError("RPC is already initialized")
    fixed = world_size is not None or rank < 0
    found = rendezvous(
        options.init_method, rank, world_size if world_size is not None else -1 if fixed else _MOST_WORKERS
    )
    store, rank, size = next(found)
    # A group of fixed size may begin again in the same store: how often this worker has begun there says which keys count.
    start = str(store.add(f"rushlight/rpc/starts/{rank}", 1)) if fixed else "open"
    members = Members(PrefixStore(f"rushlight/rpc/{start}", store), name, rank)
    agent = Agent(members, own_host(store), options.num_worker_threads, options.rpc_timeout)
    agent.size = size if fixed else None
    AGENT.current = agent  # others may call as soon as they know the address
    CONTEXTS.start(rank)
    try:
        members.announce(agent.network.address)
        if fixed:
            members.await_all(size, store.timeout.total_seconds())
    except BaseException:
        _end(agent)
        raise


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker with a name; this one without.  RuntimeError for an unknown name, and before `init_rpc`."""
    agent = current_agent()
    return agent.me if worker_name is None else agent.worker(worker_name)


def get_rpc_timeout() -> float:
    """How long a call may take, in seconds, where it says nothing."""
    return current_agent().timeout


@trace_marks.changes_later_calls
def _set_rpc_timeout(seconds: float) -> None:
    current_agent().timeout = float(seconds)


def _is_current_rpc_agent_set() -> bool:
    return AGENT.current is not None


def _get_current_rpc_agent() -> Agent:
    return current_agent()


def method_factory(method_name: str, docstring: str | None) -> Callable[..., Any]:
    """A function that calls a method of its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(RRef, self), method_name)(*args, **kwargs)

    method.__doc__ = docstring
    return method


def new_method(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`RRef.__str__` as a function."""
    return RRef.__str__(self, *args, **kwargs)


# ***** all workers *****


class AllGatherStates:
    """State of one `_all_gather` at its leader: `gathered_objects` by worker, and `proceed_signal`."""

    def __init__(self) -> None:
        self.gathered_objects: dict[str, Any] = {}
        self.proceed_signal = threading.Event()


_GATHERED: dict[tuple[int, tuple[str, ...]], AllGatherStates] = {}
_GATHER_COUNTS: dict[tuple[str, ...], int] = {}
_GATHERING = threading.Lock()


def _states(key: tuple[int, tuple[str, ...]]) -> AllGatherStates:
    with _GATHERING:
        return _GATHERED.setdefault(key, AllGatherStates())


def _give(key: tuple[int, tuple[str, ...]], name: str, value: Any, leads: bool) -> None:
    """One worker's value, at the leader; or all values, at the others."""
    states = _states(key)
    if leads:
        with _GATHERING:
            states.gathered_objects[name] = value
        if len(states.gathered_objects) == len(key[1]):
            states.proceed_signal.set()
    else:
        states.gathered_objects = value
        states.proceed_signal.set()


def _all_gather(
    obj: Any, worker_names: set[str] | None = None, timeout: float = constants.UNSET_RPC_TIMEOUT
) -> dict[str, Any]:
    """Worker -> its object, on all workers of a set (all there are for none, or an empty one).  RuntimeError after `timeout`, with who is missing."""
    agent = current_agent()
    names = tuple(sorted(worker_names or (info.name for info in agent.members.all())))
    leader, me = names[0], agent.me.name
    with _GATHERING:
        count = _GATHER_COUNTS[names] = _GATHER_COUNTS.get(names, -1) + 1
    key = (count, names)
    seconds = agent.seconds(timeout)
    if me == leader:
        _give(key, me, obj, True)
    else:
        rpc_sync(leader, _give, (key, me, obj, True), timeout=timeout)
    states = _states(key)
    if not states.proceed_signal.wait(None if seconds == math.inf else seconds):
        late = sorted({*names} - {*states.gathered_objects})
        raise RuntimeError(
            f"Followers {late} timed out in _all_gather after {seconds:.2f} seconds. The first exception is none: they never called it"
        )
    gathered = dict(states.gathered_objects)
    if me == leader:
        others = [agent.worker(name) for name in names if name != me]
        sent = [rpc_async(info.name, _give, (key, info.name, gathered, False), timeout=timeout) for info in others]
        for info, future in zip(others, sent, strict=True):
            try:
                future.wait()
            except WorkerGoneError:  # who has all objects may end before its answer is on its way
                if info.id not in agent.network.left:
                    raise
    with _GATHERING:
        del _GATHERED[key]
    return gathered


def _barrier(worker_names: set[str]) -> None:
    """Wait until all workers of a set have come here."""
    _all_gather(None, set(worker_names))


# ***** end *****


def shutdown(graceful: bool = True, timeout: float = constants.DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """End this worker.

    With `graceful`, wait until all workers have called it and nothing is on its way any more: calls that have begun go to
    their end, also those that they begin.  RuntimeError after `timeout` seconds (0: none), and where a worker has died; it
    is ended all the same. Without, it ends at once, and what waits fails.
    """
    agent = current_agent()
    try:
        if graceful:
            _await_quiet(agent, math.inf if timeout == 0 else time.monotonic() + timeout)
    finally:
        _end(agent)


def _end(agent: Agent) -> None:
    AGENT.current = None
    agent.close()
    CONTEXTS.clear()
    _GATHER_COUNTS.clear()
    _GATHERED.clear()
    if agent.size is None:
        try:
            agent.members.leave()
        except (DistError, RuntimeError, OSError):
            pass  # the store has gone


def _wait_all_workers(timeout: float = constants.DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Wait until all workers are here, and nothing is on its way."""
    _await_quiet(current_agent(), math.inf if timeout == 0 else time.monotonic() + timeout)


def _await_quiet(agent: Agent, until: float) -> None:
    """Wait until no worker does anything.

    Workers tell each other, in rounds, how many calls they have sent and handled. All calls are done when the sums are
    equal, and were so a round before: a call between two rounds would have changed them.
    """
    before: Any = None
    while True:
        _await_idle(agent, until)
        if agent.size is None:
            return
        counts = _round(agent, f"{agent.sent} {agent.handled}", until)
        sums = [sum(pair) for pair in zip(*counts, strict=True)]
        if sums[0] == sums[1] and sums == before:
            return
        before = sums


def _await_idle(agent: Agent, until: float) -> None:
    pause = 0.0005
    while not agent.idle:
        if time.monotonic() > until:
            raise RuntimeError(f"{agent.me}: calls were still on their way when shutdown() ran out of time")
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _round(agent: Agent, text: str, until: float) -> list[tuple[int, int]]:
    """Values of all workers in this round, through the store; an error where one will never come."""
    store = agent.members.store
    agent.rounds += 1
    keys = [f"round/{agent.rounds}/{number}" for number in range(agent.size or 0)]
    store.set(keys[agent.me.id], text)
    began = time.monotonic()
    while True:
        try:
            store.wait(keys, timedelta(seconds=min(0.5, max(until - time.monotonic(), 0.01))))
            break
        except DistError:
            missing = [number for number, key in enumerate(keys) if not store.check([key])]
        agent.check_alive(missing, time.monotonic() - began > 1)
        if time.monotonic() > until and missing:
            raise RuntimeError(f"{agent.me}: workers {missing} had not called shutdown() in time")
    return [(int(a), int(b)) for a, b in (value.decode().split() for value in store.multi_get(keys))]
