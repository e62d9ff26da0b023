"""The library of a target: the routines it has for heavy primitives, and what is fused into their calls.

The schedule asks it which primitives a routine takes, how operands and results of a call may lie, and whether
pointwise work can become part of a call. `Library` itself has no routine: every heavy primitive is replaced by its
decomposition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._types.layout import contiguous_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node
    from rushlight._schedule.expressions import Buffer
    from rushlight._schedule.groups import Group
    from rushlight._schedule.inline import Location
    from rushlight._schedule.policy import Target
    from rushlight._types.dtype import DType

__all__ = ["Attachment", "CallForm", "Library"]


class CallForm(NamedTuple):
    """How the operands and results of a library call may lie in memory; row-major unless said otherwise.

    - `strided`: operands may have any strides, but for those numbered in `dense`.
    - `placed`: numbers of the results that may be written with any strides.
    - `strided_results`: every result may be written into an output that has strides of its own.
    - `keeps_layout`: results lie channels last where the first operand does.
    - `conjugates`: operands that are conjugates of others are read from those.
    """

    strided: bool = False
    dense: tuple[int, ...] = ()
    placed: tuple[int, ...] = ()
    strided_results: bool = False
    keeps_layout: bool = False
    conjugates: bool = False


class Attachment:
    """Pointwise work that became part of a library call: `touched` are the buffers it reads or writes beside the
    call's own, `stored` those it writes.
    """

    __slots__ = ("stored", "touched")

    def __init__(self, touched: Sequence[Buffer], stored: Sequence[Buffer] = ()) -> None:
        self.touched, self.stored = list(touched), list(stored)


class Library:
    """A target without routines; targets that have some override these methods."""

    # ***** graphs *****

    def before(self, graph: Graph) -> Graph:
        """The graph before primitives are replaced, with results that no routine need compute left out."""
        return graph

    def replacement(self, node: Node) -> Any:
        """The function of a heavy node's inputs and parameters that replaces it; None where a routine takes the node
        as it is.
        """
        return node.prim.decompose

    def after(self, graph: Graph) -> Graph:
        """The graph after primitives were replaced, with neighbours of heavy nodes that routines take over merged into
        these.
        """
        return graph

    # ***** calls *****

    def form(self, node: Node) -> CallForm:
        """How operands and results of a node's routine may lie."""
        return CallForm()

    # ***** pointwise work inside of calls *****

    def has_epilogue(self, node: Node) -> bool:
        """Whether the node's routine can do pointwise work on its results before it stores them."""
        return False

    def epilogue_lies(self, node: Node, strides: Sequence[int]) -> bool:
        """Whether an epilogue may take the place of a result with these strides: of a row-major one, unless said
        otherwise.
        """
        return tuple(strides) == contiguous_strides(node.outputs[0].shape)

    def epilogue(
        self, node: Node, result: Location, group: Group, args: list[DType], kept: bool, target: Target
    ) -> Attachment | None:
        """A pointwise `group` as the epilogue of a node whose result would lie in `result`; None where it does not
        fit.

        `args` are the dtypes of the graph's numbers; `kept`: others read the result too, so it is stored as well.
        """
        return None

    def has_prologue(self, node: Node, target: Target) -> bool:
        """Whether the node's routine can compute its operands while it packs them."""
        return False

    def prologue(
        self, source: Location, shape: Sequence[int], group: Group, args: list[DType], target: Target
    ) -> Attachment | None:
        """A pointwise `group` that computes nothing but an operand of `shape`, which would lie in `source`; None where
        it does not fit.
        """
        return None
