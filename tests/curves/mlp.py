"""A multilayer perceptron on two spirals: Linear, Tanh, GELU, SGD with Nesterov's momentum, a warm-up and a cosine."""

import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def spirals(count):
    """Points on two arms, in turn, and the arm each is on."""
    t = torch.rand(count).sqrt() * 3 * math.pi  # (N,)
    arm = torch.arange(count) % 2  # (N,)
    angle = t + arm * math.pi
    x = torch.stack((t * angle.cos(), t * angle.sin()), dim=1) / 5 + 0.05 * torch.randn(count, 2)  # (N, 2)
    return x, arm


def train(steps, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*spirals(512)), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=1e-4)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=8)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[8])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    losses = []
    while len(losses) < steps:
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    return losses[:steps]
