"""A variational autoencoder learns what handwritten digits look like, and writes new ones.

"Auto-Encoding Variational Bayes", Kingma and Welling, 2013 (arXiv:1312.6114).  An encoder says where in a small space
an image may lie, a decoder draws what lies there; both are trained together on a lower bound of log p(image).  Sampling
is written as mean + std * noise, so that gradients pass through it.  The images ship with scikit-learn.

    python -m rushlight examples/vae_digits.py      with rushlight
    python examples/vae_digits.py                   with PyTorch: the same program, the same numbers
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

PIXELS, HIDDEN, LATENT = 64, 128, 8


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PIXELS))

    def encode(self, x):  # (B, 64)
        mean, log_var = self.encoder(x).chunk(2, dim=1)  # (B, 8) each
        return mean, log_var

    def forward(self, x):
        mean, log_var = self.encode(x)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)  # the reparametrisation
        return self.decoder(z), mean, log_var  # logits of pixels (B, 64)


def negative_bound(model, x):
    """-log p(x) is at most this, in nats for an image: the misfit, and how far q(z|x) is from the prior N(0, 1)."""
    logits, mean, log_var = model(x)
    misfit = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)  # (B,)
    divergence = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1)  # (B,)
    return (misfit + divergence).mean()


def load_data(device="cpu"):
    """Images to learn from and images to test on, each a row of 64 numbers from 0 to 1; the same for every seed."""
    images = torch.from_numpy(load_digits().data).float().to(device) / 16  # (1797, 64)
    images = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(42))]
    return images[:1437], images[1437:]


def show(images):
    """Images side by side, in characters."""
    rows = images.reshape(-1, 8, 8).clamp(0, 0.999)
    return "\n".join(
        "  ".join("".join(" .:-=+*#"[int(p * 8)] * 2 for p in image[y].tolist()) for image in rows) for y in range(8)
    )


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps and the model."""
    torch.manual_seed(seed)
    images, _ = load_data(device)
    model = VAE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        x = images[torch.randint(len(images), (128,))]  # (B, 64)
        loss = negative_bound(model, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 200 == 199:
            log(f"step {step + 1}: {losses[-1]:.3f} nats an image")
    return losses, model


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    with torch.enable_grad():
        losses, model = train(args.steps, args.seed, log=print, device=args.device)
    images, test = load_data(args.device)
    bound = negative_bound(model, test).item()
    # Without a latent space, the best that can be said of a pixel is how bright it is on average.
    alone = F.binary_cross_entropy(images.mean(0).expand_as(test), test, reduction="none").sum(1).mean().item()
    print("digits, and what is left of them after 8 numbers:")
    print(show(test[:6]))
    print(show(torch.sigmoid(model.decoder(model.encode(test[:6])[0]))))
    print("new ones, from noise:")
    print(show(torch.sigmoid(model.decoder(torch.randn(6, LATENT, device=args.device)))))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"on images never seen before: {bound:.3f} nats; with every pixel on its own: {alone:.3f}")
    if bound > 25.0:
        raise SystemExit(f"it should be below 25 nats (after 1500 steps, the default); it made {args.steps}")


if __name__ == "__main__":
    main()
