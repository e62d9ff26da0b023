"""`torch.fx.passes.infra.partitioner`: the largest parts of a graph that a backend can run, as modules.

>>> import rushlight as torch
>>> from rushlight.fx.passes.operator_support import create_op_support
>>> traced = torch.fx.symbolic_trace(lambda x: torch.sin((x + 1) * 2) + x)
>>> arithmetic = create_op_support(lambda submodules, node: node.name in ("add", "mul"))
>>> fused = CapabilityBasedPartitioner(traced, arithmetic).partition_and_fuse()
>>> [(node.op, node.name) for node in fused.graph.nodes]
[('placeholder', 'x'), ('call_module', 'fused_0'), ('call_function', 'sin'), ('call_function', 'add_1'), ('output', 'output')]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, _get_qualified_name
from rushlight.fx.passes.operator_support import OperatorSupportBase
from rushlight.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """Nodes of one part, each with its place counted from the end of the graph (None where it was added later)."""

    def __init__(
        self, id: int | None = None, nodes: Iterable[Node] | None = None, node_orders: Iterable[int] | None = None
    ) -> None:
        self.id = id
        nodes = list(nodes or ())
        orders: list[int | None] = [None] * len(nodes) if node_orders is None else list(node_orders)
        if len(nodes) != len(orders):
            raise AssertionError("nodes and node_orders must have the same length")
        self.nodes: dict[Node, int | None] = dict(zip(nodes, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Add a node."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Take a node out."""
        del self.nodes[node]

    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


class _Parts:
    """Partitions that grow by merging, while calls of them stay without circles.

    Sets of nodes are integers, a bit a node.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.bit = {node: 1 << place for place, node in enumerate(nodes)}
        self.below: dict[Node, int] = {}  # all nodes that depend on a node
        for node in reversed(nodes):
            below = 0
            for user in node.users:
                below |= self.bit[user] | self.below[user]
            self.below[node] = below
        self.by_id: dict[int, Partition] = {}
        self.first: dict[int, int] = {}  # the smallest number of the partitions that were merged
        self.members: dict[int, int] = {}
        self.reach: dict[int, int] = {}  # what depends on any member

    def add(self, number: int, node: Node, place: int) -> None:
        """A partition of one node."""
        self.by_id[number] = Partition(number, [node], [place])
        self.first[number] = number
        self.members[number], self.reach[number] = self.bit[node], self.below[node]

    def merge(self, one: int, other: int) -> int:
        """Merge two partitions if no path leaves them and comes back; the number of what holds the first one's nodes."""
        both = self.members[one] | self.members[other]
        if self._comes_back(one, other, both):
            return one
        kept, gone = (one, other) if self.by_id[one].size() >= self.by_id[other].size() else (other, one)
        self.by_id[kept].nodes.update(self.by_id.pop(gone).nodes)
        self.first[kept] = min(self.first[kept], self.first.pop(gone))
        self.members[kept], self.reach[kept] = both, self.reach[kept] | self.reach[gone]
        del self.members[gone], self.reach[gone]
        return kept

    def _comes_back(self, one: int, other: int, both: int) -> bool:
        reached = 0
        for node in (*self.by_id[one].nodes, *self.by_id[other].nodes):
            for user in node.users:
                if not self.bit[user] & both:
                    reached |= self.bit[user] | self.below[user]
        others = {number for number in self.by_id if number not in (one, other)}
        while not reached & both:
            entered = [number for number in others if self.members[number] & reached]
            if not entered:
                return False
            others.difference_update(entered)
            for number in entered:  # a partition runs as a whole
                reached |= self.members[number] | self.reach[number]
        return True


