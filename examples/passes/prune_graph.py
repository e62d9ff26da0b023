"""Structured pruning as a pass over an exported graph: neurons that matter least are cut out, and matrices become smaller.

    python -m rushlight examples/passes/prune_graph.py

In linear -> activation -> linear a hidden neuron is a row of the first matrix and a column of the second.  Those with the
smallest product of norms go; what is left is exported again, and is a program with smaller weights.
"""

import torch
from torch import fx, nn

aten = torch.ops.aten
ACTIVATIONS = (aten.relu.default, aten.gelu.default, aten.tanh.default)


def pairs(graph: fx.Graph):
    """Pairs of linear layers with nothing but an activation between them."""
    for node in graph.nodes:
        if node.target is not aten.linear.default or len(node.users) != 1:
            continue
        middle = next(iter(node.users))
        if middle.target not in ACTIVATIONS or len(middle.users) != 1:
            continue
        last = next(iter(middle.users))
        if last.target is aten.linear.default and last.args[0] is middle:
            yield node, last


def prune(module: fx.GraphModule, keep: float) -> dict[str, tuple[int, int]]:
    """Keep this part of the hidden neurons; how many there were and are, by the name of the first weight."""

    def holder(node):
        path, _, name = node.target.rpartition(".")
        return module.get_submodule(path), name

    def value(node):
        inner, name = holder(node)
        return getattr(inner, name)

    def replace(node, tensor):
        inner, name = holder(node)
        setattr(inner, name, nn.Parameter(tensor.detach().clone()))

    found = {}
    for first, last in list(pairs(module.graph)):
        rows, columns = value(first.args[1]), value(last.args[1])
        score = rows.norm(dim=1) * columns.norm(dim=0)
        count = max(1, int(len(score) * keep))
        kept = score.topk(count).indices.sort().values
        replace(first.args[1], rows[kept])
        replace(last.args[1], columns[:, kept])
        if len(first.args) > 2:
            replace(first.args[2], value(first.args[2])[kept])
        found[first.args[1].target] = len(score), count
    return found


class Digits(nn.Module):
    """A small network with more hidden neurons than it needs."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 4))

    def forward(self, x):
        return self.layers(x)


def main() -> None:
    """Train, prune, export what is left, train it a little; accuracies and numbers of weights."""
    torch.manual_seed(0)
    centres = torch.randn(4, 16)
    labels = torch.arange(600) % 4
    x = centres[labels] + torch.randn(600, 16) * 0.9

    def train(model, steps):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return (model(x).argmax(1) == labels).float().mean().item()

    model = Digits()
    before = train(model, 60)
    module = torch.export.export(model, (x,)).module()
    cut = prune(module, keep=0.25)
    assert cut == {"layers.0.weight": (96, 24)}
    again = torch.export.export(module, (x,))
    weights = sum(p.numel() for p in again.parameters())
    after = train(again.module(), 30)
    assert weights < 0.3 * sum(p.numel() for p in model.parameters()) and after >= before - 0.01, (before, after)
    print(f"96 neurons became 24; accuracy {before:.3f} before, {after:.3f} after")


if __name__ == "__main__":
    main()
