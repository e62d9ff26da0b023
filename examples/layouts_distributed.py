"""One model on a grid of processes: data parallel x pipeline x tensor parallel.

    torchrun --standalone --nproc-per-node 4 examples/layouts_distributed.py --dp 2 --pp 2
    torchrun --standalone --nproc-per-node 4 examples/layouts_distributed.py --pp 2 --tp 2
    torchrun --standalone --nproc-per-node 8 examples/layouts_distributed.py --dp 2 --pp 2 --tp 2
    python -m rushlight examples/layouts_distributed.py                    one process

All print the same losses, up to rounding.  Processes along `dp` have the same parameters and other parts of a batch; along
`pp` they have other layers; along `tp` they have parts of each layer's products (Megatron's pairs of linear layers).  The
task: a residual network learns to sort numbers.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

WIDTH, HIDDEN, BLOCKS, BATCH, PARTS = 8, 32, 4, 32, 2


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(WIDTH),
            torch.nn.Linear(WIDTH, HIDDEN),
            torch.nn.Linear(HIDDEN, WIDTH),
        )

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def batch(generator):
    x = torch.rand(BATCH, WIDTH, generator=generator)
    return x, x.sort(-1).values


def net_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(*(Block() for _ in range(BLOCKS)))


def train(steps=20, seed=0):
    """Losses of every step on one process."""
    net, generator, losses = net_of(seed), torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(steps):
        x, y = batch(generator)
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_on_grid(dp, pp, tp, steps=20, seed=0):
    """The same on dp * pp * tp processes, of which neighbours share a layer's products."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dp, pp, tp), mesh_dim_names=("dp", "pp", "tp"))
    stage_number, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
    first, last = stage_number == 0, stage_number == pp - 1
    per_stage = BLOCKS // pp
    mine = net_of(seed)[stage_number * per_stage : (stage_number + 1) * per_stage]
    if tp > 1:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        for block in mine:
            parallelize_module(block, mesh["tp"], plan)
    stage = PipelineStage(mine, stage_number, pp, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, max(PARTS, pp), loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(mine.parameters(), lr=0.01)
    generator, losses = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        x, y = (t.chunk(dp)[replica] for t in batch(generator))
        found = []
        optimizer.zero_grad()
        schedule.step(*((x,) if first else ()), target=y if last else None, losses=found)
        loss = torch.stack([each.detach() for each in found]).mean() if last else torch.zeros(())
        for value in [loss, *(p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad for p in mine.parameters())]:
            dist.all_reduce(value, group=mesh["dp"].get_group())
            value.div_(dp)
        optimizer.step()
        dist.all_reduce(loss, group=mesh["pp"].get_group())
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    for axis in ("dp", "pp", "tp"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    words = parser.parse_args()
    if words.dp * words.pp * words.tp > 1:
        dist.init_process_group("gloo")
        losses = train_on_grid(words.dp, words.pp, words.tp, words.steps)
    else:
        losses = train(words.steps)
    if int(os.environ.get("RANK", "0")) == 0:
        for step in range(0, len(losses), max(len(losses) // 8, 1)):
            print(f"step {step:4d}  loss {losses[step]:.4f}")
        assert losses[-1] < 0.1 * losses[0]
        print(f"last loss {losses[-1]:.4f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
