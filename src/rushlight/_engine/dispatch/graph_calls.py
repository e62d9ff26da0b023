"""Graphs as functions of tensors: `graph_caller` runs a graph by plans, one for each signature, and records a node
where gradients are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import GRAD, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardAt, GraphCalls, passed_inputs
from rushlight._engine.dispatch.kept.plan_store import PlanNote
from rushlight._engine.dispatch.lower import Backward, differentiate_graph, transform
from rushlight._engine.dispatch.plans.native_plans import choose_plan
from rushlight._engine.dispatch.plans.plan import LoweredCall
from rushlight._engine.dispatch.plans.plan_templates import PlanTemplate, ShowTemplate, passed_places, passing, showing
from rushlight._engine.dispatch.plans.result_strides import gradient_strides
from rushlight._engine.dispatch.plans.shape_classes import SymbolicSpec
from rushlight._graph.core import Graph, Value
from rushlight._graph.view_outputs import moved_layouts
from rushlight._types.device import CPU, Device
from rushlight._types.layout import is_dense
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec

__all__ = ["GRAPH_CALLS", "graph_caller"]

kept_plans: Any = LazyModule("rushlight._engine.dispatch.kept.kept_plans")  # with the first plan
stepping: Any = LazyModule("rushlight._engine.dispatch.plans.stepping")  # with the first graph that is run


def graph_caller(what: Backward | BackwardAt | Graph, name: str) -> Any:
    """A function that runs a graph, or the backward graph of a `Backward`, on tensors and Python numbers.

    It returns a tuple of tensors, and records nodes called `name` where gradients are wanted.  A graph output that is
    an input comes back as that very tensor.  A graph with a primitive that has steps (see `stepping`) is recorded step
    by step.
    """
    if isinstance(what, BackwardAt):
        return _sized_caller(what, name)
    graph = what if isinstance(what, Graph) else what.graph
    return (
        _caller(graph, lambda: graph, name, lambda inputs, note: _graph_plan(graph, name, inputs, note))
        if graph.nodes
        else _chooser(graph)
    )


def _sized_caller(backward: BackwardAt, name: str) -> Any:
    """`graph_caller` of a backward graph for one set of sizes."""
    alike = backward.shared.symbolic.graph
    return (
        _caller(alike, lambda: backward.graph, name, lambda inputs, note: _sized_plan(backward, name, inputs, note))
        if alike.nodes
        else _chooser(alike)
    )


def _chooser(graph: Graph) -> Any:
    """A function that runs a graph without nodes: its outputs are inputs."""
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    picks = [where[id(v)] for v in graph.outputs]

    def choose(*inputs: Any) -> tuple[Any, ...]:
        return tuple([inputs[i] for i in picks])

    choose.prepare = lambda inputs, note=None: choose_plan(choose, picks) if picks else choose  # type: ignore[attr-defined]
    return choose


def _caller(
    alike: Graph,
    graph: Callable[[], Graph],
    name: str,
    make: Callable[[Sequence[Any], PlanNote | None], Callable[..., Any]],
) -> Any:
    """A function that runs the plan for the signature of its arguments; `make` makes it.

    `graph()` is the graph that it computes; `alike` has the same nodes, perhaps for other sizes.
    """
    plans = new_plan_table()
    state = STATE

    takes, stepped = stepping.takes_steps(alike), list[Any]()

    def call(*inputs: Any) -> Any:
        if takes and state.word & GRAD and any(isinstance(i, Tensor) and i._rg for i in inputs):
            if not stepped:
                stepped.append(stepping.Stepped(graph(), lambda part: graph_caller(part, name)))
            return stepped[0](*inputs)
        signature: list[Any] = [state.word]
        for item in inputs:
            if isinstance(item, Tensor):
                signature.append(item._spec)
                signature.append(item._rg)
            else:
                signature.append(type(item))
        key = tuple(signature)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = make(inputs, None)
        return plan(*inputs)

    call.prepare = make  # type: ignore[attr-defined]
    return call


def device_of_specs(specs: Sequence[Spec | None]) -> Device:
    """The device of the first tensor; the host where there is none."""
    return next((s.device for s in specs if s is not None), CPU)


def _graph_plan(graph: Graph, name: str, inputs: Sequence[Any], note: PlanNote | None = None) -> Callable[..., Any]:
    """The plan of a graph.  `note` takes the parts of the plan, if they are kept on disk."""
    HOOKS.operator_name = name
    specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
    device = device_of_specs(specs)
    lowered = _lowered_graph(graph, name, specs, [isinstance(i, Tensor) and i._rg for i in inputs], device, Spec.of)
    if lowered is None:
        return showing(moved_layouts(graph, specs) or [], specs, note)
    if note is not None:
        note.passed = passed_places(graph)
    return passing(passed_places(graph), lowered.plan(device, record=note))


def _sized_plan(
    backward: BackwardAt, name: str, inputs: Sequence[Any], note: PlanNote | None = None
) -> Callable[..., Any]:
    """The plan of a backward graph: cast from a plan template where there is one."""
    specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
    device = device_of_specs(specs)
    if backend_of(device).symbolic and all(s is None or s.device is device for s in specs):
        shared, grads = backward.shared, tuple([isinstance(i, Tensor) and i._rg for i in inputs])

        def make(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> PlanTemplate | ShowTemplate:
            graph = shared.graphs(shape_env.symbols[: len(backward.sizes)])[1]
            lowered = _lowered_graph(graph, name, symbolic_specs, grads, device, SymbolicSpec.of)
            return (
                ShowTemplate(moved_layouts(graph, symbolic_specs) or [])
                if lowered is None
                else PlanTemplate(lowered, shape_env)
            )

        known = shared.shape_classes.find((STATE.word, grads), specs, make, backward.sizes, again=True)
        if known is not None:
            plan_template, values, sizes, _ = known
            if isinstance(plan_template, ShowTemplate):
                return showing(plan_template.layouts(values), specs, note)
            passed = passed_places(shared.symbolic.graph)
            if note is not None:
                note.passed = passed
            return passing(passed, plan_template.plan(values, sizes, specs, record=note))
    return _graph_plan(backward.graph, name, inputs, note)


def _lowered_graph(
    graph: Graph, name: str, specs: Sequence[Any], grads: Sequence[bool], device: Device, of: Callable[..., Any]
) -> LoweredCall | None:
    """The lowered call of a graph; None where all outputs are views of inputs and nothing is recorded.

    A result wants a gradient if a path leads to it from an input that wants one.
    """
    passed = passed_inputs(graph)
    rest = Graph(graph.inputs, graph.nodes, [v for j, v in enumerate(graph.outputs) if j not in passed])
    wrt = [k for k, flag in enumerate(grads) if flag] if STATE.word & GRAD else []
    mask = transform.reached(rest, wrt)
    if not any(mask) and moved_layouts(graph, specs) is not None:
        return None
    operands = [s for s in specs if s is not None]
    lies = [_lies(v) or gradient_strides(v.shape, operands) for v in rest.outputs]
    shown = moved_layouts(rest, specs) if any(mask) else None
    for k, (_, shape, strides, _) in enumerate(shown or ()):
        if is_dense(shape, strides):  # as if it were a view of the input
            lies[k] = strides
    results = [of(v.dtype, device, v.shape, strides) for v, strides in zip(rest.outputs, lies, strict=True)]
    several = len(rest.outputs) == 1 and not passed
    if not any(mask):
        return LoweredCall(rest, specs, results, of, device, several=several)
    backward = differentiate_graph(rest, len(mask), wrt, mask)
    backward.parts = True
    return LoweredCall(
        backward.forward, specs, results, of, device, name, backward, wrt, mask, several=several, graphs=GRAPH_CALLS
    )


def _lies(value: Value) -> tuple[int, ...] | None:
    """The strides of a result of a call, in a graph with borders."""
    node = value.node
    if node is None or node.prim.name != "border":
        return None
    strides: tuple[int, ...] = node.params["strides"][value.index]
    return strides


def _kept_plan(
    note: PlanNote, name: str, inputs: Sequence[Any], graph: Callable[[], Graph]
) -> Callable[..., Any] | None:
    """The kept plan of a backward graph for these inputs, outside of any graph; None where there is none.  `graph()` is
    what it computes.
    """

    def derive(note: PlanNote) -> LoweredCall | list[Any]:
        specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
        lowered = _lowered_graph(graph(), name, specs, [False] * len(inputs), device_of_specs(specs), Spec.of)
        note.passed = passed_places(graph())
        return (moved_layouts(graph(), specs) or []) if lowered is None else lowered

    return kept_plans.kept_graph_plan(note.key, inputs, derive)


GRAPH_CALLS = GraphCalls(graph_caller, _sized_plan, _kept_plan)
