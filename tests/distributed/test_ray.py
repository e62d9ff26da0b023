"""Workers that Ray places: ranks, results, failures, restarts; with Ray itself, where it is installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError
from rushlight.distributed.launcher.ray import RayConfig, _by_node, _Round, ray_launch

WORKER = {"RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_FLIGHT_DUMPS": "0"}


def test_ray_is_an_extra() -> None:
    if find_spec("ray") is not None:
        pytest.skip("Ray is installed")
    with pytest.raises(ImportError, match="ray is not installed; it belongs to the extra 'ray'"):
        ray_launch(RayConfig(2), len)([])


def test_places_of_ranks() -> None:
    """Workers of one machine are next to each other; rank 0's machine comes first."""
    places = [("a", "10.0.0.1", 5001), ("b", "10.0.0.2", 5002), ("a", "10.0.0.1", 5003), ("c", "10.0.0.3", 5004)]
    order = _by_node(places)
    assert order == [0, 2, 1, 3]
    made = object.__new__(_Round)
    made.config, made.attempt = RayConfig(4, max_restarts=2, environment={"X": "1"}), 1
    environments = made._environments([places[k] for k in order])
    names = (
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "X",
    )
    assert [[e[name] for name in names] for e in environments] == [
        ["0", "0", "2", "0", "3", "10.0.0.1", "5001", "1"], ["1", "1", "2", "0", "3", "10.0.0.1", "5001", "1"],
        ["2", "0", "1", "1", "3", "10.0.0.1", "5001", "1"], ["3", "0", "1", "2", "3", "10.0.0.1", "5001", "1"],
    ]  # fmt: skip
    assert {e["TORCHELASTIC_RESTART_COUNT"] for e in environments} == {"1"}
    assert made._environments(places[:1])[0]["MASTER_ADDR"] == "127.0.0.1"  # nothing listens elsewhere
    with pytest.raises(ValueError, match="workers must be at least 1"):
        RayConfig(0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    yield ray
    ray.shutdown()


def trained(steps: int) -> tuple[int, int, list[float]]:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    x = torch.arange(12.0).reshape(4, 3)[dist.get_rank() :: 2] / 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
        losses.append(loss.item())
    return dist.get_rank(), int(os.environ["LOCAL_RANK"]), losses


def fails(how: str, until: int) -> int:
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group("gloo")
    dist.barrier()
    if attempt < until and dist.get_rank() == 1:
        if how == "dies":
            os.kill(os.getpid(), 9)
        raise ValueError("bad data")
    dist.all_reduce(torch.ones(2))
    return attempt


@pytest.mark.distributed
def test_training_on_a_cluster(cluster: Any) -> None:
    found = ray_launch(RayConfig(2, environment=WORKER), trained)(3)
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    x = torch.arange(12.0).reshape(4, 3) / 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert {k: v[:2] for k, v in found.items()} == {0: (0, 0), 1: (1, 1)}
    assert found[0][2] == found[1][2] == pytest.approx(losses, rel=1e-5)


@pytest.mark.distributed
@pytest.mark.parametrize("how", ["raises", "dies"])
def test_failures_are_named_and_workers_start_again(cluster: Any, how: str) -> None:
    assert ray_launch(RayConfig(2, max_restarts=1, environment=WORKER), fails)(how, 1) == {0: 1, 1: 1}
    with pytest.raises(ChildFailedError) as caught:
        ray_launch(RayConfig(2, environment=WORKER), fails)(how, 1)
    rank, failure = caught.value.get_first_failure()
    assert rank == 1 and (how == "dies" or "ValueError: bad data" in failure.text())
    assert re.search(r"rank 1 (died|failed: ValueError: bad data)", caught.value.failures[0].text())


@pytest.mark.distributed
def test_no_room(cluster: Any) -> None:
    with pytest.raises(TimeoutError, match="no room for 9 workers"):
        ray_launch(RayConfig(9, placed_within=2), trained)(1)
