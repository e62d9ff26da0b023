"""Operators on tensors that are spread over processes.

A call is recorded once as a graph of primitives over the whole tensors. How its parts are computed follows from the
graph: for each axis of the mesh the way that moves the fewest bytes is chosen, inputs are redistributed for it, and this
process runs its own graph. What is no graph (random numbers, results whose shape depends on elements) runs on the
whole tensors on every process. Random numbers are those that the first process of the mesh would draw alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.base import warn_user
from rushlight._interface.sharding import (
    CallGraph,
    Graph,
    Part,
    RecordingError,
    Strategy,
    Value,
    follow,
    graph_caller,
    graph_of_call,
    local_shape,
    localize,
    stages,
    strategies,
)
from rushlight._interface.tensors import STATE
from rushlight.distributed.tensor._by_hand import REGISTERED, run
from rushlight.distributed.tensor._known_calls import look_up, remember
from rushlight.distributed.tensor._random import stream_of_the_first
from rushlight.distributed.tensor._redistribute import redistribute, reduce_along
from rushlight.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    fits,
    interned,
    nested,
    nesting,
)
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["LOSS_PARALLEL", "call"]

Placements = tuple[Placement, ...]
_CONTAINERS = (list, tuple, dict)
_KINDS = {"sum": "sum", "product": "prod", "max": "max", "min": "min"}


class Leaf(NamedTuple):
    """A tensor among the arguments of a call, as part of a key."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


class Plan(NamedTuple):
    """How a call is run for certain placements of its tensors."""

    # Tensors that are read, by number, and what they become first (None: stay)
    reads: list[tuple[int, Placements | None]]
    steps: list[tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[int, str], ...]]]
    outputs: list[Placements]
    moved: bool  # whether elements move between processes first
    copies: bool  # whether the graph moves elements and computes none
    specs: dict[int, Any]  # of the results as whole tensors, by place: filled by the first call


class Recorded:
    """A call with certain shapes: its graph, and plans by the placements of its tensors."""

    def __init__(self, graph: CallGraph | None, why: str) -> None:
        self.graph, self.why = graph, why
        self.plans: dict[Any, Plan] = {}
        self.like_inputs = True  # whether what is made of nothing lies on the inputs' device: the call names no other


_RECORDED: dict[Any, Recorded] = {}
# Operators of losses whose targets may be plain tensors, the same on all processes, within `loss_parallel`.
_LOSSES = frozenset(("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"))
LOSS_PARALLEL: list[Any] = []  # one item for each block that is open
# Of calls that compute every element of equal tensors by itself, whatever the numbers: which tensors they change.
_UNIFORM: dict[Any, list[int]] = {}


def call(func: Any, args: Any, kwargs: Any, dtensor: Any, implicit: bool = False) -> Any:
    """`func(*args, **kwargs)` where some tensors are instances of the class `dtensor`."""
    quick: Any = None
    if not kwargs and not STATE.observers and STATE.recording is None and not REGISTERED:
        known, quick, tensors = look_up(func, args, dtensor)
        if known is not None:
            return known(args, tensors)
    if rushlight.Tag.inplace_view in getattr(func, "tags", ()):
        return _become(func, args, kwargs or {}, dtensor)
    nested = kwargs or any(isinstance(x, _CONTAINERS) for x in args)
    flat, tree = tree_flatten((list(args), dict(kwargs or {}))) if nested else (list(args), None)
    mesh = next(x.device_mesh for x in flat if isinstance(x, dtensor))
    tensors = []
    for i, x in enumerate(flat):
        if not isinstance(x, Tensor):
            continue
        if not isinstance(x, dtensor):
            x = flat[i] = _replicated(func, x, mesh, dtensor, implicit)
        elif x.device_mesh != mesh:
            raise RuntimeError(f"{func}: tensors of two meshes, {mesh} and {x.device_mesh}; operators take one")
        if all(x is not other for other in tensors):
            tensors.append(x)
    for observer in STATE.observers:
        if observer.takes_spread:
            observer.spread(getattr(func, "__name__", str(func)), tensors)
    if mesh.get_coordinate() is None:
        return _outside(func, flat, tree, tensors, dtensor)
    if REGISTERED and func in REGISTERED:
        return run(func, flat, tree_flatten((flat, {}))[1] if tree is None else tree, mesh, dtensor)
    form, keys = None if tree is None else str(tree), tuple([_key(x, tensors) for x in flat])
    grid = mesh._key()  # equal meshes share what was recorded, which holds none of them
    key = func, form, keys, grid
    loose = func, form, tuple([type(x) if type(x) is float else k for x, k in zip(flat, keys, strict=True)]), grid
    alike = _alike(tensors)
    if alike and loose in _UNIFORM:
        changed = _UNIFORM[loose]
        _check_changes(func, tensors, changed)
        if quick is not None:
            place = next(n for n, x in enumerate(tensors) if x.ndim)
            remember(mesh, quick, _direct_run(func, changed, place, dtensor))
        return _direct(func, flat, tree, tensors, dtensor)
    recorded = _RECORDED.get(key)
    if recorded is None:
        with nullcontext() if STATE.recording is None else STATE.recording.paused():
            recorded = _RECORDED[key] = _record(func, flat, tree, tensors)
        recorded.like_inputs = (kwargs or {}).get("device") in (None, tensors[0]._local_tensor.device)
        if recorded.graph is not None and _is_uniform(recorded.graph, tensors):
            _UNIFORM[loose] = recorded.graph.changed
    if recorded.graph is None:
        return _whole(func, flat, tree, dtensor, mesh)
    _check_changes(func, tensors, recorded.graph.changed)
    if alike and loose in _UNIFORM:
        return _direct(func, flat, tree, tensors, dtensor)
    found = _planned(str(func), recorded, tensors, mesh, dtensor)
    if quick is not None and float not in map(type, args):
        plan = recorded.plans[tuple([x._placed for x in tensors])]
        remember(mesh, quick, _planned_run(func, recorded, plan, dtensor))
    return found


