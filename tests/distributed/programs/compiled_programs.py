"""What the ranks of `test_compiled` do: compiled functions with collectives beside the same functions eagerly, bit by bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed._functional_collectives as fc
import rushlight.distributed.nn.functional as dnn
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp import fully_shard
from rushlight.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from rushlight.nn.parallel import DistributedDataParallel as DDP


def numbers(rank: int, *shape: int, seed: int = 0, dtype: Any = torch.float32) -> Any:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(100 * seed + rank))
    return (made * 8).to(dtype)


def same(a: Any, b: Any, what: Any) -> None:
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b), what
        for x, y in zip(a, b, strict=True):
            same(x, y, what)
        return
    assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), (what, a, b)
    assert torch.equal(a, b), (what, a, b)


def compare(name: str, function: Any, *inputs: Any) -> None:
    """Results, changed inputs and gradients of a compiled function, made twice, against the eager ones."""
    compiled = torch.compile(function, fullgraph=True)
    for turn in range(2):
        ways = []
        for call in (function, compiled):
            given = [x.clone().requires_grad_(x.is_floating_point() and x.requires_grad) for x in inputs]
            found = call(*given)
            listed = list(found) if isinstance(found, (tuple, list)) else [found]
            wanted = [x for x in given if x.requires_grad]
            roots = [x for x in listed if x.requires_grad]
            grads = []
            if wanted and roots:
                cotangents = [torch.ones_like(x) * (k + 1.5) for k, x in enumerate(roots)]
                grads = list(torch.autograd.grad(roots, wanted, cotangents))
            ways.append([[x.detach() for x in listed], [x.detach() for x in given], grads])
        same(*ways, (name, turn))


def functional(rank: int, size: int, names: list[str] | None = None) -> None:
    """The functional collectives, with their gradients: cases of these names, or all."""
    x = numbers(rank, 4 * size, 3).requires_grad_()
    sent = [k + 1 for k in range(size)]
    rows = numbers(rank, sum(sent), 2, seed=1).requires_grad_()
    got = [rank + 1] * size
    turned = [(k + 1) % size for k in range(size)]
    cases = {
        "sum": lambda x: fc.all_reduce(x * 2, "sum", dist.group.WORLD).sin(),
        "avg": lambda x: fc.wait_tensor(fc.all_reduce(x, "avg", None)) + dist.get_rank(),
        "two in order": lambda x: fc.all_reduce(x, "sum", None) * fc.all_reduce(x.exp() * 0.1, "sum", None),
        "transposed": lambda x: fc.all_reduce(x.t(), "sum", None).t() * 2,
        "gather": lambda x: fc.all_gather_tensor(x + 1, 1, None).cos(),
        "scatter": lambda x: fc.reduce_scatter_tensor(x * x, "sum", 0, None) * 3,
        "mean scattered": lambda x: fc.reduce_scatter_tensor(x.tanh(), "avg", 0, None),
        "all to all": lambda x: fc.all_to_all_single(x * 2, None, None, None).sigmoid(),
        "permuted": lambda x: fc.permute_tensor(x - 1, turned, None) * 2,
        "broadcast": lambda x: fc.broadcast(x * 3, 1, None).relu(),
        "chain": lambda x: fc.all_gather_tensor(fc.reduce_scatter_tensor(fc.all_reduce(x, "sum", None), "sum", 0, None), 0, None),
        "nn": lambda x: dnn.all_reduce(torch.stack(dnn.all_gather(x)).sum(0)),
        "parts": lambda x: dnn.reduce_scatter(x[:4], list((x * 2).chunk(size)))
        + torch.cat(dnn.all_to_all([x[:4]] * size, list(x.chunk(size))))[:4],
        "size": lambda x: x * dist.get_world_size() + dist.get_rank(dist.group.WORLD),
    }  # fmt: skip
    for name in names or cases:
        compare(name, cases[name], x)
    if names:
        return
    compare("uneven", lambda x: fc.all_to_all_single(x * 2, got, sent, None).exp(), rows)
    for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.float16):
        compare(str(dtype), lambda x: fc.all_reduce(x + x, "sum", None), numbers(rank, 7, dtype=dtype))
    compare("max", lambda x: fc.all_reduce(x, "max", None), numbers(rank, 7))
    compare("complex", lambda x: fc.all_reduce(x * 2, "sum", None), torch.complex(numbers(rank, 3), numbers(rank, 3)))


def in_place(rank: int, size: int, chosen: list[str] | None = None) -> None:
    """The functions of `torch.distributed` that change tensors, async ones too, in groups and out of them."""
    groups = [dist.new_group([k, k + 1]) for k in range(0, size, 2)]
    own = groups[rank // 2]

    def reduced(x: Any) -> Any:
        dist.all_reduce(x)
        y = x * 2
        work = dist.all_reduce(y, op=dist.ReduceOp.MAX, async_op=True)
        z = x.sin()
        work.wait()
        return y + z

    def gathered(x: Any) -> Any:
        whole = x.new_zeros(size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(whole, x)
        parts = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(parts, x * 2)
        return whole, parts[-1] + parts[0]

    def scattered(x: Any) -> Any:
        part = x.new_empty(x.shape[0] // size, *x.shape[1:])
        dist.reduce_scatter_tensor(part, x.contiguous())
        other = torch.empty_like(part)
        dist.reduce_scatter(other, list(x.chunk(size)), op=dist.ReduceOp.AVG)
        return part, other

    def exchanged(x: Any) -> Any:
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        made = [torch.empty_like(p) for p in x.chunk(size)]
        dist.all_to_all(made, list(x.chunk(size)))
        return out, torch.cat(made)

    def rooted(x: Any) -> Any:
        dist.broadcast(x, src=1)
        y = x + dist.get_rank()
        dist.reduce(y, 0)
        return y

    def grouped(x: Any) -> Any:
        dist.all_reduce(x, group=own)
        y = x.t()
        dist.all_reduce(y)
        dist.all_reduce(y, op=dist.ReduceOp.PRODUCT, group=own)
        return y * dist.get_rank(own) + dist.get_world_size(own)

    x = numbers(rank, 4 * size, 3)
    for function in (reduced, gathered, scattered, exchanged, rooted, grouped):
        if chosen is not None and function.__name__ not in chosen:
            continue
        compare(function.__name__, function, x)


def broken(rank: int, size: int) -> str:
    """What cannot be part of a program ends it; the results are right."""

    def function(x: Any) -> Any:
        y = x + 1
        dist.barrier()
        dist.all_reduce(y)
        return y * 2

    same(torch.compile(function)(numbers(rank, 5)), function(numbers(rank, 5)), "barrier")
    try:
        torch.compile(function, fullgraph=True)(numbers(rank, 5))
    except Exception as error:
        return str(error)
    return ""


# ***** DistributedDataParallel *****


class Tower(nn.Module):
    """Layers of several buckets, with a buffer, and one that a call may leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.Tanh())])
        self.norm, self.head, self.spare = nn.BatchNorm1d(6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Any, spare: bool = True) -> Any:
        y = self.norm(self.layers(x))
        return self.head(y) + self.spare(x) if spare else self.head(y)


