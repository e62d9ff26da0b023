"""Recording of custom backward functions, and inspection of the graph."""

from __future__ import annotations

from rushlight._engine.autograd.api import run_in_halves, zero_gradients
from rushlight._engine.autograd.engine import queue_callback
from rushlight._engine.autograd.node import Node, Packed, packed, split_edge
from rushlight._engine.autograd.rules import as_it_is, record, record_all
from rushlight._engine.core.hooks import bump, last_change
from rushlight._engine.core.tensor import add_view, edge_of, meta_of
from rushlight._engine.indexing.inplace import check_writable, rebase

__all__ = [
    "as_it_is",  # a tensor for a rule that reads it later
    "record",  # a result whose backward is a Python function
    "record_all",  # several results
    "Node",  # base of the nodes of the graph
    "packed",  # a tensor packed by a hook of `saved_tensors_hooks`
    "Packed",  # what that gives
    "meta_of",  # the rarer facts of a tensor: output number, base of a view
    "add_view",  # let a base know of a view
    "check_writable",  # whether autograd allows a change in place
    "rebase",  # the history of a tensor that was changed in place
    "edge_of",  # a tensor's place in the graph
    "split_edge",  # node and index of the output
    "zero_gradients",  # `zero_grad` of many tensors
    "run_in_halves",  # gradients of inputs at once, those of other leaves later
    "queue_callback",  # call a function when the running backward ends
    "bump",  # count a change of a storage
    "last_change",  # the line that changed it last
]
