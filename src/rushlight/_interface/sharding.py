"""Tools of tensors that are spread over processes: calls as graphs, ways to compute graphs on parts, graphs as functions
of tensors.
"""

from __future__ import annotations

from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.one_call import CallGraph, graph_of_call
from rushlight._engine.dispatch.graph_calls import graph_caller
from rushlight._graph.core import Graph, Value
from rushlight._transforms.sharding import Strategy, follow, local_shape, localize, stages, strategies
from rushlight._transforms.sharding_rules import Part

__all__ = [
    "CallGraph",  # a call as a graph of primitives
    "graph_of_call",
    "RecordingError",  # a call that is no graph
    "Graph",
    "Value",
    "Strategy",  # a way to compute a graph on parts
    "strategies",  # all of them
    "follow",  # the one for given placements
    "localize",  # the graph of one process
    "stages",  # cut where processes reduce terms
    "Part",  # which part of a dim a process has
    "local_shape",
    "graph_caller",  # a graph as a function of tensors
]
