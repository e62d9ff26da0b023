"""Captures of the emulated driver: work that streams get becomes a graph, whose launches run it in any order that its
edges allow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from rushlight._backends.cuda.driver.errors import fail

__all__ = ["Capture", "Graph", "Node"]

_NUMBERS = count(1)


class Node(NamedTuple):
    """A piece of work of a graph: what runs, after which other nodes, and the addresses that it is given; whether `run`
    is told who launched the graph.
    """

    name: str
    run: Callable[..., None]
    after: frozenset[int]
    addresses: tuple[int, ...]
    told: bool = False


class Graph:
    """Nodes with edges; `handles` are those of nodes that were added one by one."""

    def __init__(self, nodes: list[Node], handles: Sequence[int] = ()) -> None:
        self.nodes, self.handles = list(nodes), list(handles)

    def add(self, node: Node, after: Sequence[int], handle: int) -> int:
        """Add a node behind others."""
        self.nodes.append(node._replace(after=frozenset(map(self.handles.index, after))))
        self.handles.append(handle)
        return handle

    def replace(self, handle: int, node: Node) -> None:
        """Let a node do other work from the next launch on."""
        place = self.handles.index(handle)
        self.nodes[place] = node._replace(after=self.nodes[place].after)

    def order(self, draw: random.Random) -> list[Node]:
        """The nodes in an order that the edges allow."""
        left = {i: set(node.after) for i, node in enumerate(self.nodes)}
        found = []
        while left:
            i = draw.choice([i for i, after in left.items() if not after])
            del left[i]
            for after in left.values():
                after.discard(i)
            found.append(self.nodes[i])
        return found

    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        lines = [f'  n{i} [label="{node.name}"];' for i, node in enumerate(self.nodes)]
        edges = [f"  n{j} -> n{i};" for i, node in enumerate(self.nodes) for j in sorted(node.after)]
        return "\n".join(["digraph graph_1 {", *lines, *edges, "}", ""])


class Capture:
    """A capture that goes on: its nodes, and behind which of them the further work of each stream comes."""

    def __init__(self, origin: int, mode: int, thread: int) -> None:
        self.origin, self.mode, self.thread, self.number = origin, mode, thread, next(_NUMBERS)
        self.nodes: list[Node] = []
        self.tails: dict[int, frozenset[int]] = {origin: frozenset()}
        self.invalid = False

    def check(self, call: str) -> None:
        """CudaError where an earlier error spoiled the capture."""
        if self.invalid:
            fail("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", call)

    def add(self, stream: int, name: str, run: Callable[[], None], addresses: tuple[int, ...]) -> None:
        """A piece of work of a stream."""
        self.check(name)
        self.nodes.append(Node(name, run, self.tails[stream], addresses))
        self.tails[stream] = frozenset((len(self.nodes) - 1,))

    def join(self, stream: int, tail: frozenset[int]) -> None:
        """Further work of a stream comes behind these nodes, too."""
        self.tails[stream] = self.tails.get(stream, frozenset()) | tail

    def finish(self) -> Graph:
        """The graph; CudaError where a stream that joined was not waited for."""
        self.check("cuStreamEndCapture")
        behind, open_ = set(self.tails[self.origin]), list(self.tails[self.origin])
        while open_:
            for i in self.nodes[open_.pop()].after:
                if i not in behind:
                    behind.add(i)
                    open_.append(i)
        if any(not tail <= behind for tail in self.tails.values()):
            fail("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "cuStreamEndCapture")
        return Graph(self.nodes)
