"""Graph-mode quantisation as two passes over an exported graph: observe ranges, then compute with 8-bit numbers.

    python -m rushlight examples/passes/quantise_graph.py

The first pass puts an observer behind every value that a linear layer takes.  After some data have gone through, the second
replaces each linear layer: weights are int8 with a scale for each row, inputs are rounded to 256 levels of their range.
"""

import torch
from torch import fx, nn

aten = torch.ops.aten


class Observer(nn.Module):
    """Keeps the least and the greatest number it has seen."""

    def __init__(self):
        super().__init__()
        self.low, self.high = 0.0, 0.0

    def forward(self, x):
        self.low, self.high = min(self.low, x.min().item()), max(self.high, x.max().item())
        return x


class QuantisedLinear(nn.Module):
    """int8 weights with a scale for each row, uint8 inputs with one scale; sums of products are integers."""

    def __init__(self, weight, bias, low, high):
        super().__init__()
        scales = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        self.register_buffer("weight", torch.clamp(torch.round(weight / scales), -128, 127).to(torch.int8))
        self.register_buffer("scales", scales[:, 0].clone())
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.step = max(high - low, 1e-12) / 255
        self.zero = round(-low / self.step)

    def forward(self, x):
        levels = torch.clamp(torch.round(x / self.step) + self.zero, 0, 255) - self.zero
        sums = levels.to(torch.float64) @ self.weight.t().to(torch.float64)  # exact: far below 2**53
        out = sums.to(torch.float32) * (self.step * self.scales)
        return out if self.bias is None else out + self.bias


def observe(module: fx.GraphModule) -> fx.GraphModule:
    """Put an observer before every linear layer."""
    graph, count = module.graph, 0
    for node in list(graph.nodes):
        if node.target is aten.linear.default:
            module.add_module(f"observer_{count}", Observer())
            with graph.inserting_before(node):
                seen = graph.call_module(f"observer_{count}", (node.args[0],))
            node.args = (seen, *node.args[1:])
            count += 1
    module.recompile()
    return module


def convert(module: fx.GraphModule) -> fx.GraphModule:
    """Replace observed linear layers by quantised ones."""
    graph = module.graph

    def value(node):
        held = module
        for part in node.target.split("."):
            held = getattr(held, part)
        return held

    for count, node in enumerate([n for n in graph.nodes if n.target is aten.linear.default]):
        seen = node.args[0]
        observer = module.get_submodule(seen.target)
        bias = value(node.args[2]) if len(node.args) > 2 else None
        with torch.no_grad():
            layer = QuantisedLinear(value(node.args[1]).detach(), bias, observer.low, observer.high)
        module.add_module(f"quantised_{count}", layer)
        with graph.inserting_before(node):
            made = graph.call_module(f"quantised_{count}", (seen.args[0],))
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        graph.erase_node(seen)
    graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def main() -> None:
    """Quantise a network that has learnt to tell two spirals apart; accuracy and size before and after."""
    torch.manual_seed(0)
    t = torch.rand(400) * 6 + 1
    sign = torch.where(torch.arange(400) % 2 == 0, 1.0, -1.0)
    points = torch.stack([sign * t.cos() * t, sign * t.sin() * t], 1) / 7
    labels = (sign > 0).long()
    model = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(250):
        loss = nn.functional.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batch = torch.export.Dim("batch")
    module = observe(torch.export.export(model, (points,), dynamic_shapes=({0: batch},)).module())
    module(points)
    convert(module)
    exact = (model(points).argmax(1) == labels).float().mean().item()
    rounded = (module(points).argmax(1) == labels).float().mean().item()
    layers = [m for m in module.modules() if isinstance(m, QuantisedLinear)]
    assert len(layers) == 3 and all(m.weight.dtype is torch.int8 for m in layers)
    assert exact > 0.97 and rounded >= exact - 0.01, (exact, rounded)
    print(f"accuracy {exact:.3f}, with 8-bit weights and inputs {rounded:.3f}")


if __name__ == "__main__":
    main()
