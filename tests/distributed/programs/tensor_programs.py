"""What ranks run in the tests of sharded tensors: each function is called with (rank, size)."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
import rushlight.nn.functional as F
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from rushlight.distributed.tensor.debug import CommDebugMode

MESHES: dict[tuple[int, ...], Any] = {}


def mesh_of(*shape: int) -> Any:
    if shape not in MESHES:
        MESHES[shape] = init_device_mesh("cpu", shape)
    return MESHES[shape]


def placements_of(ndim: int, axes: int) -> list[tuple[Any, ...]]:
    each = [Replicate(), *(Shard(d) for d in range(ndim))]
    return list(itertools.product(*[each] * axes))


def redistributions(rank: int, size: int) -> int:
    """Every way from one placement to another gives the same tensor."""
    mesh, count = mesh_of(2, 2), 0
    for shape in ((5, 3),):
        whole = torch.arange(float(shape[0] * shape[1])).reshape(shape) + 1
        for before, after in itertools.product(placements_of(2, 2), repeat=2):
            x = distribute_tensor(whole, mesh, before, src_data_rank=None)
            y = x.redistribute(placements=after)
            want = distribute_tensor(whole, mesh, after, src_data_rank=None)
            assert torch.equal(y.to_local(), want.to_local()), (shape, before, after)
            count += 1
        for after in placements_of(2, 2):
            terms = DTensor.from_local(whole * (rank + 1), mesh, [Partial(), Partial()])
            y = terms.redistribute(placements=after)
            assert torch.equal(y.full_tensor(), whole * 10), after
            count += 1
    return count


def operators(rank: int, size: int, only: list[str], seed: int) -> list[str]:
    """Operators of the table on tensors that are spread in some way, against the whole."""
    import rushlight._ops.families
    import rushlight._ops.samples.arrays
    import rushlight._ops.samples.numbers  # noqa: F401
    from rushlight._ops.samples import samples_of
    from rushlight._ops.table import OPERATORS
    from rushlight._surface.registry import function_of

    mesh, found = mesh_of(2, 2), []
    for key in only:
        calls = samples_of(OPERATORS[key])[:1]
        found += [] if calls else [f"{key}: no samples"]
        for number, call in enumerate(calls):
            try:
                message = _compare(function_of(key), call, mesh, random.Random(f"{seed} {key} {number}"))
            except Exception as error:
                message = f"{type(error).__name__}: {error}"[:900]
            if message:
                found.append(f"{key}-{number}: {message}")
    return found


def _compare(function: Any, call: Any, mesh: Any, rng: random.Random) -> str:
    import numpy as np

    from rushlight._ops.samples import Draw

    def drawn(value: Any, make: Any) -> Any:
        if isinstance(value, Draw):
            return make(torch.from_numpy(np.array(value.array(np.random.default_rng(7)))))
        return [drawn(v, make) for v in value] if isinstance(value, list) else value

    def spread(x: Any) -> Any:
        return distribute_tensor(x, mesh, rng.choice(placements_of(x.ndim, 2)), src_data_rank=None)

    def run(make: Any) -> Any:
        return function(*[drawn(a, make) for a in call.args], **{k: drawn(v, make) for k, v in call.kwargs.items()})

    try:
        want = run(lambda x: x)
    except Exception as error:
        return f"plain: {type(error).__name__}"
    got = run(spread)
    pairs = zip(*[list(r) if isinstance(r, (tuple, list)) else [r] for r in (want, got)], strict=True)
    for w, g in pairs:
        if isinstance(g, DTensor):
            whole = g.full_tensor()
            if whole.dtype is not w.dtype or whole.shape != w.shape:
                return f"{whole.dtype} {tuple(whole.shape)} instead of {w.dtype} {tuple(w.shape)}"
            if not torch.allclose(whole, w, rtol=1e-4, atol=1e-5, equal_nan=True):
                return f"values from {g.placements}"
    return ""


def training(rank: int, size: int) -> tuple[list[float], list[float]]:
    """Losses of a small network, spread over a mesh and whole."""
    mesh = mesh_of(2, 2)

    def losses(spread: Any) -> list[float]:
        torch.manual_seed(3)
        net = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 5, bias=False)
        )
        x, y = torch.randn(8, 6), torch.randint(0, 5, (8,))
        if spread:
            for number, part in enumerate(net):
                for name, p in list(part.named_parameters(recurse=False)):
                    placed = [Replicate(), Shard(0) if p.ndim == 2 and number == 0 else Replicate()]
                    if p.ndim == 2 and number == 3:
                        placed = [Replicate(), Shard(1)]
                    part.register_parameter(name, torch.nn.Parameter(distribute_tensor(p.detach(), mesh, placed)))
            x = distribute_tensor(x, mesh, [Shard(0), Replicate()])
            y = distribute_tensor(y, mesh, [Shard(0), Replicate()])
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            found.append(loss.full_tensor().item() if spread else loss.item())
        return found

    return losses(False), losses(True)


def tensor_parallel(rank: int, size: int) -> tuple[list[float], list[float]]:
    """A block of a transformer in Megatron's way, with sequence parallel norms and a loss over divided classes."""
    from rushlight.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm = torch.nn.Embedding(12, 8), torch.nn.LayerNorm(8)
            self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
            self.head = torch.nn.Linear(8, 12, bias=False)

        def forward(self, index: Any) -> Any:
            x = self.embed(index)
            return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))

    mesh = mesh_of(size)
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }

    def losses(divided: bool) -> list[float]:
        torch.manual_seed(5)
        net = Block()
        index, target = torch.randint(0, 12, (3, 8)), torch.randint(0, 12, (3, 8))
        if divided:
            parallelize_module(net, mesh, plan)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            with loss_parallel():
                loss = F.cross_entropy(net(index).flatten(0, 1), target.flatten(0, 1))
                loss.backward()
            optimizer.step()
            found.append(loss.full_tensor().item() if divided else loss.item())
        return found

    return losses(False), losses(True)


