"""Agents: what they run, on which ranks, and the loop that starts workers, watches them, and begins anew."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rushlight.distributed import DistError
from rushlight.distributed.elastic.events import Event, EventSource, record
from rushlight.distributed.elastic.metrics import prof, put_metric
from rushlight.distributed.elastic.multiprocessing import ProcessFailure, SignalException
from rushlight.distributed.elastic.rendezvous import RendezvousGracefulExitError, RendezvousHandler, RendezvousStoreInfo

__all__ = [
    "DEFAULT_ROLE",
    "ElasticAgent",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]

DEFAULT_ROLE = "default"
_log = logging.getLogger("torch.distributed.elastic")
_ROLES = "torchelastic/role_info"


@dataclass
class WorkerSpec:
    """Specification of the workers of one role: how many on this machine, the function or command they run, how they
    meet.

    AssertionError without an entrypoint, and for numbers that are not positive.
    """

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable[..., Any] | None = None
    entrypoint: Callable[..., Any] | str | None = None
    args: tuple[Any, ...] = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.local_world_size <= 0 or self.monitor_interval <= 0:
            raise AssertionError(
                f"local_world_size ({self.local_world_size}) and monitor_interval ({self.monitor_interval}) must be positive"
            )
        if self.fn is not None:
            warnings.warn(
                "WorkerSpec.fn will be deprecated, please use WorkerSpec.entrypoint instead",
                DeprecationWarning,
                stacklevel=3,
            )
            self.entrypoint = self.fn
        if not self.entrypoint:
            raise AssertionError("a WorkerSpec needs an entrypoint")

    def get_entrypoint_name(self) -> str:
        """The function's name, or the command's."""
        if isinstance(self.entrypoint, str):
            return os.path.basename(self.entrypoint)
        return str(getattr(self.entrypoint, "__qualname__", self.entrypoint))


class Worker:
    """One worker: its numbers on this machine, among all, and among those of its role; `id` is its process."""

    __slots__ = ("global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size")

    def __init__(
        self,
        local_rank: int,
        global_rank: int = -1,
        role_rank: int = -1,
        world_size: int = -1,
        role_world_size: int = -1,
    ) -> None:
        self.id: Any = None
        self.local_rank, self.global_rank, self.role_rank = local_rank, global_rank, role_rank
        self.world_size, self.role_world_size = world_size, role_world_size

    def __str__(self) -> str:
        return (
            f"local_rank={self.local_rank},global_rank={self.global_rank},role_rank={self.role_rank},"
            f"world_size={self.world_size},role_world_size={self.role_world_size}"
        )

    __repr__ = __str__


class WorkerState(str, Enum):  # noqa: UP042  (its text is PyTorch's)
    """How the workers of a group are."""

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether there are processes in this state."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


class WorkerGroup:
    """The workers of a spec on this machine, and their round."""

    __slots__ = (
        "group_rank",
        "group_world_size",
        "master_addr",
        "master_port",
        "round",
        "spec",
        "state",
        "store",
        "workers",
    )

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workers = [Worker(local_rank) for local_rank in range(spec.local_world_size)]
        self.store: Any = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.round = ""
        self.state = WorkerState.INIT


@dataclass
class RunResult:
    """How a run ended: what workers returned, or how they failed, by global rank."""

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether the workers failed."""
        return self.state == WorkerState.FAILED


