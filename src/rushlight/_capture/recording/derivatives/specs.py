"""Backward specs of a compiled program and of its gradients: what the nodes of all calls share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from rushlight._capture.recording.derivatives.nodes import (
    EndingNode,
    ProgramNode,
    WholeNode,
    node_of,
    order_of,
    other_order,
)
from rushlight._capture.recording.derivatives.records import NAME, Derived, How, Orders
from rushlight._capture.recording.derivatives.staged_nodes import DerivedNode, StagedNode
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.lower import Backward
from rushlight._types.device import Device

__all__ = ["DerivedBackwardSpec", "ProgramBackwardSpec"]


class ProgramBackwardSpec(BackwardSpec):
    """Where some outputs have no gradient, the engine's backward from the others is recorded too: zeros in their place
    would cost time, and bits.

    `level.variant(mask, how)` records it, and `level.derive(mask, how)` backward with a history.  `lies` has for
    outputs the order of dims in which their gradients were assumed to lie: eager calls leave what they compute of others
    in another order, and sums follow it, so that backward is recorded for these too.  `several` are the edges to which an
    eager program gives more than one gradient (see `ProgramNode`).  `inner` tells of outputs from which others are
    computed (see `StagedNode`), `joined` which outputs have what they saved in common: backward from one frees that of
    the others.
    """

    __slots__ = (
        "_derived", "_lock", "_variants", "ends", "inner", "joined", "level", "lies", "several",
    )  # fmt: skip

    def __init__(
        self,
        backward: Backward,
        wrt: Sequence[int],
        mask: Sequence[bool],
        device: Device,
        level: Any,
        several: Sequence[int] = (),
    ) -> None:
        super().__init__(NAME, backward, wrt, mask, device, GRAPH_CALLS)
        self.level, self._lock, self.several = level, Lock(), tuple(several)
        self._derived: dict[Any, DerivedBackwardSpec | None] = {}
        self.inner: dict[int, tuple[int, ...]] = {}
        self.joined: dict[int, frozenset[int]] = {}
        self.lies: dict[int, tuple[int, ...]] = {}
        self.ends = False
        self._variants: dict[Any, tuple[Any, list[int], list[tuple[int, ...]]]] = {}
        self.cls = node_of(ProgramNode if several or sum(mask) > 1 else WholeNode)

    def take_histories(self, of: ProgramBackwardSpec) -> None:
        """As another: with the same outputs, at other sizes."""
        self.joined, self.lies = of.joined, of.lies
        if of.inner:
            self.let_in_stages(of.inner)
        if of.ends:
            self.run_once()

    def let_in_stages(self, inner: dict[int, tuple[int, ...]]) -> None:
        """Tell which outputs are computed from which."""
        self.inner, self.cls = inner, node_of(StagedNode)

    def run_once(self) -> None:
        """Let nodes run but once where the graph is not retained, also if they save nothing."""
        self.ends = True
        if not self.sources and self.cls is node_of(WholeNode):
            self.cls = node_of(EndingNode)

    def wanted(self, grads: Sequence[Tensor | None]) -> tuple[bool, ...]:
        """Which outputs have a gradient that goes anywhere."""
        return tuple([g is not None and flag for g, flag in zip(grads, self.mask, strict=False)])

    def _from_results(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        if all(g is not None or not flag for g, flag in zip(grads, self.mask, strict=True)):
            return super()._from_results(saved, grads, run)
        try:
            found = self.variant(self.wanted(grads), How(orders=self.orders(grads)))
        except NotImplementedError:  # it reads what the whole backward does not, and so was not saved
            return super()._from_results(saved, grads, run)
        return [None if g is None else g[0] for g in self.of_variant(found, [saved[k] for k in found[1]], grads)]

    def orders(self, grads: Sequence[Tensor | None]) -> Orders:
        """The orders of the dims of those gradients that lie otherwise than was assumed; nothing where all do as was."""
        found = [
            None if (lies := self.lies.get(j)) is None else other_order(g._spec, lies)
            for j, (g, flag) in enumerate(zip(grads, self.mask, strict=False))
            if flag and g is not None
        ]
        return tuple(found) if any(found) else ()

    def _prepared(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        count, given = len(self.sources), iter(inputs[len(self.sources) :])
        orders = self.orders([next(given) if flag else None for flag in self.mask])
        if not orders:
            return super()._prepared(inputs)
        try:
            call, picks, outputs = self.variant(self.mask, How(orders=orders))
        except NotImplementedError:  # it reads what was not saved
            return super()._prepared(inputs)
        places = [each[0] if each else None for each in outputs]

        def run(*inputs: Any) -> list[Tensor | None]:
            results = call(*[inputs[k] for k in picks], *inputs[count:])
            return [None if place is None else results[place] for place in places]

        return run

    def variant(self, mask: tuple[bool, ...], how: How) -> tuple[Any, list[int], list[tuple[int, ...]]]:
        """(what to call, the saved values that it takes, the places of its results by edge, then by crossing edge)."""
        key = mask, how
        with self._lock:  # a recording is continued by one thread at a time
            found = self._variants.get(key)
            if found is None:
                graph, picks, outputs = self.level.variant(mask, how)
                found = self._variants[key] = GRAPH_CALLS.caller(graph, NAME), picks, outputs
        return found

    def derived(self, mask: tuple[bool, ...], how: How) -> DerivedBackwardSpec | None:
        """How these gradients are computed where they can be differentiated again, operator by operator; None where
        they are differentiated as a whole.
        """
        key = mask, how
        with self._lock:
            if key not in self._derived:
                found = self.level.derive(mask, how)
                self._derived[key] = None if found is None else DerivedBackwardSpec(found, self)
        return self._derived[key]

    def seeds(self, grads: Sequence[Tensor | None]) -> tuple[tuple[int, tuple[int, ...] | None], ...]:
        """The places inside of the program that have gradients, with the orders of the dims of these."""
        if len(grads) <= self.n_results:
            return ()
        return tuple([(p, order_of(g)) for p, g in enumerate(grads[len(self.forward.outputs) :]) if g is not None])

    def of_variant(
        self, found: tuple[Any, list[int], list[tuple[int, ...]]], items: Sequence[Any], grads: Sequence[Tensor | None]
    ) -> list[tuple[Tensor, ...] | None]:
        """The gradients that a variant gives for each edge and crossing edge, in the order in which an eager program adds them
        up.
        """
        call, _, outputs = found
        results = call(*items, *self.given(grads))
        return [tuple([results[o] for o in each]) or None for each in outputs]

    def given(self, grads: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients that a variant takes: of the wanted outputs, then of places inside of the program."""
        found = [g for g, flag in zip(grads, self.wanted(grads), strict=False) if flag and g is not None]
        inside = grads[len(self.forward.outputs) :] if len(grads) > self.n_results else ()
        return [*found, *[g for g in inside if g is not None]]


class DerivedBackwardSpec(ProgramBackwardSpec):
    """How the gradients of a program's node, or of their node, are computed and differentiated."""

    __slots__ = ("call", "found", "reach")

    # Variants read what the program has saved, not what this node has: `DerivedNode` asks for them itself.
    _from_results = BackwardSpec._from_results
    _prepared = BackwardSpec._prepared

    def __init__(self, found: Derived, below: ProgramBackwardSpec) -> None:
        what = Backward(found.forward, found.backward, found.saved, found.outputs)
        super().__init__(what, (), found.mask, below._device, found.level, found.several)
        self.found, self._lock, self.lies = found, below._lock, found.lies
        self.call = GRAPH_CALLS.caller(found.forward, NAME)
        self.reach = [[t for t in range(len(found.targets)) if bits >> t & 1] for bits in found.reach]
        self.cls, self.inner = node_of(DerivedNode), found.level.inner()
