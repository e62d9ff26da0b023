"""What a backward of its own is recorded with, and what looks at the graph."""

from __future__ import annotations

from rushlight._engine.autograd.api import zero_gradients
from rushlight._engine.autograd.engine import queue_callback
from rushlight._engine.autograd.node import split_edge
from rushlight._engine.autograd.rules import record, record_all
from rushlight._engine.core.hooks import bump, last_change
from rushlight._engine.core.tensor import edge_of

__all__ = [
    "record",  # a result whose backward is a Python function
    "record_all",  # several results
    "edge_of",  # a tensor's place in the graph
    "split_edge",  # node and index of the output
    "zero_gradients",  # `zero_grad` of many tensors
    "queue_callback",  # call a function when the running backward ends
    "bump",  # count a change of a storage
    "last_change",  # the line that changed it last
]
