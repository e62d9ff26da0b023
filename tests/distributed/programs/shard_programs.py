"""What ranks run in the tests of `ShardedTensor`: each function is called with (rank, size)."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed.checkpoint as dcp
from rushlight.distributed._shard import load_with_process_group, shard_module, shard_parameter, sharded_tensor
from rushlight.distributed._shard.sharded_tensor import Shard, ShardedTensor
from rushlight.distributed._shard.sharding_plan import ShardingPlan
from rushlight.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata


def placed(size: int) -> list[Any]:
    return [f"rank:{rank}/cpu" for rank in range(size)]


def whole_of(x: ShardedTensor) -> Any:
    """The whole tensor, on every rank."""
    out = torch.zeros(x.metadata().size, dtype=x.dtype)
    x.gather(0, out if dist.get_rank() == 0 else None)
    dist.broadcast(out, 0)
    return out


def chunks(rank: int, size: int) -> list[Any]:
    """Shapes of parts along both dims, a gathered whole, and what is equal to what."""
    torch.manual_seed(rank)
    found: list[Any] = []
    for dim in (0, 1):
        spec = ChunkShardingSpec(dim, placed(size))
        x = sharded_tensor.full(spec, (5, 6), 2.0)
        found.append([tuple(x.shape), tuple(x.local_tensor().shape), whole_of(x).sum().item()])
    linear = torch.nn.Linear(6, 5)
    dist.broadcast(linear.weight.detach(), 0)
    weight = linear.weight.detach().clone()
    shard_parameter(linear, "weight", ChunkShardingSpec(0, placed(size)))
    held: Any = linear.weight
    assert isinstance(held, ShardedTensor) and held.requires_grad and held.local_tensor().requires_grad
    assert torch.equal(whole_of(held), weight)
    turned = held.reshard(ChunkShardingSpec(1, placed(size)))
    assert torch.equal(whole_of(turned), weight) and turned.local_tensor().shape[0] == 5
    other = copy.deepcopy(held)
    found.append([torch.equal(held, other), torch.allclose(held, other)])
    with torch.no_grad():
        other.local_shards()[0].tensor.add_(float(rank == 0))
    found.append([torch.equal(held, other), held.to(torch.float64).local_tensor().dtype is torch.float64])
    return found


def boxes(rank: int, size: int) -> list[Any]:
    """Parts that are no chunks, such whose place all find together, and files of both."""
    part = torch.full((2, 3), float(rank))
    x = sharded_tensor.init_from_local_shards([Shard.from_tensor_and_offsets(part, [0, 0], rank)], None, 3)
    assert isinstance(x.sharding_spec(), ChunkShardingSpec) and tuple(x.shape) == (2 * size, 3)
    assert whole_of(x)[:, 0].tolist() == [float(k) for k in range(size) for _ in range(2)]
    uneven = [ShardMetadata([0, 0], [1, 4], "rank:0/cpu"), ShardMetadata([1, 0], [2, 4], "rank:1/cpu")]
    mine = [Shard(torch.full((1 + rank, 4), 1.0 + rank), uneven[rank])] if rank < 2 else []
    y = sharded_tensor.init_from_local_shards(mine, 3, 4)
    assert isinstance(y.sharding_spec(), EnumerableShardingSpec)
    file = io.BytesIO()
    torch.save(y, file)
    with load_with_process_group(dist.group.WORLD):
        z = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert torch.equal(y, z) and z.requires_grad is False
    return whole_of(y)[:, 0].tolist()


def checkpoints(rank: int, size: int, folder: str) -> list[float]:
    """A tensor in chunks of rows, loaded in chunks of columns and as a whole."""
    x = sharded_tensor.zeros(ChunkShardingSpec(0, placed(size)), 4, 6)
    shard = x.local_shards()[0]
    start = shard.metadata.shard_offsets[0]
    shard.tensor.copy_(torch.arange(24.0).view(4, 6)[start : start + shard.tensor.shape[0]])
    dcp.save({"x": x}, checkpoint_id=Path(folder))
    y = sharded_tensor.zeros(ChunkShardingSpec(1, placed(size)), 4, 6)
    plain = torch.zeros(4, 6)
    dcp.load({"x": y}, checkpoint_id=Path(folder))
    dcp.load({"x": plain}, checkpoint_id=Path(folder))
    assert torch.equal(plain, torch.arange(24.0).view(4, 6))
    return whole_of(y).view(-1).tolist()


class Net(torch.nn.Module):
    """A layer that gives a sharded tensor of its input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear, self.spec = torch.nn.Linear(3, 4), ChunkShardingSpec(0, placed(size))

    def forward(self, x: Any) -> Any:
        return self.spec.shard(x)


def plans(rank: int, size: int) -> list[Any]:
    """A module by a plan: what its parameters become, and its result."""
    net = Net(size)
    plan = ShardingPlan(
        {"linear.weight": ChunkShardingSpec(0, placed(size))}, {"": ChunkShardingSpec(1, placed(size))}, [""]
    )
    shard_module(net, plan)
    held: Any = net.linear.weight
    made = net(torch.arange(8.0).view(2, 4))
    return [type(held).__name__, tuple(held.local_tensor().shape), tuple(made.shape)]


def refusals(rank: int, size: int) -> list[str]:
    found = []
    spec = ChunkShardingSpec(0, placed(size))
    x = sharded_tensor.ones(spec, 4, 2)

    def raises(act: Any) -> None:
        try:
            act()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")

    raises(lambda: x + x)
    raises(lambda: x.gather(rank, None))
    raises(lambda: ShardedTensor("rows", 4, 2))
    raises(lambda: ChunkShardingSpec("rows", placed(size)))
    raises(lambda: sharded_tensor.ones(ChunkShardingSpec(2, placed(size)), 4, 2))
    raises(lambda: sharded_tensor.ones(ChunkShardingSpec(0, ["rank:7/cpu"] * size), 4, 2))
    raises(
        lambda: sharded_tensor.init_from_local_shards(
            [Shard(torch.ones(1), ShardMetadata([0], [1], placed(size)[rank - 1]))], 1
        )
    )
    raises(lambda: sharded_tensor.empty(spec, 4, init_rrefs=True))
    raises(lambda: shard_parameter(torch.nn.Linear(1, 1), "other", spec))
    return found