def _become(func: Any, args: Any, kwargs: Any, dtensor: Any) -> Any:
    """A call that gives its first argument another shape over the same elements: that of the call which makes a view.

    NotImplementedError where there is no such call, or it moves elements.
    """
    x, view = args[0], getattr(rushlight.ops.aten, func._opname.removesuffix("_"), None)
    made = None
    if view is not None and getattr(view, view.overloads()[0]).is_view:
        made = view(*args, **kwargs)
    if made is None or made._moved_view or not _shares(made._local_tensor, x._local_tensor):
        raise NotImplementedError(f"{func} of a DTensor that lies as {x.placements}: make a new tensor instead")
    x._local_tensor, x._placed, x._spec = made._local_tensor, made._placed, made._spec
    return x


def _arguments(flat: Sequence[Any], tree: Any) -> Any:
    """(args, kwargs) of a call from its leaves; without a tree these are the arguments."""
    return (flat, {}) if tree is None else tree_unflatten(flat, tree)


def _check_changes(func: Any, tensors: Sequence[Any], changed: Sequence[int]) -> None:
    """RuntimeError where a view would be changed whose elements had to be moved: the change would not be seen."""
    for n in changed:
        if tensors[n]._moved_view:
            raise RuntimeError(
                f"{func} changes a view in place that {tensors[n]._moved_view} made of a DTensor by moving elements between"
                " processes, so the change would be lost; redistribute the tensor so that the view divides no other dim"
            )


def _replicated(func: Any, x: Tensor, mesh: Any, dtensor: Any, implicit: bool) -> Any:
    if x.ndim == 1 and x.numel() == 1 and not implicit:
        warn_user(
            "Found a non-scalar tensor with numel=1 and ndim!=0, we are implicitly creating a replicated DTensor for it. However, please consider"
            " changing it to a scalar tensor or explicitly create a DTensor under distributed environment.",
            UserWarning,
        )
    loss = bool(LOSS_PARALLEL) and getattr(func, "_opname", "") in _LOSSES
    if not implicit and not loss and x.numel() != 1:
        raise RuntimeError(
            f"{func} got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling"
            " distributed operators!"
        )
    return dtensor._wrapped(x.detach(), mesh, (Replicate(),) * mesh.ndim, x.shape, x.stride())


def _key(x: Any, tensors: Sequence[Any]) -> Any:
    if isinstance(x, Tensor):
        number = next(i for i, other in enumerate(tensors) if other is x)
        return number, Leaf(tuple(x.shape), tuple(x.stride()), x.dtype)
    return type(x), repr(x) if isinstance(x, (float, complex)) else x


def _record(func: Any, flat: list[Any], tree: Any, tensors: Sequence[Any]) -> Recorded:
    """The graph of a call, recorded on tensors without contents of the same shapes."""
    stand_ins = [rushlight.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype) for x in tensors]

    def run(*given: Tensor) -> Any:
        leaves = list(flat)
        for i, x in enumerate(leaves):
            if isinstance(x, Tensor):
                leaves[i] = given[next(n for n, other in enumerate(tensors) if other is x)]
        args, kwargs = _arguments(leaves, tree)
        return func(*args, **kwargs)

    try:
        with rushlight.no_grad():
            return Recorded(graph_of_call(run, stand_ins), "")
    except RecordingError as error:
        return Recorded(None, str(error))


