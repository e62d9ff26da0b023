"""A first program: tensors, a gradient, a line fitted by hand.

python -m rushlight examples/hello.py       with rushlight
python examples/hello.py                    with PyTorch: the same program, the same output
"""

import torch

x = torch.arange(6.0).view(2, 3)  # (2, 3)
print(x)
print(x @ x.T)  # (2, 2)

w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)  # (3,)
y = (x * w).sum()
print(y)
y.backward()
print(w.grad)

# Fit a line to noisy points.
torch.manual_seed(0)
t = torch.linspace(0, 1, 100)  # (100,)
points = 3 * t - 1 + 0.1 * torch.randn(100)  # (100,)
line = torch.zeros(2, requires_grad=True)  # (slope, offset)
for _ in range(200):
    loss = (line[0] * t + line[1] - points).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        line -= 0.5 * line.grad
    line.grad = None
print(f"slope {line[0].item():.2f}, offset {line[1].item():.2f}, loss {loss.item():.4f}")
