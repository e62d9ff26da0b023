"""Records of a further backward of a compiled program: which is asked for, and how it is computed."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight._graph.core import Graph

__all__ = ["NAME", "Derived", "How", "Orders", "Target", "Variant"]

NAME = "CompiledFunctionBackward"
# The backward graph, the places of the saved values that it reads, and the numbers of its results for each input: more
# than one where they are not added up.
Variant = tuple[Graph, list[int], list[tuple[int, ...]]]
Order = tuple[int, ...] | None  # of dims in memory
Orders = tuple[Order, ...]


class How(NamedTuple):
    """A request for a further backward from some outputs."""

    apart: bool = False  # the gradients of an input are not added up
    edges: tuple[int, ...] | None = None  # edges that want a gradient; None for all
    orders: Orders = ()  # of the dims of gradients that lie otherwise than was assumed; nothing where all lie as assumed
    seeds: tuple[
        tuple[int, Order], ...
    ] = ()  # places inside of the history that have a gradient, and its order of dims
    begun: tuple[tuple[int, Order], ...] = ()  # edges for which a gradient has arrived, to which others are added
    cut: int | None = None  # the output before whose node backward ends
    same: tuple[int, ...] = ()  # for each gradient the number of the first that is the same tensor


class Target(NamedTuple):
    """Where the history of a gradient ends: at a gradient that backward was `given`, at an `edge` of the program, at an
    `output` or inside of the history (`point`) of the program or of the gradients of a level; "none" gets nothing.
    """

    kind: str
    level: int
    number: int


class Derived(NamedTuple):
    """Graphs of gradients that can be differentiated again, and how they are used."""

    forward: Graph  # from what the program saved (`picks`) and the gradients to the results
    backward: Graph  # from what `saved` lists to the gradients at `targets`
    saved: list[tuple[str, int]]
    outputs: list[int | None]  # of `backward`, for each target
    picks: list[int]
    results: list[int | None]  # of `forward`, for each edge
    passed: dict[int, int]  # results that are given gradients as they are: their numbers
    mask: list[bool]  # results that have a history
    targets: list[Target]
    reach: list[int]  # for each result a bit for each target to which its history leads
    several: tuple[int, ...]  # targets to which it leads on more than one way
    lies: dict[int, tuple[int, ...]]  # the order of dims in which gradients of results were assumed to lie
    level: Any  # `levels.Level`, which records further backward
    refusal: Exception | None = None  # the error that backward of the results raises
