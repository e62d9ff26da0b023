"""Training that is stopped in the middle of an epoch goes on as if nothing had happened; workers load its data.

Samples lie in files, workers read and change them, the training loop takes batches.  Three things make resuming exact:

1. The order of an epoch follows from the seed and the epoch alone (`Order`).
2. Whatever is random about a sample follows from the seed, the epoch and the sample, and from no worker's state.
3. The position that is saved is counted where batches are *used*: workers have read ahead of it.

"CheckFreq: Frequent, Fine-Grained DNN Checkpointing", Mohan, Phanishayee and Chidambaram, 2021 (FAST '21), shows what
goes wrong otherwise.  The images (1797 of 8 x 8 pixels) ship with scikit-learn: nothing is downloaded.

    python -m rushlight examples/data_pipeline.py       with rushlight
    python examples/data_pipeline.py                    with PyTorch: the same program, the same numbers
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, get_worker_info

TRAIN, SHARD, BATCH = 1500, 250, 50


def write_shards(folder):
    """The digits to learn from, in files of 250 each, as a larger data set would lie on a disk."""
    digits = load_digits()
    order = np.random.RandomState(42).permutation(len(digits.images))
    for first in range(0, TRAIN, SHARD):
        chosen = order[first : first + SHARD]
        np.save(folder / f"images-{first:05}.npy", digits.images[chosen].astype(np.uint8))
        np.save(folder / f"labels-{first:05}.npy", digits.target[chosen].astype(np.int64))
    rest = order[TRAIN:]
    return torch.from_numpy(digits.images[rest]).float().unsqueeze(1) / 16, torch.from_numpy(digits.target[rest]).long()


class Shards(Dataset):
    """Reads samples from mapped files; a key is (epoch, number), so that a sample may be another one in every epoch."""

    def __init__(self, folder, seed):
        self.folder, self.seed, self.files = Path(folder), seed, {}

    def __len__(self):
        return TRAIN

    def open(self, first):
        if first not in self.files:  # every worker opens its own files, when it needs them
            names = (self.folder / f"{what}-{first:05}.npy" for what in ("images", "labels"))
            self.files[first] = tuple(np.load(name, mmap_mode="r") for name in names)
        return self.files[first]

    def __getitem__(self, key):
        epoch, number = key
        images, labels = self.open(number // SHARD * SHARD)
        image = torch.from_numpy(images[number % SHARD].astype(np.float32)) / 16  # (8, 8)
        # A shift by up to one pixel that is this sample's in this epoch, whoever makes it.
        generator = torch.Generator().manual_seed(hash((self.seed, epoch, number)))
        down, right = torch.randint(3, (2,), generator=generator).tolist()
        image = F.pad(image, (1, 1, 1, 1))[down : down + 8, right : right + 8]
        info = get_worker_info()
        return image.unsqueeze(0), int(labels[number % SHARD]), -1 if info is None else info.id


class Order(Sampler):
    """The keys of an epoch in random order, from a position on."""

    def __init__(self, length, seed):
        self.length, self.seed, self.epoch, self.position = length, seed, 0, 0

    def __len__(self):
        return self.length - self.position

    def __iter__(self):
        generator = torch.Generator().manual_seed(hash((self.seed, self.epoch)))
        order = torch.randperm(self.length, generator=generator).tolist()
        return iter([(self.epoch, number) for number in order[self.position :]])


class Training:
    """Everything that a run is made of, and the state from which it goes on."""

    def __init__(self, folder, seed, workers, device="cpu"):
        torch.manual_seed(seed)
        self.device = device
        self.order = Order(TRAIN, seed)
        self.loader = DataLoader(
            Shards(folder, seed),
            batch_sampler=BatchSampler(self.order, BATCH, drop_last=True),
            num_workers=workers,
            pin_memory=device != "cpu",
            persistent_workers=workers > 0,  # the same processes for all epochs
        )
        self.model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10),
        ).to(device)  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.losses, self.loaded_by = [], set()

    def state_dict(self):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epoch": self.order.epoch,
            "position": self.order.position,
        }

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order.epoch, self.order.position = state["epoch"], state["position"]

    def run(self, steps, log=lambda text: None):
        """Make so many steps more."""
        last = len(self.losses) + steps
        while len(self.losses) < last:
            for x, y, worker in self.loader:  # (B, 1, 8, 8), (B,), (B,)
                x, y = x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)
                loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
                self.loaded_by.update(worker.tolist())
                self.order.position += BATCH
                if len(self.losses) == last:
                    break
            if self.order.position + BATCH > TRAIN:
                log(f"epoch {self.order.epoch + 1}: loss {self.losses[-1]:.4f}")
                self.order.epoch, self.order.position = self.order.epoch + 1, 0
        return self.losses


def train(steps, seed=0, workers=0, device="cpu"):
    """The losses of a run that is not interrupted."""
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder))
        return Training(folder, seed, workers, device).run(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150, help="training steps; an epoch has 30")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images, labels = write_shards(folder)
        whole = Training(folder, args.seed, args.workers, args.device)
        whole.run(args.steps, log=print)
        print(f"batches were loaded by {sorted(whole.loaded_by)} (-1: the training process itself)")

        first = Training(folder, args.seed, args.workers, args.device)
        first.run(args.steps * 2 // 5)
        torch.save(first.state_dict(), folder / "checkpoint.pt")
        at = f"epoch {first.order.epoch + 1}, {first.order.position} samples used"
        print(f"stopped after {len(first.losses)} steps: {at}")

        # another seed: whatever matters is in the checkpoint
        second = Training(folder, args.seed + 1, args.workers, args.device)
        second.order.seed = second.loader.dataset.seed = args.seed
        second.load_state_dict(torch.load(folder / "checkpoint.pt"))
        second.run(args.steps - len(first.losses))

    same = whole.losses == first.losses + second.losses
    with torch.no_grad():
        found = (second.model.eval()(images.to(args.device)).argmax(1).cpu() == labels).float().mean().item()
    print(f"loss {whole.losses[0]:.4f} -> {second.losses[-1]:.4f}; {found:.2%} of {len(labels)} new digits are read")
    print(f"all {args.steps} losses are those of the run that was not stopped: {same}")
    if not same:
        raise SystemExit("the run that was resumed is another one")
    if found < 0.95:
        raise SystemExit(f"it should read 95% (after 150 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
