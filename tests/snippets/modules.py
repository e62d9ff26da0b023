"""How modules and parameters are named, printed and found."""

import torch
from torch import nn


class MyLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input):
        return (input @ self.weight) + self.bias


torch.manual_seed(3)
m = MyLinear(4, 3)
print(m(torch.randn(4)))
for parameter in m.named_parameters():
    print(parameter)
net = nn.Sequential(MyLinear(4, 3), nn.ReLU(), MyLinear(3, 1))
print(net(torch.randn(4)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0 = MyLinear(4, 3)
        self.l1 = MyLinear(3, 1)

    def forward(self, x):
        return self.l1(torch.relu(self.l0(x)))


class BigNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = MyLinear(5, 4)
        self.net = Net()

    def forward(self, x):
        return self.net(self.l1(x))


for child in Net().named_children():
    print(child)
big = BigNet()
for module in big.named_modules():
    print(module)
print([name for name, _ in big.named_modules()])


class DynamicNet(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.linears = nn.ModuleList([MyLinear(4, 4) for _ in range(layers)])
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU()})
        self.final = MyLinear(4, 1)

    def forward(self, x, act):
        for linear in self.linears:
            x = linear(x)
        return self.final(self.activations[act](x))


dynamic = DynamicNet(3)
print(dynamic)
print(dynamic(torch.randn(4), "relu").shape)
for name, p in dynamic.named_parameters():
    print(name, p.shape)
print(dynamic.final.weight)
