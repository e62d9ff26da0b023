"""Nodes of compiled programs whose backward is made in stages, and of gradients of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._capture.recording.derivatives.nodes import ProgramNode, WholeNode, hooks_of, keep
from rushlight._capture.recording.derivatives.records import Target
from rushlight._engine.autograd.engine import joined_gradients
from rushlight._engine.autograd.hooks import run_tensor_hooks
from rushlight._engine.autograd.node import OpNode, next_sequence
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import ANOMALY, GRAD, SAVED_HOOKS, STATE, STREAMED
from rushlight._engine.core.tensor import Tensor, alias, edge_of
from rushlight._engine.dispatch.plans.node_recording import watch
from rushlight._engine.indexing.inplace import give_history

if TYPE_CHECKING:
    from rushlight._capture.recording.derivatives.specs import DerivedBackwardSpec

__all__ = ["DerivedNode", "StagedNode"]


class StagedNode(ProgramNode):
    """The backward of a program that returns a tensor and what it computes from it.

    To an eager program the first is part of the history of the second.  Where somebody looks at its gradient, by
    `autograd.grad`, a hook or `retain_grad`, backward is made in stages, from one such tensor to the next.
    """

    __slots__ = ()

    def in_stages(self, task: Any, grads: list[Tensor | None]) -> bool:
        """Whether the gradients of the outputs were shown to those who look at them, and those of the inputs found:
        `apply` returns these.
        """
        if self in task.notes:
            return True
        extra, info = self._extra, self.info
        captured, _ = self._captured(task)
        seen = {k for k, _ in captured}
        if extra is not None:
            seen.update(extra.tensor_hooks or (), extra.retain or ())
        inside = grads[info.n_results :]
        if not any(grads[j] is not None for k in seen for j in info.inner.get(k, ())) and not (seen and inside):
            return super().in_stages(task, grads)
        if any(g is not None for g in inside[: len(info.forward.outputs) - info.n_results]):
            raise RuntimeError(
                "a third derivative through a value that a compiled program saved, together with the gradient of one of its outputs for another: "
                "return them from two compiled functions"
            )
        if self.saved is None or any(g is not None and k in self._gone for k, g in enumerate(grads)):
            self._run_other_leaves(grads)
            self._refuse()
        self._ran = info.wanted(grads)
        self._run_stages(task, grads, captured, info.level.latest_first(seen))
        task.notes[self] = [None for _ in self._edges]
        return True

    def _run_stages(
        self, task: Any, grads: list[Tensor | None], captured: Sequence[tuple[int, int]], stops: Sequence[list[int]]
    ) -> None:
        """Go from one output that somebody looks at to the next, in the order of an eager program's nodes: what has
        arrived at other nodes until then waits there.
        """
        info, (_, runs) = self.info, self._captured(task)
        level, total = info.level, len(info.forward.outputs)
        waiting = {level.output(j): g for j, g in enumerate(grads[: info.n_results]) if g is not None and info.mask[j]}
        waiting |= {p: g for p, g in enumerate(grads[total:]) if g is not None}
        for stop in (*stops, ()):
            if not stop and not runs:
                break
            self._run_until(task, waiting, stop[0] if stop else None)
            for j in stop:
                arrived = waiting.pop(p := level.output(j), None)
                if arrived is None:  # its node does not run
                    continue
                if runs:
                    keep(task, captured, j, arrived)
                rest: list[Tensor | None] = [None for _ in grads]
                rest[j] = arrived
                if self._extra is not None:
                    run_tensor_hooks(hooks_of(self._extra, j), rest)
                if not runs:
                    keep(task, captured, j, rest[j])
                if (hooked := rest[j]) is not None:
                    waiting[p] = hooked

    def _run_until(self, task: Any, waiting: dict[int, Tensor], cut: int | None) -> None:
        """Run what comes before the node of an output: from what is waiting to what is waiting then, and to the edges."""
        info, level = self.info, self.info.level
        total, reached = len(info.forward.outputs), level.arrivals(cut)
        taken = sorted(p for p in waiting if p in reached or not level.waits(p, cut))
        if not any(not level.waits(p, cut) for p in taken):
            return
        inside: list[Tensor | None] = [None] * (total + taken[-1] + 1)
        for p in taken:
            inside[total + p] = waiting.pop(p)
        found: Sequence[Any] | None = self._with_history(inside, cut) if STATE.word & GRAD else None
        if found is None:
            found = self._of_some(info.wanted(inside), inside, True, None, cut)
        else:
            found = [None if g is None else (g,) for g in found]
        for edge, each in zip(self._edges, found, strict=False):
            for grad in each or () if edge is not None else ():
                task.add(edge, grad)
        for p, each in zip(level.arrivals(cut), found[len(self._edges) :], strict=False):
            for grad in each or ():
                held = waiting.get(p)
                waiting[p] = grad if held is None else joined_gradients(held, grad)

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients that the stages have found; without stages as in other programs."""
        task = STATE.task
        found: list[Tensor | None] | None = None if task is None else task.notes.get(self)
        if found is not None:
            return found
        return super().apply(grads)


