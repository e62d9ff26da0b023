"""Parts of traced modules as modules of their own: `torch.fx.passes.utils.common`."""

from __future__ import annotations

from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.passes.utils.matcher_utils import SubgraphMatcher
from rushlight.nn.modules.module import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """Holds the modules of a dict as its children."""

    def __init__(self, d: dict[str, Module | None]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A module for `subgraph`, with what it calls and reads of `gm` under the same paths; and each of these paths with
    `comp_name` before it.
    """
    root = HolderModule({})
    moved: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path = str(node.target)
        *outer, last = path.split(".")
        there: Module = gm
        here: Module = root
        for name in outer:
            if not hasattr(here, name):
                here.add_module(name, HolderModule({}))
            here, there = getattr(here, name), getattr(there, name)
        setattr(here, last, getattr(there, last))
        moved[path] = f"{comp_name}.{path}"
    return GraphModule(root, subgraph, class_name), moved


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs have the same nodes, connected in the same way, inputs and outputs included."""
    return bool(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right))
