"""The library of CUDA devices as the schedule sees it: the routines of `externs`, and decompositions for the rest.

Modules with routines are imported here, which fills the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rushlight._backends.cuda.attention.attention
import rushlight._backends.cuda.conv.conv
import rushlight._backends.cuda.fft.fft
import rushlight._backends.cuda.gemm.dot
import rushlight._backends.cuda.gemm.grouped
import rushlight._backends.cuda.linalg.lapack
import rushlight._backends.cuda.sort.sort  # noqa: F401
from rushlight._backends.cpu.conv.prepare import conv_rule, finished
from rushlight._backends.cpu.gemm.prepare import PACKED, narrowed
from rushlight._backends.cuda.epilogues import ProductEpilogue, epilogue_of, takes_layout
from rushlight._backends.cuda.externs import EXTERNS
from rushlight._schedule.library import CallForm, Library
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rushlight._graph.core import Graph, Node
    from rushlight._schedule.groups import Group
    from rushlight._schedule.inline import Location
    from rushlight._schedule.policy import Target
    from rushlight._types.dtype import DType

__all__ = ["CUDA_LIBRARY"]


_NARROW = (*PACKED, "float8_e4m3fn", "float8_e5m2")  # dtypes of operands as products read them


class _CudaLibrary(Library):
    """The routines declared by `extern`."""

    def after(self, graph: Graph) -> Graph:
        """Products of widened numbers are of the narrow ones; biases, paddings and roundings are parts of
        convolutions.
        """
        graph = narrowed(graph, _NARROW)
        return finished(graph) if any(node.prim.name == "conv_windows" for node in graph.nodes) else graph

    def replacement(self, node: Node) -> Any:
        if node.prim.name == "conv":
            return conv_rule(node)
        routine = EXTERNS.get(node.prim.name)
        if routine is not None and routine.takes(node):
            return None
        empty = node.prim.empty is not None and not all(numel(v.shape) for v in (*node.inputs, *node.outputs[:1]))
        return node.prim.empty if empty else node.prim.decompose

    def form(self, node: Node) -> CallForm:
        routine = EXTERNS.get(node.prim.name)
        return routine.form if routine is not None else CallForm()

    def has_epilogue(self, node: Node) -> bool:
        return node.prim.name in ("dot", "grouped_dot", "conv_windows") and not node.outputs[0].dtype.is_complex

    def epilogue_lies(self, node: Node, strides: Sequence[int]) -> bool:
        return takes_layout(node, strides)

    def epilogue(
        self, node: Node, result: Location, group: Group, args: list[DType], kept: bool, target: Target
    ) -> ProductEpilogue | None:
        return epilogue_of(node, result, group, kept)


CUDA_LIBRARY = _CudaLibrary()