class DerivedNode(StagedNode):
    """The node of gradients of a program, or of gradients of these."""

    __slots__ = ("base", "chain")

    base: tuple[Any, list[Any], list[Tensor], list[int]]
    chain: list[Any]

    @staticmethod
    def results(below: WholeNode, spec: DerivedBackwardSpec, given: list[Tensor]) -> list[Tensor]:
        """The gradients that `below` gives, with a node where something that they are computed from wants gradients."""
        found, before = spec.found, STATE.word
        inputs = [*below._based(found.picks), *given]
        STATE.word = before & ~GRAD
        try:
            made = list(spec.call(*inputs))
        finally:
            STATE.word = before
        results, residuals = made[: spec.n_results], made[spec.n_results :]
        for k, number in found.passed.items():
            results[k] = given[number]
        first, saved, held, stamps = below._base()
        held = [*held, *given]
        chain = below._chain()
        edges = [_edge_at(target, first, held, chain) for target in found.targets]
        wanting = [k for k, flag in enumerate(spec.mask) if flag and any(edges[t] is not None for t in spec.reach[k])]
        wanting = [k for k in wanting if k not in found.passed]
        if not wanting:
            return results
        node: Any = spec.cls.__new__(spec.cls)
        node.info, node._seq, node._extra, node._edges = spec, next_sequence(), None, edges
        node.base = first, saved, held, [*stamps, *[x._storage.stamp for x in given]]
        node.chain = [*chain, node]
        node.saved = [
            inputs[k] if kind == "input" else alias(results[k]) if kind == "output" else residuals[k]
            for kind, k in spec.sources
        ]
        node.versions = [x._storage.stamp if isinstance(x, Tensor) else None for x in node.saved]
        node.where = HOOKS.user_code()
        if STATE.word & (ANOMALY | SAVED_HOOKS | STREAMED):
            watch(node)
        for k in wanting:
            give_history(results[k], node, k)
        return results

    def _base(self) -> tuple[Any, list[Any], list[Tensor], list[int]]:
        return self.base

    def _chain(self) -> list[Any]:
        return self.chain

    def _of_all(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        info = self.info
        if self.saved is None:
            self._refuse()
        if info.found.refusal is not None:
            raise info.found.refusal
        mask, arrived, usual = info.wanted(grads), self._arrivals(), not STATE.word & GRAD
        if not usual and (found := self._with_history(grads)) is not None:
            return found
        if usual and not arrived and mask == info.mask and not info.seeds(grads) and not info.orders(grads):
            return OpNode.apply(self, grads)
        return self._passed_on(STATE.task, self._of_some(mask, grads, arrived))

    def _release(self) -> None:
        super()._release()
        if self.saved is None:
            self.base = self, [], [], []


def _edge_at(target: Target, first: Any, given: Sequence[Tensor], chain: Sequence[Any]) -> Any:
    """Where a gradient goes to at run time."""
    kind, level, number = target
    if kind == "given":
        return edge_of(given[number])
    if kind == "edge":
        return first._edges[number]
    if kind == "none":
        return None
    node = chain[level]
    return node, number if kind == "output" else len(node.info.forward.outputs) + number
