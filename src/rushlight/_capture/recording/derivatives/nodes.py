"""Nodes of calls of compiled programs: backward from all outputs at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._capture.recording.derivatives.records import NAME, How
from rushlight._engine.autograd.engine import run_leaves
from rushlight._engine.autograd.hooks import run_tensor_hooks
from rushlight._engine.autograd.node import Extra, OpNode, node_class, split_edge
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._types.layout import memory_order

__all__ = [
    "EndingNode", "ProgramNode", "WholeNode", "hooks_of", "keep", "node_of", "order_of", "other_order",
]  # fmt: skip


class WholeNode(OpNode):
    """The backward of a program.

    What a backward call that asks for some gradients does not need may have changed: to an eager program it is saved
    by nodes that do not run then.
    """

    __slots__ = ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        try:
            return self._of_all(grads)
        except RuntimeError:
            found = self._of_needed(grads)
            if found is None:
                raise
            return found

    def _of_all(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if STATE.word & GRAD and (found := self._with_history(grads)) is not None:
            return found
        if self.info.seeds(grads):
            return self._from_inside(grads)
        return OpNode.apply(self, grads)

    def _arrivals(self) -> bool:
        """Whether something has arrived for an input to which the program gives several gradients."""
        task = STATE.task
        return task is not None and any(_arrived(task, self._edges[k]) for k in self.info.several)

    def _from_inside(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients where some have arrived inside of the program, from gradients of its gradients."""
        info, apart = self.info, self._arrivals()
        found = self._of_some(info.wanted(grads), grads, apart)
        residuals = grads[info.n_results : len(info.forward.outputs)]
        if any(g is not None for g in residuals):  # a third derivative, as a whole
            more = info._from_some(self.unpacked(), [*[None] * info.n_results, *residuals])
            found = [each if g is None else (*(each or ()), g) for each, g in zip(found, more, strict=True)]
            apart = True
        if apart and STATE.task is not None:
            return self._passed_on(STATE.task, found)
        return [None if each is None else each[0] for each in found]

    def _passed_on(self, task: Any, parts: Sequence[Sequence[Tensor] | None]) -> list[Tensor | None]:
        """The last gradient of each edge; those before it are added to its buffer."""
        found: list[Tensor | None] = []
        for edge, each in zip(self._edges, parts, strict=True):
            for grad in each[:-1] if each and edge is not None else ():
                task.add(edge, grad)
            found.append(each[-1] if each else None)
        return found

    def _with_history(self, grads: list[Tensor | None], cut: int | None = None) -> list[Tensor | None] | None:
        """The gradients with a node behind them whose backward is that of an eager program's nodes; None where they are
        recorded as a whole.
        """
        info, task = self.info, STATE.task
        if (
            self.saved is None
            or task is None
            or LEVELS.stack
            or any(type(g) not in plain_classes for g in grads if g is not None)
        ):
            return None
        if any(g is not None for g in grads[info.n_results : len(info.forward.outputs)]):
            return None
        mask, held = info.wanted(grads), _held_once(task, self._edges)
        if any(type(g) not in plain_classes for g in held.values()):
            return None
        given = [*info.given(grads), *held.values()]
        first = {id(g): k for k, g in reversed(list(enumerate(given)))}
        same = tuple([first[id(g)] for g in given]) if len(first) < len(given) else ()
        # A sum is part of the history: where in it an eager program adds matters to what is differentiated next.
        begun = tuple([(k, order_of(g)) for k, g in held.items()])
        how = How(orders=info.orders(grads), seeds=info.seeds(grads), begun=begun, cut=cut, same=same)
        spec = info.derived(mask, how) if any(mask) or how.seeds else None
        if spec is None:
            return None
        results = spec.cls.results(self, spec, [g for k, g in enumerate(given) if not same or same[k] == k])
        for k, _ in begun:
            node, number = split_edge(self._edges[k])
            task.buffers[node][number] = None
        return [None if k is None else results[k] for k in spec.found.results]

    def _base(self) -> tuple[Any, list[Any], list[Tensor], list[int]]:
        """Inputs of all derivatives: the program's node and what it saved, gradients that were given since, and their
        versions.
        """
        return self, self.saved, [], []

    def _chain(self) -> list[Any]:
        """The nodes of the program and of its gradients, up to this one."""
        return [self]

    def _based(self, picks: Sequence[int]) -> list[Any]:
        """Some of what everything is computed from."""
        node, saved, given, versions = self._base()
        count = len(node.info.sources)
        items = list(node._unpack(saved, True, [k for k in picks if k < count]))
        for k in picks:
            if k >= count:
                x, version = given[k - count], versions[k - count]
                if x._storage is not None and x._storage.version != version & 0xFFFFFFFF:
                    self._changed(x, version & 0xFFFFFFFF)
                items.append(x)
        return items

    def _of_needed(self, grads: list[Tensor | None]) -> list[Tensor | None] | None:
        """The gradients of the edges that the running backward call needs; None where it needs all, and where these
        cannot be had either.
        """
        task, info = STATE.task, self.info
        if task is None or task.needed is None or self.saved is None or len(grads) != len(info.mask):
            return None
        nodes = [None if edge is None else split_edge(edge)[0] for edge in self._edges]
        edges = tuple([k for k, n in enumerate(nodes) if n is not None and (n in task.needed or n in task.captures)])
        if len(edges) == len(nodes):
            return None
        try:
            found = self._of_some(info.wanted(grads), grads, False, edges)
        except (NotImplementedError, RuntimeError):
            return None
        return [None if each is None else each[0] for each in found]

    def _of_some(
        self,
        mask: tuple[bool, ...],
        grads: Sequence[Tensor | None],
        apart: bool,
        edges: tuple[int, ...] | None = None,
        cut: int | None = None,
    ) -> list[tuple[Tensor, ...] | None]:
        info = self.info
        found = info.variant(mask, How(apart, edges, info.orders(grads), info.seeds(grads), (), cut))
        results: list[tuple[Tensor, ...] | None] = info.of_variant(found, self._based(found[1]), grads)
        return results


