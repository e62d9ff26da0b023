"""A network that reads upright digits is taught to read sideways ones by learning an eighth as many numbers as it has.

"LoRA: Low-Rank Adaptation of Large Language Models", Hu et al., 2021 (arXiv:2106.09685): the weights W stay as they
are; what is learnt is B A, a product of two thin matrices that is added to W.  Taken away again, the first network is
back; added to W for good, it costs nothing.  `torch.nn.utils.parametrize` does all of this to any module.

    python -m rushlight examples/lora_finetuning.py     with rushlight
    python examples/lora_finetuning.py                  with PyTorch: the same program, the same numbers
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """W -> W + (alpha / rank) B A.  B begins as zeros, so that nothing changes at first."""

    def __init__(self, weight, rank=4, alpha=8):
        super().__init__()
        out, width = weight.shape
        self.A = nn.Parameter(torch.empty(rank, width))
        self.B = nn.Parameter(torch.zeros(out, rank))
        self.scale, self.on = alpha / rank, True
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))

    def forward(self, weight):  # (out, in)
        return weight + self.scale * (self.B @ self.A) if self.on else weight


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):  # (B, T, C)
        q, k, v = (
            part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )  # (B, H, T, C/H)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # (B, T, C)


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Reader(nn.Module):
    """A small vision transformer: every row of an image is a token."""

    def __init__(self, width=64):
        super().__init__()
        self.rows = nn.Linear(8, width)
        self.places = nn.Parameter(0.02 * torch.randn(8, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x):  # (B, 8, 8)
        x = self.blocks(self.rows(x) + self.places)  # (B, 8, C)
        return self.head(self.ln(x).flatten(1))  # (B, 10)


def load_data(device="cpu"):
    """Images and labels to learn from and to test on; the same for every seed."""
    digits = load_digits()
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(42))
    images = torch.from_numpy(digits.images).float()[order].to(device) / 16  # (1797, 8, 8)
    labels = torch.from_numpy(digits.target).long()[order].to(device)
    return (images[:1437], labels[:1437]), (images[1437:], labels[1437:])


def sideways(images):
    return images.rot90(1, dims=(1, 2))


def fit(model, images, labels, steps, lr, log, what):
    """Trains whatever in the model wants a gradient; returns the losses."""
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(steps, 1), eta_min=0.05 * lr)
    losses = []
    for step in range(steps):
        pick = torch.randint(len(images), (64,))
        loss = F.cross_entropy(model(images[pick]), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 100 == 99:
            log(f"{what}, step {step + 1}: loss {losses[-1]:.4f}")
    return losses


@torch.no_grad()
def accuracy(model, images, labels):
    return (model(images).argmax(1) == labels).float().mean().item()


def adapt(model):
    """Freezes the model and gives every linear layer a low-rank change to learn."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, nn.Linear):
            parametrize.register_parametrization(module, "weight", LowRank(module.weight).to(module.weight.device))


def changed_layers(model):
    return [module for module in model.modules() if parametrize.is_parametrized(module)]


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of both trainings, the network, and what it read before and after the first."""
    torch.manual_seed(seed)
    (images, labels), (test, test_labels) = load_data(device)
    model = Reader().to(device)
    losses = fit(model, images, labels, steps, 3e-3, log, "upright")
    before = accuracy(model, test, test_labels), accuracy(model, sideways(test), test_labels)
    adapt(model)
    losses += fit(model, sideways(images), labels, 2 * steps, 5e-3, log, "sideways")
    return losses, model, before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of the first training; the second makes twice as many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    _, model, (upright, untaught) = train(args.steps, args.seed, log=print, device=args.device)
    _, (test, labels) = load_data(args.device)
    taught = accuracy(model, sideways(test), labels)
    learnt = sum(p.numel() for p in model.parameters() if p.requires_grad)
    count = sum(p.numel() for p in model.parameters()) - learnt
    # Taken away: the weights that were there are still there.
    for layer in changed_layers(model):
        layer.parametrizations.weight[0].on = False
    again = accuracy(model, test, labels)
    # Added for good: plain layers again, which read sideways.
    for layer in changed_layers(model):
        layer.parametrizations.weight[0].on = True
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    merged = accuracy(model, sideways(test), labels)
    print(f"{learnt:,} numbers were learnt beside the {count:,} that stayed ({learnt / count:.1%})")
    print(f"upright digits: {upright:.2%} before, {again:.2%} with the change taken away")
    print(f"sideways digits: {untaught:.2%} before, {taught:.2%} after, {merged:.2%} merged")
    if again != upright or merged != taught:
        raise SystemExit("taking the change away, or adding it for good, should change nothing that is read")
    if taught < 0.94:
        raise SystemExit(
            f"it should read 94% of the sideways digits (after 300 steps, the default); it made {args.steps}"
        )


if __name__ == "__main__":
    main()
