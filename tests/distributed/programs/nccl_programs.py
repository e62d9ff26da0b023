"""Programs of ranks that communicate between pretended GPUs, see `fake_cuda`."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from tests.distributed.fake_cuda import library, pretend

import rushlight as torch
import rushlight.distributed as dist
from rushlight._distributed.engines.nccl import NCCLCommunicator
from rushlight.distributed.fsdp import fully_shard
from rushlight.distributed.tensor import Replicate, Shard, distribute_tensor
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
STORE: list[Any] = []  # that by which the ranks were started
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def begin(rank: int, size: int, backend: str, **options: Any) -> None:
    """In place of the group with which ranks are started, one of a backend."""
    pretend()
    if not STORE:
        STORE.append(dist.group.WORLD.get_group_store())
    dist.destroy_process_group()
    dist.init_process_group(backend, store=STORE[0], rank=rank, world_size=size, **options)


def on_device(*values: Any, **options: Any) -> Any:
    return torch.tensor(list(values), **options).to("cuda")


def reductions(rank: int, size: int) -> None:
    begin(rank, size, "cpu:gloo,cuda:nccl")
    ranks = range(size)
    for dtype in INTEGERS + FLOATS:
        for op, expected in {
            dist.ReduceOp.SUM: sum(k + 2 for k in ranks), dist.ReduceOp.MAX: size + 1, dist.ReduceOp.MIN: 2, dist.ReduceOp.PRODUCT: 6 if size == 2 else 24,
        }.items():  # fmt: skip
            x = on_device(rank + 2, rank + 2, rank + 2, dtype=dtype)
            dist.all_reduce(x, op)
            assert x.cpu().tolist() == [expected] * 3, (dtype, op)
    for dtype in FLOATS:
        x = on_device(rank + 1.0, dtype=dtype)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        assert x.item() == sum(k + 1 for k in ranks) / size
        x = on_device(rank + 1.0, dtype=dtype)
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        assert x.item() == sum(k + 1 for k in ranks) / 2
    for _ in range(20):  # operations with a factor are given back
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    x = on_device(rank == 1, rank < 5)
    dist.all_reduce(x)
    assert x.cpu().tolist() == [True, True]
    z = on_device(complex(rank, 1))
    dist.all_reduce(z)
    assert z.item() == complex(sum(ranks), size)
    y = on_device(float(rank), 1.0)
    dist.reduce(y, 1)
    assert y.cpu().tolist() == ([sum(ranks), size] if rank == 1 else [rank, 1])
    big = torch.full((50_000,), rank + 1.0).to("cuda")  # several pieces of the pretended library
    dist.all_reduce(big)
    assert bool((big.cpu() == sum(k + 1 for k in ranks)).all())
    on_cpu = torch.ones(3)  # by the other engine
    dist.all_reduce(on_cpu)
    assert on_cpu.tolist() == [size] * 3
    assert dist.group.WORLD._device_types == [torch.device("cpu"), torch.device("cuda")]


def refusals(rank: int, size: int) -> None:
    begin(rank, size, "cpu:gloo,cuda:nccl")
    cases: list[tuple[Any, Any, str]] = [
        (lambda: dist.all_reduce(on_device(1), dist.ReduceOp.BAND), ValueError, "Cannot use ReduceOp.BAND with NCCL"),
        (lambda: dist.all_reduce(on_device(1, dtype=torch.int16)), RuntimeError, "NCCL has no reductions of int16"),
        (lambda: dist.all_reduce(on_device(True), dist.ReduceOp.AVG), TypeError, "boolean"),
        (lambda: dist.recv(on_device(1.0)), ValueError, "cannot receive from any rank"),
        (lambda: dist.all_gather([*([torch.ones(1)] * (size - 1)), on_device(1.0)], on_device(1.0)), RuntimeError, "on one device"),
        (lambda: dist.all_reduce(torch.ones(1, device="meta")), RuntimeError, "No backend type associated with device type meta"),
    ]  # fmt: skip
    for call, kind, text in cases:
        with pytest.raises(kind, match=text):
            call()
    x = on_device(1.0)
    dist.all_reduce(x)  # nothing was begun by those
    assert x.item() == size


def moves(rank: int, size: int) -> None:
    begin(rank, size, "nccl")
    ranks, world = list(range(size)), dist.group.WORLD
    assert world._device_types == [torch.device("cuda")] and dist.get_backend() == "nccl"
    x = on_device(float(rank), 7.0)
    dist.broadcast(x, 1)
    assert x.cpu().tolist() == [1.0, 7.0]
    rows = [torch.zeros(k + 1, device="cuda") for k in ranks]  # of different sizes
    dist.all_gather(rows, torch.full((rank + 1,), float(rank)).to("cuda"))
    assert [row.cpu().tolist() for row in rows] == [[float(k)] * (k + 1) for k in ranks]
    whole = torch.zeros(2 * size, dtype=torch.int16, device="cuda")
    dist.all_gather_into_tensor(whole, on_device(rank, -rank, dtype=torch.int16))
    assert whole.cpu().tolist() == [v for k in ranks for v in (k, -k)]
    out = torch.zeros(2, device="cuda")
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size).to("cuda"))
    assert out.cpu().tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
    parts = [torch.full((k + 1,), 1.0 + rank).to("cuda") for k in ranks]
    out = torch.zeros(rank + 1, device="cuda")
    dist.reduce_scatter(out, parts, dist.ReduceOp.MAX)
    assert out.cpu().tolist() == [float(size)] * (rank + 1)
    got = [torch.zeros(1, device="cuda") for _ in ranks] if rank == 0 else None
    dist.gather(on_device(3.0 * rank), got, 0)
    assert got is None or [x.item() for x in got] == [3.0 * k for k in ranks]
    sent = [on_device(10.0 * k) for k in ranks] if rank == 1 else None
    x = torch.zeros(1, device="cuda")
    dist.scatter(x, sent, 1)
    assert x.item() == 10.0 * rank
    x = torch.zeros(size, device="cuda")
    dist.all_to_all_single(x, torch.arange(float(size)).to("cuda") + 10 * rank)
    assert x.cpu().tolist() == [10.0 * k + rank for k in ranks]
    strided = torch.zeros(3, 2, device="cuda").t()
    strided.fill_(rank + 1.0)
    dist.all_reduce(strided)
    assert strided.cpu().tolist() == [[float(sum(k + 1 for k in ranks))] * 3] * 2
    dist.barrier()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": k} for k in ranks]
    one = [{"from": 1}] if rank == 1 else [None]
    dist.broadcast_object_list(one, 1)
    assert one == [{"from": 1}]
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier()


def messages(rank: int, size: int) -> None:
    begin(rank, size, "nccl")
    after, before = (rank + 1) % size, (rank - 1) % size
    x = torch.zeros(4, device="cuda")
    if rank < 2:  # the others take no part, and need not
        if rank == 0:
            dist.send(on_device(1.0, 2.0, 3.0, 4.0), 1)
        else:
            assert dist.recv(x, 0) == 0 and x.cpu().tolist() == [1.0, 2.0, 3.0, 4.0]
    long = torch.full((40_000,), float(rank)).to("cuda")
    got = torch.zeros(40_000, device="cuda")
    ops = [dist.P2POp(dist.isend, long, after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert bool((got.cpu() == float(before)).all())
    with dist.distributed_c10d._coalescing_manager(device=long.device):  # likewise; alone each send would wait
        dist.isend(long + 1, after)
        dist.irecv(got, before)
    assert bool((got.cpu() == before + 1.0).all())


def streams(rank: int, size: int) -> list[float]:
    """What is computed on the caller's stream before is sent, what comes after waits; and the caller does not."""
    begin(rank, size, "nccl")
    dist.barrier()
    backend = dist.group.WORLD._group._backend()
    x = torch.zeros(8, device="cuda")
    current = backend.current_stream(x.device)
    library().fake_fill_later(current.id, x._ptr, 8, float(rank + 1), 300)
    began = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    asked = time.monotonic() - began
    done = work.is_completed()
    work.wait()
    waited = time.monotonic() - began
    found = x.cpu().tolist()  # stands still for the stream
    read = time.monotonic() - began
    assert found == [sum(k + 1.0 for k in range(size))] * 8 and not done
    assert asked < 0.25 and waited < 0.25 and read > 0.25, (asked, waited, read)
    assert work.wait(timedelta(seconds=5)) and work.is_success()
    futures = dist.all_reduce(torch.ones(1, device="cuda"), async_op=True).get_future()
    return futures.then(lambda f: f.value()[0].cpu().tolist()).wait()


