"""Records of a further backward of a compiled program: which is asked for, and how it is computed."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight._graph.core import Graph

__all__ = ["NAME", "Derived", "How", "Orders", "Target", "Variant"]

NAME = "CompiledFunctionBackward"
# The backward graph, the places of the saved values that it reads, and the numbers of its results for each input: more
# than one where they are not added up.
Variant = tuple[Graph, list[int], list[tuple[int, ...]]]
Orders = tuple[tuple[int, ...] | None, ...]


class How(NamedTuple):
    """Which backward from some outputs is recorded: whether what an input gets is not added up (`apart`), the edges that
    are wanted (all if None), the orders of the dims of gradients that lie otherwise than was assumed, places inside of
    the history that have a gradient too (`seeds`), with the order of its dims, edges for which a gradient has arrived
    already, to which others are added (`begun`), the output before whose node backward ends (`cut`), and, where one
    tensor is given several times, for each the number of the first that is the same (`same`).
    """

    apart: bool = False
    edges: tuple[int, ...] | None = None
    orders: Orders = ()
    seeds: tuple[tuple[int, tuple[int, ...] | None], ...] = ()
    begun: tuple[tuple[int, tuple[int, ...] | None], ...] = ()
    cut: int | None = None
    same: tuple[int, ...] = ()


class Target(NamedTuple):
    """Where the history of a gradient ends: at a gradient that backward was `given`, at an `edge` of the program, at an
    `output` or inside of the history (`point`) of the program or of the gradients of a level; "none" gets nothing.
    """

    kind: str
    level: int
    number: int


class Derived(NamedTuple):
    """How gradients are computed that can be differentiated again.

    `forward` goes from what the program saved (`picks`) and the gradients to the results; `backward` from what `saved`
    lists to those at `targets`, by `outputs`.  `results` are the numbers of the results at each edge; those in `passed`
    are given gradients as they are, and those in `mask` have a history, which leads to the targets in `reach`, to
    `several` on more than one way.  `refusal` is the error that their backward raises.
    """

    forward: Graph
    backward: Graph
    saved: list[tuple[str, int]]
    outputs: list[int | None]
    picks: list[int]
    results: list[int | None]
    passed: dict[int, int]
    mask: list[bool]
    targets: list[Target]
    reach: list[int]
    several: tuple[int, ...]
    lies: dict[int, tuple[int, ...]]
    level: Any  # `levels.Level`, which records further backward
    refusal: Exception | None = None
