"""`torch.fx.traceback`: where nodes come from: annotations of users, and the nodes that passes made others from.

>>> import rushlight as torch
>>> class Net(torch.nn.Module):
...     def forward(self, x):
...         with annotate({"stage": 1}):
...             x = x + 1
...         return x * 2
>>> program = torch.export.export(Net(), (torch.ones(2),))
>>> [(node.name, node.meta.get("custom")) for node in program.graph.nodes if node.op == "call_function"]
[('add', {'stage': 1}), ('mul', None)]
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node

__all__ = [
    "NodeSource", "NodeSourceAction", "annotate", "annotate_fn", "format_stack", "get_current_meta", "get_current_replay_node",
    "get_graph_provenance_json", "has_preserved_node_meta", "preserve_node_meta", "reset_grad_fn_seq_nr", "set_current_meta",
    "set_current_replay_node", "set_grad_fn_seq_nr", "set_stack_trace",
]  # fmt: skip

current_meta: dict[str, Any] = {}
current_replay_node: Node | None = None
should_preserve_node_meta = False


class NodeSourceAction(Enum):
    """The action of a pass on a node."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """The node that another was made from, by which pass and how; `from_node` are the sources of that node."""

    class NodeInfo:
        """A node as it was: its name, its target as text, and the number of its graph."""

        def __init__(self, name: str, target: str, graph_id: int) -> None:
            self.name, self.target, self.graph_id = name, target, graph_id

    node_info: NodeInfo | None

    def __init__(
        self, node: Node | None, pass_name: str = "", action: NodeSourceAction | list[NodeSourceAction] | None = None
    ) -> None:
        self.pass_name = pass_name
        self.action = [] if action is None else action if isinstance(action, list) else [action]
        for each in self.action:
            if not isinstance(each, NodeSourceAction):
                raise AssertionError(f"Expected NodeSourceAction, got {type(each)}")
        self.node_info = None if node is None else self.NodeInfo(node.name, str(node.target), id(node.graph))
        self.from_node: list[NodeSource] = [] if node is None else copy.deepcopy(node.meta.get("from_node", []))

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node_info.name if self.node_info else ""

    @property
    def target(self) -> str:
        """The node's target as text."""
        return self.node_info.target if self.node_info else ""

    @property
    def graph_id(self) -> int:
        """The number of the node's graph; -1 without a node."""
        return self.node_info.graph_id if self.node_info else -1

    def _get_action_string(self) -> str:
        return "+".join(each.name.lower() for each in self.action)

    def __repr__(self) -> str:
        return self.print_readable()

    def print_readable(self, indent: int = 0) -> str:
        """The source and its sources as text, one a line; at most ten levels."""
        if indent > 9:
            return ""
        own = f"{'    ' * indent}(name={self.name}, pass_name={self.pass_name}, action={self._get_action_string()}, graph_id={self.graph_id})\n"
        return own + "".join(each.print_readable(indent + 1) for each in self.from_node)

    def to_dict(self) -> dict[str, Any]:
        """The source as a dict of texts and numbers."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._get_action_string(),
            "from_node": [each.to_dict() for each in self.from_node],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))

    @classmethod
    def _from_dict(cls, d: dict[str, Any] | None) -> NodeSource | None:
        """The source that `to_dict` wrote."""
        if d is None:
            return None
        if not isinstance(d, dict):
            raise AssertionError(f"Expected a dict, got {type(d)}")
        made = cls(None, d.get("pass_name", ""))
        known = {each.name: each for each in NodeSourceAction}
        made.action = [known[name.upper()] for name in d.get("action", "").split("+") if name.upper() in known]
        if all(key in d for key in ("name", "target", "graph_id")):
            made.node_info = cls.NodeInfo(d["name"], d["target"], d["graph_id"])
        made.from_node = [s for s in map(cls._from_dict, d.get("from_node") or []) if s is not None]
        return made


# ***** what nodes made here get *****


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A context in which nodes that are made get the metadata of the node that is being run."""
    global should_preserve_node_meta, current_meta
    before = should_preserve_node_meta, current_meta.copy()
    should_preserve_node_meta = enable
    try:
        yield
    finally:
        should_preserve_node_meta, current_meta = before


def has_preserved_node_meta() -> bool:
    """Whether this is inside `preserve_node_meta`."""
    return should_preserve_node_meta


@trace_marks.changes_later_calls
def set_stack_trace(stack: list[str]) -> None:
    """The lines that nodes made from now on get; only inside `preserve_node_meta`."""
    if not should_preserve_node_meta:
        return
    if stack:
        current_meta["stack_trace"] = "".join(stack)
    else:
        current_meta.pop("stack_trace", None)


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """A context whose operators have these entries in `node.meta["custom"]` of an exported program; inner contexts add
    theirs.
    """
    before = current_meta.get("custom")
    current_meta["custom"] = {**(before or {}), **annotation_dict}
    try:
        yield
    finally:
        if before is None:
            current_meta.pop("custom", None)
        else:
            current_meta["custom"] = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `annotate` around every call."""

    def decorated(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return func(*args, **kwargs)

        return annotated

    return decorated


@trace_marks.changes_later_calls
def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Nodes made from now on belong to the gradient node of this number; only inside `preserve_node_meta`."""
    if should_preserve_node_meta:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Back to the gradient node before the last `set_grad_fn_seq_nr`."""
    if not should_preserve_node_meta:
        return
    level = current_meta.get("in_grad_fn", 0)
    if level <= 0:
        raise AssertionError(f"reset_grad_fn_seq_nr without set_grad_fn_seq_nr: {level}")
    if level == 1:
        del current_meta["in_grad_fn"], current_meta["grad_fn_seq_nr"]
    else:
        current_meta["in_grad_fn"] = level - 1
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]


def format_stack() -> list[str]:
    """The lines of the node that is being run, or of the caller."""
    import traceback

    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextmanager
@trace_marks.changes_later_calls
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """A context in which `node` is the one being run; its metadata go to nodes made inside `preserve_node_meta`."""
    global current_meta
    if not (should_preserve_node_meta and node.meta):
        yield
        return
    before = current_meta
    current_meta = node.meta.copy()
    current_meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
    try:
        yield
    finally:
        current_meta = before


def get_current_meta() -> dict[str, Any]:
    """The metadata for nodes that are made now."""
    return current_meta


@contextmanager
@trace_marks.changes_later_calls
def set_current_replay_node(node: Node | None) -> Iterator[None]:
    """A context in which an interpreter runs `node` again."""
    global current_replay_node
    before, current_replay_node = current_replay_node, node
    try:
        yield
    finally:
        current_replay_node = before


def get_current_replay_node() -> Node | None:
    """The node that an interpreter runs again, if one does."""
    return current_replay_node


def get_graph_provenance_json(graph: Graph) -> dict[str, Any]:
    """For every call of a function or method in a graph: the sources of its node, as dicts."""
    found: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op in ("call_function", "call_method"):
            found[node.name] = [source.to_dict() for source in node.meta.get("from_node", [])]
    return found