class ProgramNode(WholeNode):
    """The backward of a program with several outputs, or one that uses an input several times.

    Eager nodes add each gradient to what has arrived for the input, one after another.  Where something has arrived
    from outside of the program, the program's own sum must not be made first: it would have other bits.  And what only
    the history of an output without a gradient has saved may have changed.
    """

    __slots__ = ()
    _quick, _staged = False, True
    _gone: frozenset[int] = frozenset()  # outputs whose history was freed
    _ran: tuple[bool, ...] = ()  # the outputs that had gradients when it ran

    def _release(self) -> None:
        joined, ran = self.info.joined, [j for j, flag in enumerate(self._ran) if flag]
        self._ran = ()
        if joined and ran:
            self._gone = self._gone.union(*[joined[j] for j in ran])
        if not ran or not joined or self._gone.issuperset(joined):
            super()._release()
            if self.info.ends:
                self.saved = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the edges; of several for an edge all but the last are added to its buffer."""
        try:
            return self._of_all(grads)
        except RuntimeError:
            found = self._of_needed(grads)
            if found is None:
                self._run_other_leaves(grads)
                raise
            return found

    def _run_other_leaves(self, grads: Sequence[Tensor | None]) -> None:
        """Accumulate what has arrived at leaves to which the histories of other outputs lead alone: before backward fails
        here, eager programs have done so.
        """
        task, info = STATE.task, self.info
        if task is None or len(grads) != len(info.mask) or CURRENT_STREAMS.ever:
            return
        try:
            _, _, reached = info.variant(info.wanted(grads), How())
        except (NotImplementedError, RuntimeError):
            return
        run_leaves(task, [edge for edge, each in zip(self._edges, reached, strict=False) if not each])

    def _of_all(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        task, edges, info = STATE.task, self._edges, self.info
        if self.saved is None:
            self._refuse()
        mask = self._ran = info.wanted(grads)
        if self._gone and any(flag and j in self._gone for j, flag in enumerate(mask)):
            self._refuse()
        if STATE.word & GRAD and (found := self._with_history(grads)) is not None:
            return found
        if info.seeds(grads):
            return self._from_inside(grads)
        if len(grads) != len(info.mask):  # saved values have gradients, of a whole
            return OpNode.apply(self, grads)
        if task is not None and any(_arrived(task, edges[k]) for k in info.several):
            try:
                return self._passed_on(task, self._of_some(mask, grads, True))
            except NotImplementedError:  # parts that the sum does not need were not saved
                return OpNode.apply(self, grads)
        if sum(mask) == sum(info.mask) or not any(mask):
            return OpNode.apply(self, grads)
        try:
            return [None if g is None else g[0] for g in self._of_some(mask, grads, False)]
        except NotImplementedError:
            return OpNode.apply(self, grads)

    def in_stages(self, task: Any, grads: list[Tensor | None]) -> bool:
        """Whether hooks were called and gradients kept: those of outputs without a gradient, whose eager nodes would not
        run, are not called.
        """
        if self in task.notes:
            return True
        extra = self._extra
        hooked = {*(extra.tensor_hooks or ()), *(extra.retain or ())} if extra is not None else ()
        if len(hooked) < 2 and all(grads[k] is not None for k in hooked):
            return False
        captured, runs = self._captured(task)
        for k, _ in captured if runs else ():
            keep(task, captured, k, grads[k])
        for each in self.info.level.latest_first(hooked):
            for k in each:
                if extra is not None and grads[k] is not None:
                    run_tensor_hooks(hooks_of(extra, k), grads)
        for k, _ in () if runs else captured:
            keep(task, captured, k, grads[k])
        task.notes[self] = None
        return True

    def _captured(self, task: Any) -> tuple[Sequence[tuple[int, int]], bool]:
        """Which gradients of its outputs a backward call asks for, and whether it goes on behind them."""
        if task.needed is None:
            return (), True
        return task.captures.get(self, ()), self in task.needed


class EndingNode(WholeNode):
    """The backward of a program that saves nothing, in the place of nodes that save a number."""

    __slots__ = ()
    _quick = False

    def _release(self) -> None:
        self.saved = None


def keep(task: Any, captured: Sequence[tuple[int, int]], point: int, grad: Tensor | None) -> None:
    """Give a gradient to the backward call that asks for it."""
    for number, place in captured:
        if number == point:
            task.results[place] = grad


def hooks_of(extra: Extra, number: int) -> Extra:
    """The hooks of one result of a node."""
    found = Extra()
    for name in ("tensor_hooks", "retain"):
        held = getattr(extra, name)
        if held is not None and number in held:
            setattr(found, name, {number: held[number]})
    return found


@lru_cache(1024)
def other_order(spec: Any, lies: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of the dims of a tensor in memory, in which results of eager calls lie, too; None where it is `lies`.

    Expanded dims, as those of the gradient of a sum, keep their places.
    """
    shape = spec.shape
    order = tuple([d for d in memory_order(shape, spec.strides) if shape[d] != 1])
    return None if order == tuple([d for d in lies if shape[d] != 1]) else order


