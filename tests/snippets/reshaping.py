"""Eighteen ways to change a shape."""

import torch

torch.manual_seed(0)
x = torch.randn(4, 4)
print(x.view(16).shape, x.view(-1, 8).shape, x.reshape(2, 8).shape)
print(torch.randn(2, 1, 3, 1, 4).squeeze().shape, torch.randn(2, 1, 3, 1, 4).squeeze(1).shape, x.squeeze(0).shape)
print(x.unsqueeze(0).shape, x.unsqueeze(-1).shape)
print(torch.randn(2, 3, 5).transpose(0, 2).shape, torch.randn(2, 3, 5).permute(2, 0, 1).shape, x[:2].t().shape)
one = torch.tensor([[1], [2], [3]])
print(one.expand(3, 4), one.expand(3, 4).stride(), one.expand(2, -1, 4).shape)
print(torch.tensor([1, 2, 3]).repeat(2, 3), torch.tensor([1, 2, 3]).repeat(2, 3).shape)
print(torch.tile(torch.tensor([1, 2]), (2, 2)))
y = torch.randn(2, 3, 4)
print(y.flatten().shape, y.flatten(start_dim=1).shape, y.ravel().shape)
print(torch.stack([torch.zeros(3, 4), torch.ones(3, 4)]).shape, torch.stack([torch.zeros(3), torch.ones(3)], dim=1))
print(torch.cat([torch.zeros(2, 3), torch.ones(2, 5)], dim=1).shape)
rows = torch.arange(10).reshape(5, 2)
print([tuple(part.shape) for part in torch.split(rows, 2)], [tuple(part.shape) for part in torch.split(rows, [1, 4])])
print([tuple(part.shape) for part in torch.chunk(torch.randn(5, 10), 3, dim=1)])
print([tuple(part.shape) for part in torch.tensor_split(torch.randn(5, 10), 3, dim=1)])
print(len(torch.chunk(torch.arange(6), 4)), len(torch.chunk(torch.arange(5), 4)))
print(torch.unbind(rows, dim=1))
print(torch.randn(3, 5).narrow(1, 1, 2).shape, rows.narrow(0, 3, 2))
print(torch.arange(1, 8).unfold(0, 3, 1), torch.arange(1, 8).unfold(0, 2, 3))
print(torch.broadcast_to(torch.tensor([1, 2]), (2, 2)))
try:
    torch.ones(2, 3).expand(4, 3)
except RuntimeError as error:
    print("RuntimeError:", error)
