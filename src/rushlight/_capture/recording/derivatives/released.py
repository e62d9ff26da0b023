"""Histories of outputs through which backward does not run."""

from __future__ import annotations

from typing import Any

from rushlight._capture.recording.derivatives.records import NAME
from rushlight._engine.autograd.node import Node

__all__ = ["released_node"]


def released_node(words: str, edges: list[Any]) -> Node:
    """The history of an output through which backward does not run: the program has gone through it, or has changed
    what it saved.  Its edges lead where those of the history lead, or a search for gradients would pass it by.
    """
    node = ReleasedBackward()
    node._start(())
    node._edges, node.words = edges, words
    return node


class ReleasedBackward(Node):
    """See `released_node`."""

    __slots__ = ("words",)

    words: str

    def name(self) -> str:
        """The name of other outputs' nodes."""
        return NAME

    def apply(self, grads: Any) -> Any:
        """RuntimeError, as eager backward raises it."""
        raise RuntimeError(self.words)
