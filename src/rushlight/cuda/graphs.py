"""Graphs of kernels, as `torch.cuda.graphs`: none is being recorded, and recording one refuses."""

from __future__ import annotations

from rushlight.cuda.refusals import gpu_class, needs_gpu

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing() -> bool:
    """Whether a graph of kernels is being recorded: False."""
    return False


graph_pool_handle, make_graphed_callables = needs_gpu("graph_pool_handle"), needs_gpu("make_graphed_callables")
CUDAGraph, graph = gpu_class("CUDAGraph"), gpu_class("graph")