def trained(
    way: str, rank: int, spare: bool = True, hook: Any = None, accumulate: bool = False, **settings: Any
) -> Any:
    """Losses, parameters, gradients and buffers after four steps."""
    torch.manual_seed(0)
    net = Tower()
    model = DDP(torch.compile(net) if way == "inside" else net, bucket_cap_mb=0.0002, **settings)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    call = torch.compile(model) if way == "module" else model

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(call(x, spare), y)
        if not accumulate:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = torch.compile(step) if way == "step" else step
    losses = []
    for number in range(4):
        x, y = numbers(rank, 5, 6, seed=number), torch.arange(5) % 3
        if accumulate and number % 2:
            with model.no_sync():
                F.cross_entropy(model(x * 2, spare), y).backward()
        losses.append(run(x, y))
    grads = [torch.zeros(1) if p.grad is None else p.grad.clone() for p in net.parameters()]
    return [losses, [p.detach().clone() for p in net.parameters()], grads, [b.clone() for b in net.buffers()]]


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True, "spare": False},
    "static": {"static_graph": True, "forward_sync_buffers": False},
    "hook": {"hook": fp16_compress_hook},
    "accumulated": {"accumulate": True},
}


def data_parallel(rank: int, size: int, names: list[str], ways: list[str]) -> None:
    """Compiled around the step, around the wrapper and inside of it: the bits of the eager one, on all ranks."""
    for name in names:
        expected = trained("eager", rank, **SETTINGS[name])
        for way in ways:
            same(trained(way, rank, **SETTINGS[name]), expected, (name, way))


def divided(rank: int, size: int) -> None:
    """By default programs end where a bucket begins: several of them, with the same bits."""
    expected, breaks = trained("eager", rank), torch._dynamo.utils.counters["graph_break"]
    assert torch._dynamo.config.optimize_ddp is True
    for mode, way in ((True, "module"), ("ddp_optimizer", "inside"), ("python_reducer", "module"), (False, "inside")):
        breaks.clear()
        with torch._dynamo.config.patch(optimize_ddp=mode):
            same(trained(way, rank), expected, way)
        ends = any("a bucket of DistributedDataParallel begins" in text for text in breaks)
        assert ends is (mode in (True, "ddp_optimizer")), (mode, way, dict(breaks))
    with (
        torch._dynamo.config.patch(optimize_ddp="buckets"),
        pytest.raises(AssertionError, match="Invalid optimize_ddp"),
    ):
        torch.compile(DDP(Tower()))