class CapabilityBasedPartitioner:
    """Splits a graph into parts that `operator_support` supports, as large as they can be.

    - `allows_single_node_partition`: keep parts with one computing node
    - `non_compute_ops`: full names of functions that do not count as computing, beside `getitem` and `aten.view`
    - `allowed_single_node_partition_ops`: full names of functions that make a part on their own
    - `skip_horizontal_fusion`: merge a node with the parts of its users only, and not with independent ones
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops: Sequence[str] = [] if non_compute_ops is None else non_compute_ops
        self.allowed_single_node_partition_ops: Sequence[str] = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """The parts, each with its nodes in the order of the graph."""
        nodes = list(self.graph_module.graph.nodes)
        parts = _Parts(nodes)
        modules, number = dict(self.graph_module.named_modules()), 0
        for place, node in enumerate(reversed(nodes)):
            supported = self.operator_support.is_node_supported(modules, node)
            candidates: dict[int, None] = {}
            if supported:
                parts.add(number, node, place)
                candidates[number] = None
                number += 1
            if not self.skip_horizontal_fusion:
                candidates |= dict.fromkeys(sorted(parts.first, key=parts.first.__getitem__))
            elif supported:
                owner = {member: each for each, part in parts.by_id.items() for member in part.nodes}
                candidates |= dict.fromkeys(owner[user] for user in node.users if user in owner)
            first, *others = candidates or [-1]
            for other in others:
                first = parts.merge(first, other)
        found = parts.by_id
        for part in found.values():
            part.nodes = dict(sorted(part.nodes.items(), key=lambda item: item[1] or 0, reverse=True))
        _move_items(nodes, found)
        return [part for part in found.values() if part.size() and self._is_worth(part)]

    def _is_worth(self, part: Partition) -> bool:
        """Whether a part has more than one computing node, or one that may stand alone."""
        if self.allows_single_node_partition:
            return True
        names = [_get_qualified_name(_function(node)) for node in part.nodes if node.op == "call_function"]
        idle = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        counted = [name not in idle for name in names] + [n in self.allowed_single_node_partition_ops for n in names]
        return sum(counted) > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Replace each part by the call of a module; in place."""
        return fuse_by_partitions(self.graph_module, [part.nodes for part in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Take nodes that compute nothing out of the parts where only such nodes lie between them and the part's
        inputs, or its outputs.
        """
        for part in partitions:
            inside = set(part.nodes)
            idle = {n for n in inside if n.op == "call_function" and self._is_idle(n)}
            at_start = _at_border(part.nodes, inside, idle, lambda n: n.all_input_nodes)
            at_end = _at_border(reversed(part.nodes), inside, idle, lambda n: n.users)
            for node in at_start | at_end:
                del part.nodes[node]

    def _is_idle(self, node: Node) -> bool:
        return _get_qualified_name(_function(node)) in self.non_compute_ops

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Find the parts and replace them by calls."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _function(node: Node) -> Any:
    if not callable(node.target):
        raise AssertionError(f"Expected callable target, got {type(node.target)}")
    return node.target


def _at_border(
    order: Iterable[Node], inside: set[Node], idle: set[Node], beside: Callable[[Node], Iterable[Node]]
) -> set[Node]:
    """Idle nodes whose neighbours on one side are outside of the part, or such nodes themselves."""
    found: set[Node] = set()
    for node in order:
        if node in idle and all(
            each.op == "placeholder" or each not in inside or each in found for each in beside(node)
        ):
            found.add(node)
    return found


def _is_item(node: Node) -> bool:
    return node.op == "call_function" and _get_qualified_name(_function(node)) == "_operator.getitem"


def _move_items(nodes: list[Node], found: dict[int, Partition]) -> None:
    """Put items of a tuple into the partition of the node that gives the tuple, or into none."""
    owner = {node: number for number, part in found.items() for node in part.nodes}
    moved = True
    while moved:
        moved = False
        for node in nodes:
            if not all(_is_item(user) for user in node.users):
                continue
            for user in node.users:
                there, here = owner.get(node), owner.get(user)
                if there == here:
                    continue
                moved = True
                if here is not None:
                    found[here].remove_node(user)
                    del owner[user]
                if there is not None:
                    found[there].add_node(user)
                    owner[user] = there
