"""Two convolutional networks play against each other until one of them can draw digits.

"Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks", Radford, Metz and
Chintala, 2015 (arXiv:1511.06434): the generator makes images from noise by transposed convolutions, the discriminator
says which images are real; BatchNorm in both, no pooling, Adam with a short memory.  The images ship with scikit-learn.

    python -m rushlight examples/dcgan_digits.py        with rushlight
    python examples/dcgan_digits.py                     with PyTorch: the same program, the same numbers
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

NOISE, WIDTH = 24, 32


def make_generator():
    return nn.Sequential(  # (B, 24, 1, 1)
        nn.ConvTranspose2d(NOISE, 2 * WIDTH, 2, bias=False), nn.BatchNorm2d(2 * WIDTH), nn.ReLU(),  # (B, 64, 2, 2)
        nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(),
        nn.ConvTranspose2d(WIDTH, 1, 4, stride=2, padding=1), nn.Tanh(),  # (B, 1, 8, 8), from -1 to 1
    )  # fmt: skip


def make_discriminator():
    return nn.Sequential(  # (B, 1, 8, 8)
        nn.Conv2d(1, WIDTH, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Dropout(0.2),  # (B, 32, 4, 4)
        nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * WIDTH), nn.LeakyReLU(0.2),
        nn.Conv2d(2 * WIDTH, 1, 2), nn.Flatten(0),  # (B,): positive for "this is real"
    )  # fmt: skip


def begin(module):
    """The paper's initialisation."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def load_data(device="cpu"):
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 8 - 1  # (1797, 1, 8, 8), from -1 to 1
    return images.to(device), torch.from_numpy(digits.target).long().to(device)


def misjudged(logits, real):
    """The loss of a judge who should have said `real` of all these images."""
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of both players by turns, and the generator."""
    torch.manual_seed(seed)
    images, _ = load_data(device)
    generator, discriminator = make_generator().apply(begin), make_discriminator().apply(begin)
    generator, discriminator = generator.to(device), discriminator.to(device)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=5e-4, betas=(0.5, 0.999))
    losses = []
    for step in range(steps):
        real = images[torch.randint(len(images), (64,))]
        fake = generator(torch.randn(64, NOISE, 1, 1).to(device))
        # The judge learns to tell real from fake; 0.9 instead of 1 keeps it from being too sure.
        judged = misjudged(discriminator(real), 0.9) + misjudged(discriminator(fake.detach()), 0.0)
        discriminator_optimizer.zero_grad()
        judged.backward()
        discriminator_optimizer.step()
        # The generator learns to be taken for real.
        fooled = misjudged(discriminator(fake), 1.0)
        generator_optimizer.zero_grad()
        fooled.backward()
        generator_optimizer.step()
        losses += [judged.item(), fooled.item()]
        if step % 100 == 99:
            log(f"step {step + 1}: discriminator {losses[-2]:.4f}, generator {losses[-1]:.4f}")
    return losses, generator


def features_of(images, labels):
    """A network that has learnt to read digits: what it sees in an image (B, 32), and what it reads (B, 10)."""
    see = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    read = nn.Linear(32, 10)
    see, read = see.to(images.device), read.to(images.device)
    optimizer = torch.optim.Adam([*see.parameters(), *read.parameters()], lr=3e-3)
    for _ in range(200):
        pick = torch.randint(len(images), (128,))
        loss = F.cross_entropy(read(see(images[pick])), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return see, read


def frechet(a, b):
    """The squared Frechet distance of two clouds of points, each taken for a normal distribution (arXiv:1706.08500)."""
    mean_a, mean_b, cov_a, cov_b = a.mean(0), b.mean(0), torch.cov(a.T), torch.cov(b.T)
    # tr sqrt(A B) is the sum of the roots of the eigenvalues of A B, which are not negative
    roots = torch.linalg.eigvals(cov_a @ cov_b).real.clamp(min=0).sqrt().sum()
    return ((mean_a - mean_b).square().sum() + cov_a.trace() + cov_b.trace() - 2 * roots).item()


def show(images):
    """Images side by side, in characters."""
    rows = (images[:, 0] / 2 + 0.5).clamp(0, 0.999)
    return "\n".join(
        "  ".join("".join(" .:-=+*#"[int(p * 8)] * 2 for p in image[y].tolist()) for image in rows) for y in range(8)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    losses, generator = train(args.steps, args.seed, log=print, device=args.device)
    images, labels = load_data(args.device)
    see, read = features_of(images, labels)
    untrained = make_generator().to(args.device)
    with torch.no_grad():
        generator.eval()
        noise = torch.randn(900, NOISE, 1, 1).to(args.device)
        drawn = generator(noise)
        print(show(drawn[:6]))
        kinds = torch.bincount(read(see(drawn)).argmax(1), minlength=10)
        distance, before = frechet(see(drawn), see(images)), frechet(see(untrained(noise)), see(images))
        halves = frechet(see(images[::2]), see(images[1::2]))
    print(f"how often each digit was drawn: {kinds.tolist()}")
    print(f"Frechet distance to real digits: {distance:.2f}; before training {before:.2f}, of real ones {halves:.2f}")
    if distance > 0.1 * before or kinds.min() < 9:
        raise SystemExit(
            "it should be a tenth of the distance before training, with every digit in at least 1% of the images "
            f"(after 600 steps, the default); it made {args.steps}"
        )


if __name__ == "__main__":
    main()
