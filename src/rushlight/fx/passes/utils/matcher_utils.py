"""`torch.fx.passes.utils.matcher_utils`: where a small graph occurs in a large one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rushlight import Tensor
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node
from rushlight.fx.passes.tools_common import validate_partition
from rushlight.library.operators import AnyOverload

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
            if not node.users and not node.is_impure():
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
        """The occurrences, in the order of the graph; nodes with `node_name_match` in their names count as any node."""
        found: list[InternalMatch] = [InternalMatch(anchors=self.pattern_anchors)]
        for anchor in self.pattern_anchors:
            starts = [node for node in graph.nodes if self._nodes_are_equal(anchor, node, node_name_match)]
            extended: list[InternalMatch] = []
            for match in found:
                for start in starts:
                    trial = InternalMatch(match.anchors, dict(match.nodes_map), list(match.placeholder_nodes))
                    if self._match_nodes(anchor, start, trial, node_name_match):
                        extended.append(trial)
            found = extended
        complete = []
        for match in found:
            if not match.nodes_map or not self._is_contained(match.nodes_map) or _is_cyclic(match):
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

    def _nodes_are_equal(self, pn: Node, gn: Node, name: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder" or name and name in gn.name:
            return True
        if pn.op != gn.op:
            return False
        return pn.op in ("placeholder", "output") or (
            self._attributes_agree(pn, gn) if pn.op == "get_attr" else pn.target == gn.target
        )

    @staticmethod
    def _attributes_agree(pn: Node, gn: Node) -> bool:
        """Attributes stand for each other where both are tensors of one class, whatever is in them.

        RuntimeError for attributes that are no tensors.
        """
        values = [_attribute(node) for node in (pn, gn)]
        if type(values[0]) is not type(values[1]):
            return False
        if not isinstance(values[0], Tensor):
            raise RuntimeError(f"Unsupported type {values[0]} when matching attributes")
        return True

    def _is_contained(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether what an occurrence computes on its way stays inside it."""
        lookup = {found: node for node, found in nodes_map.items() if node.op != "placeholder"}
        return all(
            node in self.pattern_returning_nodes or all(user in lookup for user in found.users)
            for found, node in lookup.items()
        )

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch, name: str = "") -> bool:
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if any(gn is found for found in match.nodes_map.values()) or not self._nodes_are_equal(pn, gn, name):
            return False
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        pattern, found = _arguments(pn, gn)
        return pattern is not None and self._match_values(pattern, found, match)

    def _match_values(self, pattern: Any, found: Any, match: InternalMatch) -> bool:
        if isinstance(pattern, Node) and isinstance(found, Node):
            return self._match_nodes(pattern, found, match)
        if isinstance(pattern, (tuple, list)) and isinstance(found, (tuple, list)):
            same = len(found) == len(pattern)
            return same and all(self._match_values(p, f, match) for p, f in zip(pattern, found, strict=True))
        return self._match_literals(pattern, found, match) or self.ignore_literals

    def _match_literals(self, pattern: Any, found: Any, match: InternalMatch) -> bool:
        """A constant for an equal one, or for a placeholder of the pattern."""
        if isinstance(pattern, Node):
            if pattern.op != "placeholder":
                return False
            return bool(match.nodes_map.setdefault(pattern, found) == found)
        return not isinstance(found, Node) and type(pattern) is type(found) and bool(pattern == found)


def _is_cyclic(match: InternalMatch) -> bool:
    """Whether a value from outside that an occurrence takes depends on what it computes: nothing could stand for it."""
    outer = ("placeholder", "get_attr", "output")
    inner = [found for node, found in match.nodes_map.items() if node.op not in outer and isinstance(found, Node)]
    return not validate_partition(inner)


def _attribute(node: Node) -> Any:
    """The attribute that a node reads from the module of its graph."""
    module = node.graph.owning_module
    if module is None:
        raise AssertionError(f"the graph of {node} has no module, whose attributes would be compared")
    for name in str(node.target).split("."):
        module = getattr(module, name)
    return module


def _arguments(pn: Node, gn: Node) -> tuple[list[Any] | None, list[Any] | None]:
    """The arguments of both in the same order, those of operators with defaults filled in; None where they do not fit."""
    if len(pn.args) == len(gn.args) and list(pn.kwargs) == list(gn.kwargs):
        return [*pn.args, *pn.kwargs.values()], [*gn.args, *gn.kwargs.values()]
    if pn.op != "call_function" or not isinstance(pn.target, AnyOverload):
        return None, None
    rows = pn.target._schema.arguments
    return _filled(pn, rows), _filled(gn, rows)


def _filled(node: Node, rows: Any) -> list[Any]:
    """The arguments of an operator in the order of its schema."""
    return [
        node.kwargs[row.name] if row.name in node.kwargs else node.args[place] if not row.kwarg_only and place < len(node.args) else row.default_value
        for place, row in enumerate(rows)
    ]  # fmt: skip