def attention(rank: int, size: int) -> list[tuple[Any, ...]]:
    """Attention whose batches, then heads, are divided: where results and gradients lie, and how many messages there were."""
    mesh, found = mesh_of(size), []
    torch.manual_seed(0)
    whole = [torch.randn(4, 4, 6, 8, requires_grad=True) for _ in range(3)]
    mask = torch.randn(6, 6)
    for dim in (0, 1):
        for settings in ({"is_causal": True}, {"attn_mask": mask}):
            expected = F.scaled_dot_product_attention(*whole, **settings)
            wanted = torch.autograd.grad(expected.square().sum(), whole)
            parts = [distribute_tensor(x.detach(), mesh, [Shard(dim)]).requires_grad_() for x in whole]
            if "attn_mask" in settings:
                settings = {"attn_mask": distribute_tensor(mask, mesh, [Replicate()])}
            with CommDebugMode() as counted:
                out = F.scaled_dot_product_attention(*parts, **settings)
                grads = torch.autograd.grad(out.square().sum(), parts)
            for a, b in zip((out, *grads), (expected, *wanted), strict=True):
                torch.testing.assert_close(a.full_tensor(), b)
            found.append((out.placements, *[g.placements for g in grads], counted.get_total_counts()))
    return found


def calls_again(rank: int, size: int) -> list[str]:
    """Calls that are made a second time, on other elements, numbers, aliases and layouts, give what the whole gives."""
    mesh = mesh_of(size)
    layouts = [[Shard(0)], [Shard(1)], [Replicate()]]
    calls: list[Any] = [
        lambda x, y, s: x + y, lambda x, y, s: x + x, lambda x, y, s: x * s, lambda x, y, s: x.add(y, alpha=s), lambda x, y, s: x @ y.t(),
        lambda x, y, s: x.sum(0), lambda x, y, s: x.clamp(-s, s), lambda x, y, s: x.view(4, 2, 8), lambda x, y, s: x.t() * 2,
        lambda x, y, s: torch.cat([x, y]), lambda x, y, s: x.clone().mul_(s).add_(y), lambda x, y, s: x.softmax(1), lambda x, y, s: x.topk(2, 1)[0],
        lambda x, y, s: x.float().to(torch.float64), lambda x, y, s: x.pow(2), lambda x, y, s: x.pow(2.0), lambda x, y, s: x.eq(y).sum(),
    ]  # fmt: skip
    wrong = []
    for turn in range(3):
        torch.manual_seed(turn)
        x, y, s = torch.randn(8, 8), torch.randn(8, 8), 0.5 + turn
        for number, call in enumerate(calls):
            for a in layouts:
                for b in layouts[:2]:
                    made = call(distribute_tensor(x, mesh, a), distribute_tensor(y, mesh, b), s)
                    if not torch.allclose(made.full_tensor(), call(x, y, s), atol=1e-5):
                        wrong.append(f"{turn} {number} {a} {b}")
    return wrong


