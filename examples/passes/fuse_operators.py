"""Operator fusion as a pass: batch normalisation folded into convolutions, over `torch.fx` and over an exported graph.

    python -m rushlight examples/passes/fuse_operators.py

In evaluation batch_norm(conv(x, w) + b) is conv(x, w * s) + (b - mean) * s + beta, with s = gamma / sqrt(var + eps) for each
channel: one operator less, and the same numbers but for rounding.
"""

import copy
import operator

import torch
from torch import fx, nn

aten = torch.ops.aten


def net() -> nn.Module:
    """Two convolutions, each with a batch normalisation whose statistics are those of some data."""
    layers = [nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)]
    model = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(8, 3, 12, 12) * 2 + 1)
    return model.eval()


def folded(weight, bias, gamma, beta, mean, var, eps):
    """The weight and bias of the convolution that does both."""
    scale = gamma / torch.sqrt(var + eps)
    bias = torch.zeros_like(mean) if bias is None else bias
    return weight * scale[:, None, None, None], (bias - mean) * scale + beta


def fuse_modules(model: nn.Module) -> fx.GraphModule:
    """Over `torch.fx`: nodes call modules, and a fused convolution is another module."""
    traced = fx.symbolic_trace(copy.deepcopy(model))
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        source = node.args[0] if node.op == "call_module" else None
        if not isinstance(source, fx.Node) or source.op != "call_module" or len(source.users) > 1:
            continue
        conv, norm = modules[source.target], modules[node.target]
        if not (isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)):
            continue
        weight, bias = folded(
            conv.weight, conv.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps
        )
        conv.weight, conv.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
        node.replace_all_uses_with(source)
        traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def fuse_program(module: fx.GraphModule) -> fx.GraphModule:
    """Over an exported program's module: nodes call operators, weights are attributes that nodes read."""
    graph = module.graph

    def value(node):
        held = module
        for part in node.target.split("."):
            held = getattr(held, part)
        return held

    fused = 0
    for node in list(graph.nodes):
        if node.target is not aten.batch_norm.default or node.args[0].target is not aten.conv2d.default:
            continue
        conv, (_, gamma, beta, mean, var, training, _, eps, *_) = node.args[0], node.args
        if training or len(conv.users) > 1:
            continue
        bias = value(conv.args[2]) if len(conv.args) > 2 and conv.args[2] is not None else None
        parts = folded(value(conv.args[1]), bias, value(gamma), value(beta), value(mean), value(var), eps)
        with graph.inserting_before(conv):
            made = []
            for word, tensor in zip(("weight", "bias"), parts):
                module.register_buffer(f"fused_{word}_{fused}", tensor.detach())
                made.append(graph.get_attr(f"fused_{word}_{fused}"))
        conv.args = (conv.args[0], *made, *conv.args[3:])
        node.replace_all_uses_with(conv)
        graph.erase_node(node)
        fused += 1
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()
    return module


def fuse_bias_relu(module: fx.GraphModule) -> int:
    """A fusion by pattern: linear then relu becomes one function; how many there were."""
    count = 0
    for node in list(module.graph.nodes):
        if (
            node.target is aten.relu.default
            and node.args[0].target is aten.linear.default
            and len(node.args[0].users) == 1
        ):
            with module.graph.inserting_before(node):
                made = module.graph.call_function(linear_relu, node.args[0].args)
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)
            module.graph.eliminate_dead_code()
            count += 1
    module.recompile()
    return count


def linear_relu(x, weight, bias=None):
    """What a kernel of one's own would compute."""
    return torch.relu(torch.nn.functional.linear(x, weight, bias))


def main() -> None:
    """Fuse, and compare."""
    torch.manual_seed(0)
    model, x = net(), torch.randn(2, 3, 12, 12)
    wanted = model(x)
    traced = fuse_modules(model)
    torch.testing.assert_close(traced(x), wanted)
    norms = [m for m in traced.modules() if isinstance(m, nn.BatchNorm2d)]
    program = torch.export.export(model, (x,))
    module = fuse_program(program.module())
    torch.testing.assert_close(module(x), wanted)
    calls = [n.target for n in module.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
    assert not norms and aten.batch_norm.default not in calls
    mlp = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2), nn.ReLU())
    rows = torch.randn(4, 3)
    small = torch.export.export(mlp, (rows,)).module()
    count = fuse_bias_relu(small)
    torch.testing.assert_close(small(rows), mlp(rows))
    print(f"batch normalisations folded: 2 of 2; operators left: {len(calls)}; linear and relu fused: {count}")


if __name__ == "__main__":
    main()
