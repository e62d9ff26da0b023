"""`torch.fx.passes.utils.matcher_with_name_node_map_utils`: patterns whose nodes are found again by names."""

from __future__ import annotations

from rushlight.fx.codegen import PyTreeInfo
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["InternalMatch", "SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """The pattern without the dict of names that it returns last, and that dict; the module is changed."""
    node = gm.graph.output_node()
    if gm._out_spec is None:
        raise AssertionError("gm._out_spec is None")
    output = tree_unflatten(list(node.args[0]), gm._out_spec)
    if not isinstance(output, tuple):
        raise AssertionError("Expecting the pattern graph to return a tuple")
    if len(output) < 2:
        raise AssertionError("Expecting the pattern graph to have at least two outputs")
    *results, names = output
    if not isinstance(names, dict):
        raise AssertionError("Expecting the input graph to have a dict output as the last element")
    flat, spec = tree_flatten(results)
    node.args = (flat,)
    info = gm.graph._codegen.pytree_info  # type: ignore[attr-defined]
    gm.graph._codegen.pytree_info = PyTreeInfo(info.orig_args, info.in_spec, spec)  # type: ignore[attr-defined]
    gm.recompile()
    return gm, names


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """As `SubgraphMatcher`, of an exported pattern whose last result is a dict of names and values; a match's
    `name_node_map` gives the graph's node for each name.
    """

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The occurrences, in the order of the graph."""
        found = super().match(graph, node_name_match)
        for each in found:
            each.name_node_map.update({name: each.nodes_map[node] for name, node in self.name_node_map.items()})
        return found