def exchanged_streams(rank: int, size: int) -> list[int]:
    """How often the stream of random numbers is exchanged by calls without a graph."""
    from rushlight.distributed.tensor import _calls

    seen: list[int] = []
    plain = _calls.stream_of_the_first
    x = distribute_tensor(torch.arange(8.0) % 3, mesh_of(size), [Shard(0)])
    _calls.stream_of_the_first = lambda *given: (seen.append(1), plain(*given))[1]
    try:
        counts = []
        for call in (
            lambda: x.nonzero(),
            lambda: torch.unique(x),
            lambda: torch.bernoulli(x / 3),
            lambda: x.uniform_(),
        ):
            before = len(seen)
            call()
            counts.append(len(seen) - before)
    finally:
        _calls.stream_of_the_first = plain
    return counts


def changes_in_place(rank: int, size: int) -> list[Any]:
    """Views of parts are written through; a view that needs elements of others refuses."""
    mesh = mesh_of(size)
    x = distribute_tensor(torch.zeros(4, 6), mesh, [Shard(0)])
    x[:, 1].add_(2.0)
    x.t()[2:4].mul_(0.0).sub_(1.0)
    x.view(4, 2, 3)[:, 1].fill_(5.0)
    found = [x.full_tensor().tolist()]
    for view in (lambda: x[1], lambda: x.view(2, 12)):
        try:
            view().add_(1.0)
            found.append("changed")
        except RuntimeError as error:
            found.append("the change would be lost" in str(error))
    x.flatten().add_(1.0)
    found.append(x.full_tensor().sub(1.0).tolist() == found[0])
    return found


def sharded_parameters(rank: int, size: int) -> list[tuple[str, list[float], list[float]]]:
    """Losses of a network whose parameters are divided by `fully_shard`, and of one process on the whole batch."""
    from rushlight.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(6), torch.nn.Linear(6, 10), torch.nn.Linear(10, 6)

        def forward(self, x: Any) -> Any:
            return x + self.down(F.gelu(self.up(self.norm(x))))

    def losses(shard: Any, accumulate: int = 1) -> list[float]:
        torch.manual_seed(7)
        net = torch.nn.Sequential(torch.nn.Linear(5, 6), Block(), Block(), torch.nn.Linear(6, 3))
        x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
        if shard is not None:
            shard(net)
            x, y = x.chunk(size)[rank], y.chunk(size)[rank]
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.03)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            for k in range(accumulate):
                if shard is not None:
                    net.set_requires_gradient_sync(k == accumulate - 1)
                loss = F.cross_entropy(net(x).float(), y) / accumulate
                loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            mean = loss.detach() * accumulate
            if shard is not None:
                torch.distributed.all_reduce(mean, torch.distributed.ReduceOp.AVG)
            found.append(mean.item())
        return found

    def apart(mesh: Any, **options: Any) -> Any:
        def shard(net: Any) -> None:
            for part in net[1:3]:
                fully_shard(part, mesh=mesh, **options)
            fully_shard(net, mesh=mesh, **options)
            assert all(isinstance(p, DTensor) for p in net.parameters())

        return shard

    plain = losses(None)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return [
        ("parts and whole", plain, losses(apart(mesh_of(size)))),
        ("kept until backward", plain, losses(apart(mesh_of(size), reshard_after_forward=False))),
        (
            "replicas of groups",
            plain,
            losses(apart(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))),
        ),
        ("other dims", plain, losses(apart(mesh_of(size), shard_placement_fn=lambda p: Shard(p.ndim - 1)))),
        ("two batches a step", plain, losses(apart(mesh_of(size)), accumulate=2)),
        ("narrow", plain, losses(apart(mesh_of(size), mp_policy=half))),
    ]