def groups(rank: int, size: int) -> None:
    begin(rank, size, "cpu:gloo,cuda:nccl")
    x = on_device(float(rank))
    dist.all_reduce(x)
    pair = dist.new_group([0, 1])
    if rank < 2:
        y = on_device(float(rank + 1))
        dist.all_reduce(y, group=pair)
        assert y.item() == 3.0
    calls: list[str] = []
    split, make = NCCLCommunicator.split, NCCLCommunicator.begin
    NCCLCommunicator.split = lambda *a, **k: (calls.append("split"), split(*a, **k))[1]  # type: ignore[method-assign,assignment,return-value]
    NCCLCommunicator.begin = lambda *a, **k: (calls.append("begin"), make(*a, **k))[1]  # type: ignore[method-assign,assignment,return-value]
    try:
        part = dist.split_group(split_ranks=[list(range(size - 1))])  # the last one is in no part
        if rank < size - 1:
            z = on_device(1.0, float(rank))
            dist.all_reduce(z, group=part)
            assert z.cpu().tolist() == [size - 1, sum(range(size - 1))]
        assert (part is None) == (rank == size - 1) and calls == ["split"]
    finally:
        NCCLCommunicator.split, NCCLCommunicator.begin = split, make  # type: ignore[method-assign]
    dist.all_reduce(x)
    dist.destroy_process_group()
    pretend()
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    one = on_device(5.0)
    dist.all_reduce(one, dist._make_nccl_premul_sum(2.0))
    assert one.item() == 10.0


