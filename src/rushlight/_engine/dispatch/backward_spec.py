"""Backward specs: the node class, the sources of saved values and the backward graph that the nodes of one signature
share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._base.lazy import require
from rushlight._engine.autograd.edges import are_operands, argument_places
from rushlight._engine.autograd.node import node_class
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.memory import zeros_spec
from rushlight._engine.core.state import GRAD, RECORDING, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.kept.plan_store import PlanNote, graph_key
from rushlight._engine.dispatch.lower import Backward, differentiate_graph
from rushlight._engine.dispatch.plans.native_plans import register_slots
from rushlight._engine.dispatch.plans.shape_classes import ShapeClasses
from rushlight._graph.core import Graph, live_nodes
from rushlight._graph.frames import graph_frame, graph_from
from rushlight._types.device import Device
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec

if TYPE_CHECKING:
    from rushlight._engine.dispatch.kept.plan_packing import KeptBackward

__all__ = ["BackwardAt", "BackwardSpec", "GraphCalls", "SizedBackward", "passed_inputs"]


class GraphCalls(NamedTuple):
    """How backward graphs are run.

    The one instance is `graph_calls.GRAPH_CALLS`.  Makers of a `BackwardSpec` pass it in, because running a backward
    graph can record another one.
    """

    caller: Callable[[Any, str], Any]
    sized_plan: Callable[[BackwardAt, str, Sequence[Any], PlanNote | None], Callable[..., Any]]
    kept_plan: Callable[[PlanNote, str, Sequence[Any], Callable[[], Graph]], Callable[..., Any] | None]


class BackwardSpec:
    """Shared by the backward nodes of one signature: the node class, the sources of saved values, and the backward
    graph.
    """

    __slots__ = (
        "_backward", "_device", "_fast", "_graphs", "_in_order", "_origin", "last_map", "last_plan", "last_spec", "last_word", "mask", "_out_specs",
        "_operands", "_places", "_plans", "_results", "_some", "_wanted", "cls", "n_results", "outputs", "record", "sources", "wrt",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        backward: Backward | BackwardAt | KeptBackward,
        wrt: Sequence[int],
        mask: Sequence[bool],
        device: Device,
        graphs: GraphCalls,
        results: Sequence[Spec] = (),
    ) -> None:
        """`graphs` runs the backward graph; `results` are the specs of the results and residuals, where they are known."""
        self.cls = node_class(name)
        self.wrt, self.n_results, self.mask = tuple(wrt), len(mask), tuple(mask)
        self.sources, self.outputs, self._backward, self._device = backward.saved, backward.outputs, backward, device
        self._graphs, self._results = graphs, results
        self._out_specs: list[Spec] | None = None
        self._plans: Any = None
        self._some: dict[tuple[bool, ...], Any] = {}
        self._wanted: dict[tuple[int, ...], Any] = {}
        self._places: Any = None
        self._operands: bool | None = None
        self._origin: Any = None
        self.record: bytes | None = None  # the key of the record of the forward call, where one is kept
        self._fast: dict[Any, Any] = {}
        self._in_order = self.outputs == list(range(len(self.outputs)))
        self.last_spec: Any = None  # the gradient and the state for which `last_plan` was made
        self.last_word = 0
        self.last_plan: Any = None
        self.last_map = None if self._in_order else tuple(self.outputs)

    @property
    def plans(self) -> Any:
        """The caller of the backward graph (see `graph_caller`)."""
        if self._plans is None:
            self._plans = self._graphs.caller(self._backward, self.cls.__name__)
        return self._plans

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._backward.graph

    @property
    def forward(self) -> Graph:
        """The forward graph, with residuals after its results."""
        return self._backward.forward

    @property
    def out_specs(self) -> list[Spec]:
        """The specs of the forward's results, row-major."""
        if self._out_specs is None:
            self._out_specs = [Spec.of(v.dtype, self._device, v.shape) for v in self._results or self.forward.outputs]
        return self._out_specs

    @property
    def origin(self) -> Any:
        """(operator, template, specs) of the call, if there is one.  It may be set as a function, which is called on
        first use.
        """
        if callable(self._origin):
            self._origin = self._origin()
        return self._origin

    @origin.setter
    def origin(self, call: Any) -> None:
        self._origin = call

    def places(self) -> Any:
        """For each argument of the call that could have a gradient the number of its edge, or None; None where no call
        is known.
        """
        if self._places is None and self.origin is not None:
            op, template, specs = self.origin
            self._places = argument_places(op, template, specs, self.wrt, self.cls.__name__)
        return self._places

    def saves_operands(self) -> bool:
        """Whether a saved value is a tensor or stands in the place of one, as the 2 of `x * 2`, and not that of a
        factor as `alpha`.
        """
        if self._operands is None:
            operands = None if self.origin is None else are_operands(*self.origin[:2])
            self._operands = operands is None or any(kind != "input" or operands[k] for kind, k in self.sources)
        return self._operands

    def backward(self, saved: Sequence[Any], grads: list[Tensor | None]) -> list[Tensor | None]:
        """Gradients for the edges, from saved values and the results' gradients."""
        if self.n_results == 1 and len(grads) == 1:
            grad: Any = grads[0]
            key = (grad._spec, STATE.word)
            plan = self._fast.get(key)
            if plan is None:
                if STATE.word & GRAD:  # create_graph: the plan depends on more than specs
                    results = self.plans(*saved, grad)
                    return [None if o is None else results[o] for o in self.outputs]
                plan = self._fast[key] = self._prepared((*saved, grad))
            self.last_spec, self.last_word, self.last_plan = grad._spec, STATE.word, plan
            results = plan(*saved, grad)
            return results if self._in_order else [None if o is None else results[o] for o in self.outputs]
        return self._backward_of(saved, grads, self._run)

    def backward_of(self, saved: Sequence[Any], grads: list[Tensor | None]) -> list[Tensor | None]:
        """`backward` for saved values whose layout may have changed."""
        return self._backward_of(saved, grads, lambda saved, cotangents: self.plans(*saved, *cotangents))

    def _backward_of(
        self, saved: Sequence[Any], grads: list[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        results, residuals = grads[: self.n_results], grads[self.n_results :]
        gradients: list[Tensor | None] = [None] * len(self.outputs)
        if any(g is not None for g in results):
            gradients = self._from_results(saved, results, run)
        # Residuals have gradients if the backward was differentiated.
        if any(g is not None for g in residuals):
            gradients = self._sums(gradients, self._from_some(saved, [*[None] * self.n_results, *residuals]))
        return gradients

    def _from_results(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        if self._backward.parts and any(g is None and flag for g, flag in zip(grads, self.mask, strict=True)):
            try:
                return self._from_some(saved, grads)
            except NotImplementedError:  # the saved values do not suffice
                pass
        cotangents = [self._zeros(i) if g is None else g for i, g in enumerate(grads) if self.mask[i]]
        results = run(saved, cotangents)
        return [None if o is None else results[o] for o in self.outputs]

    def _run(self, saved: Sequence[Any], cotangents: Sequence[Tensor]) -> Any:
        """The results of the backward graph for several cotangents."""
        if STATE.word & GRAD:
            return self.plans(*saved, *cotangents)
        key = (STATE.word, *[g._spec for g in cotangents])
        plan = self._fast.get(key)
        if plan is None:
            plan = self._fast[key] = self._prepared((*saved, *cotangents))
        return plan(*saved, *cotangents)

    def _prepared(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The plan of the backward graph for these inputs, outside of any graph."""
        backward, name, note = self._backward, self.cls.__name__, self._note(inputs)
        if note is not None:
            kept = self._graphs.kept_plan(note, name, inputs, lambda: self.graph)
            if kept is not None:
                return kept
        if self._plans is None and type(backward) is BackwardAt and backward.shared.symbolic.graph.nodes:
            # Most sizes are called once: a caller with a table of plans is made by the second call.
            return self._graphs.sized_plan(backward, name, inputs, note)
        plan: Callable[..., Any] = self.plans.prepare(inputs, note)
        return plan

    def _note(self, inputs: Sequence[Any]) -> PlanNote | None:
        """The note of the plan for these inputs, where records are kept."""
        key = None if self.record is None or STATE.word & GRAD else graph_key(self.record, inputs)
        return None if key is None else PlanNote(key)

    def _zeros(self, number: int) -> Tensor:
        spec = self.out_specs[number]
        if STATE.word & RECORDING:  # the gradients are those of a program
            made: Tensor = OPS["zeros"](tuple(spec.shape), dtype=spec.dtype, device=str(spec.device))
            return made
        return zeros_spec(spec)

    def _from_some(self, saved: Sequence[Any], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients from some of the results and residuals alone."""
        n, total = self.n_results, len(self.forward.outputs)
        mask = (*[g is not None for g in grads], *[False] * (total - len(grads)))
        if mask not in self._some:
            where = {
                ("output", n + i) if kind == "residual" else (kind, i): k for k, (kind, i) in enumerate(self.sources)
            }
            derived = differentiate_graph(self.forward, total, self.wrt, mask, only=list(where))
            self._some[mask] = (
                self._graphs.caller(derived.graph, self.cls.__name__),
                [where[s] for s in derived.saved],
                derived.outputs,
            )
        call, picks, outputs = self._some[mask]
        results = call(*[saved[i] for i in picks], *[g for g in grads if g is not None])
        return [None if o is None else results[o] for o in outputs]

    def backward_for(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], edges: Sequence[int]
    ) -> list[Tensor | None] | None:
        """The gradients for some of the edges alone, from the gradients of all results; None where they cannot be had
        without the others.
        """
        cotangents, flags = list(grads[: self.n_results]), self.mask
        if any(g is not None for g in grads[self.n_results :]):
            return None
        if any((g is None) is flag for g, flag in zip(cotangents, flags, strict=True)):
            return None
        key = tuple(edges)
        if key not in self._wanted:
            picks = sorted({o for o in (self.outputs[k] for k in edges) if o is not None})
            graph = self.graph
            ends = [graph.outputs[o] for o in picks]
            part = Graph(graph.inputs, live_nodes(graph.nodes, ends), ends)
            self._wanted[key] = self._graphs.caller(part, self.cls.__name__), {o: k for k, o in enumerate(picks)}
        call, where = self._wanted[key]
        results = call(*saved, *[g for g in cotangents if g is not None])
        found: list[Tensor | None] = [None] * len(self.outputs)
        for k in edges:
            number = self.outputs[k]
            found[k] = None if number is None else results[where[number]]
        return found

    @staticmethod
    def _sums(some: Sequence[Tensor | None], more: Sequence[Tensor | None]) -> list[Tensor | None]:
        return [b if a is None else a if b is None else OPS["add"](a, b) for a, b in zip(some, more, strict=True)]


register_slots("R_SPEC", BackwardSpec, ("last_spec", "last_word", "last_plan", "last_map"))


class SizedBackward:
    """A `Backward` with symbolic sizes, and the plan templates that all sizes share."""

    __slots__ = ("_graphs", "_shape_env", "passes", "shape_classes", "symbolic")

    def __init__(self, symbolic: Backward, shape_env: ShapeEnv) -> None:
        self.symbolic, self._shape_env, self.shape_classes = symbolic, shape_env, ShapeClasses()
        self.passes = bool(passed_inputs(symbolic.graph))  # whether some of its results are inputs
        self._graphs: Any = None

    def graphs(self, sizes: Sequence[Any]) -> list[Graph]:
        """Forward and backward graph for sizes, which may be symbolic."""
        if self._graphs is None:
            numbers: list[Any] = []
            frames = [graph_frame(g, numbers) for g in (self.symbolic.forward, self.symbolic.graph)]
            self._graphs = (frames, self._shape_env.compiled(numbers, guarded=False))
        frames, numbers_at = self._graphs
        values = numbers_at(*sizes)
        return [graph_from(frame, values) for frame in frames]

    def literal(self, sizes: Sequence[int]) -> list[str]:
        """The graphs for one set of sizes and the saved values, as text."""
        lines = require("rushlight._graph.listing").graph_lines
        return [
            f"{self.symbolic.saved} {self.symbolic.outputs}",
            *(line for graph in self.graphs(sizes) for line in lines(graph)),
        ]

    def at(self, sizes: Sequence[int]) -> BackwardAt:
        """The `Backward` for one set of sizes."""
        return BackwardAt(self, sizes)


class BackwardAt:
    """A `Backward` for one set of sizes; its graphs are made on first use."""

    __slots__ = ("_graphs", "outputs", "parts", "saved", "shared", "sizes")

    def __init__(self, shared: SizedBackward, sizes: Sequence[int]) -> None:
        self.shared, self.sizes = shared, sizes
        self.saved, self.outputs, self.parts = shared.symbolic.saved, shared.symbolic.outputs, shared.symbolic.parts
        self._graphs: list[Graph] | None = None

    def _graph(self, which: int) -> Graph:
        if self._graphs is None:
            self._graphs = self.shared.graphs(self.sizes)
        return self._graphs[which]

    @property
    def forward(self) -> Graph:
        """The forward graph, with residuals."""
        return self._graph(0)

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._graph(1)


def passed_inputs(graph: Graph) -> dict[int, int]:
    """The number of the input for each output that is one."""
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    return {j: where[id(v)] for j, v in enumerate(graph.outputs) if id(v) in where}
