"""The backward of a compiled program, as the nodes of its calls share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from threading import Lock
from typing import Any

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._engine.autograd.engine import joined_gradients, run_leaves
from rushlight._engine.autograd.hooks import run_tensor_hooks
from rushlight._engine.autograd.node import Extra, OpNode, node_class, split_edge
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.lower import Backward
from rushlight._graph.core import Graph
from rushlight._types.device import Device
from rushlight._types.layout import is_dense, memory_order

__all__ = ["NAME", "How", "ProgramBackwardSpec", "Variant"]

NAME = "CompiledFunctionBackward"
# The backward graph, the sources of its saved values, and the numbers of its results for each input: more than one where
# they are not added up.
Variant = tuple[Graph, list[tuple[str, int]], list[tuple[int, ...]]]
# (whether what an input gets is not added up, outputs at which backward ends, the edges that are wanted: all if None,
# the orders of the dims of gradients that lie otherwise than was assumed).
Orders = tuple[tuple[int, ...] | None, ...]
How = tuple[bool, tuple[int, ...], tuple[int, ...] | None, Orders]


class ProgramBackwardSpec(BackwardSpec):
    """Where some outputs have no gradient, the engine's backward from the others is recorded too: zeros in their place
    would cost time, and bits.

    `variant(mask, (apart, points, edges, orders))` records it, for some edges alone if these are given.  `lies` has for
    outputs the order of dims in which their gradients were assumed to lie: eager calls leave what they compute of others
    in another order, and sums follow it, so that backward is recorded for these too.  `several` are the edges to which an
    eager program gives more than one gradient (see `ProgramNode`).  `inner` tells of outputs from which others are
    computed (see `StagedNode`), `joined` which outputs have what they saved in common: backward from one frees that of
    the others.
    """

    __slots__ = ("_lock", "_variant", "_variants", "ends", "inner", "joined", "latest_first", "lies", "several")

    def __init__(
        self,
        backward: Backward,
        wrt: Sequence[int],
        mask: Sequence[bool],
        device: Device,
        variant: Callable[[tuple[bool, ...], How], Variant],
        several: Sequence[int] = (),
    ) -> None:
        super().__init__(NAME, backward, wrt, mask, device, GRAPH_CALLS)
        self._variant, self._lock, self.several = variant, Lock(), tuple(several)
        self.inner: dict[int, tuple[int, ...]] = {}
        self.joined: dict[int, frozenset[int]] = {}
        self.lies: dict[int, Sequence[int]] = {}
        self.ends = False
        self.latest_first: Callable[[Iterable[int]], list[int]] = sorted
        self._variants: dict[Any, tuple[Any, list[int], list[tuple[int, ...]]]] = {}
        self.cls = _node_of(ProgramNode if several or sum(mask) > 1 else WholeNode)

    def take_histories(self, of: ProgramBackwardSpec) -> None:
        """As another: with the same outputs, at other sizes."""
        self.joined, self.lies = of.joined, of.lies
        if of.inner:
            self.let_in_stages(of.inner, of.latest_first)
        if of.ends:
            self.run_once()

    def let_in_stages(
        self, inner: dict[int, tuple[int, ...]], latest_first: Callable[[Iterable[int]], list[int]]
    ) -> None:
        """Tell which outputs are computed from which, and in which order backward comes by."""
        self.inner, self.latest_first, self.cls = inner, latest_first, _node_of(StagedNode)

    def run_once(self) -> None:
        """Let nodes run but once where the graph is not retained, also if they save nothing."""
        self.ends = True
        if not self.sources and self.cls is _node_of(WholeNode):
            self.cls = _node_of(EndingNode)

    def wanted(self, grads: Sequence[Tensor | None]) -> tuple[bool, ...]:
        """Which outputs have a gradient that goes anywhere."""
        return tuple([g is not None and flag for g, flag in zip(grads, self.mask, strict=False)])

    def _from_results(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        if all(g is not None or not flag for g, flag in zip(grads, self.mask, strict=True)):
            return super()._from_results(saved, grads, run)
        try:
            found = self.variant(self.wanted(grads), orders=self.orders(grads))
        except NotImplementedError:  # it reads what the whole backward does not, and so was not saved
            return super()._from_results(saved, grads, run)
        return [None if g is None else g[0] for g in self.of_variant(found, [saved[k] for k in found[1]], grads)]

    def orders(self, grads: Sequence[Tensor | None]) -> Orders:
        """The orders of the dims of those gradients that lie otherwise than was assumed; nothing where all do as was."""
        found = [
            None if (lies := self.lies.get(j)) is None else _other_order(g._spec, lies)
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
            call, picks, outputs = self.variant(self.mask, orders=orders)
        except NotImplementedError:  # it reads what was not saved
            return super()._prepared(inputs)
        places = [each[0] if each else None for each in outputs]

        def run(*inputs: Any) -> list[Tensor | None]:
            results = call(*[inputs[k] for k in picks], *inputs[count:])
            return [None if place is None else results[place] for place in places]

        return run

    def variant(
        self,
        mask: tuple[bool, ...],
        apart: bool = False,
        points: tuple[int, ...] = (),
        edges: tuple[int, ...] | None = None,
        orders: Orders = (),
    ) -> tuple[Any, list[int], list[tuple[int, ...]]]:
        """(what to call, the saved values that it takes, the places of its results by edge, then by point)."""
        key = mask, apart, points, edges, orders
        with self._lock:  # a recording is continued by one thread at a time
            found = self._variants.get(key)
            if found is None:
                graph, sources, outputs = self._variant(mask, (apart, points, edges, orders))
                places = {source: k for k, source in enumerate(self.sources)}
                found = GRAPH_CALLS.caller(graph, NAME), [places[s] for s in sources], outputs
                self._variants[key] = found
        return found

    def of_variant(
        self, found: tuple[Any, list[int], list[tuple[int, ...]]], items: Sequence[Any], grads: Sequence[Tensor | None]
    ) -> list[tuple[Tensor, ...] | None]:
        """The gradients that a variant gives for each edge and point, in the order in which an eager program adds them
        up.
        """
        call, _, outputs = found
        given = [g for g, flag in zip(grads, self.wanted(grads), strict=False) if flag]
        results = call(*items, *given)
        return [tuple([results[o] for o in each]) or None for each in outputs]


class WholeNode(OpNode):
    """The backward of a program.

    What a backward call that asks for some gradients does not need may have changed: to an eager program it is saved
    by nodes that do not run then.
    """

    __slots__ = ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        try:
            return super().apply(grads)
        except RuntimeError:
            found = self._of_needed(grads)
            if found is None:
                raise
            return found

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
            found = self._of_some(info.wanted(grads), grads, False, (), edges)
        except (NotImplementedError, RuntimeError):
            return None
        return [None if each is None else each[0] for each in found]

    def _of_some(
        self,
        mask: tuple[bool, ...],
        grads: Sequence[Tensor | None],
        apart: bool,
        points: tuple[int, ...] = (),
        edges: tuple[int, ...] | None = None,
    ) -> list[tuple[Tensor, ...] | None]:
        found = self.info.variant(mask, apart, points, edges, self.info.orders(grads))
        found_items = self._unpack(self.saved, True, found[1])
        results: list[tuple[Tensor, ...] | None] = self.info.of_variant(found, found_items, grads)
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
            _, _, reached = info.variant(info.wanted(grads))
        except (NotImplementedError, RuntimeError):
            return
        run_leaves(task, [edge for edge, each in zip(self._edges, reached, strict=False) if not each])

    def _of_all(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        task, edges, info = STATE.task, self._edges, self.info
        if self.saved is None or len(grads) != len(info.mask):  # saved values have gradients too
            return OpNode.apply(self, grads)
        mask = self._ran = info.wanted(grads)
        if self._gone and any(flag and j in self._gone for j, flag in enumerate(mask)):
            self._refuse()
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
        if all(grads[k] is not None for k in hooked):
            return False
        captured, runs = self._captured(task)
        for k, _ in captured if runs else ():
            _keep(task, captured, k, grads[k])
        for k in sorted(hooked):
            if extra is not None and grads[k] is not None:
                run_tensor_hooks(_of_one(extra, k), grads)
        for k, _ in () if runs else captured:
            _keep(task, captured, k, grads[k])
        task.notes[self] = None
        return True

    def _captured(self, task: Any) -> tuple[Sequence[tuple[int, int]], bool]:
        """Which gradients of its outputs a backward call asks for, and whether it goes on behind them."""
        if task.needed is None:
            return (), True
        return task.captures.get(self, ()), self in task.needed

    def _passed_on(self, task: Any, parts: Sequence[Sequence[Tensor] | None]) -> list[Tensor | None]:
        """The last gradient of each edge; those before it are added to its buffer."""
        found: list[Tensor | None] = []
        for edge, each in zip(self._edges, parts, strict=True):
            for grad in each[:-1] if each else ():
                task.add(edge, grad)
            found.append(each[-1] if each else None)
        return found


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
        if not any(grads[j] is not None for k in seen for j in info.inner.get(k, ())):
            return super().in_stages(task, grads)
        if len(grads) != len(info.mask):
            raise RuntimeError(
                "a second derivative through a value that a compiled program saved, together with the gradient of one of its outputs for another: "
                "return them from two compiled functions"
            )
        if self.saved is None or any(g is not None and k in self._gone for k, g in enumerate(grads)):
            self._run_other_leaves(grads)
            self._refuse()
        self._ran = info.wanted(grads)
        task.notes[self] = self._passed_on(task, self._stages(task, grads, captured, tuple(info.latest_first(seen))))
        return True

    def _stages(
        self, task: Any, grads: list[Tensor | None], captured: Sequence[tuple[int, int]], points: tuple[int, ...]
    ) -> list[list[Tensor]]:
        """The gradients of each edge, in the order in which they come."""
        _, runs = self._captured(task)
        parts: list[list[Tensor]] = [[] for _ in self._edges]
        rest: list[Tensor | None] = [None if k in points else g for k, g in enumerate(grads)]
        arrived = {p: grads[p] for p in points}
        for point in (None, *points):
            if point is not None:
                if runs:
                    _keep(task, captured, point, arrived[point])
                rest = [None for _ in grads]
                rest[point] = arrived[point]
                if self._extra is not None:
                    run_tensor_hooks(_of_one(self._extra, point), rest)
                if not runs:
                    _keep(task, captured, point, rest[point])
            mask = self.info.wanted(rest)
            if not any(mask):
                continue
            found = self._of_some(mask, rest, True, points)
            for held, each in zip(parts, found, strict=False):
                held.extend(each or ())
            for p, each in zip(points, found[len(parts) :], strict=True):
                for grad in each or ():
                    held = arrived[p]
                    arrived[p] = grad if held is None else joined_gradients(held, grad)
        return parts

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """As that of other programs, or what the stages have found."""
        task = STATE.task
        found: list[Tensor | None] | None = None if task is None else task.notes.get(self)
        if found is not None:
            return found
        return super().apply(grads)


def _keep(task: Any, captured: Sequence[tuple[int, int]], point: int, grad: Tensor | None) -> None:
    for number, place in captured:
        if number == point:
            task.results[place] = grad


def _of_one(extra: Extra, number: int) -> Extra:
    """The hooks of one result of a node."""
    found = Extra()
    for name in ("tensor_hooks", "retain"):
        held = getattr(extra, name)
        if held is not None and number in held:
            setattr(found, name, {number: held[number]})
    return found


def _other_order(spec: Any, lies: Sequence[int]) -> tuple[int, ...] | None:
    """The order of the dims of a dense tensor in memory; None where it is `lies`."""
    shape = spec.shape
    if not is_dense(shape, spec.strides):
        return None
    order = tuple([d for d in memory_order(shape, spec.strides) if shape[d] != 1])
    return None if order == tuple([d for d in lies if shape[d] != 1]) else order


def _arrived(task: Any, edge: Any) -> bool:
    """Whether a running backward call has a gradient for an edge."""
    if edge is None:
        return False
    node, number = split_edge(edge)
    buffer = task.buffers.get(node)
    return buffer is not None and number < len(buffer) and buffer[number] is not None


class EndingNode(OpNode):
    """The backward of a program that saves nothing, in the place of nodes that save a number."""

    __slots__ = ()
    _quick = False

    def _release(self) -> None:
        self.saved = None


@cache
def _node_of(kind: type[OpNode]) -> type[OpNode]:
    """The class of these nodes, with the name that other programs' nodes have."""
    return type(NAME, (kind,), {"__slots__": (), "_namespace": node_class(NAME)._namespace})
