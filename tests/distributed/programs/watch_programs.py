"""What the ranks of `test_watching` do: profiles, counts of collectives, traces."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
import unittest.mock
import warnings
from pathlib import Path
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed._functional_collectives as funcol
from rushlight._distributed.groups.flight import FLIGHT, FLIGHT_FILE, FLIGHT_SIGNAL
from rushlight.distributed.estimate import Layout, estimate, measure, model_work
from rushlight.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from rushlight.distributed.tensor.debug import CommDebugMode, visualize_sharding
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from rushlight.distributed.watching import clock_offsets, load_balance, merge_traces
from rushlight.nn.parallel import DistributedDataParallel
from rushlight.profiler import profile


def every_collective(rank: int, size: int) -> None:
    """One of each."""
    x, big = torch.ones(4, 3), torch.ones(4 * size, 3)
    parts = [torch.ones(4, 3) for _ in range(size)]
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    dist.broadcast(x, 0)
    dist.all_gather(parts, x)
    dist.all_gather_into_tensor(big, x)
    dist.reduce_scatter_tensor(x, big)
    dist.barrier()
    dist.reduce(x, 0)
    dist.all_to_all_single(big, big.clone())
    dist.gather(x, parts if rank == 0 else None, 0)
    dist.scatter(x, parts if rank == 0 else None, 0)
    dist.reduce_scatter(x, parts)
    if rank < 2:
        (dist.recv if rank else dist.send)(x, 1 - rank)


def profiled(rank: int, size: int, directory: str) -> tuple[dict[str, int], Any, list[Any]]:
    """Counts of the rows of a profile, the trace's rows of collectives, and the nesting of one of them."""
    with profile(record_shapes=True) as prof:
        every_collective(rank, size)
    counts = {row.key: row.count for row in prof.key_averages() if row.key.startswith(("c10d", "gloo"))}
    path = Path(directory) / f"trace_{rank}.json"
    prof.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    rows = [row for row in trace["traceEvents"] if row["name"].startswith("gloo")]
    events = prof.events()
    first, second = [e for e in events if e.name == "gloo:all_reduce"][:2]
    assert first.cpu_parent.name == "c10d::allreduce_" and not first.is_async and first.input_shapes == [[4, 3]]
    assert second.cpu_parent is None and second.is_async and second.thread != first.thread
    return counts, trace["distributedInfo"], rows


def signalled(rank: int, size: int, prefix: str) -> bool:
    """A signal writes the file of the flight recorder, and the job goes on."""
    dist.barrier()
    with FLIGHT_FILE.scoped(prefix), FLIGHT_SIGNAL.scoped("USR2"):
        before = signal.getsignal(signal.SIGUSR2)
        FLIGHT.dump_on_signal()
        os.kill(os.getpid(), signal.SIGUSR2)
        dist.barrier()
        signal.signal(signal.SIGUSR2, before)
    return Path(f"{prefix}{rank}").exists()


def profiled_ddp(rank: int, size: int) -> dict[str, int]:
    """Rows of a step of DDP."""
    model = DistributedDataParallel(torch.nn.Linear(4, 3))
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
    with profile() as prof:
        model(torch.ones(2, 4)).sum().backward()
    reduce = torch.compile(lambda x: funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1)
    reduce(torch.ones(3))
    with profile() as compiled:
        reduce(torch.ones(3))
    with CommDebugMode() as comm:
        reduce(torch.ones(3))
    assert comm.get_comm_counts() == {torch.ops.c10d_functional.all_reduce: 1}
    assert [e.name for e in compiled.events() if e.name.startswith(("gloo", "_c10d"))] == [
        "_c10d_functional::all_reduce",
        "gloo:all_reduce",
    ]
    with dist.record_comm("buckets"), profile() as named:
        model(torch.ones(2, 4)).sum().backward()
    assert [e.name for e in named.events() if e.name.startswith(("gloo", "buckets"))] == ["buckets"]
    return {row.key: row.count for row in prof.key_averages() if row.key.startswith(("c10d", "gloo"))}