def _held_for(task: Any, edge: Any) -> Tensor | None:
    """The gradient that a running backward call has for an edge."""
    if edge is None:
        return None
    node, number = split_edge(edge)
    buffer = task.buffers.get(node)
    return buffer[number] if buffer is not None and number < len(buffer) else None


def _held_once(task: Any, edges: Sequence[Any]) -> dict[int, Tensor]:
    """The gradients that a running backward call has for edges, by the number of the first edge that leads there."""
    found: dict[int, Tensor] = {}
    seen = set[Any]()
    for k, edge in enumerate(edges):
        held = _held_for(task, edge)
        if held is not None and (place := split_edge(edge)) not in seen:
            seen.add(place)
            found[k] = held
    return found


def _arrived(task: Any, edge: Any) -> bool:
    """Whether a running backward call has a gradient for an edge."""
    return _held_for(task, edge) is not None


def order_of(x: Tensor) -> tuple[int, ...] | None:
    """The order of the dims of a tensor in memory; None where there is but one element, or none."""
    return other_order(x._spec, ())


@cache
def node_of(kind: type[OpNode]) -> type[OpNode]:
    """The class of these nodes, with the name that other programs' nodes have."""
    return type(NAME, (kind,), {"__slots__": (), "_namespace": node_class(NAME)._namespace})
