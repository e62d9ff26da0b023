"""`torch.fx`: programs as graphs that can be read and changed.

`symbolic_trace` runs a module or a function with values that write down what is done to them, and makes a `Graph` of
`Node`s; a `GraphModule` is the module that its code makes.  `Interpreter` runs a graph node by node, `Transformer`
makes another one, `replace_pattern` exchanges parts.

>>> import rushlight as torch
>>> class Net(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.linear = torch.nn.Linear(4, 5)
...     def forward(self, x):
...         return self.linear(x + 1).clamp(min=0.0, max=1.0)
>>> traced = torch.fx.symbolic_trace(Net())
>>> print(traced.graph)
graph():
    %x : [num_users=1] = placeholder[target=x]
    %add : [num_users=1] = call_function[target=operator.add](args = (%x, 1), kwargs = {})
    %linear : [num_users=1] = call_module[target=linear](args = (%add,), kwargs = {})
    %clamp : [num_users=1] = call_method[target=clamp](args = (%linear,), kwargs = {min: 0.0, max: 1.0})
    return clamp
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files
from rushlight.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from rushlight.fx.graph import CodeGen, Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.interpreter import Interpreter, Transformer
from rushlight.fx.node import Node, has_side_effect, map_arg
from rushlight.fx.proxy import Proxy
from rushlight.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH", "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta", "Tracer", "Transformer", "has_side_effect", "map_arg",
    "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip


__getattr__ = lazy_files(
    __name__,
    {},
    ("annotate", "experimental", "immutable_collections", "operator_schemas", "passes", "tensor_type", "traceback"),
)
