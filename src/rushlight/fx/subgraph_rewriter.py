"""`torch.fx.subgraph_rewriter`: other code where a pattern occurs.

>>> import rushlight as torch
>>> module = torch.fx.symbolic_trace(lambda x, y: torch.add(x, y) * 2)
>>> len(replace_pattern(module, lambda a, b: torch.add(a, b), lambda a, b: torch.sub(a, b)))
1
>>> module(torch.ones(2), torch.ones(2))
tensor([0., 0.])
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rushlight.fx._symbolic_trace import symbolic_trace
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from rushlight.nn.modules.module import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """One occurrence that was replaced: the last node of the pattern in it, and node of the pattern -> node of the
    graph.
    """

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """As `Match`, and the nodes that stand there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node] = field(default_factory=list)


def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule
) -> list[Match]:
    """Put `replacement` wherever `pattern` occurs; both are functions or modules with the same parameters and results.

    Occurrences do not overlap; values inside of one must not be used outside.  The module is compiled anew.
    """
    return [Match(each.anchor, each.nodes_map) for each in _replaced(gm, pattern, replacement, (), None, False)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """`replace_pattern` where every filter, called with (match, graph, pattern's graph), says yes; a callback may make
    the replacement for each match.
    """
    return _replaced(gm, pattern, replacement, match_filters or (), replacement_callback, ignore_literals)


def _graph_of(program: Any) -> Graph:
    """The graph of a pattern."""
    if isinstance(program, Graph):
        return program
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _replaced(
    gm: GraphModule, pattern: Any, replacement: Any, filters: Any, callback: Any, ignore_literals: bool
) -> list[ReplacedPatterns]:
    graph, wanted = gm.graph, _graph_of(pattern)
    common = _graph_of(replacement) if replacement is not None else None
    if common is None and callback is None:
        raise AssertionError("Must provide either a replacement GraphModule or a replacement callback")
    matcher = SubgraphMatcher(
        wanted,
        match_output=False,
        match_placeholder=False,
        remove_overlapping_matches=True,
        ignore_literals=ignore_literals,
    )
    matches = [match for match in matcher.match(graph) if all(each(match, graph, wanted) for each in filters)]
    changed: dict[Node, Node] = {}
    done: list[ReplacedPatterns] = []
    for match in matches:
        made = common if callback is None else callback(match, graph, wanted)
        assert made is not None
        done.append(_replace_one(graph, wanted, made, match, changed))
    gm.recompile()
    if isinstance(replacement, Module):
        _take_over(gm, replacement)
    return done


def _replace_one(
    graph: Graph, pattern: Graph, made: Graph, match: InternalMatch, changed: dict[Node, Node]
) -> ReplacedPatterns:
    """Put the nodes of `made` in the place of one occurrence; `changed` knows what earlier ones have become."""
    inputs = [node for node in made.nodes if node.op == "placeholder"]
    given = [match.nodes_map.get(node) for node in pattern.nodes if node.op == "placeholder"]
    if len(inputs) != len(given):
        raise AssertionError(f"the pattern has {len(given)} parameters and the replacement {len(inputs)}")
    values: dict[Node, Any] = {}
    for node, value in zip(inputs, given, strict=True):
        values[node] = changed.get(value, value) if isinstance(value, Node) else value
    old = set(match.returning_nodes)
    users = [user for node in match.returning_nodes for user in node.users if user not in match.nodes_map.values()]
    arguments = [value for value in values.values() if isinstance(value, Node)]
    first_user = min(users) if users else None
    if first_user is not None:
        place = graph.inserting_before(first_user)
    else:
        last = [*old, *arguments]
        place = graph.inserting_after(max(last)) if last else graph.inserting_before()
    with place:
        result = graph.graph_copy(made, values)
    new = (result,) if isinstance(result, Node) else tuple(each for each in result if isinstance(each, Node))
    if len(new) != len(match.returning_nodes):
        raise AssertionError(f"the pattern returns {len(match.returning_nodes)} values and the replacement {len(new)}")
    for before, after in zip(match.returning_nodes, new, strict=True):
        before.replace_all_uses_with(after)
        changed[before] = after
    for node in reversed(pattern.nodes):
        if node.op not in ("placeholder", "output") and node in match.nodes_map:
            graph.erase_node(match.nodes_map[node])
    copies = [value for node, value in values.items() if node.op != "placeholder"]
    return ReplacedPatterns(match.anchors[0], match.nodes_map, copies)


def _take_over(gm: GraphModule, replacement: Module) -> None:
    """Modules and parameters that the replacement names, where the module lacks them."""
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path, _, name = str(node.target).rpartition(".")
        try:
            place = gm.get_submodule(path)
        except AttributeError:
            place = None
        if place is not None and hasattr(place, name):
            continue
        found = (
            replacement.get_submodule(str(node.target))
            if node.op == "call_module"
            else getattr(replacement.get_submodule(path), name)
        )
        if node.op == "call_module":
            gm.add_submodule(str(node.target), copy.deepcopy(found))
        else:
            setattr(gm.get_submodule(path), name, copy.deepcopy(found))
    gm.graph.lint()