def trained(rank: int, size: int) -> list[float]:
    """Losses of DistributedDataParallel on pretended GPUs."""
    begin(rank, size, "nccl")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).to("cuda")
    torch.manual_seed(1)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    x, y = (v[rank::size].to("cuda") for v in (x, y))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (ddp(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


def without_store(rank: int, size: int) -> str:
    """As under mpiexec: the group between CPUs tells the identity."""
    begin(rank, size, "cpu:gloo,cuda:nccl")
    group = dist.group.WORLD
    group._devices = device_groups_of(group)
    x = on_device(float(rank))
    dist.all_reduce(x)
    assert x.item() == sum(range(size))
    try:
        dist.send(x, (rank + 1) % size)
    except dist.DistBackendError as error:
        return str(error)
    return ""


def device_groups_of(group: Any) -> Any:
    from rushlight._interface.distributed import nccl_group

    below, backend = group._group, group._devices["cuda"]._backend
    return {"cuda": nccl_group("no store", below.ranks, below.rank, None, 20.0, backend, below)}


def random_tensors(rank: int, size: int) -> list[Any]:
    """Random numbers of tensors over a mesh whose groups move the memory of GPUs alone."""
    begin(rank, size, "nccl")
    torch.manual_seed(rank)
    x = distribute_tensor(torch.ones(6), dist.init_device_mesh("cuda", (size,)), [Shard(0)])
    assert x.to_local().is_cuda
    return [torch.nn.functional.dropout(x).full_tensor().tolist(), x.normal_().full_tensor().tolist()]


def divided(rank: int, size: int) -> list[list[float]]:
    """Losses of fully_shard, and of tensor parallel, and DTensor operators, on pretended GPUs."""
    begin(rank, size, "cpu:gloo,cuda:nccl")
    mesh = dist.init_device_mesh("cuda", (size,))
    x = distribute_tensor(torch.arange(12.0).reshape(6, 2).to("cuda"), mesh, [Shard(0)])
    assert x.to_local().device.type == "cuda" and x.device.type == "cuda"
    assert (x * 2).sum(0).full_tensor().cpu().tolist() == [60.0, 72.0]
    assert x.t().redistribute(placements=[Replicate()]).to_local().cpu().tolist() == x.full_tensor().t().cpu().tolist()
    found = []
    torch.manual_seed(1)
    data, target = torch.randn(8, 6).to("cuda"), torch.randn(8, 1).to("cuda")
    for kind in ("sharded", "parallel"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 2 * size), torch.nn.Tanh(), torch.nn.Linear(2 * size, 1)).to(
            "cuda"
        )
        if kind == "sharded":
            fully_shard(model[0], mesh=mesh)
            fully_shard(model, mesh=mesh)
        else:
            parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(data) - target).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    return found


# ***** failures: the group is of no use afterwards *****


def different(rank: int, size: int) -> None:
    begin(rank, size, "nccl")
    dist.barrier()
    x = torch.ones(4 + rank % 2, device="cuda")
    dist.all_reduce(x, async_op=True).wait(timedelta(seconds=10))


def link_down(rank: int, size: int) -> str:
    begin(rank, size, "nccl")
    dist.barrier()
    if rank == 1:
        library().fake_nccl_inject(6)
    x = torch.ones(4, device="cuda")
    try:
        for _ in range(1000):
            dist.all_reduce(x, async_op=True).wait(timedelta(seconds=10))
    except dist.DistBackendError as error:
        first = str(error)
    with pytest.raises(dist.DistBackendError, match="cannot be used any more"):
        dist.all_reduce(x)
    return first


def late(rank: int, size: int) -> str:
    begin(rank, size, "nccl", timeout=timedelta(seconds=1.5))
    dist.barrier()
    if rank == 1:
        time.sleep(4)
        return ""
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    began = time.monotonic()
    try:
        while time.monotonic() < began + 10:
            time.sleep(0.01)  # an error comes without a call
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("no error")


def dies(rank: int, size: int) -> tuple[str, int, float]:
    import os

    begin(rank, size, "cpu:gloo,cuda:nccl")
    dist.barrier()
    x = torch.ones(4, device="cuda")
    dist.all_reduce(x)
    x.cpu()
    if rank == 1:
        os.kill(os.getpid(), 9)
    began = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    try:
        work.wait(timedelta(seconds=20))
        x.cpu()
    except dist.DistBackendError as error:
        return str(error), getattr(error, "rank", -1), time.monotonic() - began
    raise AssertionError("no error")


def absent_at_start(rank: int, size: int) -> str:
    """A rank that never makes its communicator."""
    begin(rank, size, "nccl", timeout=timedelta(seconds=1.5))
    if rank == 1:
        time.sleep(3)
        return ""
    try:
        dist.all_reduce(torch.ones(4, device="cuda"))
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("no error")
