"""`torch.fx.experimental.optimization`: a trained model made ready for use by what need not be computed any more.

>>> import rushlight as torch
>>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Dropout()).eval()
>>> [name for name, _ in remove_dropout(fuse(net)).named_children()]
['0']
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from rushlight import nn
from rushlight.fx._symbolic_trace import symbolic_trace
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.interpreter import Transformer
from rushlight.fx.node import Node
from rushlight.nn.modules.module import Module
from rushlight.nn.utils.fusion import fuse_conv_bn_eval

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_PAIRS = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d))


def matches_module_pattern(pattern: Any, node: Node, modules: dict[str, Module]) -> bool:
    """Whether `node` calls a module of exactly the last class of `pattern`, on what a module of the first one gives."""
    if not node.args or not isinstance(node.args[0], Node):
        return False
    pair = node.args[0], node
    called = [modules.get(str(each.target)) if each.op == "call_module" else None for each in pair]
    return all(type(module) is wanted for module, wanted in zip(called, pattern, strict=True))


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Module) -> None:
    """Put `new_module` where the module that `node` calls stands; `modules` is named_modules() of the model as a dict,
    and follows.
    """
    path, _, name = str(node.target).rpartition(".")
    modules[str(node.target)] = new_module
    setattr(modules[path], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """`model` with batch normalisations folded into the convolutions before them, where nobody else reads these
    and the convolution is called once.

    The model must be in evaluation.  A graph module is made of it by tracing, unless it is one and `no_trace` is set.
    The weights are copies and `model` stays as it is, unless `inplace` is set.
    """
    if not inplace:
        model = copy.deepcopy(model)
    if no_trace and not isinstance(model, GraphModule):
        raise AssertionError("no_trace wants a GraphModule, which needs no tracing")
    traced = model if no_trace else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    calls = Counter(n.target for n in graph.nodes if n.op == "call_module")
    for node in list(graph.nodes):
        if not any(matches_module_pattern(pair, node, modules) for pair in _PAIRS) or len(node.args[0].users) > 1:
            continue
        conv, bn = modules[str(node.args[0].target)], modules[str(node.target)]
        if not bn.track_running_stats or calls[node.args[0].target] > 1:
            continue
        replace_node_module(node.args[0], modules, fuse_conv_bn_eval(conv, bn))
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: Module) -> Module:
    """`model`, traced, without its `nn.Dropout` modules."""
    traced = symbolic_trace(model)

    class Dropless(Transformer):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):
                if len(args) != 1:
                    raise AssertionError("Dropout expects exactly 1 argument")
                return args[0]
            return super().call_module(target, args, kwargs)

    return Dropless(traced).transform()