def random_numbers(rank: int, size: int) -> list[Any]:
    """Random numbers are the first process's, whatever the others' seeds, and lie as the tensor that they are made like;
    their own streams go on as they were.
    """
    from rushlight.distributed.tensor import randn

    mesh = mesh_of(2, 2)
    torch.manual_seed(3 + rank)
    x = randn(4, 6, device_mesh=mesh, placements=[Shard(0), Replicate()])
    y = F.dropout(x, 0.5)
    y.normal_()
    own = torch.rand(2).tolist()
    torch.manual_seed(3 + rank)
    expected = [torch.randn(4, 6), F.dropout(torch.ones(4, 6), 0.5), torch.empty(4, 6).normal_()] if rank == 0 else []
    alone = torch.rand(2).tolist()
    same = all(torch.equal(a, b) for a, b in zip([x.full_tensor(), y.full_tensor()], expected[::2], strict=False))
    lies = torch.rand_like(x).placements == y.placements == x.placements
    return [x.full_tensor().tolist(), y.full_tensor().tolist(), same and lies, own == alone]


def random_numbers_on_gpus(rank: int, size: int) -> list[Any]:
    """Drawn by the generators of GPUs, which every process seeds otherwise: replicas, since no engine moves their parts."""
    from rushlight.distributed.tensor import rand

    mesh = init_device_mesh("cuda", (size,))
    torch.manual_seed(3 + rank)
    x = DTensor.from_local(torch.ones(6), mesh, [Replicate()])
    made = [F.dropout(x), x.normal_(), rand(6, device_mesh=mesh, placements=[Replicate()])]
    own = [torch.rand(2, device="cuda").tolist(), torch.rand(2).tolist()]
    torch.manual_seed(3 + rank)
    x = torch.ones(6, device="cuda")
    expected = [F.dropout(x), x.normal_(), torch.rand(6, device="cuda")] if rank == 0 else []
    alone = [torch.rand(2, device="cuda").tolist(), torch.rand(2).tolist()]
    same = all(torch.equal(a.to_local(), b) for a, b in zip(made, expected, strict=False))
    on_gpu = all(y.to_local().is_cuda for y in made)
    return [[y.to_local().tolist() for y in made], same and on_gpu, own == alone]


COPIES = {
    "clone": lambda x: x.clone(),
    "to": lambda x: x.to(torch.float32, copy=True),
    "contiguous": lambda x: x.t().contiguous(),
    "transpose_copy": lambda x: torch.transpose_copy(x, 0, 1),
    "repeat": lambda x: x.repeat(1, 1),
}


def copies(rank: int, size: int) -> list[str]:
    """The copies that show what was copied, or lie otherwise than those of whole tensors."""
    whole, found = torch.arange(float(size * 6)).reshape(2 * size, 3), []
    for placement in (Shard(0), Replicate()):
        for name, copy in COPIES.items():
            x = distribute_tensor(whole, mesh_of(size), [placement])
            y, want = copy(x), copy(whole.clone())
            x.zero_()
            if not torch.equal(y.full_tensor(), want) or y.stride() != want.stride():
                found.append(name)
    x = distribute_tensor(whole, mesh_of(size), [Shard(0)]).requires_grad_()
    y = x.detach() + 0
    y.mul_(x)  # its history holds a copy of what was there
    y.to_local().sum().backward()
    assert torch.equal(x.grad.full_tensor(), whole)
    return found


