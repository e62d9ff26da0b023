"""A convolutional VAE on digits: transposed convolutions, the reparametrised normal, its divergence, Adamax."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.distributions import Normal, kl_divergence


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.SiLU(),
            nn.Flatten(), nn.Linear(64, 12),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            nn.Linear(6, 64), nn.Unflatten(1, (16, 2, 2)), nn.SiLU(),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), nn.SiLU(), nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        )  # fmt: skip

    def forward(self, x):  # (B, 1, 8, 8)
        mean, log_std = self.encoder(x).chunk(2, dim=1)  # (B, 6) each
        posterior = Normal(mean, log_std.exp())
        return self.decoder(posterior.rsample()), posterior


def train(steps, seed=0):
    torch.manual_seed(seed)
    images = torch.from_numpy(load_digits().images).float().unsqueeze(1) / 16  # (N, 1, 8, 8)
    model = VAE()
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
    prior = Normal(0.0, 1.0)
    losses = []
    for _ in range(steps):
        x = images[torch.randint(len(images), (32,))]
        logits, posterior = model(x)
        misfit = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum((1, 2, 3))  # (B,)
        loss = (misfit + kl_divergence(posterior, prior).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
