"""What the ranks of `test_compiled` do with tensors over a mesh: compiled training steps beside eager ones, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import rushlight as torch
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from rushlight.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from rushlight.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from rushlight.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

WORDS, WIDTH, HEADS, LENGTH = 32, 16, 4, 8


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


class Attention(nn.Module):
    """Causal attention whose number of heads follows from its input."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        rows, length, _ = x.shape
        q, k, v = (part(x).view(rows, length, -1, WIDTH // HEADS).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(rows, length, -1))


class Block(nn.Module):
    """Attention, then two layers, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.up, self.down = Attention(), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, index: Any) -> Any:
        x = self.words(index) + self.places(torch.arange(index.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def tensor_parallel(net: Any, mesh: Any) -> Any:
    """Megatron's division of each block."""
    if isinstance(net, Perceptron):
        return parallelize_module(net, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    plan = {f"attention.{name}": ColwiseParallel() for name in "qkv"}
    for block in net.blocks:
        parallelize_module(
            block, mesh, {**plan, "attention.o": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
        )
    whole = ColwiseParallel(output_layouts=Replicate())
    return parallelize_module(net, mesh, {"words": RowwiseParallel(input_layouts=Replicate()), "head": whole})


def sequence_parallel(net: Any, mesh: Any) -> Any:
    """The same, with norms and residuals on parts of the sequence."""
    into = RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    plan = {f"attention.{name}": ColwiseParallel() for name in "qkv"} | {
        "first": SequenceParallel(), "second": SequenceParallel(), "attention.o": into, "down": into,
        "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "up": ColwiseParallel(input_layouts=Shard(1)),
    }  # fmt: skip
    for block in net.blocks:
        parallelize_module(block, mesh, plan)
    return parallelize_module(net, mesh, {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "places": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0), use_local_output=False),
        "norm": SequenceParallel(), "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    })  # fmt: skip


def sharded(net: Any, mesh: Any, **settings: Any) -> Any:
    """Each part by itself, and the rest."""
    for part in net.blocks if isinstance(net, GPT) else net.children():
        fully_shard(part, mesh=mesh, **settings)
    return fully_shard(net, mesh=mesh, **settings)


def both(net: Any, mesh: Any) -> Any:
    """Tensor parallel within pairs of processes, and sharded across these."""
    grid = init_device_mesh("cpu", (mesh.size() // 2, 2), mesh_dim_names=("across", "within"))
    return sharded(tensor_parallel(net, grid["within"]), grid["across"])


def batch(divide: Any, mesh: Any, given: Any) -> Any:
    """The batch of a process: its own where parameters are sharded."""
    turn = mesh.get_rank() if divide is sharded else mesh.get_rank() // 2 if divide is both else 0
    return given.roll(turn, 1)


CASES: dict[str, tuple[Any, Any, Any]] = {
    "perceptron": (Perceptron, tensor_parallel, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "sharded perceptron": (Perceptron, sharded, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "gpt": (GPT, tensor_parallel, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "sequence": (GPT, sequence_parallel, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "sharded gpt": (GPT, sharded, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "2d perceptron": (Perceptron, both, lambda p: torch.optim.AdamW(p, lr=0.01)),
    "2d gpt": (GPT, both, lambda p: torch.optim.AdamW(p, lr=0.01)),
}


def plain(x: Any) -> Any:
    """A tensor as every process has it whole."""
    return x.full_tensor() if isinstance(x, DTensor) else x.detach()


def trained(case: str, mesh: Any, compiles: bool) -> tuple[list[Any], Any]:
    """Losses, parameters, gradients and what the optimizer keeps after three steps, and the step."""
    make, divide, optimizing = CASES[case]
    torch.manual_seed(0)
    net = divide(make(), mesh)
    optimizer = optimizing(net.parameters())

    def step(given: Any) -> Any:
        optimizer.zero_grad()
        if make is Perceptron:
            loss = net(given).square().sum()
        else:
            loss = F.cross_entropy(net(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    if compiles:
        step = torch.compile(step, fullgraph=True)
    given = torch.randn(4, 6) if make is Perceptron else torch.randint(0, WORDS, (3, LENGTH + 1))
    given = batch(divide, mesh, given)
    losses = [step(given) for _ in range(3)]
    kept = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
    tensors = [*net.parameters(), *[p.grad for p in net.parameters()], *kept]
    return [*losses, *map(plain, tensors)], step


def alone(case: str, mesh: Any, how: str) -> tuple[list[Any], list[Any]]:
    """Losses, parameters and gradients where the module alone is compiled, and the compiled ones: "eager", "wrapped",
    "in place", or "parts", which compiles each of its blocks or layers.
    """
    make, divide, optimizing = CASES[case]
    torch.manual_seed(0)
    net = divide(make(), mesh)
    optimizer = optimizing(net.parameters())
    call = torch.compile(net, fullgraph=True) if how == "wrapped" else net
    parts = [call] if how == "wrapped" else [net] if how == "in place" else []
    if how == "parts":
        parts = list(net.blocks) if isinstance(net, GPT) else [net.up, net.down]
    for part in () if how == "wrapped" else parts:
        part.compile(fullgraph=True)
    given = torch.randn(4, 6) if make is Perceptron else torch.randint(0, WORDS, (3, LENGTH + 1))
    given = batch(divide, mesh, given)
    losses = []
    for turn in range(4):
        if turn != 2:  # gradients of two turns are added up
            optimizer.zero_grad()
        if make is Perceptron:
            loss = call(given).square().sum()
        else:
            loss = F.cross_entropy(call(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    tensors = [*map(plain, [*net.parameters(), *[p.grad for p in net.parameters()]])]
    with torch.no_grad():  # behind which a root keeps its whole parameters, which have no gradients
        losses.append(call(given if make is Perceptron else given[:, :-1]))
    return [*losses, *tensors], parts


def segments_of(part: Any) -> list[Any]:
    """What a compiled module has compiled."""
    whole = part._compiled_call_impl
    calls = [whole] if whole is not None else part.forward._compiled_parts()
    return [segment for call in calls for segment in call._compiled.entry.segments]


def launches_of(segment: Any) -> list[str]:
    """The names of a program's launches, "kernel" for those that do not communicate."""
    launches = segment.program.compile().launches
    return [each.launch.keep.__name__ if each.launch.host else "kernel" for each in launches]


def modules_alone(rank: int, size: int, case: str, how: str) -> list[list[str]]:
    """The launches of what is compiled, one graph forward, whose backward, outside, gives eager's bits."""
    mesh = init_device_mesh("cpu", (size,))
    (eager, _), (compiled, parts) = alone(case, mesh, "eager"), alone(case, mesh, how)
    assert len(eager) == len(compiled)
    for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        assert torch.equal(a, b), (case, how, k, a, b)
    for part in parts:
        segments = segments_of(part)
        assert segments and all(segment.finished for segment in segments)
    return [launches_of(segments_of(part)[0]) for part in parts]


def keep_products(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Products are kept, the rest is computed again."""
    kept = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def keep_all(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Nothing is computed again."""
    return CheckpointPolicy.MUST_SAVE


def checkpointed(rank: int, size: int, policy: Any, inside: bool, how: str, settings: dict[str, Any]) -> None:
    """Parts that are sharded and checkpointed, one within the other, compiled whole: eager's bits."""
    mesh, found = init_device_mesh("cpu", (size,)), []
    kept = {"context_fn": partial(create_selective_checkpoint_contexts, policy)} if policy is not None else {}
    for compiles in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(Perceptron(), Perceptron())
        for k, part in enumerate(net):
            sharded = fully_shard(part if inside else checkpoint_wrapper(part, **kept), mesh=mesh, **settings)
            net[k] = checkpoint_wrapper(sharded, **kept) if inside else sharded
        fully_shard(net, mesh=mesh, **settings)
        for part in net if compiles and how == "parts" else ():
            part.compile(fullgraph=True)

        def step(given: Any, net: Any = net) -> Any:
            loss = net(given).float().square().sum()
            loss.backward()
            return loss.detach()

        if compiles and how == "step":
            step = torch.compile(step, fullgraph=True)
        given = torch.randn(4, 6).roll(rank, 1)
        found.append([step(given), step(given), *[plain(p.grad) for p in net.parameters()]])
    for k, (a, b) in enumerate(zip(*found, strict=True)):
        assert torch.equal(a, b), (policy, inside, how, k, a, b)


def policies_of_sharded_modules(rank: int, size: int) -> None:
    """A policy is asked about a module's operators alone, whether it is sharded or not."""
    mesh, asked = init_device_mesh("cpu", (size,)), []

    def policy(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        asked[-1].append((str(operator), ctx.is_recompute))
        return CheckpointPolicy.MUST_SAVE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    for divided in (False, True):
        asked.append([])
        part = fully_shard(Perceptron(), mesh=mesh) if divided else Perceptron()
        checkpoint_wrapper(part, context_fn=contexts)(torch.ones(4, 6)).sum().backward()
    assert asked[0] == asked[1] and len(asked[0]) == 6, asked


class Broken(nn.Module):
    """A block whose forward, or whose attention's, cannot be one graph."""

    def __init__(self, block: Block, place: str) -> None:
        super().__init__()
        self.first, self.second, self.attention, self.up, self.down = (
            block.first, block.second, block.attention, block.up, block.down,
        )  # fmt: skip
        self.place = place

    def forward(self, x: Any) -> Any:
        y = self.attention(self.first(x))
        if self.place == "between":
            torch._dynamo.graph_break()
        x = x + y
        z = self.second(x)
        if self.place == "residual":  # `z` is computed from `x`, and both are needed behind the break
            torch._dynamo.graph_break()
        return x + self.down(F.gelu(self.up(z)))


def broken_run(mesh: Any, divide: Any, place: str, how: str) -> tuple[list[Any], list[Any]]:
    """Losses, parameters and gradients of a model whose blocks break, and what is compiled."""
    torch.manual_seed(0)
    net = GPT()
    net.blocks = nn.ModuleList(Broken(block, place) for block in net.blocks)
    net = divide(net, mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    parts = [net] if how == "module" else list(net.blocks) if how == "parts" else []
    for part in parts:
        part.compile()
    given, losses = batch(divide, mesh, torch.randint(0, WORDS, (3, LENGTH + 1))), []

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    run = torch.compile(step) if how == "step" else step
    for _ in range(3):
        run()
    return [*losses, *map(plain, [*net.parameters(), *[p.grad for p in net.parameters()]])], parts


DIVISIONS = {"tensor": tensor_parallel, "sequence": sequence_parallel, "sharded": sharded, "both": both}


def broken(rank: int, size: int, division: str, place: str, how: str) -> None:
    """A forward that breaks goes on rightly, and its parts are compiled."""
    mesh, divide = init_device_mesh("cpu", (size,)), DIVISIONS[division]
    eager, _ = broken_run(mesh, divide, place, "eager")
    compiled, parts = broken_run(mesh, divide, place, how)
    for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        assert torch.equal(a, b), (division, place, how, k, a, b)
    for part in parts:
        assert len(segments_of(part)) >= 1


def parallel_steps(rank: int, size: int, case: str) -> list[list[str]]:
    """The launches of each segment of a compiled step, whose results are those of the eager one."""
    mesh = init_device_mesh("cpu", (size,))
    (eager, _), (compiled, step) = trained(case, mesh, False), trained(case, mesh, True)
    assert len(eager) == len(compiled)
    for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        assert torch.equal(a, b), (case, k, a, b)
    segments = step._compiled.entry.segments
    assert all(segment.finished for segment in segments)
    return [launches_of(segment) for segment in segments]


def guarded(rank: int, size: int) -> None:
    """Another placement, mesh, class or gradient of what a compiled function was given makes another program."""
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(8.0 * size).reshape(2 * size, 4)
    compiled = torch.compile(lambda x: (x * 2).to_local().sum(), fullgraph=True)
    segments = compiled._compiled.entry.segments
    found = []
    for placement in (Shard(0), Replicate(), Shard(1), Shard(0)):
        x = distribute_tensor(whole, mesh, [placement])
        found.append(compiled(x).item())
        assert found[-1] == (x._local_tensor * 2).sum().item()
    assert len(segments) == 3
    weight = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()

    @torch.compile
    def step() -> None:
        (weight * weight).to_local().sum().backward()

    for turn in range(1, 4):
        step()
        assert torch.equal(weight.grad.full_tensor(), 2 * turn * whole)
    weight.grad = None
    step()
    assert torch.equal(weight.grad.full_tensor(), 2 * whole)
    assert weight.grad.placements == (Shard(0),) and len(step._compiled.entry.segments) == 2


class Settings(nn.Module):
    """Three layers, of which the second may be called twice, or print."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.a, self.b, self.c, self.name = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3), name

    def forward(self, x: Any) -> Any:
        x = self.b(torch.relu(self.a(x))).tanh()
        if self.name == "twice":
            x = self.b(x).sin()
        if self.name == "break":
            torch._dynamo.graph_break()
        return self.c(x)


SETTINGS = {
    "frozen": {}, "twice": {}, "accumulated": {}, "clipped": {}, "break": {}, "module": {}, "kept": {"reshard_after_forward": False},
    "halves": {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)}, "replicas": {},
    "neighbours": {"reshard_after_forward": 2},
}  # fmt: skip
BROKEN = ("break", "module", "neighbours")


def sharded_run(rank: int, size: int, name: str, compiles: bool) -> tuple[list[Any], list[bool]]:
    """Losses, evaluations, parameters and gradients, and which segments end with their function."""
    torch.manual_seed(0)
    net: Any = Settings(name)
    net.b.weight.requires_grad_(name != "frozen")
    mesh = init_device_mesh("cpu", (size // 2, 2) if name == "replicas" else (size,))
    sharded(net, mesh, **SETTINGS[name])
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    call = torch.compile(net) if compiles and name == "module" else net

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        for turn in range(2 if name == "accumulated" else 1):
            loss = call(x + turn).square().sum()
            loss.backward()
        if name == "clipped":
            loss = loss + nn.utils.clip_grad_norm_(net.parameters(), 0.5).full_tensor()
        optimizer.step()
        return loss.detach()

    def evaluated(x: Any) -> Any:
        with torch.no_grad():
            return call(x)

    functions = [step, evaluated]
    if compiles and name != "module":
        functions = [torch.compile(f, fullgraph=name not in BROKEN) for f in functions]
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(rank))
    found = [f(x) for _ in range(3) for f in functions]
    found += [*map(plain, net.parameters()), *[plain(p.grad) for p in net.parameters() if p.grad is not None]]
    whole = [s.finished for f in functions if hasattr(f, "_compiled") for s in f._compiled.entry.segments]
    return found, whole


def sharded_settings(rank: int, size: int, names: Sequence[str] = tuple(SETTINGS)) -> None:
    """Settings of `fully_shard`, in one graph where it is followed, and with eager's bits where it is not."""
    for name in names:
        (eager, _), (compiled, whole) = sharded_run(rank, size, name, False), sharded_run(rank, size, name, True)
        assert len(eager) == len(compiled), name
        for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
            assert torch.equal(a, b), (name, k, a, b)
        assert all(whole) or name in BROKEN, (name, whole)


def leaving(rank: int, size: int) -> None:
    """What a program cannot do with a `DTensor` is an error that says so, and what leaves one is whole."""
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(8.0 * size).reshape(2 * size, 4)
    x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    y, z = torch.compile(lambda x: ((y := x * 2), y * y))(x)
    assert y.placements == z.placements == (Shard(0),) and y.requires_grad and not y.is_leaf
    z.to_local().sum().backward(retain_graph=True)
    assert torch.equal(x.grad.full_tensor(), 8 * whole)
    (y.to_local().sum() + z.to_local().sum()).backward()
    assert torch.equal(x.grad.full_tensor(), 16 * whole + 2)
    with raises("a hook on a DTensor of a compiled function that has computed other results from it"):
        y.register_hook(lambda grad: grad)
    double = torch.compile(lambda x: x * x)
    with raises("a second derivative through a DTensor that a compiled program was given, or gave"):
        torch.autograd.grad(double(x).to_local().sum(), x, create_graph=True)
    hooked = double(x)
    hooked.register_hook(lambda grad: grad * 3)
    x.grad = None
    hooked.to_local().sum().backward()
    assert torch.equal(x.grad.full_tensor(), 6 * whole)

    part = distribute_tensor(whole, mesh, [Shard(0)]) + 0

    @torch.compile
    def written(a: Any, b: Any) -> Any:
        a.mul_(b)

    written(part, x)  # in place: the tensor from outside has a history now
    x.grad = None
    part.to_local().sum().backward()
    assert torch.equal(x.grad.full_tensor(), whole) and torch.equal(part.full_tensor(), whole * whole)
    moved = torch.compile(lambda x: x.view(-1, 2 * size, 2)[:, 0])(distribute_tensor(whole, mesh, [Shard(1)]))
    if moved._moved_view:
        with raises("so the change would be lost"):
            moved.add_(1)


def raises(text: str) -> Any:
    """Expect a RuntimeError that says this."""
    return pytest.raises(RuntimeError, match=text)
