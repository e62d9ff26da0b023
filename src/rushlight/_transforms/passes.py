"""The passes over a program's graph, and the switch of each.

`switches({"fusion": False})` says which passes are on; `improved(graph, on)` applies those that are functions of
graphs.  The others are steps of the backend: it asks for their switch where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rushlight._graph.core import Graph
from rushlight._transforms.attention import with_attention
from rushlight._transforms.bucketing import bucketed

__all__ = ["PASSES", "REORDERING", "Pass", "improved", "switches"]


class Pass(NamedTuple):
    """A pass: `apply(graph)` gives the graph and how often it found something, None for steps of the backend.

    `exact` passes keep every bit, and are on; the others are on where `allow_reordering` is.  Those that are `asked`
    for are on only where an option or a mode says so.
    """

    name: str
    doc: str
    exact: bool = True
    apply: Callable[[Graph], tuple[Graph, int]] | None = None
    asked: bool = False

    @property
    def when(self) -> str:
        """When it is on."""
        return "where asked for" if self.asked else "on" if self.exact else "with allow_reordering"


PASSES = {
    p.name: p
    for p in (
        Pass("common_calls", "Calls of the same computation on the same memory are made once."),
        Pass("constants", "Calls that only make constants are computed where they are read, not stored."),
        Pass("recompute", "Element-wise results that are read again much later are computed again, and not kept."),
        Pass("fusion", "Neighbouring calls become one kernel where every sum keeps its order."),
        Pass("in_place", "Results that belong in the memory of an input are written there by the kernel that makes them."),
        Pass("waves", "Kernels that do not wait for each other share the threads."),
        Pass("overlap", "Collectives begin as soon as their operands are there, and are waited for where their results are read."),
        Pass("memory_plan", "What lives between kernels lies in one block, and its memory is used again."),
        Pass("packed_weights", "Parameters that products read stay packed from call to call; memory for a copy of each.", asked=True),
        Pass("autotune", "Pieces of large products are searched for, and the fastest kept on disk.", asked=True),
        Pass("launch_graph", "On GPUs the kernels of a program are launched as one CUDA graph, whose nodes follow the call.", asked=True),
        Pass("bucket_collectives", "Small all-reduces of one group become one; among more than two processes sums may change.", False, bucketed, asked=True),
        Pass("attention", "Attention written by hand becomes one routine that never stores the scores.", False, with_attention),
    )
}  # fmt: skip
REORDERING = "allow_reordering"


def switches(options: Mapping[str, Any] | None) -> dict[str, bool]:
    """Which passes are on.  ValueError for an option that there is not."""
    options = dict(options or {})
    reordering = bool(options.pop(REORDERING, False))
    unknown = [name for name in options if name not in PASSES]
    if unknown:
        raise ValueError(f"there is no pass {unknown[0]!r}; there are {', '.join(PASSES)}, and {REORDERING}")
    return {name: bool(options.get(name, not p.asked and (p.exact or reordering))) for name, p in PASSES.items()}


def improved(graph: Graph, on: Mapping[str, bool], notes: list[str]) -> Graph:
    """The graph after the passes over graphs that are on; `notes` receives what they did."""
    for name, p in PASSES.items():
        if p.apply is not None and on.get(name):
            graph, count = p.apply(graph)
            if count:
                notes.append(f"{name}: {count} times")
    return graph
