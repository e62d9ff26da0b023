"""A small Llama, divided by tensor and sequence parallel styles along one axis of a mesh and by FSDP along the other."""

from __future__ import annotations

from typing import Any

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed.fsdp import FullyShardedDataParallel, fully_shard
from rushlight.distributed.tensor import Replicate, Shard
from rushlight.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from rushlight.nn import functional as F

WIDTH, HEADS, LENGTH, WORDS = 32, 4, 16, 64


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Any) -> Any:
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Any, turns: Any) -> Any:
        batch, length, _ = x.shape
        q, k, v = (w(x).view(batch, length, self.heads, WIDTH // HEADS) for w in (self.wq, self.wk, self.wv))
        q, k = (turned(y, turns).transpose(1, 2) for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v.transpose(1, 2), is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(batch, length, -1))


def turned(x: Any, turns: Any) -> Any:
    """Rotary positions: pairs of numbers as complex ones, times those of their places."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns.view(1, x.shape[1], 1, -1)).flatten(3)


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.w2 = nn.Linear(3 * WIDTH, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, 3 * WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed = Attention(), Feed()
        self.norm1, self.norm2 = Norm(), Norm()

    def forward(self, x: Any, turns: Any) -> Any:
        x = x + self.attention(self.norm1(x), turns)
        return x + self.feed(self.norm2(x))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm = Norm()
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        half = WIDTH // HEADS
        angles = torch.outer(torch.arange(LENGTH), 1.0 / 10000 ** (torch.arange(0, half, 2).float() / half)).float()
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Any) -> Any:
        x = self.words(x)
        for layer in self.layers:
            x = layer(x, self.turns)
        return self.output(self.norm(x))


def divide(model: Any, mesh: Any) -> None:
    """Tensor parallel inside of attention and feed-forward, sequences divided between them."""
    outer = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, outer)
    for block in model.layers:
        block.attention.heads //= mesh.size()
        plan = {
            "norm1": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "norm2": SequenceParallel(),
            "feed": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed.w1": ColwiseParallel(),
            "feed.w3": ColwiseParallel(),
            "feed.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, plan)


def losses(rank: int, size: int, how: str) -> list[float]:
    """Five steps of AdamW on a mesh of two axes; `how` is what divides along the first one."""
    mesh = dist.init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model: Any = Llama()
    divide(model, mesh["tp"])
    if how == "fsdp1":
        model = FullyShardedDataParallel(model, device_mesh=mesh["dp"], use_orig_params=True)
    else:
        for block in model.layers:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    found = []
    for step in range(5):
        torch.manual_seed(step + 10 * mesh["dp"].get_local_rank())
        x = torch.randint(WORDS, (4, LENGTH))
        loss = F.cross_entropy(model(x).flatten(0, 1), x.roll(-1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        found.append(mean.item() / size)
    return found