# ***** calls that every process makes on its own parts *****


def _is_uniform(call_graph: CallGraph, tensors: Sequence[Any]) -> bool:
    """Whether every element of the results is computed from the elements at its place, and numbers."""
    graph = call_graph.graph
    shapes = {tuple(x.shape) for x in tensors if x.ndim}
    if len(shapes) != 1 or not graph.nodes or not call_graph.reads:
        return False
    (shape,) = shapes
    for node in graph.nodes:
        small = all(not v.shape for v in node.inputs)
        if not (
            node.prim.lower[0] == "scalar" or node.prim.name == "full" or (node.prim.name == "broadcast" and small)
        ):
            return False
    return all(tuple(v.shape) == shape for v in graph.outputs) and all(
        not r.view or r.number < 0 for r in call_graph.results
    )


def _alike(tensors: Sequence[Any]) -> bool:
    """Whether all tensors lie alike and hold elements, not terms; numbers may be whole."""
    first = next((x.placements for x in tensors if x.ndim), None)
    return (
        first is not None
        and all(not p.is_partial() for x in tensors for p in x.placements)
        and all(x.placements == first if x.ndim else all(p.is_replicate() for p in x.placements) for x in tensors)
    )


def _direct(func: Any, flat: Sequence[Any], tree: Any, tensors: Sequence[Any], dtensor: Any) -> Any:
    """The call on local tensors."""
    args, kwargs = _arguments([x._local_tensor if isinstance(x, dtensor) else x for x in flat], tree)
    return _wrap_direct(func(*args, **kwargs), tensors, next(x for x in tensors if x.ndim), dtensor)


def _wrap_direct(found: Any, tensors: Sequence[Any], like: Any, dtensor: Any) -> Any:
    """Results of a call on local tensors, which lie as `like`; those of the arguments that came back are themselves."""
    owners = {id(x._local_tensor): x for x in tensors}

    def wrap(y: Any) -> Any:
        if isinstance(y, (tuple, list)):
            return type(y)(map(wrap, y))
        if not isinstance(y, Tensor):
            return y
        known = owners.get(id(y))
        return (
            known
            if known is not None
            else dtensor._wrapped(y, like.device_mesh, like.placements, like.shape, like.stride())
        )

    return wrap(found)


# ***** calls that were made before *****


def _direct_run(func: Any, changed: Sequence[int], place: int, dtensor: Any) -> Callable[..., Any]:
    """`_direct` for calls of one key, whose results lie as tensor number `place`."""
    whole: list[Any] = []

    def run(args: Sequence[Any], tensors: list[Any]) -> Any:
        if changed:
            _check_changes(func, tensors, changed)
        found = func(*[x._local_tensor if type(x) is dtensor else x for x in args])
        if type(found) is not Tensor or found._rg:
            return _wrap_direct(found, tensors, tensors[place], dtensor)
        for x in tensors:
            if x._local_tensor is found:
                return x
        like = tensors[place]
        if not whole:
            made = dtensor._wrapped(found, like._mesh, like._placed, like.shape, like.stride())
            whole.append(made._spec)
            return made
        return dtensor._of_spec(found, like._mesh, like._placed, whole[0])

    return run


def _planned_run(func: Any, recorded: Recorded, plan: Plan, dtensor: Any) -> Callable[..., Any]:
    """`_planned` for calls of one key, over each call's own mesh: equal ones may have other groups."""
    assert recorded.graph is not None
    name, changed = str(func), recorded.graph.changed

    def run(args: Sequence[Any], tensors: list[Any]) -> Any:
        if changed:
            _check_changes(func, tensors, changed)
        return _run_plan(name, recorded, plan, tensors, tensors[0]._mesh, dtensor)

    return run


# ***** calls on the whole *****