def whole_step(rank: int, size: int) -> list[str]:
    """After the buckets are made anew a step is one graph; the reductions of its buckets overlap with backward."""
    torch.manual_seed(0)
    net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(128, 128), nn.ReLU())])
    model = DDP(net, bucket_cap_mb=0.12)
    x = numbers(rank, 64, 128)
    for _ in range(2):
        model(x).sum().backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(step, fullgraph=True)
    losses = [compiled(x) for _ in range(3)]
    assert losses[2] < losses[0]
    segment = compiled._compiled.entry.segments[-1]
    names = {id(x.launch.keep): x.launch.keep.__name__ for x in segment.program.compile().launches if x.launch.host}
    launches = [names.get(id(x.launch.keep), "kernel") for x in segment.program.compile().launches]
    return launches


def small_ones(rank: int, size: int) -> int:
    """Small all-reduces as one, in pairs of ranks: how many calls are left."""
    groups = [dist.new_group([k, k + 1]) for k in range(0, size, 2)]

    def function(*xs: Any) -> Any:
        found = []
        for x in xs:
            y = x * 2
            dist.all_reduce(y, group=groups[rank // 2])
            found.append(y.sin())
        return found

    xs = [numbers(rank, 3, k + 1, seed=k) for k in range(4)]
    compiled = torch.compile(function, fullgraph=True, options={"bucket_collectives": True})
    same(compiled(*xs), function(*xs), "buckets")
    return sum(x.launch.host for x in compiled._compiled.entry.segments[-1].program.compile().launches)


# ***** tensors over a mesh *****


class Pair(nn.Module):
    """Two layers, to be divided by columns and by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        return self.b(torch.relu(self.a(x)))


def over_mesh(rank: int, size: int) -> str:
    """Distributed tensors in compiled functions: eager's numbers, and a reason where a program ends."""
    mesh = init_device_mesh("cpu", (size,))
    x = numbers(0, 4, 6)

    def divided(x: Any, w: Any) -> Any:
        return (x @ w).relu().redistribute(mesh, [Replicate()]).to_local().sum()

    given = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(numbers(1, 6, 4), mesh, [Replicate()])
    breaks = torch._dynamo.utils.counters["graph_break"]
    breaks.clear()
    same(torch.compile(divided)(*given), divided(*given), "distributed tensors")
    reasons = list(breaks)

    def trained(compiles: bool, divide: Any) -> Any:
        torch.manual_seed(0)
        net = divide(Pair())
        call = torch.compile(net) if compiles else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            call(x).square().sum().backward()
            optimizer.step()
        return [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in net.parameters()]

    plan = {"a": ColwiseParallel(), "b": RowwiseParallel()}
    for divide in (lambda net: parallelize_module(net, mesh, plan), fully_shard):
        same(trained(True, divide), trained(False, divide), "parallel")
    return "; ".join(reasons)


def normalized(rank: int, size: int) -> None:
    """Batch statistics of all ranks, in one graph."""
    torch.manual_seed(0)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)))
    other, x = copy.deepcopy(net), numbers(rank, 5, 4)
    for call in (net, torch.compile(other, fullgraph=True)):
        for _ in range(2):
            (call(x).square() * torch.arange(6)).sum().backward()
    for a, b in zip([*net.parameters(), *net.buffers()], [*other.parameters(), *other.buffers()], strict=True):
        same(b if b.grad is None else b.grad, a if a.grad is None else a.grad, "statistics")


# ***** failures and further uses *****


def failing(rank: int, size: int) -> str:
    """A kernel fails while a collective travels: the error is raised, and the group can be used."""

    def function(x: Any, w: Any, i: Any) -> Any:
        y = fc.all_reduce(x, "sum", None)
        return y.sum() + ((w @ w).relu() @ w)[i].sum()

    compiled = torch.compile(function, fullgraph=True)
    x, w, here = numbers(rank, 1000), numbers(rank, 200, 200), torch.tensor([1, 2])
    same(compiled(x, w, here), function(x, w, here), "before")
    launches = compiled._compiled.entry.segments[-1].program.compile().launches
    assert [k.launch.keep.__name__ for k in launches if k.launch.host] == ["start", "finish"]
    try:
        compiled(x, w, torch.tensor([1, 2000]))
    except IndexError as error:
        same(compiled(x, w, here), function(x, w, here), "after")
        return str(error)
    return ""


def again(rank: int, size: int) -> None:
    """Second derivatives, backward twice, other shapes, compiled autograd, another backend."""

    def function(x: Any) -> Any:
        return fc.all_reduce(x.sin(), "sum", None).exp() * 0.1

    compiled, found = torch.compile(function, fullgraph=True), []
    for call in (function, compiled):
        x = numbers(rank, 4).requires_grad_()
        (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        y = call(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        found.append([first.detach(), second, x.grad])
    same(found[1], found[0], "twice")
    for n in (3, 5, 6):
        same(compiled(numbers(rank, n, 2)), function(numbers(rank, n, 2)), n)
    same(torch.compile(function, backend="eager")(numbers(rank, 4)), function(numbers(rank, 4)), "backend")
    x = numbers(rank, 4).requires_grad_()
    with torch._dynamo.compiled_autograd._enable(torch.compile):
        function(x).sum().backward()
    y = numbers(rank, 4).requires_grad_()
    function(y).sum().backward()
    same(x.grad, y.grad, "compiled autograd")
