"""The agent of one machine: starts its workers, watches them, begins anew after a failure, and says what failed first."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rushlight._base.lazy import LazyModule
from rushlight._distributed.errors import DistNetworkError, RankFailedError
from rushlight._distributed.launch.failures import ERROR_FILE, ChildFailedError, ProcessFailure
from rushlight._distributed.launch.rounds import Meeting, Members, RendezvousClosedError
from rushlight._distributed.launch.segments import remove_unused_segments
from rushlight._distributed.launch.workers import Start, Streams, Workers

__all__ = ["Agent", "Job", "SignalException", "Std"]

if TYPE_CHECKING:
    from rushlight._distributed.launch import monitor
else:
    monitor = LazyModule("rushlight._distributed.launch.monitor")

log = logging.getLogger("torch.distributed.elastic")
_STATIC_PORT, _C10D_PORT = 29500, 29400
_GRACE = 30.0
_PREFIX_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"


class Std:
    """Streams of a worker, as bits: 1 is its output, 2 its error stream."""

    NONE, OUT, ERR, ALL = range(4)


class SignalException(Exception):
    """The agent was told to end: `sigval` is the signal."""

    __module__ = "torch.distributed.elastic.multiprocessing.api"

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


@dataclass
class Job:
    """The task of an agent; see `LaunchConfig` for the meaning of the fields."""

    entrypoint: str | Callable[..., Any]
    args: tuple[Any, ...]
    workers: int
    nodes: tuple[int, int] = (1, 1)
    run_id: str = "none"
    role: str = "default"
    backend: str = "static"
    endpoint: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    max_restarts: int = 0
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_dir: str | None = None
    redirects: Mapping[int, int] | int = Std.NONE
    tee: Mapping[int, int] | int = Std.NONE
    shown: frozenset[int] | None = None
    prefix_template: str | None = None
    signals: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    grace: float = _GRACE
    virtual_local_rank: bool = False

    @property
    def name(self) -> str:
        """Name of the program that runs."""
        if not isinstance(self.entrypoint, str):
            return getattr(self.entrypoint, "__qualname__", repr(self.entrypoint))
        scripts = [word for word in self.args if str(word).endswith(".py")]
        return str(scripts[0]) if scripts else self.entrypoint


class Agent:
    """Runs a job on this machine, with the agents of the other machines."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.round: Members | None = None
        self.restarts = 0
        self._stop: signal.Signals | None = None
        self._workers: Workers | None = None
        self._keeps_logs = job.log_dir is not None
        self._logs = job.log_dir or ""

    def run(self) -> dict[int, Any]:
        """Until all workers have ended well: what they returned, by global rank. ChildFailedError if they failed."""
        began = time.time()
        if self._logs:
            os.makedirs(self._logs, exist_ok=True)
        self._logs = tempfile.mkdtemp(prefix=f"{_file_name(self.job.run_id)}_", dir=self._logs or None)
        try:
            with self._signals():
                return self._run()
        finally:
            remove_unused_segments(began)
            if not self._keeps_logs:
                shutil.rmtree(self._logs, ignore_errors=True)

    def _run(self) -> dict[int, Any]:
        meeting = self._meeting()
        while True:
            try:
                results = self._run_round(meeting)
            except DistNetworkError as error:  # the store was killed, or cannot be reached
                meeting = self._meet_again(meeting, error)
            else:
                if results is not None:
                    return results

    def _run_round(self, meeting: Meeting) -> dict[int, Any] | None:
        """One start of the workers; None if there has to be another one."""
        members = meeting.join(self.job.workers)
        self.restarts = self.restarts if meeting.alone else meeting.restarts()
        workers = self._workers = Workers(self._starts(meeting, members), self.job.start_method)
        with self._watching(meeting, members) as watched:
            try:
                outcome = self._watch(meeting, members, workers, watched)
                if outcome == "ended" and meeting.end(members):
                    return workers.results()
                failures = workers.failures() if outcome == "failed" else {}
            finally:
                workers.stop(self._stop or signal.SIGTERM, self.job.grace)
                self._workers = None
            if outcome == "failed":
                self._restart(meeting, members, {**workers.failures(), **failures})
            elif why := (meeting.failed() if not meeting.alone else ""):
                raise RendezvousClosedError(f"the job has failed on another machine: {why}")
        return None

    def _meet_again(self, lost: Meeting, error: DistNetworkError) -> Meeting:
        """Another meeting in place of one whose store is gone: where that was started here, in a new one."""
        lost.store.kill_server()
        if lost.alone:
            return self._meeting()
        log.warning("machine of %s: %s; its workers are ended, and it looks for the others again", self.job.name, error)
        if lost.store.is_master:
            if self.restarts >= self.job.max_restarts:
                raise error
            meeting = self._meeting()
            meeting.begin_with(self.restarts + 1)
            return meeting
        lost.find_store()
        return self._meeting()

    def _restart(self, meeting: Meeting, members: Members, failures: dict[int, ProcessFailure]) -> None:
        """Workers failed: another round, unless there were too many."""
        for failure in failures.values() if not self._keeps_logs else ():
            failure.error_file = "<N/A>"  # its folder goes
        error = ChildFailedError(self.job.name, failures)
        self.restarts = self.restarts + 1 if meeting.alone else meeting.count_restart()
        if self.restarts > self.job.max_restarts:
            if not meeting.alone:
                meeting.fail(
                    f"{self.job.name} on {socket.gethostname()}: {error.get_first_failure()[1].text()[-2000:]}"
                )
                meeting.advance(members.number)
            raise error
        rank, failure = error.get_first_failure()
        log.warning(
            "rank %d failed (exit code %d, pid %d); restart %d of %d\n%s",
            rank, failure.exitcode, failure.pid, self.restarts, self.job.max_restarts, failure.text(),
        )  # fmt: skip
        meeting.advance(members.number)

    # ***** watching *****

    @contextmanager
    def _watching(self, meeting: Meeting, members: Members) -> Iterator[monitor.Monitor]:
        """Watch the agents of a round; requests to a store that is lost do not wait for its answer."""
        address, job = (meeting.host, meeting.port), f"agents/{self.job.run_id}/{members.number}"
        watched = monitor.Monitor(address, job, members.node, members.nodes, native=False, lost=meeting.store.give_up)
        try:
            yield watched
        finally:
            watched.close()

    def _watch(self, meeting: Meeting, members: Members, workers: Workers, watched: monitor.Monitor) -> str:
        """Until something happens: all `ended`, one `failed`, or another round has begun (`changed`)."""
        while True:
            codes = workers.wait(self.job.monitor_interval)
            if self._stop is not None:
                workers.stop(self._stop, self.job.grace)
                raise SignalException(f"Process {os.getpid()} got signal: {self._stop}", self._stop)
            if any(codes.values()):
                return "failed"
            if not workers.running():
                return "ended"
            if not meeting.alone and self._changed(meeting, members, watched):
                return "changed"

    def _changed(self, meeting: Meeting, members: Members, watched: monitor.Monitor) -> bool:
        """Whether there is, or should be, another round."""
        try:
            watched.check()
        except RankFailedError as error:
            if error.rank == monitor.STORE:
                raise DistNetworkError(str(error)) from None
            log.warning("machine %d is lost: %s", error.rank, error)
            meeting.advance(members.number)
        if meeting.somebody_waits(members):
            meeting.advance(members.number)
        return meeting.number() != members.number

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Note signals that end the agent; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            self._stop = signal.Signals(number)
            if self._workers is None:  # waiting for other machines
                raise SignalException(f"Process {os.getpid()} got signal: {self._stop}", self._stop)

        names = [name.strip() for name in self.job.signals.split(",") if name.strip()]
        before = {name: signal.signal(getattr(signal, name), note) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    # ***** starting *****

    def _meeting(self) -> Meeting:
        job = self.job
        static = job.backend == "static"
        host, port = _endpoint(job.endpoint, _STATIC_PORT if static else _C10D_PORT)
        place = int(job.settings.get("rank", 0)) if static else None
        return Meeting((host, port), job.run_id, job.nodes, place, job.settings)

    def _starts(self, meeting: Meeting, members: Members) -> list[Start]:
        return [self._start(meeting, members, local) for local in range(self.job.workers)]

    def _start(self, meeting: Meeting, members: Members, local: int) -> Start:
        job, rank = self.job, members.first_rank + local
        folder = os.path.join(self._logs, f"attempt_{self.restarts}", str(local))
        environment = {
            "LOCAL_RANK": str(local),
            "RANK": str(rank),
            "WORLD_SIZE": str(members.world_size),
            "LOCAL_WORLD_SIZE": str(job.workers),
            "GROUP_RANK": str(members.node),
            "GROUP_WORLD_SIZE": str(members.nodes),
            "ROLE_NAME": job.role,
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(members.world_size),
            "MASTER_ADDR": meeting.host,
            "MASTER_PORT": str(meeting.port),
            "TORCHELASTIC_RESTART_COUNT": str(self.restarts),
            "TORCHELASTIC_MAX_RESTARTS": str(job.max_restarts),
            "TORCHELASTIC_RUN_ID": job.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "RUSHLIGHT_ROUND": f"{members.number}_{self.restarts}",
            ERROR_FILE: os.path.join(folder, "error.json"),
        }
        if "OMP_NUM_THREADS" not in os.environ and job.workers > 1:
            environment["OMP_NUM_THREADS"] = "1"
        if job.virtual_local_rank:
            environment.update(LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=_visible_device(local))
        return Start(local, rank, job.entrypoint, job.args, environment, self._streams(local, rank, folder))

    def _streams(self, local: int, rank: int, folder: str) -> Streams:
        job = self.job
        tee, redirected = _bits(job.tee, local), _bits(job.redirects, local)
        hidden = job.shown is not None and local not in job.shown
        template = job.prefix_template or os.environ.get(_PREFIX_TEMPLATE) or "[${role_name}${local_rank}]:"
        prefix = (
            template.replace("${role_name}", job.role)
            .replace("${local_rank}", str(local))
            .replace("${rank}", str(rank))
        )
        paths: list[str | None] = []
        for bit, name in ((Std.OUT, "stdout.log"), (Std.ERR, "stderr.log")):
            kept = (tee | redirected) & bit
            paths.append(os.path.join(folder, name) if kept else os.devnull if hidden else None)
        shown = 0 if hidden else tee
        return Streams(paths[0], paths[1], bool(shown & Std.OUT), bool(shown & Std.ERR), prefix)


def _endpoint(text: str, port: int) -> tuple[str, int]:
    """Host and port of `host:port`, `host`, `[v6]:port`, or nothing: this machine."""
    if not text:
        return "localhost", port
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", port if parts.port is None else parts.port


def _bits(wanted: Mapping[int, int] | int, local: int) -> int:
    return int(wanted.get(local, Std.NONE)) if isinstance(wanted, Mapping) else int(wanted)


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]", "_", text)[:100]


def _visible_device(local: int) -> str:
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return devices.split(",")[local] if devices else str(local)
