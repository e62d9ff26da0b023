"""Tensors and what runs them: storage, plans, views, in-place, the backward loop, random streams.

`graph_caller(graph, name)` makes a function of tensors from a graph of primitives; see `dispatch.graph_calls`.
"""

from rushlight._base.lazy import lazy_files

__all__ = ["graph_caller"]

__getattr__ = lazy_files(__name__, {"graph_caller": "dispatch.graph_calls"})
