"""`elastic_launch`: run a function or a command in several processes, which begin anew after a failure."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rushlight._interface.launching import Agent, Job
from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs
from rushlight.distributed.elastic.multiprocessing import SignalException as SignalException
from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError as ChildFailedError

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]

_GRACE = 30


@dataclass
class LaunchConfig:
    """Configuration of a launcher: what it starts, where, and how often it begins anew.

    `min_nodes` and `max_nodes` machines take part, each with `nproc_per_node` workers. With `rdzv_backend="static"` the
    machine's number is `rdzv_configs["rank"]`, and number 0 is at `rdzv_endpoint` ("host:port"); with "c10d" machines
    are numbered as they come, and the one that is the endpoint keeps the store. `max_restarts` is how often all workers
    start again after one has failed; `start_method` is how processes of functions start.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()


class elastic_launch:
    """`elastic_launch(config, function)(*args)`: what the function returned in each worker, by global rank.

    The entrypoint is a function, which is pickled unless processes are forked, or a command's name. ChildFailedError
    when workers failed more often than `max_restarts`; it holds the first failure's traceback.

    Example: `elastic_launch(LaunchConfig(1, 1, 2, rdzv_backend="c10d", start_method="fork"), train)(0.1)`
    """

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str | None) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))


def launch_agent(config: LaunchConfig, entrypoint: Callable[..., Any] | str | None, args: list[Any]) -> dict[int, Any]:
    """Run the agent of this machine; see `elastic_launch`."""
    if config.rdzv_backend not in ("static", "c10d"):
        raise ValueError(f"rdzv_backend {config.rdzv_backend!r} is not there: use 'c10d' or 'static'")
    for name in ("numa_options", "duplicate_stdout_filters", "duplicate_stderr_filters"):
        if getattr(config, name):
            raise NotImplementedError(f"torch.distributed.launcher: LaunchConfig.{name} is not there")
    logs: Any = config.logs_specs
    endpoint = config.rdzv_endpoint or ("localhost:0" if config.max_nodes == 1 else "")
    grace = config.shutdown_timeout or os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT") or _GRACE
    job = Job(
        entrypoint=entrypoint if entrypoint is not None else sys.executable,
        args=tuple(args),
        workers=config.nproc_per_node,
        nodes=(config.min_nodes, config.max_nodes),
        run_id=config.run_id or str(uuid.uuid4()),
        role=config.role,
        backend=config.rdzv_backend,
        endpoint=endpoint,
        settings=dict(config.rdzv_configs),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        start_method=config.start_method,
        log_dir=logs._root_log_dir,
        redirects=logs._redirects,
        tee=logs._tee,
        shown=None if logs._local_ranks_filter is None else frozenset(logs._local_ranks_filter),
        prefix_template=config.log_line_prefix_template,
        signals=config.signals_to_handle,
        grace=float(grace),
        virtual_local_rank=config.virtual_local_rank,
    )
    return Agent(job).run()
