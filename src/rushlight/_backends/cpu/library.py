"""The CPU's library as the schedule sees it: which primitives its routines take, and in which form.

What a routine is made of is in the folder of its subject; this module and those it imports compile for any CPU and run
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.conv.prepare import conv_rule, finished, fits_routine, position_step, takes_epilogue
from rushlight._backends.cpu.epilogue.rectangle import Epilogue, Prologue, epilogue_of, prologue_of
from rushlight._backends.cpu.gemm.byte_windows import windows_in_place
from rushlight._backends.cpu.gemm.prepare import dot_rule, narrowed, takes_prologues
from rushlight._backends.cpu.recurrent.prepare import spared, stepwise
from rushlight._prims.nn.attention import FEW_QUERIES
from rushlight._schedule.library import CallForm, Library
from rushlight._types.dtype import BFLOAT16
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node
    from rushlight._schedule.groups import Group
    from rushlight._schedule.inline import Location
    from rushlight._schedule.policy import Target
    from rushlight._types.dtype import DType

__all__ = ["CPU_LIBRARY", "CPU_LIBRARY_AMX", "CPU_LIBRARY_AVX2", "CPU_LIBRARY_VNNI"]

_MATRICES = ("lapack", "permutation")
_FEW = 8  # rows or columns below which complex products are not made by our own tiles
_SCORES = 2048  # scores of a head from which few queries are worth matrix tiles
_DENSE = CallForm()
_LAPACK = CallForm(strided=True, strided_results=True)
_FORMS = {
    "dot": CallForm(strided=True),
    "conv_windows": CallForm(strided=True, placed=(0,)),
    "window_dot": CallForm(),
    "attention": CallForm(strided=True, placed=(0,)),
    "attention_grad": CallForm(strided=True, dense=(4, 5), placed=(0, 1, 2)),
    "resample": CallForm(strided=True, dense=(1, 2, 3, 4), placed=(0,), keeps_layout=True),
    "resample_back": CallForm(strided=True, dense=(1, 2), placed=(0,), keeps_layout=True),
    "unpool": CallForm(strided=True, placed=(0,), keeps_layout=True),
}
_COMPLEX_DOT = CallForm(strided=True, conjugates=True)


class _CpuLibrary(Library):
    """The routines in the folders beside this file.  `byte_windows`: products of bytes read windows in place;
    `byte_matrices`: so are those without windows computed.  `matrix_tiles`: they multiply bfloat16.
    """

    def __init__(self, byte_windows: bool = False, byte_matrices: bool = False, matrix_tiles: bool = False) -> None:
        self._byte_windows, self._byte_matrices, self._matrix_tiles = byte_windows, byte_matrices, matrix_tiles

    # ***** graphs *****

    def before(self, graph: Graph) -> Graph:
        return spared(graph)

    def replacement(self, node: Node) -> Any:
        name, routine = node.prim.name, node.prim.lower[1]
        rule = _RULES.get(name)
        if self._matrix_tiles and name == "attention" and _worth_tiles(node):
            return None
        if rule is not None:
            return rule(node)
        if routine == "taps":
            return None if _has_elements(node) else node.prim.decompose
        # Of other forms of a factorisation, Q is made of reflections.
        if routine in _MATRICES and node.params.get("form", "packed") == "packed":
            return None if all(numel(v.shape) for v in (*node.inputs, *node.outputs[:1])) else node.prim.empty
        return node.prim.decompose

    def after(self, graph: Graph) -> Graph:
        graph = narrowed(graph)
        if self._byte_windows:
            graph = windows_in_place(graph, self._byte_matrices)
        return finished(graph) if any(node.prim.name == "conv_windows" for node in graph.nodes) else graph

    # ***** calls *****

    def form(self, node: Node) -> CallForm:
        if node.prim.lower[1] == "lapack":
            return _LAPACK
        if node.prim.name in ("conditional", "loop"):
            # What is carried is passed on row-major; other operands lie as the calls of the parts would find them.
            return CallForm(strided=True, dense=tuple(range(node.params.get("count", 0))))
        if node.prim.name == "dot" and node.outputs[0].dtype.kind == "c" and min(node.outputs[0].shape[-2:]) >= _FEW:
            return _COMPLEX_DOT
        return _FORMS.get(node.prim.name, _DENSE)

    # ***** pointwise work inside of calls *****

    def has_epilogue(self, node: Node) -> bool:
        return _sums_of(node) is not None

    def epilogue(
        self, node: Node, result: Location, group: Group, args: list[DType], kept: bool, target: Target
    ) -> Epilogue | None:
        sums = _sums_of(node)
        assert sums is not None
        alike = len({x.dtype for x in node.inputs}) == 1  # bytes with signs and bytes without cannot change places
        return epilogue_of(
            _matrices_of(node),
            result.buffer,
            group,
            sums,
            args,
            kept,
            target,
            apart=position_step(node),
            may_transpose=alike,
        )

    def has_prologue(self, node: Node, target: Target) -> bool:
        return takes_prologues(node, target.vector_bytes)

    def prologue(
        self, source: Location, shape: Sequence[int], group: Group, args: list[DType], target: Target
    ) -> Prologue | None:
        return prologue_of(source, shape, group, args, target)


CPU_LIBRARY = _CpuLibrary()
CPU_LIBRARY_AVX2 = _CpuLibrary(byte_windows=True, byte_matrices=True)
CPU_LIBRARY_VNNI = _CpuLibrary(byte_windows=True)
CPU_LIBRARY_AMX = _CpuLibrary(byte_windows=True, matrix_tiles=True)


# ***** which nodes routines take *****


def _has_elements(node: Node) -> bool:
    return all(numel(v.shape) for v in (*node.inputs, *node.outputs))


def _conv_windows_rule(node: Node) -> Any:
    return None if fits_routine(node) else node.prim.decompose


def _resample_rule(node: Node) -> Any:
    return None if _has_elements(node) else node.prim.decompose


def _unpool_rule(node: Node) -> Any:
    return None if windows_overlap(node) and _has_elements(node) else node.prim.decompose


def _attention_rule(node: Node) -> Any:
    """Attention goes block by block from some queries on."""
    return None if node.outputs[0].shape[-2] >= FEW_QUERIES and _has_elements(node) else node.prim.decompose


def _worth_tiles(node: Node) -> bool:
    """Whether matrix tiles are faster for attention of fewer queries than fill one."""
    q, k = node.inputs[:2]
    queries = q.shape[-2]
    return q.dtype is BFLOAT16 and queries > 1 and queries * k.shape[-2] >= _SCORES and _has_elements(node)


def windows_overlap(node: Node) -> bool:
    """Whether windows of an `unpool` along one or two dims overlap: then there is more to do than to choose."""
    p = node.params
    return len(p["size"]) <= 2 and any(
        k > s or d > 1 or a > 0 for k, s, d, a in zip(p["size"], p["stride"], p["dilation"], p["lo"], strict=True)
    )


_RULES = {
    "dot": dot_rule, "conv": conv_rule, "conv_windows": _conv_windows_rule, "recurrence": stepwise, "recurrence_grad": stepwise,
    "resample": _resample_rule, "resample_back": _resample_rule, "unpool": _unpool_rule, "attention": _attention_rule,
    "attention_grad": _attention_rule,
}  # fmt: skip


# ***** which nodes take epilogues *****


def _sums_of(node: Node) -> DType | None:
    """The dtype in which a product is computed; None for what is no product of matrices, or has no routine with an
    epilogue.
    """
    if node.prim.name == "conv_windows" and takes_epilogue(node):
        return node.outputs[0].dtype.wide
    if node.prim.name not in ("dot", "window_dot"):
        return None
    dtype = node.outputs[0].dtype
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return None
    return dtype.wide


def _matrices_of(node: Node) -> tuple[int, ...]:
    """The shape of what a product makes, as matrices: of a convolution channels x places for each image."""
    shape = node.outputs[0].shape
    return shape if node.prim.name != "conv_windows" else (shape[0], shape[1] * shape[2], numel(shape[3:]))
