"""A gradient of one's own: the straight-through estimator.

Rounding to a sign has a gradient of zero everywhere, so nothing could be learnt through it.  The straight-through
estimator pretends on the way back that rounding was not there.

    python -m rushlight examples/custom_function.py     with rushlight
    python examples/custom_function.py                  with PyTorch: the same program, the same numbers
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Sign(torch.autograd.Function):
    """+1 or -1 forward; the identity, where the input was not far off, backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


class BinaryLinear(nn.Linear):
    """A linear layer whose weights are only +1 and -1 when they are used."""

    def forward(self, x):  # (B, in)
        return F.linear(x, Sign.apply(self.weight), self.bias)  # (B, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the model lives: cpu, cuda")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    # A task that binary weights can do: the sign of a hidden sum of +-1 times the inputs.
    x = torch.randn(512, 16).to(args.device)  # (B, 16)
    hidden = torch.where(torch.randn(16) >= 0, 1.0, -1.0).to(args.device)  # (16,)
    y = (x @ hidden >= 0).float()  # (B,)

    layer = BinaryLinear(16, 1).to(args.device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for step in range(args.steps):
        loss = F.binary_cross_entropy_with_logits(layer(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    accuracy = ((layer(x).squeeze(1) >= 0) == (y > 0.5)).float().mean().item()
    found = (Sign.apply(layer.weight)[0] == hidden).sum().item()
    print(f"accuracy {accuracy:.3f}; {found} of 16 hidden signs found")


if __name__ == "__main__":
    main()
