"""The backward of a compiled program, as the nodes of its calls share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from threading import Lock
from typing import Any, NamedTuple

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._engine.autograd.engine import joined_gradients, run_leaves
from rushlight._engine.autograd.hooks import run_tensor_hooks
from rushlight._engine.autograd.node import Extra, OpNode, next_sequence, node_class, split_edge
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import ANOMALY, GRAD, SAVED_HOOKS, STATE, STREAMED
from rushlight._engine.core.tensor import Tensor, alias, edge_of, plain_classes
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.lower import Backward
from rushlight._engine.dispatch.plans.node_recording import watch
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._engine.indexing.inplace import give_history
from rushlight._graph.core import Graph
from rushlight._types.device import Device
from rushlight._types.layout import memory_order

__all__ = ["NAME", "Derived", "How", "ProgramBackwardSpec", "Target", "Variant"]

NAME = "CompiledFunctionBackward"
# The backward graph, the sources of its saved values, and the numbers of its results for each input: more than one where
# they are not added up.
Variant = tuple[Graph, list[tuple[str, int]], list[tuple[int, ...]]]
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
    level: Any  # `derivatives.Level`, which records further backward
    refusal: Exception | None = None


class ProgramBackwardSpec(BackwardSpec):
    """Where some outputs have no gradient, the engine's backward from the others is recorded too: zeros in their place
    would cost time, and bits.

    `variant(mask, how)` records it, and `derive(mask, how)` backward with a history of its own.  `lies` has for
    outputs the order of dims in which their gradients were assumed to lie: eager calls leave what they compute of others
    in another order, and sums follow it, so that backward is recorded for these too.  `several` are the edges to which an
    eager program gives more than one gradient (see `ProgramNode`).  `inner` tells of outputs from which others are
    computed (see `StagedNode`), `joined` which outputs have what they saved in common: backward from one frees that of
    the others.
    """

    __slots__ = (
        "_derive", "_derived", "_lock", "_variant", "_variants", "ends", "inner", "joined", "level", "lies", "several",
    )  # fmt: skip

    def __init__(
        self,
        backward: Backward,
        wrt: Sequence[int],
        mask: Sequence[bool],
        device: Device,
        variant: Callable[[tuple[bool, ...], How], Variant],
        derive: Callable[[tuple[bool, ...], How], Derived | None],
        several: Sequence[int] = (),
    ) -> None:
        super().__init__(NAME, backward, wrt, mask, device, GRAPH_CALLS)
        self._variant, self._derive, self._lock, self.several = variant, derive, Lock(), tuple(several)
        self._derived: dict[Any, DerivedBackwardSpec | None] = {}
        self.inner: dict[int, tuple[int, ...]] = {}
        self.joined: dict[int, frozenset[int]] = {}
        self.lies: dict[int, tuple[int, ...]] = {}
        self.ends = False
        self.level: Any = None  # of the recorded history (`derivatives.Level`)
        self._variants: dict[Any, tuple[Any, list[int], list[tuple[int, ...]]]] = {}
        self.cls = _node_of(ProgramNode if several or sum(mask) > 1 else WholeNode)

    def take_histories(self, of: ProgramBackwardSpec) -> None:
        """As another: with the same outputs, at other sizes."""
        self.joined, self.lies, self.level = of.joined, of.lies, of.level
        if of.inner:
            self.let_in_stages(of.inner)
        if of.ends:
            self.run_once()

    def let_in_stages(self, inner: dict[int, tuple[int, ...]]) -> None:
        """Tell which outputs are computed from which."""
        self.inner, self.cls = inner, _node_of(StagedNode)

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
            found = self.variant(self.wanted(grads), How(orders=self.orders(grads)))
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
                graph, sources, outputs = self._variant(mask, how)
                found = self._variants[key] = GRAPH_CALLS.caller(graph, NAME), self._places_of(sources), outputs
        return found

    def _places_of(self, sources: Sequence[Any]) -> list[int]:
        places = {source: k for k, source in enumerate(self.sources)}
        return [places[s] for s in sources]

    def derived(self, mask: tuple[bool, ...], how: How) -> DerivedBackwardSpec | None:
        """How these gradients are computed where they can be differentiated again, operator by operator; None where
        they are differentiated as a whole.
        """
        key = mask, how
        with self._lock:
            if key not in self._derived:
                found = self._derive(mask, how)
                self._derived[key] = None if found is None else DerivedBackwardSpec(found, self)
        return self._derived[key]

    def seeds(self, grads: Sequence[Tensor | None]) -> tuple[tuple[int, tuple[int, ...] | None], ...]:
        """The places inside of the program that have gradients, with the orders of the dims of these."""
        if len(grads) <= self.n_results:
            return ()
        return tuple([(p, _order(g)) for p, g in enumerate(grads[len(self.forward.outputs) :]) if g is not None])

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
        level = found.level
        super().__init__(what, (), found.mask, below._device, level.variant, level.derive, found.several)
        self.found, self._lock, self.lies, self.level = found, below._lock, found.lies, level
        self.call = GRAPH_CALLS.caller(found.forward, NAME)
        self.reach = [[t for t in range(len(found.targets)) if bits >> t & 1] for bits in found.reach]
        self.cls, self.inner = _node_of(DerivedNode), level.inner()

    def _places_of(self, sources: Sequence[Any]) -> list[int]:
        return list(sources)


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
        begun = tuple([(k, _order(g)) for k, g in held.items()])
        how = How(orders=info.orders(grads), seeds=info.seeds(grads), begun=begun, cut=cut, same=same)
        spec = info.derived(mask, how) if any(mask) or how.seeds else None
        if spec is None:
            return None
        results = DerivedNode.results(self, spec, [g for k, g in enumerate(given) if not same or same[k] == k])
        for k, _ in begun:
            node, number = split_edge(self._edges[k])
            task.buffers[node][number] = None
        return [None if k is None else results[k] for k in spec.found.results]

    def _base(self) -> tuple[Any, list[Any], list[Tensor], list[int]]:
        """What everything is computed from: the program's node and what it saved, gradients that were given since, and
        their versions.
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
            _keep(task, captured, k, grads[k])
        for each in self.info.level.latest_first(hooked):
            for k in each:
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
                    _keep(task, captured, j, arrived)
                rest: list[Tensor | None] = [None for _ in grads]
                rest[j] = arrived
                if self._extra is not None:
                    run_tensor_hooks(_of_one(self._extra, j), rest)
                if not runs:
                    _keep(task, captured, j, rest[j])
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
        """As that of other programs, or what the stages have found."""
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


@lru_cache(1024)
def _other_order(spec: Any, lies: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of the dims of a tensor in memory, in which results of eager calls lie, too; None where it is `lies`.

    Expanded dims, as those of the gradient of a sum, keep their places.
    """
    shape = spec.shape
    order = tuple([d for d in memory_order(shape, spec.strides) if shape[d] != 1])
    return None if order == tuple([d for d in lies if shape[d] != 1]) else order


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


def _order(x: Tensor) -> tuple[int, ...] | None:
    """The order of the dims of a tensor in memory; None where there is but one element, or none."""
    return _other_order(x._spec, ())


class EndingNode(WholeNode):
    """The backward of a program that saves nothing, in the place of nodes that save a number."""

    __slots__ = ()
    _quick = False

    def _release(self) -> None:
        self.saved = None


@cache
def _node_of(kind: type[OpNode]) -> type[OpNode]:
    """The class of these nodes, with the name that other programs' nodes have."""
    return type(NAME, (kind,), {"__slots__": (), "_namespace": node_class(NAME)._namespace})
