"""The backward of a compiled program, as the nodes of its calls share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.lower import Backward
from rushlight._graph.core import Graph
from rushlight._types.device import CPU

__all__ = ["NAME", "ProgramBackwardSpec", "Variant"]

NAME = "CompiledFunctionBackward"
# (which outputs have a gradient) -> the backward graph, the sources of its saved values, the number of its result for
# each input
Variant = tuple[Graph, list[tuple[str, int]], list[int | None]]


class ProgramBackwardSpec(BackwardSpec):
    """Where some outputs have no gradient, the engine's backward from the others is recorded too: zeros in their place
    would cost time, and bits.

    `variant(mask)` records it.
    """

    __slots__ = ("_lock", "_variant", "_variants")

    def __init__(
        self,
        backward: Backward,
        wrt: Sequence[int],
        mask: Sequence[bool],
        variant: Callable[[tuple[bool, ...]], Variant],
    ) -> None:
        super().__init__(NAME, backward, wrt, mask, CPU, GRAPH_CALLS)
        self._variant, self._lock = variant, Lock()
        self._variants: dict[tuple[bool, ...], tuple[Any, list[int], list[int | None]]] = {}

    def _from_results(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        if all(g is not None or not flag for g, flag in zip(grads, self.mask, strict=True)):
            return super()._from_results(saved, grads, run)
        mask = tuple([g is not None and flag for g, flag in zip(grads, self.mask, strict=True)])
        with self._lock:  # a recording is continued by one thread at a time
            found = self._variants.get(mask)
            if found is None:
                graph, sources, outputs = self._variant(mask)
                places = {source: k for k, source in enumerate(self.sources)}
                found = self._variants[mask] = GRAPH_CALLS.caller(graph, NAME), [places[s] for s in sources], outputs
        call, picks, outputs = found
        results = call(*[saved[k] for k in picks], *[g for g, flag in zip(grads, mask, strict=True) if flag])
        return [None if o is None else results[o] for o in outputs]