def _outside(func: Any, flat: Sequence[Any], tree: Any, tensors: Sequence[Any], dtensor: Any) -> Any:
    """The call on a process outside of the mesh: tensors of the right sizes without elements; None for other results."""
    whole = {id(x): rushlight.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in tensors}
    args, kwargs = _arguments([whole[id(x)] if isinstance(x, dtensor) else x for x in flat], tree)
    with rushlight.no_grad():
        found, layout = tree_flatten(func(*args, **kwargs))
    mesh = tensors[0].device_mesh
    owners = {id(y): x for x in tensors for y in [whole[id(x)]]}

    def wrap(y: Any) -> Any:
        if not isinstance(y, Tensor):
            return None
        if id(y) in owners:
            return owners[id(y)]
        local = rushlight.empty(0, dtype=y.dtype, device=tensors[0]._local_tensor.device)
        placed = tensors[0].placements if y.shape == tensors[0].shape else (Replicate(),) * mesh.ndim
        return dtensor._wrapped(local, mesh, placed, y.shape, y.stride())

    return tree_unflatten([wrap(y) for y in found], layout)


def _whole(func: Any, flat: list[Any], tree: Any, dtensor: Any, mesh: Any) -> Any:
    """The call on the whole tensors, which every process makes."""
    replicas = (Replicate(),) * mesh.ndim
    owners: dict[int, Any] = {}
    leaves = list(flat)
    for i, x in enumerate(leaves):
        if isinstance(x, dtensor):
            whole = redistribute(x._local_tensor, x.shape, mesh, x.placements, replicas)
            same = whole is x._local_tensor
            leaves[i] = whole.clone() if not same and whole._is_view() else whole
            owners[id(leaves[i])] = x
    versions = {k: _version(leaves, k) for k in owners}
    args, kwargs = _arguments(leaves, tree)
    draws = _draws(func)
    devices = [x._local_tensor.device for x in owners.values()]
    with stream_of_the_first(mesh, devices) if draws else nullcontext():
        found = func(*args, **kwargs)
    for k, x in owners.items():
        whole = next(y for y in leaves if id(y) == k)
        if whole._version != versions[k]:
            _check_changes(func, [x], [0])
        if whole._version != versions[k] and whole is not x._local_tensor:
            if any(p.is_partial() for p in x.placements):
                raise RuntimeError(f"{func} changes a tensor that lies as terms of a reduction; redistribute it first")
            x._local_tensor.copy_(redistribute(whole, x.shape, mesh, replicas, x.placements))

    def wrap(y: Any) -> Any:
        if isinstance(y, (tuple, list)):
            return type(y)(map(wrap, y))
        if not isinstance(y, Tensor):
            return y
        known = owners.get(id(y))
        if known is not None:
            return known
        like = next((x for x in owners.values() if x.shape == y.shape), None) if draws else None
        if like is not None:  # random numbers lie as the tensor whose shape they have
            placed = tuple(Replicate() if p.is_partial() else p for p in like.placements)
            local = redistribute(y, y.shape, mesh, replicas, placed)
            return dtensor._wrapped(local.clone() if local._is_view() else local, mesh, placed, y.shape, y.stride())
        made = dtensor._wrapped(y, mesh, replicas, y.shape, y.stride())
        shared = [x for k, x in owners.items() if _shares(y, next(z for z in leaves if id(z) == k))]
        made._moved_view = str(func) if any(not _shares(y, x._local_tensor) for x in shared) else ""
        return made

    return wrap(found)


def _draws(func: Any) -> bool:
    """Whether a function may draw random numbers: unknown ones may.  All processes answer alike."""
    return getattr(func, "namespace", "") != "aten" or rushlight.Tag.nondeterministic_seeded in func.tags


