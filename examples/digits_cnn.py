"""A convolutional network learns to read handwritten digits.

The images (1797 of 8 x 8 pixels) ship with scikit-learn, so there is nothing to download.

    python -m rushlight examples/digits_cnn.py      with rushlight
    python examples/digits_cnn.py                   with PyTorch: the same program, the same numbers
    ... --compile                                   a step of training is compiled as a whole: the same numbers again

It writes the loss curve and a checkpoint into --out, reloads the checkpoint and tests that.  Seconds on 2 cores.
"""

import argparse
import copy
import statistics
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, random_split
from tqdm import tqdm


class Digits(Dataset):
    """Images as (1, 8, 8) floats from 0 to 1, labels as integers."""

    def __init__(self):
        digits = load_digits()
        self.images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16  # (1797, 1, 8, 8)
        self.labels = torch.from_numpy(digits.target).long()  # (1797,)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(64)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.bn3 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(64 * 2 * 2, 10)

    def forward(self, x):  # (B, 1, 8, 8)
        x = F.relu(self.bn1(self.conv1(x)))  # (B, 32, 8, 8)
        x = self.pool(F.relu(self.bn2(self.conv2(x))))  # (B, 64, 4, 4)
        x = self.pool(F.relu(self.bn3(self.conv3(x))))  # (B, 64, 2, 2)
        return self.fc(self.drop(x.flatten(1)))  # (B, 10)


def learn(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def seconds_eager(model, lr, x, y, count=20):
    """What the same step takes without compiling it, on a copy: the median."""
    model, times = copy.deepcopy(model).train(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    for _ in range(count):
        began = time.perf_counter()
        learn(model, optimizer, x, y).item()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


@torch.no_grad()
def test(model, loader, device):
    """The mean loss and the share of digits read correctly."""
    model.eval()
    loss, right, count = 0.0, 0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)  # (B, 10)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
        count += len(y)
    return loss / count, right / count


def save_curve(losses, accuracies, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
    left.plot(losses)
    left.set_xlabel("step")
    left.set_ylabel("training loss")
    left.set_yscale("log")
    right.plot(range(1, len(accuracies) + 1), accuracies, marker="o")
    right.set_xlabel("epoch")
    right.set_ylabel("test accuracy")
    fig.tight_layout()
    fig.savefig(path, dpi=120)
    plt.close(fig)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=330, help="training steps; an epoch has 22")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile a step of training, and say what that gains")
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    parser.add_argument("--out", type=Path, default=Path("out/digits_cnn"), help="where results go")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)

    # ***** data: the same split for every seed *****
    digits = Digits()
    train, held_out = random_split(digits, [1437, 360], generator=torch.Generator().manual_seed(42))
    train_loader = DataLoader(train, batch_size=args.batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(held_out, batch_size=args.batch)

    # ***** model *****
    model = Net().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(train)} digits to learn from, {len(held_out)} to test on; {count:,} parameters")

    # ***** train *****
    step = torch.compile(learn) if args.compile else learn
    losses, accuracies, times = [], [], []
    began = time.perf_counter()
    bar = tqdm(total=args.steps, desc="digits_cnn", unit="step")
    while len(losses) < args.steps:
        model.train()
        for x, y in train_loader:  # (B, 1, 8, 8), (B,)
            x, y = x.to(args.device), y.to(args.device)
            before = time.perf_counter()
            losses.append(step(model, optimizer, x, y).item())
            times.append(time.perf_counter() - before)
            scheduler.step()
            bar.update()
            if len(losses) == args.steps:
                break
        accuracies.append(test(model, test_loader, args.device)[1])
        bar.set_postfix(loss=f"{losses[-1]:.4f}", accuracy=f"{accuracies[-1]:.4f}")
    bar.close()
    took = time.perf_counter() - began

    # ***** results, from a checkpoint as a later program would use it *****
    (args.out / "losses.txt").write_text("".join(f"{loss:.6f}\n" for loss in losses))
    save_curve(losses, accuracies, args.out / "loss.png")
    path = args.out / "checkpoint.pt"
    torch.save({"model": model.state_dict()}, path)
    again = Net().to(args.device)
    again.load_state_dict(torch.load(path)["model"])
    loss, accuracy = test(again, test_loader, args.device)
    print(f"trained in {took:.1f} s, {took / args.steps * 1000:.1f} ms a step")
    if args.compile:
        usual, eager = statistics.median(times), seconds_eager(model, args.lr, x, y)
        print(
            f"a step without its data: {usual * 1000:.1f} ms compiled, {eager * 1000:.1f} ms as it is; first call {times[0]:.1f} s"
        )
    print(f"training loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"reloaded from the checkpoint: test loss {loss:.4f}, test accuracy {accuracy:.2%}")
    if accuracy != accuracies[-1]:
        raise SystemExit("the reloaded model is not the model that was saved")
    print(f"results are in {args.out}")


if __name__ == "__main__":
    main()
