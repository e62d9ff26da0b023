"""Training steps on several ranks, by rushlight and by PyTorch with gloo, one after the other in the same run.

    python bench/distributed_steps.py [--ranks 2] [--torch-python PYTHON] [--only MLP/FSDP2] [--steps 20]

Needs `rushlight[mpi]`.  Each row is a model and a way to train it (alone: no process knows of the others; DDP; FSDP2).
Times are milliseconds of rank 0: the 5th percentile of a step, and the processor time of all steps by their number.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("alone", "DDP", "FSDP2")


def mlp(torch: Any) -> tuple[Any, Any, Any, list[Any]]:
    """A model, its inputs, its targets, and the parts that are sharded by themselves."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return model, torch.randn(64, 784), torch.zeros(64, dtype=torch.long), [model[0], model[2], model[4]]


def resnet(torch: Any) -> tuple[Any, Any, Any, list[Any]]:
    """ResNet-18 on 8 images of 64 x 64."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
            self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
            same = a == b and stride == 1
            self.short = (
                nn.Identity() if same else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
            )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            return (y + self.short(x)).relu()

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]  # fmt: skip
    blocks = [Block(*row) for row in widths]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return model, torch.randn(8, 3, 64, 64), torch.zeros(8, dtype=torch.long), blocks


def gpt(torch: Any) -> tuple[Any, Any, Any, list[Any]]:
    """A GPT of 4 blocks and width 256 on 4 x 64 tokens."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(2048, 256), nn.Parameter(torch.zeros(64, 256))
            self.blocks = nn.ModuleList([Block(256, 4) for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 2048, bias=False)

        def forward(self, index: Any) -> Any:
            x = self.tokens(index) + self.places
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).flatten(0, 1)

    model = Model()
    tokens = torch.randint(0, 2048, (4, 64))
    return model, tokens, tokens.flatten(), list(model.blocks)


MODELS: dict[str, Callable[[Any], tuple[Any, Any, Any, list[Any]]]] = {"MLP": mlp, "ResNet-18": resnet, "GPT": gpt}


def spread(torch: Any, model: Any, parts: list[Any], way: str) -> Any:
    """The model, trained in one of the ways."""
    if way == "DDP":
        return torch.nn.parallel.DistributedDataParallel(model)
    if way == "FSDP2":
        from importlib import import_module

        fully_shard = import_module(f"{torch.__name__}.distributed.fsdp").fully_shard
        for part in parts:
            fully_shard(part)
        fully_shard(model)
    return model


def rank_of(kind: str, only: str, count: int) -> None:
    """What one rank does; rank 0 prints its times as JSON."""
    from importlib import import_module

    torch: Any = import_module(kind)
    dist: Any = import_module(f"{kind}.distributed")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows: dict[str, Any] = {}
    for name, make in MODELS.items():
        for way in WAYS:
            label = f"{name}/{way}"
            if only not in label:
                continue
            torch.manual_seed(0)
            model, x, y, parts = make(torch)
            model = spread(torch, model, parts, way)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

            def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> None:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()

            rows[label] = measured(step, dist.barrier, count)
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def measured(step: Callable[[], None], barrier: Callable[[], Any], count: int) -> tuple[float, float]:
    """The 5th percentile of the time of a step, and its processor time, in milliseconds."""
    for _ in range(4):
        step()
    barrier()
    times, busy = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - began))
    return sorted(times)[count // 20], 1e3 * (time.process_time() - busy) / count


def run(kind: str, python: str, ranks: int, port: int, only: str, count: int) -> dict[str, Any]:
    """The rows of one kind."""
    env = {
        **os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "RUSHLIGHT_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [python, __file__, "--rank-of", kind, "--only", only, "--steps", str(count)]
    processes = [
        subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        out = [process.communicate(timeout=900)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return json.loads(out[0].strip().split("\n")[-1]) if out[0].strip() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--only", default="", help="rows whose label has this, as MLP/ or /DDP")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        return rank_of(args.rank_of, args.only, args.steps)
    kinds = {"rushlight": sys.executable, "torch": args.torch_python}
    found = {
        kind: run(kind, python, args.ranks, 29731 + k, args.only, args.steps)
        for k, (kind, python) in enumerate(kinds.items())
    }
    print(f"{'':20}{'rushlight':>18}{'PyTorch':>18}{'ratio':>14}   (ms: step, processor time)")
    for row, (step, busy) in found["rushlight"].items():
        other = found["torch"].get(row)
        theirs = f"{other[0]:.2f}, {other[1]:.2f}" if other else ""
        ratio = f"{step / other[0]:.2f}, {busy / other[1]:.2f}" if other else ""
        print(f"{row:20}{f'{step:.2f}, {busy:.2f}':>18}{theirs:>18}{ratio:>14}")


if __name__ == "__main__":
    main()
