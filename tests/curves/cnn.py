"""A convolutional network on digits, with BatchNorm, Dropout and Dropout2d, random shifts and AdamW."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout2d(0.1),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 2 * 2, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 10)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):  # (B, 1, 8, 8)
        return self.head(self.features(x))  # (B, 10)


def train(steps, seed=0):
    torch.manual_seed(seed)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16  # (N, 1, 8, 8)
    labels = torch.from_numpy(digits.target).long()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    losses = []
    for _ in range(steps):
        pick = torch.randperm(len(images))[:32]
        x = images[pick].roll(int(torch.randint(-1, 2, ())), dims=3)
        loss = F.cross_entropy(model(x), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():  # what BatchNorm remembers is checked too
        model.eval()
        losses.append(F.cross_entropy(model(images[:64]), labels[:64]).item())
    return losses
