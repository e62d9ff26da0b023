"""An image data set, batches of images and labels, workers that stay, a collate function for clouds of points."""

import os
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class ImageDataset(Dataset):
    def __init__(self, folder, labels, transform=None):
        self.folder, self.labels, self.transform = folder, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = torch.from_numpy(np.load(os.path.join(self.folder, f"{i}.npy")))  # (H, W, C) uint8
        return (self.transform(image) if self.transform else image), self.labels[i]


def to_tensor(image):
    return image.permute(2, 0, 1).float() / 255


def collate(samples):
    images, labels = zip(*samples)
    return torch.stack(images), torch.tensor(labels)


class Clouds(Dataset):
    """Point clouds of different sizes; says which process made a sample."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        info = get_worker_info()
        return torch.full((i + 1, 3), float(i)), os.getpid(), info is not None


def pad_clouds(samples):
    longest = max(len(points) for points, _, _ in samples)
    padded = torch.stack(
        [torch.nn.functional.pad(points, (0, 0, 0, longest - len(points))) for points, _, _ in samples]
    )
    inside = get_worker_info() is not None  # with workers, batches are put together there
    return padded, [pid for _, pid, _ in samples], inside


with tempfile.TemporaryDirectory() as folder:
    random = np.random.RandomState(0)
    for i in range(10):
        np.save(os.path.join(folder, f"{i}.npy"), random.randint(0, 256, (8, 8, 3), dtype=np.uint8))
    data = ImageDataset(folder, [i % 3 for i in range(10)], to_tensor)
    for workers in (0, 2):
        torch.manual_seed(0)
        loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers, collate_fn=collate)
        for images, labels in loader:
            print(images.shape, images.dtype, labels, f"{images.mean():.4f}")
    print(len(DataLoader(data, batch_size=4, drop_last=True)), len(DataLoader(data, batch_size=4)))

loader = DataLoader(
    Clouds(), batch_size=2, num_workers=2, prefetch_factor=2, persistent_workers=True, collate_fn=pad_clouds
)
epochs = [[(tuple(x.shape), pids, inside) for x, pids, inside in loader] for _ in range(2)]
print([[shape for shape, _, _ in epoch] for epoch in epochs])
print(all(inside for epoch in epochs for _, _, inside in epoch))
processes = [{pid for _, pids, _ in epoch for pid in pids} for epoch in epochs]
print(processes[0] == processes[1], len(processes[0]), os.getpid() in processes[0])