def _shares(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors show the same memory."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def _version(leaves: Sequence[Any], k: int) -> int:
    return next(y._version for y in leaves if id(y) == k)


# ***** calls in parts *****


def _planned(name: str, recorded: Recorded, tensors: Sequence[Any], mesh: Any, dtensor: Any) -> Any:
    assert recorded.graph is not None
    placed = tuple([x._placed for x in tensors])
    plan = recorded.plans.get(placed)
    if plan is None:
        plan = recorded.plans[placed] = _plan(recorded.graph, tensors, mesh, recorded.like_inputs)
    return _run_plan(name, recorded, plan, tensors, mesh, dtensor)


def _run_plan(name: str, recorded: Recorded, plan: Plan, tensors: Sequence[Any], mesh: Any, dtensor: Any) -> Any:
    graph = recorded.graph
    assert graph is not None
    held = [
        x._local_tensor if there is None else redistribute(x._local_tensor, x.shape, mesh, x._placed, there)
        for x, there in [(tensors[n], there) for n, there in plan.reads]
    ]
    found: Sequence[Tensor] = ()
    for caller, reads, reductions in plan.steps:
        operands = [held[k] for k in reads]
        found = caller(*operands if reads or not recorded.like_inputs else [tensors[0]._local_tensor])
        for x, (axis, kind) in zip(found, reductions, strict=False):
            held.append(reduce_along(x, mesh, axis, kind))
    return _results(name, graph, plan, found, tensors, mesh, dtensor)


def _results(
    name: str, graph: CallGraph, plan: Plan, found: Sequence[Tensor], tensors: Sequence[Any], mesh: Any, dtensor: Any
) -> Any:
    fresh = len(found) - len(graph.changed)
    for n, value, placements in zip(graph.changed, found[fresh:], plan.outputs[fresh:], strict=True):
        target = tensors[n]
        target._local_tensor.copy_(redistribute(value, target.shape, mesh, placements, target.placements))
    made = []
    for place, result in enumerate(graph.results):
        if result.number < 0:
            made.append(tensors[-1 - result.number])
            continue
        local = found[result.number]
        if plan.copies and not result.view and any(_shares(local, x._local_tensor) for x in tensors):
            # The graph of a copy is the tensor itself.
            local = local.clone(memory_format=rushlight.contiguous_format if result.spec.contiguous else None)
        elif not result.view and result.spec.contiguous and not local.is_contiguous():
            # Graphs give results the layout of an operand of their shape.
            local = local.contiguous()
        whole = plan.specs.get(place)
        if whole is None or local._rg or whole.device is not local._spec.device:
            one = dtensor._wrapped(local, mesh, plan.outputs[result.number], result.spec.shape, result.spec.strides)
            if STATE.recording is None:
                plan.specs[place] = one._spec.whole
        else:
            one = dtensor._of_spec(local, mesh, plan.outputs[result.number], whole)
        made.append(one)
        if result.view and (
            plan.moved or (local.numel() and not any(_shares(local, x._local_tensor) for x in tensors))
        ):
            one._moved_view = name
        elif result.view and tensors[0]._moved_view:
            one._moved_view = tensors[0]._moved_view

    def build(structure: Any) -> Any:
        if isinstance(structure, list):
            return tuple(map(build, structure))
        return None if structure is None else made[structure]

    return made[graph.structure] if type(graph.structure) is int else build(graph.structure)


def _plan(recorded: CallGraph, tensors: Sequence[Any], mesh: Any, like_inputs: bool) -> Plan:
    """The cheapest way for certain placements, axis by axis.

    All processes decide alike: only ways that exist for the parts of each of them are looked at.  What is made of nothing
    is computed where the inputs are (`like_inputs`): its graph takes one that it does not read.
    """
    coordinate = mesh.get_coordinate()
    mine, others = recorded.graph, [recorded.graph]
    order = _order(tensors, mesh)
    chosen: dict[int, Strategy] = {}
    for axis in order:
        size = mesh.shape[axis]
        held = [tensors[n].placements[axis] for n in recorded.reads]
        targets = [tensors[n].placements[axis] for n in recorded.changed]
        aims = _aims(recorded, tensors, axis)
        ways = [_ways(graph, size, held, aims) for graph in others]
        common = [w for w in ways[0] if all(w in other for other in ways[1:])]
        way = min(common, key=lambda w: _cost(others[0], size, held, targets, ways[0][w]))
        chosen[axis] = ways[0][way]
        mine = localize(mine, _ways(mine, size, held, aims)[way], size, coordinate[axis], axis)
        others = [
            localize(graph, found[way], size, k, axis)
            for graph, found in zip(others, ways, strict=True)
            for k in _unlike(graph, found[way], size)
        ]
    axes = range(mesh.ndim)
    inputs = {
        n: tuple(_placement(chosen[a].inputs[k], tensors[n].placements[a]) for a in axes)
        for k, n in enumerate(recorded.reads)
    }
    count = len(recorded.graph.outputs)
    outputs: list[Placements] = [tuple(_placement(chosen[a].outputs[j], None) for a in axes) for j in range(count)]
    if order != list(axes):
        inputs = {n: nested(placed, order, mesh.shape) for n, placed in inputs.items()}
        outputs = [nested(placed, order, mesh.shape) for placed in outputs]
    steps = []
    for stage in stages(mine):
        graph = stage.graph
        if like_inputs and not stage.reads:
            local = tensors[0]._local_tensor
            graph = Graph([Value(tuple(local.shape), local.dtype)], graph.nodes, graph.outputs)
        steps.append((graph_caller(graph, "sharded"), stage.reads, stage.reductions))
    moved = any(
        here != there and size > 1
        for n, placed in inputs.items()
        for here, there, size in zip(tensors[n].placements, placed, mesh.shape, strict=True)
    )
    reads = [(n, None if tuple(tensors[n].placements) == inputs[n] else inputs[n]) for n in recorded.reads]
    copies = all(node.prim.layout is not None for node in recorded.graph.nodes)
    return Plan(reads, steps, [interned(placed) for placed in outputs], moved, copies, {})


def _order(tensors: Sequence[Any], mesh: Any) -> list[int]:
    """In which order the axes of a mesh divide the tensors of a call."""
    order = next((nesting(x.placements) for x in tensors if any(type(p) is _StridedShard for p in x.placements)), None)
    if order is None:
        return list(range(mesh.ndim))
    other = next((x for x in tensors if not fits(x.placements, order)), None)
    if other is not None:
        raise NotImplementedError(
            f"a call of tensors that the axes of {mesh} divide in different orders is not built: one lies as"
            f" {other.placements}; redistribute it first"
        )
    return order


def _aims(recorded: CallGraph, tensors: Sequence[Any], axis: int) -> dict[int, int]:
    """Along which dims results should be divided where inputs do not say it: as the tensors that they are written to, and
    what is made like another tensor as that one.
    """
    fresh = len(recorded.graph.outputs) - len(recorded.changed)
    like = {fresh + j: tensors[n] for j, n in enumerate(recorded.changed)}
    if not recorded.reads:
        like |= {j: tensors[0] for j in range(fresh) if recorded.graph.outputs[j].shape == tuple(tensors[0].shape)}
    placed = {j: x.placements[axis] for j, x in like.items()}
    return {j: p.dim for j, p in placed.items() if isinstance(p, Shard)}


def _ways(graph: Graph, size: int, held: Sequence[Placement], aims: dict[int, int]) -> dict[Any, Strategy]:
    """Ways to compute a graph, by what they ask for and give; first the one that takes the inputs as they lie."""
    as_they_lie = follow(graph, size, [_of(p) for p in held], {graph.outputs[j]: d for j, d in aims.items()})
    found: dict[Any, Strategy] = {}
    for strategy in (as_they_lie, *strategies(graph, size)):
        if strategy is not None:
            found.setdefault((strategy.inputs, strategy.outputs, tuple(strategy.reduced.values())), strategy)
    return found


def _of(placement: Placement) -> int | str | None:
    if isinstance(placement, Shard):
        return placement.dim
    return _KINDS.get(placement.reduce_op) if isinstance(placement, Partial) else None


def _placement(value: int | str | None, held: Placement | None) -> Placement:
    if held is not None and _of(held) == value and not (isinstance(held, Partial) and value is None):
        return held
    if isinstance(value, int):
        return Shard(value)
    return Replicate() if value is None else Partial("product" if value == "prod" else value)


def _unlike(graph: Graph, strategy: Strategy, size: int) -> list[int]:
    """Processes along an axis that have parts of other shapes than those before them."""
    seen, found = set(), []
    for k in range(size):
        shapes = tuple(
            local_shape(v.shape, p, Part(size, k)) for v, p in zip(graph.inputs, strategy.inputs, strict=True)
        )
        if shapes not in seen:
            seen.add(shapes)
            found.append(k)
    return found


def _cost(
    graph: Graph, size: int, held: Sequence[Placement], targets: Sequence[Placement], strategy: Strategy
) -> float:
    """Bytes that a process sends and receives for a way, before, within and after."""
    total = 0.0
    for value, here, there in zip(graph.inputs, held, strategy.inputs, strict=True):
        total += _bytes(value) * _factor(here, _placement(there, here), size)
    for value in strategy.reduced:
        total += 2.0 * _bytes(value) + 1.0
    fresh = len(graph.outputs) - len(targets)
    for value, there, target in zip(graph.outputs[fresh:], strategy.outputs[fresh:], targets, strict=True):
        total += _bytes(value) * _factor(_placement(there, target), target, size)
    return total


def _bytes(value: Any) -> float:
    return float(math.prod(value.shape) * value.dtype.itemsize)


def _factor(here: Placement, there: Placement, size: int) -> float:
    """The part of a tensor's bytes that a process moves from one placement to another."""
    if here == there or isinstance(here, Replicate):
        return 0.0
    if isinstance(there, Partial):
        return 4.0
    if isinstance(here, Partial):
        return 2.0 if isinstance(there, Replicate) else 1.0
    return 1.0 if isinstance(there, Replicate) else 1.0 / size
