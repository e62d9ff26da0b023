"""A network learns to learn: after one gradient step on ten points it follows a sine wave it has never seen.

"Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", Finn, Abbeel and Levine, 2017 (arXiv:1703.03400).
What is trained is where to begin: the loss is the loss *after* a gradient step, so its gradient goes through a
gradient.  `torch.func` says this in three lines, and `vmap` does it for many waves at once.

    python -m rushlight examples/maml_sines.py      with rushlight
    python examples/maml_sines.py                   with PyTorch: the same program, the same numbers
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

POINTS, RATE = 10, 0.01

model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))


def loss_of(params, x, y):  # (P, 1), (P, 1)
    return F.mse_loss(functional_call(model, params, (x,)), y)


def adapted(params, x, y, steps=1):
    """The parameters after gradient steps on one wave."""
    for _ in range(steps):
        slopes = grad(loss_of)(params, x, y)
        params = {name: p - RATE * slopes[name] for name, p in params.items()}
    return params


def loss_after(params, x, y, new_x, new_y):
    """How well new points of a wave are met, after a step on the first ones."""
    return loss_of(adapted(params, x, y), new_x, new_y)


def waves(count, device="cpu"):
    """Points (count, P, 1) of sine waves of any height and phase, twice."""
    height, phase = torch.rand(count, 1, 1) * 4.9 + 0.1, torch.rand(count, 1, 1) * math.pi
    x, new_x = torch.rand(2, count, POINTS, 1) * 10 - 5
    points = x, height * torch.sin(x - phase), new_x, height * torch.sin(new_x - phase)
    return [part.to(device) for part in points]


def train(steps, seed=0, log=lambda text: None, device="cpu"):
    """The losses of all steps and the parameters to begin from."""
    torch.manual_seed(seed)
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    params = {name: p.detach().clone().to(device).requires_grad_() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(params.values(), lr=5e-3)
    losses = []
    for step in range(steps):
        # Each of 32 waves gets its own step from the same beginning; their losses are averaged.
        loss = vmap(loss_after, in_dims=(None, 0, 0, 0, 0))(params, *waves(32, device)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 200 == 199:
            log(f"step {step + 1}: loss after one inner step {losses[-1]:.4f}")
    return losses, params


@torch.no_grad()
def losses_on_new_waves(params, inner_steps):
    x, y, new_x, new_y = waves(500, next(iter(params.values())).device)
    each = vmap(lambda x, y, new_x, new_y: loss_of(adapted(params, x, y, inner_steps), new_x, new_y))
    return each(x, y, new_x, new_y).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()

    losses, params = train(args.steps, args.seed, log=print, device=args.device)
    plain = {name: p.detach().to(args.device) for name, p in model.named_parameters()}  # where a network usually begins
    found = {}
    for count in (0, 1, 5):
        found[count] = losses_on_new_waves(params, count)
        usual = losses_on_new_waves(plain, count)
        print(f"after {count} steps on a new wave: loss {found[count]:.4f}; from a usual beginning {usual:.4f}")
    if found[1] > 0.3 * found[0]:
        raise SystemExit(
            f"one step should take 70% of the loss away (after 1500 steps, the default); it made {args.steps}"
        )


if __name__ == "__main__":
    main()
