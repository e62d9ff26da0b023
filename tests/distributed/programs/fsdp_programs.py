"""Training with sharded parameters, by rushlight or by PyTorch: the same program for both.

    python tests/distributed/programs/fsdp_programs.py

runs by PyTorch with gloo, on 1, 2 and 4 processes, what `fsdp_results.json` does not have yet, and stores the losses.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("fsdp_results.json")
STEPS, WORDS, WIDTH = 4, 12, 8


def model_of(torch: Any, checkpoint: str = "", tied: bool = False) -> Any:
    """A small language model; `checkpoint` computes parts of blocks, or blocks, again in backward."""
    nn, F = torch.nn, torch.nn.functional
    again = importlib.import_module(f"{torch.__name__}.utils.checkpoint").checkpoint

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = (
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 2 * WIDTH),
                nn.Linear(2 * WIDTH, WIDTH),
            )

        def inner(self, x: Any) -> Any:
            return self.down(F.gelu(self.up(self.norm(x))))

        def forward(self, x: Any) -> Any:
            if checkpoint.startswith("inside"):
                return x + again(self.inner, x, use_reentrant=checkpoint.endswith("reentrant"))
            return x + self.inner(x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
            if tied:
                self.head.weight = self.embed.weight

        def forward(self, index: Any) -> Any:
            x = self.embed(index)
            for block in self.blocks:
                if checkpoint.startswith("around"):
                    x = again(block, x, use_reentrant=checkpoint.endswith("reentrant"))
                else:
                    x = block(x)
            return self.head(self.norm(x))

    return Model()


def fill(torch: Any, parameters: Any) -> None:
    """The same numbers for both packages, on every process."""
    with torch.no_grad():
        for k, p in enumerate(parameters):
            n = torch.arange(p.numel(), dtype=torch.float32)
            p.copy_((0.3 * torch.sin(n * 0.7 + k)).reshape(p.shape) + (1.0 if p.ndim == 1 and k % 2 else 0.0))


def data(torch: Any) -> tuple[Any, Any]:
    n = torch.arange(8 * 6).view(8, 6)
    return (n * 7 + n // 5) % WORDS, (n * 5 + 3) % WORDS


class Setting:
    """One way to train: how the model is made and sharded, and what is done around a step."""

    def __init__(self, torch: Any, rank: int, size: int) -> None:
        self.torch, self.rank, self.size = torch, rank, size
        self.dist = importlib.import_module(f"{torch.__name__}.distributed")
        self.fsdp = importlib.import_module(f"{torch.__name__}.distributed.fsdp")

    def mesh(self, *shape: int, names: tuple[str, ...] | None = None) -> Any:
        return self.dist.device_mesh.init_device_mesh("cpu", shape or (self.size,), mesh_dim_names=names)

    def shard(self, model: Any, **options: Any) -> Any:
        if "mesh" not in options:
            options["mesh"] = self.mesh()
        for block in model.blocks:
            self.fsdp.fully_shard(block, **options)
        return self.fsdp.fully_shard(model, **options)

    def losses(
        self,
        model: Any,
        accumulate: int = 1,
        before: Callable[[Any, bool], Any] = lambda model, last: None,
        optimizer: Callable[[Any], Any] | None = None,
        clip: Any = True,
        steps: int = STEPS,
    ) -> list[float]:
        """Mean losses over all processes."""
        torch, F = self.torch, self.torch.nn.functional
        index, target = (x.chunk(self.size)[self.rank] for x in data(torch))
        step = optimizer(model.parameters()) if optimizer else torch.optim.AdamW(model.parameters(), lr=0.02)
        self.optimizer = step
        found = []
        for _ in range(steps):
            step.zero_grad()
            for k in range(accumulate):
                with before(model, k == accumulate - 1) or contextlib.nullcontext():
                    out = model(index)
                    loss = F.cross_entropy(out.float().flatten(0, 1), target.flatten())
                    (loss / accumulate).backward()
            if clip == "own":
                model.clip_grad_norm_(0.3)
            elif clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            step.step()
            mean = loss.detach().clone()
            if self.size > 1:
                self.dist.all_reduce(mean)
            found.append(mean.item() / self.size)
        return found


def settings(torch: Any, rank: int, size: int) -> dict[str, Callable[[], list[float]]]:
    """The ways to train, by name."""
    s = Setting(torch, rank, size)
    fsdp = s.fsdp

    def made(**options: Any) -> Any:
        model = model_of(torch, **options)
        fill(torch, model.parameters())
        return model

    def meta() -> list[float]:
        with torch.device("meta"):
            model = model_of(torch)
        s.shard(model)
        model.to_empty(device="cpu")
        whole = made().state_dict()
        distribute = importlib.import_module(f"{torch.__name__}.distributed.tensor").distribute_tensor
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(distribute(whole[name], p.device_mesh, p.placements))
        return s.losses(model)

    def as_list() -> list[float]:
        model = made()
        fsdp.fully_shard([model.norm, model.head], mesh=s.mesh())
        return s.losses(s.shard(model))

    def frozen() -> list[float]:
        model = made()
        model.blocks[0].requires_grad_(False)
        model.norm.weight.requires_grad_(False)
        return s.losses(s.shard(model))

    def ahead() -> list[float]:
        model = s.shard(made())
        first, second = model.blocks
        model.set_modules_to_forward_prefetch([first, second])
        second.set_modules_to_backward_prefetch([first])
        model.set_reduce_scatter_max_input_buffers(2)
        return s.losses(model)

    def kept_after_backward(model: Any, last: bool) -> None:
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)
        model.set_is_last_backward(last)

    def tensor_parallel() -> list[float]:
        parallel = importlib.import_module(f"{torch.__name__}.distributed.tensor.parallel")
        mesh = s.mesh(2, size // 2, names=("dp", "tp"))
        model = made()
        for block in model.blocks:
            plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
            parallel.parallelize_module(block, mesh["tp"], plan)
        s.shard(model, mesh=mesh["dp"])
        s.rank, s.size = mesh["dp"].get_local_rank(), 2
        try:
            return s.losses(model, clip=False)
        finally:
            s.rank, s.size = rank, size

    half = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    last_dim = importlib.import_module(f"{torch.__name__}.distributed.tensor").Shard
    found = {
        "parts and whole": lambda: s.losses(s.shard(made())),
        "kept until backward": lambda: s.losses(s.shard(made(), reshard_after_forward=False)),
        "other dims": lambda: s.losses(s.shard(made(), shard_placement_fn=lambda p: last_dim(p.ndim - 1) if p.ndim > 1 else None)),
        "narrow": lambda: s.losses(s.shard(made(), mp_policy=half)),
        "offloaded": lambda: s.losses(s.shard(made(), offload_policy=fsdp.CPUOffloadPolicy(pin_memory=False))),
        "two batches": lambda: s.losses(s.shard(made()), 2, lambda m, last: m.set_requires_gradient_sync(last)),
        "kept after backward": lambda: s.losses(s.shard(made()), 2, kept_after_backward),
        "ahead": ahead, "list": as_list, "frozen": frozen, "meta": meta,
        "tied": lambda: s.losses(s.shard(made(tied=True))),
        "momentum": lambda: s.losses(s.shard(made()), optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True)),
        "fused": lambda: s.losses(s.shard(made()), optimizer=lambda p: torch.optim.AdamW(p, lr=0.02, fused=True)),
    }  # fmt: skip
    for where in ("inside", "inside reentrant", "around", "around reentrant"):
        found[f"checkpoint {where}"] = lambda where=where: s.losses(s.shard(made(checkpoint=where)))
    if size == 4:
        found["replicas of groups"] = lambda: s.losses(s.shard(made(), mesh=s.mesh(2, 2, names=("rep", "shard"))))
        found["replicas, two batches"] = lambda: s.losses(
            s.shard(made(), mesh=s.mesh(2, 2, names=("rep", "shard"))),
            2,
            lambda m, last: m.set_requires_all_reduce(last),
        )
        found["near"] = lambda: s.losses(s.shard(made(), reshard_after_forward=2))
        found["tensor parallel"] = tensor_parallel
    return found | replicated(s, made) | wrapped(s, made)


def replicated(s: Setting, made: Callable[..., Any]) -> dict[str, Callable[[], list[float]]]:
    """Ways to train with `replicate` by the machinery of `fully_shard`."""
    torch = s.torch
    home = importlib.import_module(f"{torch.__name__}.distributed._composable.replicate_with_fsdp")
    half = s.fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def copied(**options: Any) -> Any:
        model = made()
        for block in model.blocks:
            home.replicate(block, mesh=s.mesh(), **options)
        return home.replicate(model, mesh=s.mesh(), **options)

    return {
        "replicate": lambda: s.losses(copied()),
        "replicate, narrow": lambda: s.losses(copied(mp_policy=half)),
        "replicate, two batches": lambda: s.losses(copied(), 2, lambda m, last: m.set_requires_gradient_sync(last)),
    }


def wrapped(s: Setting, made: Callable[..., Any]) -> dict[str, Callable[[], list[float]]]:
    """Ways to train with `FullyShardedDataParallel`."""
    torch, fsdp = s.torch, s.fsdp
    wrap = importlib.import_module(f"{torch.__name__}.distributed.fsdp.wrap")
    strategy = fsdp.ShardingStrategy

    def wrapper(model: Any, kind: Any = strategy.FULL_SHARD, **options: Any) -> Any:
        policy = wrap.ModuleWrapPolicy({type(model.blocks[0])})
        cpu = torch.device("cpu")
        options.setdefault("use_orig_params", True)
        return fsdp.FullyShardedDataParallel(
            model, sharding_strategy=kind, auto_wrap_policy=policy, device_id=cpu, **options
        )

    def reloaded() -> list[float]:
        """Two steps, then model and optimizer by whole state dicts, and two more."""
        kind = fsdp.FullyShardedDataParallel
        model = wrapper(made())
        losses = s.losses(model, clip="own", steps=2)
        state, states = model.state_dict(), kind.optim_state_dict(model, s.optimizer)
        again = wrapper(made())
        again.load_state_dict(state)

        def optimizer(parameters: Any) -> Any:
            step = torch.optim.AdamW(parameters, lr=0.02)
            step.load_state_dict(kind.optim_state_dict_to_load(again, step, states))
            return step

        return losses + s.losses(again, clip="own", steps=2, optimizer=optimizer)

    def differing() -> list[float]:
        model = made()
        if s.rank:
            with torch.no_grad():
                for p in model.parameters():
                    p.zero_()
        return s.losses(wrapper(model, sync_module_states=True), clip="own")

    def accumulated(model: Any, last: bool) -> Any:
        return None if last else model.no_sync()

    half = fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    found = {
        "wrapper": lambda: s.losses(wrapper(made()), clip="own"),
        "wrapper, flat": lambda: s.losses(wrapper(made(), use_orig_params=False), clip="own"),
        "wrapper, grad op": lambda: s.losses(wrapper(made(), strategy.SHARD_GRAD_OP), clip="own"),
        "wrapper, no shard": lambda: s.losses(wrapper(made(), strategy.NO_SHARD), clip="own"),
        "wrapper, narrow": lambda: s.losses(wrapper(made(), mixed_precision=half), clip="own"),
        "wrapper, two batches": lambda: s.losses(wrapper(made()), 2, accumulated, clip="own"),
        "wrapper, tied": lambda: s.losses(wrapper(made(tied=True)), clip="own"),
    }  # fmt: skip
    if torch.__name__ == "rushlight":  # there only parameters of GPUs are sent, and a resumed run is not the whole one
        found |= {"wrapper, synced": differing, "wrapper, reloaded": reloaded}
    if s.size == 4:
        mesh = {"names": ("rep", "shard")}
        found["wrapper, hybrid"] = lambda: s.losses(
            wrapper(made(), strategy.HYBRID_SHARD, device_mesh=s.mesh(2, 2, **mesh)), clip="own"
        )
    return found


def run(rank: int, size: int, name: str = "rushlight", only: tuple[str, ...] = ()) -> dict[str, list[float]]:
    """The losses of every setting, or of some."""
    torch = importlib.import_module(name)
    return {key: call() for key, call in settings(torch, rank, size).items() if not only or key in only}


def big(rank: int, size: int) -> list[bool]:
    """Parameters that are gathered and reduced by themselves, beside small ones and one that nobody uses: gradients are
    the mean of those of one process, with replicas, in two backward calls, and in half precision.
    """
    torch = importlib.import_module("rushlight")
    s, found = Setting(torch, rank, size), []
    half = s.fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    meshes = [{}, {"mesh": s.mesh(size // 2, 2, names=("replicate", "shard"))}, {"mp_policy": half}]
    for options in meshes:
        nets = [torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)) for _ in range(2)]
        for net in nets:
            net.spare = torch.nn.Linear(256, 256)
            fill(torch, net.parameters())
            net.forward = lambda x, net=net: net[1](net[0](x)).square().mean()
        s.fsdp.fully_shard(nets[0], **options)
        x = torch.arange(4.0 * 256).view(4, 256).sin() + rank
        for k in range(2):
            nets[0].set_requires_gradient_sync(k == 1)
            nets[0](x).backward()
        sum(2.0 * nets[1](x - rank + r) for r in range(size)).div(size).backward()
        for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
            bound = 3e-2 if "mp_policy" in options else 1e-5
            if a.grad is None or b.grad is None:
                found.append(a.grad is b.grad)
            else:
                found.append(bool((a.grad.full_tensor() - b.grad).abs().max() <= bound * b.grad.abs().max()))
    return found


def edges(rank: int, size: int) -> dict[str, Any]:
    """What only several processes show."""
    torch = importlib.import_module("rushlight")
    s = Setting(torch, rank, size)
    found: dict[str, Any] = {}

    # Parameters that only the first process uses, or nobody.
    net = torch.nn.ModuleDict({k: torch.nn.Linear(3, 3, bias=False) for k in ("all", "one", "none")})
    net.forward = lambda x: net["all"](x) + (net["one"](x) if rank == 0 else 0.0)
    fill(torch, net.parameters())
    net.__class__ = type("Net", (torch.nn.ModuleDict,), {})
    s.fsdp.fully_shard(net)
    net(torch.ones(2, 3)).sum().backward()
    grads = [net[k].weight.grad for k in ("all", "one", "none")]
    found["unused"] = [None if g is None else g.full_tensor()[0, 0].item() for g in grads]

    # A gradient that is not finite on one process makes all skip the step.
    net = s.fsdp.fully_shard(torch.nn.Linear(5, 3))
    step, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    before = net.weight.full_tensor().clone()
    scaler.scale(net(torch.full((1, 5), float("inf") if rank == 1 else 1.0)).sum()).backward()
    scaler.step(step)
    scaler.update()
    found["scaler"] = torch.equal(before, net.weight.full_tensor()), scaler.get_scale()

    # Sums of gradients by another divisor; sums of scaled losses in half precision.
    half = s.fsdp.MixedPrecisionPolicy(reduce_dtype=torch.float16, output_dtype=torch.float64)
    net = s.fsdp.fully_shard(torch.nn.Linear(3, 2, bias=False), mp_policy=half)
    net.set_gradient_divide_factor(2.0)
    out = net(torch.full((1, 3), float(rank)))
    out.sum().backward()
    found["divided"] = out.dtype is torch.float64, net.weight.grad.full_tensor().tolist(), str(net.weight.grad.dtype)

    # Gradients averaged without a wrapper; two batches, the first of which is only summed.
    replicate = importlib.import_module("rushlight.distributed._composable").replicate
    net = torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False), torch.nn.Linear(2, 1, bias=False))
    replicate(net, ignored_modules=[net[1]])
    with torch.no_grad():
        net[1].weight.fill_(1.0)
    for syncs in (False, True):
        net.set_requires_gradient_sync(syncs)
        net(torch.full((1, 3), float(rank))).sum().backward()
    found["replicated"] = (
        type(net).__name__,
        net[0].weight.grad[0, 0].item(),
        net[1].weight.grad.abs().sum().item() > 0 or rank == 0,
    )

    # Two calls before one backward, chunks of a grouped head, and the memory in between.
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 7)
    fill(torch, [*body.parameters(), *head.parameters()])
    whole = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 7))
    fill(torch, whole.parameters())
    s.fsdp.fully_shard([body, head], reshard_after_forward=True)
    x = torch.arange(8.0).view(2, 4)
    y = body(x)
    sum(head(part).square().sum() for part in y.chunk(2)).backward()
    whole(x).square().sum().backward()
    found["chunks"] = all(
        torch.allclose(a.grad.full_tensor(), b.grad)
        for a, b in zip([*body.parameters(), *head.parameters()], whole.parameters(), strict=True)
    )
    return found


def alone(name: str = "rushlight") -> dict[str, list[float]]:
    """The losses of one process on the whole batch."""
    torch = importlib.import_module(name)
    s = Setting(torch, 0, 1)
    found = {}
    for key, options in (("plain", {}), ("tied", {"tied": True})):
        model = model_of(torch, **options)
        fill(torch, model.parameters())
        found[key] = s.losses(model)
    return found


# ***** PyTorch's numbers *****


def stored() -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def store(size: int, losses: dict[str, list[float]]) -> None:
    held = stored()
    held[str(size)] = {**held.get(str(size), {}), **{k: [round(x, 8) for x in v] for k, v in losses.items()}}
    rows = (
        f' "{size}": {{\n' + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in row.items()) + "\n }"
        for size, row in held.items()
    )
    STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _worker(rank: int, size: int, port: int) -> None:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    missing = tuple(k for k in settings(torch, rank, size) if k not in stored().get(str(size), {}))
    torch.distributed.barrier()
    for name in missing:
        found = run(rank, size, "torch", (name,))
        if rank == 0:
            store(size, found)
    torch.distributed.destroy_process_group()


def main() -> None:
    torch: Any = importlib.import_module("torch")
    store(1, alone("torch"))
    for size in (2, 4):
        torch.multiprocessing.spawn(_worker, (size, 29790 + size), nprocs=size)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    main()


def made_before(rank: int, size: int) -> None:
    """An optimizer that was made before wrapping trains as one that was made after it."""
    import rushlight as torch
    from rushlight.distributed.fsdp import FullyShardedDataParallel
    from rushlight.distributed.tensor import DTensor

    found = []
    for before in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
        net[0].weight.note = "kept"
        held = list(net.parameters())
        optimizer = torch.optim.AdamW(held, lr=0.1) if before else None
        model = FullyShardedDataParallel(net, use_orig_params=True)
        assert all(a is b for a, b in zip(model.parameters(), held, strict=True))
        assert all(isinstance(p, DTensor) for p in held) and held[0].note == "kept"
        optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.1)
        x, losses = torch.arange(20.0).reshape(4, 5) / 10 + rank, []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert len(set(losses)) == 3, losses
        found.append([*losses, *[p.full_tensor().tolist() for p in held]])
    assert found[0] == found[1]