class ElasticAgent(ABC):
    """Runs the workers of this machine, and answers for them."""

    @abstractmethod
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Run them until they have ended, or failed too often."""

    @abstractmethod
    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        """The workers; they belong to the agent."""


class SimpleElasticAgent(ElasticAgent):
    """An agent of one role: it meets the others, gives ranks, and begins anew when workers fail or machines come.

    A subclass says how workers are started, stopped and watched.
    """

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 30) -> None:
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._store: Any = None
        self._exit_barrier_timeout, self._shutdown_timeout = exit_barrier_timeout, shutdown_timeout
        self._began = 0.0

    # ***** what a subclass says *****

    @abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start the workers: local rank -> id."""

    @abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """End the workers."""

    @abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """How they are."""

    @abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """Free everything."""

    # ***** the run *****

    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        """The workers; they belong to the agent."""
        return self._worker_group

    @prof
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Run the workers until they have ended, or failed more often than `max_restarts`.

        SignalException where this process was told to end: the workers are ended first.
        """
        self._began = time.monotonic()
        stop = signal.SIGTERM
        try:
            result = self._invoke_run(role)
            self.record_duration(result.state.value)
            self._note(self.get_event_failed() if result.is_failed() else self.get_event_succeeded())
            return result
        except RendezvousGracefulExitError as error:
            _log.info("this machine is not needed: %s", error)
            return RunResult(WorkerState.SUCCEEDED)
        except SignalException as error:
            stop = error.sigval
            raise
        finally:
            self._shutdown(stop, self._shutdown_timeout)

    def _invoke_run(self, role: str) -> RunResult:
        group, spec = self._worker_group, self._worker_group.spec
        self._initialize_workers(group)
        while True:
            time.sleep(spec.monitor_interval)
            result = self._monitor_workers(group)
            group.state = result.state
            if result.state == WorkerState.SUCCEEDED:
                if self._exit_barrier():
                    return result
                self._restart_workers(group)
            elif result.state in (WorkerState.UNHEALTHY, WorkerState.FAILED):
                if self._remaining_restarts <= 0:
                    self._stop_workers(group)
                    group.state = WorkerState.FAILED
                    return RunResult(WorkerState.FAILED, failures=result.failures)
                self._remaining_restarts -= 1
                _log.warning("workers of %s failed; %d restarts are left", spec.role, self._remaining_restarts)
                self._restart_workers(group)
            elif result.state == WorkerState.HEALTHY:
                if spec.rdzv_handler.num_nodes_waiting() > 0:
                    self._restart_workers(group)
            else:
                raise RuntimeError(f"Worker group in {result.state.name} state")

    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        self._rendezvous(worker_group)
        for local_rank, process in self._start_workers(worker_group).items():
            worker_group.workers[local_rank].id = process
        worker_group.state = WorkerState.HEALTHY

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        self._stop_workers(worker_group)
        worker_group.state = WorkerState.STOPPED
        self._initialize_workers(worker_group)

    # ***** ranks *****

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        spec = worker_group.spec
        info = spec.rdzv_handler.next_rendezvous()
        store = worker_group.store = self._store = info.store
        worker_group.group_rank, worker_group.group_world_size = info.rank, info.world_size
        worker_group.workers = self._assign_worker_ranks(store, info.rank, info.world_size, spec)
        place = info.bootstrap_store_info or RendezvousStoreInfo.build(
            info.rank, store, spec.local_addr, spec.master_port
        )
        worker_group.master_addr = spec.master_addr or place.master_addr
        worker_group.master_port = spec.master_port or place.master_port
        if info.rank == 0:
            store.set("torchelastic/workers_round", uuid.uuid4().hex)
        worker_group.round = store.get("torchelastic/workers_round").decode()

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Ranks by the machines' numbers: each says how many workers of which role it has."""
        store.set(f"{_ROLES}/{group_rank}", json.dumps([spec.role, spec.local_world_size]))
        found = [
            json.loads(value) for value in store.multi_get([f"{_ROLES}/{rank}" for rank in range(group_world_size)])
        ]
        first = sum(size for _, size in found[:group_rank])
        first_of_role = sum(size for role, size in found[:group_rank] if role == spec.role)
        world, of_role = sum(size for _, size in found), sum(size for role, size in found if role == spec.role)
        return [Worker(k, first + k, first_of_role + k, world, of_role) for k in range(spec.local_world_size)]

    def _exit_barrier(self) -> bool:
        """Wait for the workers of other machines; False where another round has begun: theirs failed."""
        group, key = self._worker_group, "torchelastic/agent/ended"
        limit = time.monotonic() + self._exit_barrier_timeout
        try:
            count = self._store.add(key, 1)
            while count < (group.group_world_size or 1) and time.monotonic() < limit:
                if group.spec.rdzv_handler.num_nodes_waiting() > 0:
                    return False
                time.sleep(group.spec.monitor_interval)
                count = self._store.add(key, 0)
        except DistError as error:
            _log.warning("the agents' store has gone, and with it the other machines: %s", error)
        return True

    # ***** reports *****

    def _note(self, event: Event) -> None:
        record(event, self._worker_group.spec.event_log_handler)

    def _event(self, state: str, error: str | None = None) -> Event:
        group, spec = self._worker_group, self._worker_group.spec
        about = {
            "run_id": spec.rdzv_handler.get_run_id(), "group_rank": group.group_rank, "group_world_size": group.group_world_size, "role": spec.role,
            "hostname": socket.getfqdn(), "state": state, "total_run_time": int(time.monotonic() - self._began), "raw_error": error,
            "rdzv_backend": spec.rdzv_handler.get_backend(), "agent_restarts": spec.max_restarts - self._remaining_restarts,
            "metadata": json.dumps({"entry_point": spec.get_entrypoint_name(), "local_world_size": spec.local_world_size}),
        }  # fmt: skip
        return Event(f"torchelastic.worker.status.{state}", EventSource.AGENT, metadata=about)

    def get_event_failed(self) -> Event:
        """The event of a run that failed."""
        return self._event("FAILED")

    def get_event_succeeded(self) -> Event:
        """The event of a run that ended well."""
        return self._event("SUCCEEDED")

    def record_duration(self, state: str) -> None:
        """Report for how long the agent has run."""
        put_metric(
            f"workers.{self._worker_group.spec.role}.run_{state.lower()}.duration.ms",
            int(1000 * (time.monotonic() - self._began)),
            "torchelastic",
        )