def shortened_rows(rank: int, size: int) -> None:
    """An embedding with `max_norm` changes the rows of a spread table as those of a whole one."""
    table, index = torch.arange(24.0).reshape(8, 3), torch.tensor([[5, 1], [5, 7]])
    want_table = table.clone()
    want = F.embedding(index, want_table, max_norm=2.0)
    for placement in (Shard(0), Shard(1), Replicate()):
        spread = distribute_tensor(table, mesh_of(size), [placement])
        found = F.embedding(distribute_tensor(index, mesh_of(size), [Replicate()]), spread, max_norm=2.0)
        torch.testing.assert_close(found.full_tensor(), want)
        torch.testing.assert_close(spread.full_tensor(), want_table)


def second_derivatives(rank: int, size: int) -> None:
    """Those through what leaves a tensor, moves it and makes it are those of the whole tensor."""
    whole = torch.arange(float(size * 6)).reshape(2 * size, 3) / 10
    mesh = mesh_of(size)
    x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    for used in (lambda y: y.to_local().sum(), lambda y: y.redistribute(placements=[Replicate()]).to_local().sum()):
        (first,) = torch.autograd.grad(used(x**3), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).to_local().sum(), x)
        torch.testing.assert_close(second.full_tensor(), 36 * whole**3)
    local = whole.chunk(size)[rank].clone().requires_grad_()
    made = DTensor.from_local(local * local, mesh, [Shard(0)])
    (first,) = torch.autograd.grad((made * made).to_local().sum(), local, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), local)
    torch.testing.assert_close(second, 12 * local.detach() ** 2)


def broadcast_gradients(rank: int, size: int) -> None:
    """The gradient of a sum is one element that is shown everywhere; a layer takes it as it is."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(5, 5), torch.arange(10.0).reshape(2, 5)
    layer(x).sum().backward()
    want = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    spread = distribute_module(layer, mesh_of(size))
    spread(DTensor.from_local(x, mesh_of(size), [Replicate()])).sum().backward()
    for p, grad in zip(spread.parameters(), want, strict=True):
        torch.testing.assert_close(p.grad.full_tensor(), grad)


def terms_leave_and_return(rank: int, size: int) -> list[float]:
    """The gradient of a sum whose terms were local tensors in between: every element counts once."""
    x = distribute_tensor(torch.arange(1.0, size + 1), mesh_of(size), [Shard(0)]).requires_grad_()
    terms = x.sum()
    DTensor.from_local(terms.to_local(), terms.device_mesh, terms.placements).full_tensor().backward()
    return x.grad.full_tensor().tolist()


def outside_of_the_mesh(rank: int, size: int) -> list[Any]:
    """A sum and a local shape over ranks 0 and 2 alone; the others have no elements."""
    mesh = dist.DeviceMesh("cpu", [0, 2])
    x = DTensor.from_local(torch.ones(3, 4), mesh, [Shard(0)])
    assert x.shape == (6, 4)
    y = x + 2
    assert y.shape == (6, 4) and y.to_local().shape == ((3, 4) if rank in (0, 2) else (0,))
    total = x.sum().full_tensor()
    return [total.item() if total.numel() else 0, list(y.to_local().shape)]


def common_norms(rank: int, size: int) -> list[Any]:
    """Norms of gradients that are divided, replicated, uneven and empty on some processes; and how often they reduce."""
    from rushlight.distributed.tensor.debug import CommDebugMode

    mesh = mesh_of(size)
    wholes = [torch.arange(1.0, 6.0), torch.tensor([[3.0, -7.0], [0.0, 2.0]]), torch.tensor([-4.0])]
    placed = [[Shard(0)], [Replicate()], [Shard(0)]]
    spread = [distribute_tensor(x, mesh, p) for x, p in zip(wholes, placed, strict=True)]
    found = []
    for order in (2.0, 1.0, 3.0, 0.0, math.inf, -math.inf):
        with CommDebugMode() as counts:
            norm = torch.nn.utils.get_total_norm(spread, order)
        want = torch.linalg.vector_norm(torch.cat([x.reshape(-1) for x in wholes]), order)
        torch.testing.assert_close(norm.full_tensor(), want)
        found.append(counts.get_total_counts())
    return found
