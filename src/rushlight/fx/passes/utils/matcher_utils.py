"""`torch.fx.passes.utils.matcher_utils`: where a small graph occurs in a large one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rushlight.fx.graph import Graph
from rushlight.fx.node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """One occurrence: which nodes of the graph stand for those of the pattern."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Node] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds a pattern: operations, targets and constants must be the same; a placeholder of the pattern stands for any
    value.

    `match_output`: the graph's output must be the pattern's; `match_placeholder`: placeholders stand for placeholders
    only.  Values inside an occurrence may not be used outside of it.  `remove_overlapping_matches`: an occurrence that
    shares nodes with an earlier one is left out.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users:
                raise RuntimeError(
                    f"SubgraphMatcher cannot be initialized with a pattern that has dead code: nobody uses {node}"
                )
        self.pattern, self.match_output, self.match_placeholder = pattern, match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        self.pattern_placeholder_nodes = [node for node in pattern.nodes if node.op == "placeholder"]
        output = pattern.output_node()
        self.pattern_returning_nodes = output.all_input_nodes
        # The nodes where looking begins: what is returned and used by nothing else.
        self.pattern_anchors = (
            [output] if match_output else [node for node in output.all_input_nodes if len(node.users) == 1]
        )

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The occurrences, in the order of the graph."""
        found: list[InternalMatch] = [InternalMatch(anchors=self.pattern_anchors)]
        for anchor in self.pattern_anchors:
            starts = [node for node in graph.nodes if self._nodes_are_equal(anchor, node)]
            extended: list[InternalMatch] = []
            for match in found:
                for start in starts:
                    trial = InternalMatch(match.anchors, dict(match.nodes_map), list(match.placeholder_nodes))
                    if self._match_nodes(anchor, start, trial):
                        extended.append(trial)
            found = extended
        complete = []
        for match in found:
            if not match.nodes_map or not self._is_contained(match.nodes_map):
                continue
            match.placeholder_nodes = [
                match.nodes_map[node] for node in self.pattern_placeholder_nodes if node in match.nodes_map
            ]
            match.returning_nodes = [match.nodes_map[node] for node in self.pattern_returning_nodes]
            complete.append(match)
        return self._apart(complete) if self.remove_overlapping_matches else complete

    def _apart(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        """Those that share no node with an earlier one."""
        kept, taken = [], set()  # type: tuple[list[InternalMatch], set[Node]]
        for match in matches:
            nodes = {found for node, found in match.nodes_map.items() if node.op not in ("placeholder", "output")}
            if not nodes & taken:
                kept.append(match)
                taken |= nodes
        return kept

    def _nodes_are_equal(self, pn: Node, gn: Node) -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if pn.op != gn.op:
            return False
        return pn.op in ("placeholder", "output") or (
            self._attributes_agree(pn, gn) if pn.op == "get_attr" else pn.target == gn.target
        )

    @staticmethod
    def _attributes_agree(pn: Node, gn: Node) -> bool:
        """Attributes stand for each other where their last names agree, as those of one module at different places."""
        return str(pn.target).rpartition(".")[2] == str(gn.target).rpartition(".")[2] or pn.target == gn.target

    def _is_contained(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether what an occurrence computes on its way stays inside it."""
        inside = set(nodes_map.values())
        lookup = {found: node for node, found in nodes_map.items() if node.op != "placeholder"}
        return all(
            node in self.pattern_returning_nodes or node.op == "output" or all(user in inside for user in found.users)
            for found, node in lookup.items()
        )

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch) -> bool:
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if gn in match.nodes_map.values() and pn.op != "placeholder" or not self._nodes_are_equal(pn, gn):
            return False
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        return self._match_values(tuple(pn.args), tuple(gn.args), match) and self._match_values(
            dict(pn.kwargs), dict(gn.kwargs), match
        )

    def _match_values(self, pattern: Any, found: Any, match: InternalMatch) -> bool:
        if isinstance(pattern, Node):
            if isinstance(found, Node):
                return self._match_nodes(pattern, found, match)
            return pattern.op == "placeholder" and self._match_constant(pattern, found, match)
        if isinstance(pattern, (tuple, list)):
            same = isinstance(found, (tuple, list)) and len(found) == len(pattern)
            return same and all(self._match_values(p, f, match) for p, f in zip(pattern, found, strict=True))
        if isinstance(pattern, dict):
            same = isinstance(found, dict) and pattern.keys() == found.keys()
            return same and all(self._match_values(p, found[key], match) for key, p in pattern.items())
        if isinstance(found, Node):
            return False
        return self.ignore_literals or type(pattern) is type(found) and pattern == found

    def _match_constant(self, pattern: Node, found: Any, match: InternalMatch) -> bool:
        """A placeholder of the pattern for a constant of the graph."""
        if self.match_placeholder:
            return False
        if pattern in match.nodes_map:
            return match.nodes_map[pattern] is found or match.nodes_map[pattern] == found
        match.nodes_map[pattern] = found
        return True
