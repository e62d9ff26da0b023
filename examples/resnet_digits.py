"""A residual network learns to read handwritten digits, and its shortcuts are shown to matter.

"Deep Residual Learning for Image Recognition", He, Zhang, Ren and Sun, 2015 (arXiv:1512.03385): a block computes
x + f(x), so that a deep network begins near the identity and gradients reach every layer.  The images (1797 of 8 x 8
pixels) ship with scikit-learn: nothing is downloaded.

    python -m rushlight examples/resnet_digits.py       with rushlight
    python examples/resnet_digits.py                    with PyTorch: the same program, the same numbers
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split


class Block(nn.Module):
    """Two convolutions and a way around them; where the size changes, the way around is a convolution of one pixel."""

    def __init__(self, channels_in, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), nn.BatchNorm2d(channels)
            )
        nn.init.zeros_(self.bn2.weight)  # f(x) begins as 0: the block begins as its shortcut

    def forward(self, x):  # (B, C_in, H, W)
        f = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))  # (B, C, H/stride, W/stride)
        return F.relu(self.shortcut(x) + f)


class ResNet(nn.Module):
    def __init__(self, widths=(16, 32, 64), blocks=2):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()
        )
        stages, width_in = [], widths[0]
        for width in widths:  # 8 x 8 -> 4 x 4 -> 2 x 2 pixels
            for i in range(blocks):
                stages.append(Block(width_in, width, stride=2 if i == 0 and width != widths[0] else 1))
                width_in = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(width_in, 10)

    def forward(self, x):  # (B, 1, 8, 8)
        x = self.stages(self.stem(x))  # (B, 64, 2, 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))  # (B, 10)


def load_data():
    """Digits to learn from and digits to be tested on: the same split for every seed."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16  # (1797, 1, 8, 8), from 0 to 1
    labels = torch.from_numpy(digits.target).long()
    return random_split(TensorDataset(images, labels), [1437, 360], generator=torch.Generator().manual_seed(42))


def shifted(x):
    """Every image moved by up to one pixel: a digit remains what it is, and the network sees nine times as many."""
    padded = F.pad(x, (1, 1, 1, 1))  # (B, 1, 10, 10)
    down, right = torch.randint(3, (2,)).tolist()
    return padded[:, :, down : down + 8, right : right + 8]  # (B, 1, 8, 8)


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    device = next(model.parameters()).device
    batches = ((x.to(device), y.to(device)) for x, y in DataLoader(data, batch_size=180))
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in batches)
    model.train()
    return right / len(data)


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps, the network and the digits that were held out."""
    torch.manual_seed(seed)
    data, held_out = load_data()
    loader = DataLoader(data, batch_size=48, shuffle=True, drop_last=True)
    model = ResNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=max(steps, 10))
    losses = []
    while len(losses) < steps:
        for x, y in loader:  # (B, 1, 8, 8), (B,)
            loss = F.cross_entropy(model(shifted(x.to(device))), y.to(device), label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            if len(losses) % 50 == 0:
                log(f"step {len(losses)}: loss {losses[-1]:.4f}, test accuracy {accuracy(model, held_out):.2%}")
            if len(losses) == steps:
                break
    return losses, model, held_out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=250, help="training steps; an epoch has 29")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    losses, model, held_out = train(args.steps, args.seed, log=print, device=args.device)
    count = sum(p.numel() for p in model.parameters())
    found = accuracy(model, held_out)
    for module in model.modules():  # the same weights, had there been no way around
        if isinstance(module, Block) and isinstance(module.shortcut, nn.Identity):
            module.shortcut = nn.Module()
            module.shortcut.forward = torch.zeros_like
    without = accuracy(model, held_out)
    print(f"{count:,} parameters; loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"{found:.2%} of {len(held_out)} digits never seen before are read; without the shortcuts {without:.2%}")
    if found < 0.96:
        raise SystemExit(f"it should read 96% (after 250 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
