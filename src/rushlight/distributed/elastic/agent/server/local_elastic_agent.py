"""`LocalElasticAgent`: an agent whose workers are processes of this machine."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from typing import Any

from rushlight.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from rushlight.distributed.elastic.agent.server.health_check_server import HealthCheckServer, create_healthcheck_server
from rushlight.distributed.elastic.multiprocessing import LogsSpecs, PContext, start_processes
from rushlight.distributed.elastic.timer import FileTimerServer

__all__ = ["LocalElasticAgent", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_TIMER_FILE"]

TORCHELASTIC_ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TORCHELASTIC_TIMER_FILE = "TORCHELASTIC_TIMER_FILE"
TORCHELASTIC_HEALTH_CHECK_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"


class LocalElasticAgent(SimpleElasticAgent):
    """Runs functions or commands in processes of this machine.

    `logs_specs` says where their output goes. With `TORCHELASTIC_ENABLE_FILE_TIMER=1` workers may set timers
    (`elastic.timer`), and those that miss them are ended; at the port `TORCHELASTIC_HEALTH_CHECK_PORT` of loopback the agent
    says whether it is alive.

    Example: `LocalElasticAgent(WorkerSpec("trainer", 2, handler, entrypoint=train, args=(0.1,)), DefaultLogsSpecs()).run()`
    """

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, start_method: str = "spawn", exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None, shutdown_timeout: int = 30,
    ) -> None:  # fmt: skip
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        self._start_method, self._logs_specs, self._prefix_template = start_method, logs_specs, log_line_prefix_template
        self._context: PContext | None = None
        self._watchdog: FileTimerServer | None = None
        self._health: HealthCheckServer | None = None
        self._looked = time.time()  # when the agent last looked at its workers

    # ***** starting *****

    def _environment(self, worker_group: WorkerGroup, worker: Any) -> dict[str, str]:
        spec = worker_group.spec
        restarts = spec.max_restarts - self._remaining_restarts
        found = {
            "LOCAL_RANK": worker.local_rank, "RANK": worker.global_rank, "GROUP_RANK": worker_group.group_rank, "ROLE_RANK": worker.role_rank,
            "ROLE_NAME": spec.role, "LOCAL_WORLD_SIZE": spec.local_world_size, "WORLD_SIZE": worker.world_size,
            "GROUP_WORLD_SIZE": worker_group.group_world_size, "ROLE_WORLD_SIZE": worker.role_world_size, "MASTER_ADDR": worker_group.master_addr,
            "MASTER_PORT": worker_group.master_port, "TORCHELASTIC_RESTART_COUNT": restarts, "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts,
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(), "TORCHELASTIC_USE_AGENT_STORE": spec.rdzv_handler.use_agent_store,
            "RUSHLIGHT_ROUND": worker_group.round,
        }  # fmt: skip
        if spec.virtual_local_rank:
            devices = os.environ.get("CUDA_VISIBLE_DEVICES")
            found |= {
                "LOCAL_RANK": 0,
                "CUDA_VISIBLE_DEVICES": devices.split(",")[worker.local_rank] if devices else worker.local_rank,
            }
        if self._watchdog is not None:
            found[TORCHELASTIC_TIMER_FILE] = self._watchdog.file_path
        return {name: str(value) for name, value in found.items()}

    def _prefix(self, worker_group: WorkerGroup, worker: Any) -> str:
        template = self._prefix_template or "[${role_name}${local_rank}]:"
        for name, value in (
            ("role_name", worker_group.spec.role),
            ("local_rank", worker.local_rank),
            ("rank", worker.global_rank),
        ):
            template = template.replace(f"${{{name}}}", str(value))
        return template

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        self._set_up()
        workers = {worker.local_rank: worker for worker in worker_group.workers}
        args = {
            k: tuple(str(a).replace("${local_rank}", str(k)) if isinstance(a, str) else a for a in spec.args)
            for k in workers
        }
        entrypoint: Any = spec.entrypoint
        self._context = start_processes(
            spec.role, entrypoint, args, {k: self._environment(worker_group, w) for k, w in workers.items()}, self._logs_specs,
            {k: self._prefix(worker_group, w) for k, w in workers.items()}, self._start_method, spec.numa_options,
            spec.duplicate_stdout_filters, spec.duplicate_stderr_filters,
        )  # fmt: skip
        return dict(self._context.pids())

    def _set_up(self) -> None:
        """The watchdog and the health check, once, where they are wanted."""
        if os.environ.get(TORCHELASTIC_ENABLE_FILE_TIMER) == "1" and self._watchdog is None:
            path = os.environ.get(TORCHELASTIC_TIMER_FILE) or os.path.join(tempfile.mkdtemp(), "watchdog_timer")
            self._watchdog = FileTimerServer(path, self._worker_group.spec.rdzv_handler.get_run_id(), 0.1)
            self._watchdog.start()
        port = os.environ.get(TORCHELASTIC_HEALTH_CHECK_PORT)
        if port is not None and self._health is None:
            self._health = create_healthcheck_server(lambda: int(self._looked), int(port), 60)
            self._health.start()

    # ***** watching *****

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._looked = time.time()
        if self._context is None:
            raise AssertionError("the workers were not started")
        result = self._context.wait(0)
        if result is None:
            return RunResult(WorkerState.HEALTHY)
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        if result.is_failed():
            failures = {ranks[k]: failure for k, failure in result.failures.items()}
            return RunResult(WorkerState.FAILED, failures=failures)
        return RunResult(WorkerState.SUCCEEDED, {ranks[k]: value for k, value in result.return_values.items()})

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        if self._context is not None:
            self._context.close(signal.SIGTERM, self._shutdown_timeout)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        if self._context is not None:
            self._context.close(death_sig, timeout)
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        if self._health is not None:
            self._health.stop()
            self._health = None
