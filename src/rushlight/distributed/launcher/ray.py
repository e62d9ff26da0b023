"""`ray_launch`: run a function in workers that Ray places on the machines of a cluster.

Each worker is an actor, a process of its own, with the environment that `torchrun` gives; `init_process_group` finds it
there. Ray says where there is room, restarts nothing by itself, and moves the function and its results.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight._interface.base import require
from rushlight._interface.distributed import WATCH
from rushlight._interface.launching import ERROR_FILE
from rushlight.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    ProcessFailure,
    get_error_handler,
    record,
)

__all__ = ["RayConfig", "ray_launch"]

_REPORTS_WITHIN = 3.0  # seconds for the other workers to say that they failed in consequence
_CAUSE_WITHIN = 30.0  # and for the one that failed first, of which Ray may know later than the other workers
_LOOKS_AFTER = 0.5
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class RayConfig:
    """Resources that Ray gives: `workers` processes, each with so many `cpus`, `gpus` and other `resources` of its own.

    `strategy` is that of Ray's placement groups: "PACK" and "SPREAD" if it can be, "STRICT_PACK", "STRICT_SPREAD".
    `placed_within` is how many seconds the cluster has to find room; `max_restarts` how often all workers start again
    after one has failed; `environment` is added to theirs.
    """

    workers: int
    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    strategy: str = "PACK"
    placed_within: float = 300.0
    max_restarts: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"RayConfig: workers must be at least 1, got {self.workers}")
        if self.max_restarts < 0:
            raise ValueError(f"RayConfig: max_restarts must not be negative, got {self.max_restarts}")


class ray_launch:
    """`ray_launch(config, function)(*args)`: what the function returned in each worker, by rank.

    Ray is started, or the cluster of `RAY_ADDRESS` joined, unless the program has done so. Function and arguments are
    pickled by Ray. ChildFailedError when workers failed more often than `max_restarts`; its text ends with the first
    failure's traceback. TimeoutError where there is no room. ImportError that names the extra without Ray.

    Example: `ray_launch(RayConfig(workers=8, gpus=1, max_restarts=3), train)(0.1)`
    """

    def __init__(self, config: RayConfig, function: Callable[..., Any]) -> None:
        self.config, self.function = config, function

    def __call__(self, *args: Any) -> dict[int, Any]:
        ray = require("ray", "ray")
        if not ray.is_initialized():
            ray.init()
        called = ray.cloudpickle.dumps((self.function, args))
        group = self._room(ray)
        try:
            for attempt in range(self.config.max_restarts + 1):
                with _Round(ray, self.config, group, attempt) as workers:
                    found, failures = workers.run(called)
                if not failures:
                    return found
        finally:
            ray.util.remove_placement_group(group)
        raise ChildFailedError(getattr(self.function, "__name__", str(self.function)), failures)

    def _room(self, ray: Any) -> Any:
        config = self.config
        bundle = {"CPU": config.cpus, "GPU": config.gpus, **config.resources}
        bundle = {name: amount for name, amount in bundle.items() if amount}
        group = ray.util.placement_group([bundle] * config.workers, strategy=config.strategy)
        ready, _ = ray.wait([group.ready()], timeout=config.placed_within)
        if not ready:
            ray.util.remove_placement_group(group)
            raise TimeoutError(
                f"Ray has found no room for {config.workers} workers with {bundle} each ({config.strategy}) within "
                f"{config.placed_within:g} s; the cluster has {ray.cluster_resources()}"
            )
        return group


class _Round:
    """The workers of one start; they end with the `with` block."""

    def __init__(self, ray: Any, config: RayConfig, group: Any, attempt: int) -> None:
        self.ray, self.config, self.attempt = ray, config, attempt
        placed = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        actor = ray.remote(num_cpus=config.cpus, num_gpus=config.gpus, max_restarts=0)(Worker)
        known_as_torch = sys.modules.get("torch") is rushlight
        self.actors = [
            actor.options(
                resources=dict(config.resources), scheduling_strategy=placed(group, placement_group_bundle_index=k)
            ).remote(known_as_torch)
            for k in range(config.workers)
        ]

    def __enter__(self) -> _Round:
        return self

    def __exit__(self, *error: object) -> None:
        for actor in self.actors:
            self.ray.kill(actor)

    def run(self, called: bytes) -> tuple[dict[int, Any], dict[int, ProcessFailure]]:
        """Results and failures, by rank: after a failure the others have some seconds to say what became of them."""
        places = self.ray.get([actor.place.remote() for actor in self.actors])
        order = _by_node(places)
        environments = self._environments([places[k] for k in order])
        # A worker's call -> its rank
        running = {self.actors[k].run.remote(environments[rank], called): rank for rank, k in enumerate(order)}
        found: dict[int, Any] = {}
        failures: dict[int, ProcessFailure] = {}
        until: float | None = None
        while running and (until is None or time.monotonic() < until):
            ready, _ = self.ray.wait(list(running), timeout=_LOOKS_AFTER)
            for call in ready:
                rank = running.pop(call)
                failure = self._taken(call, rank, int(environments[rank]["LOCAL_RANK"]), found)
                if failure is not None:
                    failures[rank] = failure
                    known = any(not one.in_consequence() for one in failures.values())
                    until = time.monotonic() + (_REPORTS_WITHIN if known else _CAUSE_WITHIN)
        return found, failures

    def _taken(self, call: Any, rank: int, local_rank: int, found: dict[int, Any]) -> ProcessFailure | None:
        """Keep what a worker returned, or make a record of its failure."""
        try:
            pid, error, result = self.ray.get(call)
        except self.ray.exceptions.RayActorError:  # it is gone, and has left nothing
            return ProcessFailure(local_rank, -1, 1, "<N/A>")
        if error is None:
            found[rank] = self.ray.cloudpickle.loads(result)
            return None
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(error)
            file.flush()
            return ProcessFailure(local_rank, pid, 1, file.name)

    def _environments(self, places: list[tuple[str, str, int]]) -> list[dict[str, str]]:
        """The environment of each rank."""
        nodes = [node for node, _, _ in places]
        several = len(set(nodes)) > 1
        numbers = {node: number for number, node in enumerate(dict.fromkeys(nodes))}
        size, made = str(len(places)), []
        for rank, (node, _, _) in enumerate(places):
            local = str(rank - nodes.index(node))
            made.append({
                **self.config.environment, "RANK": str(rank), "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": str(nodes.count(node)),
                "GROUP_RANK": str(numbers[node]), "GROUP_WORLD_SIZE": str(len(numbers)), "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": size,
                "ROLE_NAME": "default", "MASTER_ADDR": places[0][1] if several else _LOOPBACK, "MASTER_PORT": str(places[0][2]),
                "TORCHELASTIC_RESTART_COUNT": str(self.attempt), "TORCHELASTIC_MAX_RESTARTS": str(self.config.max_restarts),
            })  # fmt: skip
        return made


def _by_node(places: list[tuple[str, str, int]]) -> list[int]:
    """The numbers of workers in the order of their ranks: those of a machine are next to each other."""
    nodes = list(dict.fromkeys(node for node, _, _ in places))
    return sorted(range(len(places)), key=lambda k: nodes.index(places[k][0]))


class Worker:
    """A worker in an actor."""

    def __init__(self, known_as_torch: bool) -> None:
        if known_as_torch:
            rushlight.install_as_torch()

    def place(self) -> tuple[str, str, int]:
        """This machine's number in the cluster, its address, and a port that is free there."""
        ray = require("ray", "ray")
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), port

    def run(self, environment: Mapping[str, str], called: bytes) -> tuple[int, str | None, bytes]:
        """Call the function: the number of this process, what `record` says of its exception, or its result."""
        pickle = require("ray", "ray").cloudpickle
        os.environ.update(environment)

        def call() -> bytes:
            function, args = pickle.loads(called)
            result: bytes = pickle.dumps(function(*args))
            if dist.is_initialized():
                dist.destroy_process_group()
            return result

        with tempfile.TemporaryDirectory() as folder:
            path = os.environ[ERROR_FILE] = os.path.join(folder, "error.json")
            try:
                return os.getpid(), None, record(call)() or pickle.dumps(None)
            except BaseException as error:
                get_error_handler().record_exception(error)
                if WATCH.monitor is not None:  # the process lives on, and others may wait for this rank
                    WATCH.monitor.broken(f"{type(error).__name__}: {error}")
                with open(path) as file:
                    return os.getpid(), file.read(), b""
