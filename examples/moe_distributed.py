"""A mixture of experts on several processes: each has a part of the experts, and tokens travel to theirs and back.

    python -m rushlight.distributed.run --nproc-per-node 2 examples/moe_distributed.py
    python examples/moe_distributed.py              # the same losses on one process

A router sends each token to its best `top_k` experts (Shazeer et al., 2017).  An expert takes a limited number of a group's
tokens (its capacity); what is over it goes past the experts.  A loss asks the router to use all experts equally (Fedus et
al., 2021).  The task: which of several functions was applied to a vector, and its result, so that experts have something to
specialise in.
"""

import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

GROUPS = 4  # the batch is routed in so many groups, whatever the number of processes


class Experts(torch.nn.Module):
    """`count` small networks side by side: tokens come grouped by expert, with the number of each."""

    def __init__(self, count, width, hidden):
        super().__init__()
        self.up = torch.nn.Parameter(torch.randn(count, width, hidden) / math.sqrt(width))
        self.down = torch.nn.Parameter(torch.randn(count, hidden, width) / math.sqrt(hidden))

    def forward(self, tokens, counts):
        up, down = (p.to_local() if hasattr(p, "to_local") else p for p in (self.up, self.down))
        pieces = tokens.split(counts.tolist())
        return torch.cat([F.gelu(x @ a) @ b for x, a, b in zip(pieces, up, down)])


class MixtureOfExperts(torch.nn.Module):
    """Each token's vector becomes the weighted sum of its `top_k` experts' results; `balance` is the loss of this call that is
    smallest, 1, where all experts are used equally."""

    def __init__(self, width, hidden, experts, top_k=2, capacity=1.5):
        super().__init__()
        self.router = torch.nn.Linear(width, experts, bias=False)
        self.experts = Experts(experts, width, hidden)
        self.count, self.top_k, self.capacity = experts, top_k, capacity

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])  # (N, D)
        chances = F.softmax(self.router(tokens), -1)
        weights, chosen = chances.topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        used = F.one_hot(chosen, self.count).sum(1).to(chances.dtype)  # (N, experts)
        self.balance = self.count * (used.mean(0) / self.top_k * chances.mean(0)).sum()
        # All first choices come before all second ones, so that capacity is given to them first.
        expert, weight = chosen.T.reshape(-1), weights.T.reshape(-1)
        token = torch.arange(len(tokens)).repeat(self.top_k)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=self.count)
        place = torch.arange(len(order)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        most = math.ceil(self.capacity * self.top_k * len(tokens) / self.count)
        order = order[place < most]  # what is over an expert's capacity goes past it
        results = self.experts(tokens[token[order]], counts.clamp(max=most))
        made = torch.zeros_like(tokens).index_add(0, token[order], results * weight[order, None])
        return made.reshape(x.shape)


class Net(torch.nn.Module):
    def __init__(self, width=16, hidden=32, experts=4):
        super().__init__()
        self.inside, self.outside = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.mixture = MixtureOfExperts(width, hidden, experts)

    def forward(self, x):
        x = self.inside(x)
        return self.outside(x + self.mixture(x))


def batch(generator, size=64, width=16):
    """Vectors of four kinds, and what another function of each kind gives."""
    kinds = torch.randint(4, (size,), generator=generator)
    x = torch.randn(size, width, generator=generator)
    x[:, :4] = 3 * F.one_hot(kinds, 4)
    targets = torch.stack([x.sin(), x.abs(), -x, x.flip(1)])[kinds, torch.arange(size)]
    return x, targets


def train(steps=20, seed=0):
    """Losses of every step; the same for 1, 2 and 4 processes."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(seed)
    net = Net()
    if ranks > 1:
        from torch.distributed.tensor.parallel import ExpertParallel, parallelize_module

        parallelize_module(net, dist.init_device_mesh("cpu", (ranks,)), {"mixture.experts": ExpertParallel()})
    theirs = list(net.mixture.experts.parameters())
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    generator, losses = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        x, y = batch(generator)
        optimizer.zero_grad()
        total = torch.zeros(())
        for k in range(rank, GROUPS, ranks):
            made = net(x.chunk(GROUPS)[k])
            loss = (F.mse_loss(made, y.chunk(GROUPS)[k]) + 0.01 * net.mixture.balance) / GROUPS
            loss.backward()
            total += loss.detach()
        if ranks > 1:  # the experts' gradients are sums over all processes already
            for value in [total, *(p.grad for p in net.parameters() if all(p is not q for q in theirs))]:
                dist.all_reduce(value)
        optimizer.step()
        losses.append(total.item())
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    words = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    losses = train(words.steps)
    if not dist.is_initialized() or dist.get_rank() == 0:
        for step in range(0, len(losses), max(len(losses) // 8, 1)):
            print(f"step {step:4d}  loss {losses[step]:.4f}")
        assert losses[-1] < 0.5 * losses[0]
        print(f"last loss {losses[-1]:.4f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
