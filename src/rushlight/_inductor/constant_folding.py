"""`torch._inductor.constant_folding`: nodes that depend on constants alone are computed once.

>>> import rushlight as torch
>>> class Scaled(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.scale = torch.nn.Parameter(torch.ones(2))
...     def forward(self, x):
...         return x * (self.scale * 2)
>>> module = torch.fx.symbolic_trace(Scaled())
>>> constant_fold(module)
>>> [node.op for node in module.graph.nodes]
['placeholder', 'get_attr', 'call_function', 'output']
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import rushlight as torch
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node

__all__ = ["constant_fold"]

# Numbers of bytes stay bytes: what they stand for takes four times as much memory.
_WIDENING = frozenset((
    "dequantize_per_tensor", "dequantize_per_channel", "dequantize_per_token", "dequantize_per_channel_group", "convert_element_type",
))  # fmt: skip


def constant_fold(gm: GraphModule, constraint_fn: Callable[[Node], bool] | None = None) -> None:
    """Replace each node of operators whose inputs are all attributes of the module, or numbers, by an attribute `_frozen_param...`.

    Random operators, those that change an input and dequantization stay; `constraint_fn` says which of the others may be replaced.
    """
    known: dict[Node, Any] = {}
    last: list[Node] = []
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            known[node] = operator.attrgetter(str(node.target))(gm)
        elif _foldable(node, known) and (constraint_fn is None or constraint_fn(node)):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: known[each])
            with torch.no_grad():
                made = cast(Callable[..., Any], node.target)(*args, **kwargs)
            if isinstance(made, torch.Tensor):
                known[node] = made
                last.append(node)
    for node in last:
        if any(user not in known for user in node.users):  # those between are of no use afterwards
            _freeze(gm, node, known[node])
    gm.graph.eliminate_dead_code()
    gm.graph.lint()
    gm.recompile()


def _foldable(node: Node, known: dict[Node, Any]) -> bool:
    if (
        node.op != "call_function"
        or not node.all_input_nodes
        or any(each not in known for each in node.all_input_nodes)
    ):
        return False
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags or node.is_impure():
        return False
    schema = getattr(node.target, "_schema", None)
    changes = schema is not None and any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return not changes and getattr(node.target, "_opname", "") not in _WIDENING


def _freeze(gm: GraphModule, node: Node, value: Any) -> None:
    count = 0
    while hasattr(gm, f"_frozen_param{count}"):
        count += 1
    name = f"_frozen_param{count}"
    gm.register_buffer(name, value.detach())
    with gm.graph.inserting_before(node):
        made = gm.graph.get_attr(name)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    gm.graph.erase_node(node)
