"""Programs of ranks that save and load together."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import warnings
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.distributed.programs.pytorch_checkpoint import contents

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed.checkpoint as dcp
from rushlight.distributed.checkpoint import _async_process
from rushlight.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from rushlight.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from rushlight.distributed.fsdp import FullyShardedDataParallel, fully_shard
from rushlight.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

# Shapes that do not divide, scalars, nothing at all.
SHAPES = [(5, 3), (2, 4), (1,), (3, 2, 2), (0, 3), ()]


def wholes() -> list[torch.Tensor]:
    """The tensors that are saved."""
    return [torch.arange(float(max(1, torch.Size(s).numel())))[: torch.Size(s).numel()].view(s) + 1 for s in SHAPES]


class World:
    """The first ranks of the job as a world of its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.mesh = dist.DeviceMesh("cpu", list(range(size)))
        self.group = self.mesh.get_group() if dist.get_rank() < size else None

    @contextmanager
    def as_all(self, names: dict[str, Any]) -> Any:
        """Let a program take this world for the whole job."""
        given = {"process_group": self.group}
        names["dcp"] = SimpleNamespace(save=partial(dcp.save, **given), load=partial(dcp.load, **given))
        names["DistributedDataParallel"] = partial(names["DistributedDataParallel"], **given)
        place = {"num_replicas": self.size, "rank": dist.get_rank()}
        names["DistributedSampler"] = partial(names["DistributedSampler"], **place)
        names["dist"] = SimpleNamespace(
            get_world_size=lambda: self.size,
            ReduceOp=dist.ReduceOp,
            all_reduce=partial(dist.all_reduce, group=self.group),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield

    def layouts(self) -> list[Any]:
        """Meshes and placements; None for tensors that all have whole."""
        found: list[Any] = [(self.mesh, [placed]) for placed in (Shard(0), Replicate(), Shard(-1))]
        if self.size == 4:
            grid = dist.init_device_mesh("cpu", (2, 2))
            found += [(grid, [Shard(0), Shard(0)]), (grid, [Replicate(), Shard(0)]), (grid, [Shard(-1), Shard(0)])]
        return [*found, None]


def state(layout: tuple[Any, list[Any]] | None, empty: bool) -> dict[str, Any]:
    """Tensors in a layout, tensors that all ranks have, and other things."""
    found: dict[str, Any] = {}
    for number, whole in enumerate(wholes()):
        value = torch.zeros_like(whole) if empty else whole
        if layout is not None and whole.ndim:
            value = distribute_tensor(value, *layout, src_data_rank=None)
        found[f"t{number}"] = value
    rest = {"epoch": 0, "pair": (0, 0)} if empty else {"epoch": 3, "pair": (1, "b")}
    return {"model": found, **rest, "list": [torch.zeros(2) if empty else torch.ones(2)]}


def wrong(found: dict[str, Any]) -> list[str]:
    """What was loaded otherwise than it was saved."""
    bad = [] if (found["epoch"], found["pair"]) == (3, (1, "b")) and found["list"][0].tolist() == [1, 1] else ["rest"]
    for number, whole in enumerate(wholes()):
        value = found["model"][f"t{number}"]
        value = value.full_tensor() if isinstance(value, DTensor) else value
        if not torch.equal(value, whole):
            bad.append(f"t{number}: {value}")
    return bad


def layouts_and_worlds(rank: int, size: int, folder: str, all_of_them: bool) -> list[Any]:
    """A checkpoint of each layout of worlds of 1, 2 and 4 ranks, loaded in each of these worlds: into all layouts, or
    into one in turn.
    """
    worlds = [World(n) for n in (1, 2, 4)]
    for world in worlds:
        for number, layout in enumerate(world.layouts()[: None if all_of_them else 2 * world.size - 1]):
            if rank < world.size:
                path = os.path.join(folder, f"{world.size}-{number}")
                dcp.save(state(layout, False), checkpoint_id=path, process_group=world.group)
        dist.barrier()
    bad = []
    for world in worlds:
        wanted = world.layouts()
        for number, name in enumerate(sorted(os.listdir(folder))):
            for k in range(len(wanted)) if all_of_them else [number % len(wanted)]:
                if rank < world.size:
                    found = state(wanted[k], True)
                    dcp.load(found, checkpoint_id=os.path.join(folder, name), process_group=world.group)
                    bad += [(name, str(wanted[k]), text) for text in wrong(found)]
    return bad


def written_once(rank: int, size: int, folder: str) -> list[int]:
    """What several ranks have is written by one, and all of them write."""
    mesh = dist.init_device_mesh("cpu", (size,))
    held = {f"w{k}": distribute_tensor(torch.ones(100), mesh, [Replicate()], src_data_rank=None) for k in range(8)}
    made = dcp.save(held, checkpoint_id=folder)
    places = [place.relative_path for place in made.storage_data.values()]
    return [places.count(f"__{k}_0.distcp") for k in range(size)]


def each_its_own(rank: int, size: int, folder: str) -> list[Any]:
    """Names that one rank alone has; and checkpoints of each rank by itself, twice over one another."""
    found: list[Any] = []
    path = os.path.join(folder, "stages")
    dcp.save({f"stage{rank}": {"w": torch.full((2,), float(rank))}, "all": rank // size}, checkpoint_id=path)
    held: dict[str, Any] = {f"stage{(rank + 1) % size}": {"w": torch.zeros(2)}, "all": 5}
    dcp.load(held, checkpoint_id=path)
    found.append([held[f"stage{(rank + 1) % size}"]["w"].tolist(), held["all"]])

    path = os.path.join(folder, "apart")
    mesh = dist.init_device_mesh("cpu", (size,))
    for step in (1.0, 2.0):
        whole = torch.arange(10.0) * step
        parts = {"w": distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None), "rank": rank}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(parts, checkpoint_id=path, use_collectives=False)
        dist.barrier()
    back = {"w": distribute_tensor(torch.zeros(10), mesh, [Shard(0)], src_data_rank=None), "rank": -1}
    dcp.load(back, checkpoint_id=path)
    found.append([torch.equal(back["w"].full_tensor(), whole), back["rank"] == rank, len(os.listdir(path))])
    dist.barrier()
    try:
        dcp.load({"w": torch.zeros(10)}, checkpoint_id=path)
    except dcp.CheckpointException as error:
        found.append(["the checkpoint has only a part of w" in str(e[0]) for e in error.failures.values()])
    return found


def failures(rank: int, size: int, folder: str) -> list[Any]:
    """One rank fails: all raise, with its number and its error, and the older checkpoint is as it was."""
    found: list[Any] = []
    dcp.save({"w": torch.ones(3)}, checkpoint_id=folder)

    class Bad:
        def __reduce__(self) -> Any:
            raise OSError("disk full")

    for doing in (
        lambda: dcp.save({"w": torch.zeros(3), f"x{rank}": Bad() if rank == 2 else 1}, checkpoint_id=folder),
        lambda: dcp.load({"absent": torch.ones(1)} if rank == 1 else {}, checkpoint_id=folder),
        lambda: dcp.load({"w": torch.ones(4)}, checkpoint_id=folder),
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                doing()
        except dcp.CheckpointException as error:
            found.append(sorted((k, type(e[0]).__name__) for k, e in error.failures.items()))
    held = {"w": torch.zeros(3)}
    dcp.load(held, checkpoint_id=folder)
    return [*found, held["w"].tolist()]


def _net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))


def _wrapped(kind: str, world: World) -> tuple[Any, Any]:
    net = _net()
    if kind == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net, process_group=world.group)
    elif kind == "fsdp1":
        net[0] = FullyShardedDataParallel(net[0], process_group=world.group)
        net = FullyShardedDataParallel(net, process_group=world.group)
    elif kind == "fsdp":
        fully_shard(net[0], mesh=world.mesh)
        fully_shard(net, mesh=world.mesh)
    elif kind == "tp":
        parallelize_module(net, world.mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return net, torch.optim.AdamW(net.parameters(), lr=0.05)


def _train(net: Any, optimizer: Any, steps: range, world: World, spread: bool) -> list[float]:
    """Losses of the whole batch, whatever part of it a rank sees."""
    torch.manual_seed(1)
    x, y = torch.randn(8, 6), torch.randn(8, 3)
    rank, size = dist.get_rank(), world.size
    losses = []
    for step in steps:
        part = slice(rank * 8 // size, (rank + 1) * 8 // size) if spread else slice(None)
        loss = (net(x[part] * (1 + step % 3)) - y[part]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if spread:
            dist.all_reduce(total, dist.ReduceOp.AVG, group=world.group)
        losses.append(round(total.item(), 5))
    return losses


def stop_and_go_on(rank: int, size: int, kind: str, folder: str) -> list[list[float]]:
    """Two ranks train, save in the middle and go on; two others, one and four go on from there."""
    found = []
    for number in (2, 1, 4):
        world = World(number)
        if rank < number:
            net, optimizer = _wrapped(kind, world)
            if number == 2:
                _train(net, optimizer, range(3), world, kind != "tp")
            of_model, of_optimizer = get_state_dict(net, optimizer)
            held = {"model": of_model, "optimizer": of_optimizer}
            if number == 2:
                dcp.save(held, checkpoint_id=folder, process_group=world.group)
            else:
                dcp.load(held, checkpoint_id=folder, process_group=world.group)
                set_state_dict(net, optimizer, model_state_dict=held["model"], optim_state_dict=held["optimizer"])
            found.append(_train(net, optimizer, range(3, 6), world, kind != "tp"))
        dist.barrier()
    return found


def full_states(rank: int, size: int, kind: str) -> list[bool]:
    """Whole states from parts, on rank 0 only, and back from rank 0."""
    world = World(size)
    net, optimizer = _wrapped(kind, world)
    _train(net, optimizer, range(2), world, True)
    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    of_model, of_optimizer = get_state_dict(net, optimizer, options=full)
    whole = [not isinstance(v, DTensor) for v in of_model.values()] if rank == 0 else [of_model == of_optimizer == {}]
    other, other_optimizer = _wrapped(kind, world)
    taken = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_state_dict(other, other_optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer, options=taken)
    same = [
        torch.equal(a._local_tensor, b._local_tensor) for a, b in zip(net.parameters(), other.parameters(), strict=True)
    ]
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    before = get_optimizer_state_dict(net, optimizer, options=flat)
    set_optimizer_state_dict(other, other_optimizer, before, options=flat)
    after = get_optimizer_state_dict(other, other_optimizer, options=flat)
    same += [
        torch.equal(v._local_tensor, after[k]._local_tensor) if isinstance(v, DTensor) else bool(v == after[k])
        for k, v in before.items()
        if v is not None
    ]
    everywhere = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    set_model_state_dict(other, everywhere, options=StateDictOptions(full_state_dict=True))
    same += [
        torch.equal(a._local_tensor, b._local_tensor) for a, b in zip(net.parameters(), other.parameters(), strict=True)
    ]
    return [*whole, *same]


def beside_training(rank: int, size: int, folder: str, where: str) -> list[Any]:
    """Collectives of the training go on while checkpoints are written, and what changes later is not in them."""
    mesh = dist.init_device_mesh("cpu", (size,))
    found: list[Any] = []
    for step in (1, 2):
        whole = torch.full((1000,), float(step))
        held = {"w": [distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)], "epoch": step}
        kind = AsyncCheckpointerType(where)
        future = dcp.async_save(held, checkpoint_id=os.path.join(folder, str(step)), async_checkpointer_type=kind)
        held["w"][0].mul_(5.0)
        total = torch.zeros(1)
        for k in range(200):
            one = torch.full((1,), float(k))
            dist.all_reduce(one)
            total += one
        metadata = future.result()
        back = {"w": [torch.zeros(1000)], "epoch": 0}
        dcp.load(back, checkpoint_id=os.path.join(folder, str(step)))
        chunks = len(metadata.state_dict_metadata["w.0"].chunks)
        found.append([total.item(), back["w"][0].unique().tolist(), back["epoch"], chunks])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            planner = dcp.DefaultSavePlanner() if rank else None
            writer = dcp.FileSystemWriter(os.path.join(folder, "1"), overwrite=False)
            dcp.async_save(held, storage_writer=writer, planner=planner, async_checkpointer_type=kind).result()
    except dcp.CheckpointException as error:
        found.append(sorted(error.failures))
    if _async_process._held:
        _async_process._held.pop().close()
    return found


def killed_in_save(rank: int, size: int, folder: str) -> str:
    """Rank 1 is killed while it writes over an older checkpoint."""

    class Planner(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().resolve_data(write_item)

    mesh = dist.init_device_mesh("cpu", (size,))
    first, second = ({"w": distribute_tensor(torch.full((9,), x), mesh, [Shard(0)])} for x in (1.0, 2.0))
    dcp.save(first, checkpoint_id=folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(second, checkpoint_id=folder, planner=Planner())
    except RuntimeError as error:
        raise RuntimeError(type(error).__name__) from None
    return "saved"


def save_contents(rank: int, size: int, folder: str) -> None:
    """What real PyTorch saves in `pytorch_checkpoint`."""
    mesh = dist.init_device_mesh("cpu", (size,))

    def spread(x: Any, dim: int | None) -> Any:
        return distribute_tensor(x, mesh, [Replicate() if dim is None else Shard(dim)])

    dcp.save(contents(torch, spread), checkpoint_id=folder)


def hugging_face(rank: int, size: int, folder: str) -> list[Any]:
    """Parts and wholes in Hugging Face's form: what was loaded otherwise than it was saved."""
    world = World(size)
    names = {f"t{k}": 1 + k % 2 for k in range(len(SHAPES))}

    def tensors(layout: Any, empty: bool) -> dict[str, Any]:
        return state(layout, empty)["model"]

    def load(where: str, layout: Any) -> list[str]:
        found = tensors(layout, True)
        dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(os.path.join(folder, where), thread_count=2))
        return wrong({"model": found, "epoch": 3, "pair": (1, "b"), "list": [torch.ones(2)]})

    def writer(where: str, **options: Any) -> Any:
        return dcp.HuggingFaceStorageWriter(os.path.join(folder, where), **options)

    rows, _, columns = world.layouts()[:3]
    whole = writer("whole", fqn_to_index_mapping=names)
    try:
        dcp.save(tensors(None, False), storage_writer=whole)
    except dcp.CheckpointException as error:
        assert "several ranks have something to write" in str(error)
    dcp.save(tensors(None, False), storage_writer=whole, planner=dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True))
    dcp.save(tensors(rows, False), storage_writer=writer("parts", save_distributed=True))
    both = writer("both", fqn_to_index_mapping=names, save_distributed=True, enable_consolidation=True)
    dcp.save(tensors(columns, False), storage_writer=both)
    return [
        text for where in ("whole", "parts", "both") for layout in (rows, columns, None) for text in load(where, layout)
    ]


def page_in_worlds(rank: int, size: int, folder: str) -> list[list[float]]:
    """The page's program: six steps of two ranks, six more of two, one and four; and twelve of one."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "distributed" / "checkpoint.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    code = blocks[0].split("dist.init_process_group")[0] + blocks[1].split("first, second =")[0]
    found = []
    for number, where, steps, start in (
        (2, "a", 6, None),
        (1, "b", 12, None),
        (2, "c", 6, "a"),
        (1, "d", 6, "a"),
        (4, "e", 6, "a"),
    ):
        world = World(number)
        path = os.path.join(folder, where)
        if rank == 0 and start is not None:
            shutil.copytree(os.path.join(folder, start), path)
        dist.barrier()
        if rank < number:
            names: dict[str, Any] = {}
            exec(code, names)  # noqa: S102  the page says so
            with world.as_all(names):
                found.append(names["train"](path, steps))
        dist.barrier()
    return found


def save_until_killed(rank: int, size: int, folder: str, victim: int, seconds: float) -> None:
    """Save over and over; a rank is killed at some moment, by a thread that waits for nothing."""
    mesh = dist.init_device_mesh("cpu", (size,))
    held = {"w": distribute_tensor(torch.zeros(30_000), mesh, [Shard(0)]), "step": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(100_000):
            held["w"].fill_(float(step))
            held["step"] = step
            dcp.save(held, checkpoint_id=folder)
            if rank == victim and step == 0:
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
