"""Plans whose results are their inputs, or the memory of these under other strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.dispatch.native_plans import show_plan
from rushlight._engine.dispatch.plan_packing import PlanNote
from rushlight._graph.core import Graph
from rushlight._types.spec import Spec

__all__ = ["passed_places", "passing", "showing"]


def showing(
    layouts: Sequence[tuple[int, Sequence[int], Sequence[int], int]],
    specs: Sequence[Spec | None],
    note: PlanNote | None = None,
) -> Callable[..., Any]:
    """A plan that shows inputs under other layouts (see `moved_layouts`), outside of any graph; it returns a tuple."""
    if note is not None:
        note.show(layouts)
    parts: list[tuple[int, Spec, int]] = []
    for number, shape, strides, offset in layouts:
        spec = specs[number]
        assert spec is not None
        parts.append(
            (
                number,
                Spec.of(spec.dtype, spec.device, shape, strides, spec.conj, spec.released),
                offset * spec.dtype.itemsize,
            )
        )

    def run(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple([make(inputs[i]._storage, spec, inputs[i]._ptr + step) for i, spec, step in parts])

    return show_plan(run, parts)


def passed_places(graph: Graph) -> list[int]:
    """For each output of a graph the input that it is, or -1; empty where none is one."""
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    places = [where.get(id(v), -1) for v in graph.outputs]
    return places if any(p >= 0 for p in places) else []


def passing(places: Sequence[int], plan: Callable[..., Any]) -> Callable[..., Any]:
    """`plan`, which gives what a graph computes, with the outputs that are inputs between; `places` are those of `passed_places`."""
    if not places:
        return plan
    computed = sum(p < 0 for p in places)

    def run(*args: Any) -> Any:
        made = plan(*args) if computed else ()
        made = iter((made,) if computed == 1 else made)
        return tuple([args[p] if p >= 0 else next(made) for p in places])

    return run