def stopped(rank: int, size: int) -> tuple[list[str], float]:
    """A breakpoint on rank 1, whose debugger goes on at once: what it showed, and the timeout of the group after."""
    shown: list[str] = []

    class Debugger:
        message = staticmethod(shown.append)

        @staticmethod
        def set_trace(frame: Any) -> None:
            shown.append(frame.f_code.co_name)

    group = dist.group.WORLD
    before = group._group.timeout
    with unittest.mock.patch("rushlight.distributed.c10d.debugging._Pdb", Debugger), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            dist.breakpoint(1, skip=1, timeout_s=1234)
    found = shown, group._group.timeout
    group._group.timeout = before
    return found


class MLP(torch.nn.Module):
    """Two layers of tensor parallel."""

    def __init__(self) -> None:
        super().__init__()
        self.net1, self.relu, self.net2 = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.net2(self.relu(self.net1(x)))


def counted(rank: int, size: int, directory: str) -> list[Any]:
    """Counts of collectives of tensor parallel, of redistributions, and of plain calls."""
    mesh = init_device_mesh("cpu", (size,))
    model = parallelize_module(MLP(), mesh, {"net1": ColwiseParallel(), "net2": RowwiseParallel()})
    x = torch.ones(4, 8)
    with CommDebugMode() as comm:
        model(x).sum().backward()
    found: list[Any] = [{str(k): v for k, v in comm.get_comm_counts().items()}, comm.get_total_counts()]
    found.append(comm.generate_comm_debug_tracing_table(noise_level=0))
    path = Path(directory) / f"table_{rank}"
    comm.log_comm_debug_tracing_table_to_file(str(path), noise_level=1)
    comm.generate_json_dump(f"{path}.json", noise_level=1)
    found += [path.read_text(), json.loads(Path(f"{path}.json").read_text()), comm.get_sharding_info()]
    spread = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    with CommDebugMode() as comm:
        spread.redistribute(mesh, [Shard(1)])
        spread.full_tensor()
        spread.sum()
        dist.all_reduce(x)
        dist.barrier()
        dist.all_gather_into_tensor(torch.ones(4 * size, 8), x)
        with CommDebugMode() as inner:
            funcol.all_reduce(x, "sum", mesh)
            torch.ops._c10d_functional.all_reduce(x, "sum", mesh.get_group().group_name)
    assert inner.get_comm_counts() == {torch.ops.c10d_functional.all_reduce: 2}
    found.append({str(k): v for k, v in comm.get_comm_counts().items()})
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        visualize_sharding(distribute_tensor(torch.ones(5, 6), mesh, [Shard(1)]), "columns")
        visualize_sharding(distribute_tensor(torch.ones(3), mesh, [Replicate()]))
    found.append(text.getvalue())
    return found


def together(rank: int, size: int, path: str) -> Any:
    """One trace of all ranks, the clocks' distances, and the rows of a block in which rank 2 is slow."""
    x = torch.ones(1000)
    dist.barrier()
    with profile() as prof:
        if rank == 1:
            time.sleep(0.25)
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
    written = merge_traces(prof, path)
    measured = clock_offsets(rounds=8, measure=True)
    dist.barrier()
    with load_balance() as balance:
        time.sleep(0.3 if rank == 2 else 0.0)
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        time.sleep(0.3 if rank == 0 else 0.01)
        work.wait()
        if rank == 3:
            time.sleep(0.05)
            dist.send(x, 0)
        elif rank == 0:
            dist.recv(x, 3)
    return written, clock_offsets(), measured, [row._asdict() for row in balance.rows], balance.table()


def planned(rank: int, size: int) -> tuple[str, float, float]:
    """The machine as measured, and the step of DDP on it: predicted, and the median of what it took."""
    machine = measure(size=256, most=1 << 20)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])
    x, times = torch.rand(64, 256), []
    work = model_work(model, x)
    spread = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(12):
        began = time.perf_counter()
        spread(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    predicted = estimate(work, Layout(dp=size), machine, 64 * size, "sgd").seconds
    return repr(machine), predicted, sorted(times)[6]
