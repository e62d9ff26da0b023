"""Walking a Sequential that holds one layer twice."""

import torch
from torch import nn

torch.manual_seed(0)
l = nn.Linear(2, 2)
net = nn.Sequential(l, l)
for i, m in enumerate(net.modules()):
    print(i, "->", m)
for i, m in enumerate(net.named_modules()):
    print(i, "->", m)
print([name for name, _ in net.named_modules(remove_duplicate=False)])
for name, module in net.named_children():
    print(name, module)
for name, p in net.named_parameters():
    print(name, p.size(), type(p))
for p in net.parameters():
    print(type(p), p.size())
print(
    [name for name, _ in net.named_parameters() if name in ["bias"]],
    [name for name, _ in net.named_parameters() if name in ["0.bias"]],
)
print([name for name, _ in net.named_buffers() if name in ["running_var"]], list(net.named_buffers()))
print([name for name, _ in nn.Sequential(nn.BatchNorm1d(2)).named_buffers()])
print(list(net.state_dict()), [name for name, _ in net.named_parameters(remove_duplicate=False)])
