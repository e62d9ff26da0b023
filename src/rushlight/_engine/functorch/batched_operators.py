"""Operators made from operators: the same for a whole batch, and the same with tangents.

A derived operator is like a row of the operator table, but is registered nowhere.  Its body is the batched (or
forward-mode) graph of the original's body, so plans, kernels, views, gradients and further derivation follow as for any
other operator.  It takes the call's tensors, then its Python numbers; all other arguments are constants of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._engine.dispatch.lower import Backward, differentiate, trace_operator
from rushlight._engine.dispatch.lowered_call import node_name
from rushlight._graph.core import Graph, evaluate, trace
from rushlight._ops.table import Operator
from rushlight._prims import build, prim
from rushlight._transforms.batching import batch
from rushlight._transforms.jvp import jvp
from rushlight._transforms.vjp import Gradient, carries_gradient, vjp
from rushlight._types.spec import Spec

__all__ = ["DerivedOperator", "batched_graph", "batched_operator", "tangent_operator"]


class DerivedOperator(Operator):
    """An operator derived from another; it is not in the operator table."""

    def __init__(self, signature: str, body: Callable[..., Any], kind: str, options: dict[str, Any]) -> None:
        self.signature, self.body, self.kind = signature, body, kind
        self.name = self.public = signature[: signature.index("(")]
        self.spaces, self.method = (), False
        self.__dict__.update(options)


def _row(name: str, graph: Graph, count: int, **options: Any) -> DerivedOperator:
    """An operator with the body `graph`; its inputs are tensors and weak numbers in any order, outputs after the first
    `count` are residuals.
    """
    numbers = [i for i, v in enumerate(graph.inputs) if v.weak]
    tensors = [i for i, v in enumerate(graph.inputs) if not v.weak]
    view, several = options.pop("view", False), options.pop("several", False)
    results = "Tensor[]" if several else "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    first = "Tensor input" if view else "Tensor[] tensors"
    signature = f"{name}({', '.join([first, *[f'Scalar n{k}' for k in range(len(numbers))]])}) -> {results}"

    def body(given: Any, *scalars: Any) -> Any:
        values: list[Any] = [None] * len(graph.inputs)
        for i, value in zip(tensors, [given] if view else given, strict=True):
            values[i] = value
        for i, value in zip(numbers, scalars, strict=True):
            values[i] = value
        found = evaluate(graph, values)
        return found if several or len(found) > 1 else found[0]

    return DerivedOperator(signature, body, "view" if view else "graph", {"doc": f"Derived: {name}.", **options})


def _reorder(graph: Graph) -> list[int]:
    """The indices of tensors, then of numbers, among the inputs: the order in which a derived operator takes them."""
    weak = [v.weak for v in graph.inputs]
    return [i for i, w in enumerate(weak) if not w] + [i for i, w in enumerate(weak) if w]


# ***** for a batch *****


def batched_operator(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], mask: Sequence[bool], size: int
) -> DerivedOperator:
    """The operator over `size` items at once: tensors that `mask` marks have a leading dim, and so has every result."""
    name, view = f"vmap_{op.name}", op.kind == "view"
    several = op.schema.returns_list or (view and len(op.schema.results) > 1)
    node = node_name(op, template, specs)
    like = op.like if isinstance(op.like, str) else "contiguous"
    graph, count = trace_operator(op, template, specs)
    flags = [*mask, *[False] * (len(graph.inputs) - len(mask))]
    if op.gradient_rule is None or view or several:
        return _row(
            name,
            batch(graph, flags, size),
            count,
            view=view,
            several=several,
            node=node,
            like=like,
            underivable=op.underivable,
        )
    floats = [i for i, s in enumerate(specs) if s.dtype.is_floating_point or s.dtype.is_complex]
    cts = [carries_gradient(v.dtype) for v in graph.outputs]
    if not floats or not any(cts):
        return _row(name, batch(graph, flags, size), count, node=node, like=like)
    try:
        found = differentiate(op, template, specs, floats, cts)
    except NotDifferentiableError:  # by some of them; backward says so if it must
        return _row(name, batch(graph, flags, size), count, node=node, like=like)
    row = _row(name, batch(found.forward, flags, size), count, node=node, like=like)
    row.gradient_rule = _batched_rule(found, floats, cts, flags, count, len(specs), size)
    return row


def _batched_rule(
    found: Backward, wrt: Sequence[int], ct_mask: Sequence[bool], flags: Sequence[bool], count: int, n: int, size: int
) -> Callable[..., Any]:
    """The hand-written gradient of the original, for a batch; an input without the batch gets the sum over items."""
    marks = [flags[i] if kind == "input" else True for kind, i in found.saved]
    graph = batch(found.graph, [*marks, *[True] * sum(ct_mask)], size)

    def rule(cts: Any, outs: Any, tensors: Any, *numbers: Any) -> list[Any]:
        given = [cts] if count == 1 else list(cts)
        results = list(outs) if isinstance(outs, (tuple, list)) else [outs]
        held = {"input": [*tensors, *numbers], "output": results, "residual": results[count:]}
        values = [held[kind][i] for kind, i in found.saved]
        made = evaluate(graph, [*values, *[ct for ct, flag in zip(given, ct_mask, strict=True) if flag]])
        grads: list[Any] = [None] * n
        for i, place in zip(wrt, found.outputs, strict=True):
            if place is not None:
                grads[i] = made[place] if flags[i] else prim.sum(made[place], dims=(0,))
        return grads

    return rule


def batched_graph(graph: Graph, name: str, mask: Sequence[bool], size: int) -> tuple[DerivedOperator, list[int]]:
    """A backward graph for `size` items, and the order of its inputs: tensors, then numbers."""
    made = batch(graph, mask, size)
    return _row(f"vmap_{name}", made, len(made.outputs), several=True, node=name), _reorder(graph)


# ***** with tangents *****


def tangent_operator(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], mask: Sequence[bool]
) -> tuple[DerivedOperator, list[bool]]:
    """The operator with tangents.  Inputs: the call's tensors, then a tangent for each tensor that `mask` marks.
    Outputs: the results, then the tangents of those results for which the returned list is True.
    """
    graph, _ = trace_operator(op, template, specs)
    moved = [carries_gradient(v.dtype) for v in graph.outputs]
    if op.underivable and any(moved):
        raise NotDifferentiableError(f"aten::{op.name} does not support forward-mode differentiation: {op.underivable}")
    several = op.schema.returns_list
    found = None
    if op.gradient_rule is not None and any(moved) and not several and "reverse_only" not in op.tags:
        found = _transposed(op, template, specs, mask, moved)
    whole, rule = found or (jvp(graph, [*mask, *[False] * (len(graph.inputs) - len(mask))]), None)
    options = {"node": node_name(op, template, specs), "like": op.like if isinstance(op.like, str) else "contiguous"}
    row = _row(f"jvp_{op.name}", whole, len(whole.outputs), several=several, **options)
    if rule is not None:
        row.gradient_rule = rule
    return row, moved


def _transposed(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], mask: Sequence[bool], moved: Sequence[bool]
) -> tuple[Graph, Callable[..., Any] | None] | None:
    """Forward mode derived from a hand-written gradient, so that both modes agree at corners.  The gradient is linear
    in the cotangents, and its transpose maps tangents to tangents.  None if the gradient has no derivative, or does not
    reach the tangents.

    Also returns the gradient of the whole; for the results it is the hand-written one again.
    """
    wrt = [i for i, flag in enumerate(mask) if flag]
    try:
        found = differentiate(op, template, specs, wrt, moved)
        if any(place is None for place in found.outputs):
            return None
        first = len(found.saved)
        back = vjp(found.graph, range(first, len(found.graph.inputs)), [True] * len(found.graph.outputs))
    except NotDifferentiableError:
        return None
    given, count = len(found.forward.inputs), len(moved)

    def saved(inputs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        held = {"input": inputs, "output": outs, "residual": outs[count:]}
        return [held[kind][i] for kind, i in found.saved]

    def push(*values: Any) -> list[Any]:
        """The tangents of the results, from the values that the gradient saves and the tangents of the arguments."""
        known, tangents = values[:first], values[first:]
        # A linear map has the same transpose at every point; ones are used because some rules test for zero cotangents.
        somewhere = [build.full_like(v, 1) for v, flag in zip(results, moved) if flag]
        arguments = [*known, *somewhere]
        made = evaluate(back.forward, arguments)
        kept = {"input": arguments, "output": made, "residual": made[len(found.graph.outputs) :]}
        seeds: list[Any] = [None] * len(found.graph.outputs)
        for place, tangent in zip(found.outputs, tangents, strict=True):
            seeds[place] = build.add_any(seeds[place], tangent)  # type: ignore[index]
        seeds = [build.zeros_like(v) if s is None else s for s, v in zip(seeds, found.graph.outputs, strict=True)]
        pushed = evaluate(back.backward, [*(kept[kind][i] for kind, i in back.saved), *seeds])
        return [
            build.zeros_like(v) if place is None else pushed[place]
            for place, v in zip(back.grads, somewhere, strict=True)
        ]

    results = found.forward.outputs[:count]
    moves: list[Any] = [(found.forward.inputs[i].shape, found.forward.inputs[i].dtype) for i in wrt]
    pushing = trace(push, [*[(v.shape, v.dtype) for v in found.graph.inputs[:first]], *moves])

    def both(*values: Any) -> list[Any]:
        outs = evaluate(found.forward, values[:given])
        return [*outs[:count], *evaluate(pushing, [*saved(values[:given], outs), *values[given:]])]

    avals: list[Any] = [(v.shape, v.dtype, v.weak) for v in found.forward.inputs]
    return trace(both, [*avals, *moves]), _tangent_rule(op, template, specs, moved, found.forward, saved, pushing)


def _tangent_rule(
    op: Operator,
    template: Sequence[Any],
    specs: Sequence[Spec],
    moved: Sequence[bool],
    forward: Graph,
    saved: Callable[..., Any],
    pushing: Graph,
) -> Callable[..., Any] | None:
    """The gradient of results and tangents.  From the tangents it flows to the tangents of the arguments and to the
    values that the operator's gradient saves, and from these and the results on by that gradient.  None if one of these
    steps has no derivative.
    """
    n, count = len(specs), len(moved)
    floats = [i for i, s in enumerate(specs) if carries_gradient(s.dtype)]
    places = [i for i, v in enumerate(pushing.inputs) if carries_gradient(v.dtype)]
    try:
        own = differentiate(op, template, specs, floats, moved)
        through = vjp(pushing, places)
        # What is saved besides arguments and results
        rest = Graph(forward.inputs, forward.nodes, forward.outputs[count:])
        residual = vjp(rest, floats) if any(carries_gradient(v.dtype) for v in rest.outputs) else None
    except NotDifferentiableError:
        return None

    def rule(cts: Any, outs: Any, tensors: Any, *numbers: Any) -> list[Any]:
        inputs, tangents = [*tensors[:n], *numbers], list(tensors[n:])
        made = evaluate(forward, inputs)
        made[:count] = list(outs)[:count]
        known = saved(inputs, made)
        grads = _pulled(through, pushing, [*known, *tangents], list(cts[count:]))
        back: dict[Any, Any] = dict(zip(places, grads, strict=True))
        values, found = list(cts[:count]), dict.fromkeys(range(n))
        besides: list[Any] = [None] * (len(made) - count)
        for at, (kind, i) in enumerate(saved(_names("input", n + len(numbers)), _names("output", len(made)))):
            ct = back.get(at)
            if ct is None or (kind == "input" and i >= n):  # a number has no gradient
                continue
            if kind == "input":
                found[i] = build.add_any(found[i], ct)
            elif i < count:
                values[i] = build.add_any(values[i], ct)
            else:
                besides[i - count] = build.add_any(besides[i - count], ct)
        if residual is not None and any(ct is not None for ct in besides):
            seeds = [
                build.zeros_like(v) if ct is None else ct
                for ct, v in zip(besides, made[count:], strict=True)
                if carries_gradient(v.dtype)
            ]
            _add(found, floats, _pulled(residual, rest, inputs, seeds))
        mine = evaluate(own.forward, inputs)
        mine[:count] = made[:count]
        held = {"input": inputs, "output": mine, "residual": mine[count:]}
        pulled = evaluate(
            own.graph,
            [*(held[kind][i] for kind, i in own.saved), *[v for v, flag in zip(values, moved, strict=True) if flag]],
        )
        _add(found, floats, [None if place is None else pulled[place] for place in own.outputs])
        return [*[found[i] for i in range(n)], *[back.get(len(known) + k) for k in range(len(tangents))]]

    return rule


def _names(kind: str, count: int) -> list[tuple[str, int]]:
    return [(kind, i) for i in range(count)]


def _add(found: dict[int, Any], places: Sequence[int], grads: Sequence[Any]) -> None:
    for i, ct in zip(places, grads, strict=True):
        if ct is not None:
            found[i] = build.add_any(found[i], ct)


def _pulled(gradient: Gradient, graph: Graph, inputs: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The gradients by `gradient`, which belongs to `graph`, for these inputs and cotangents."""
    count = len(graph.outputs)
    outs = evaluate(gradient.forward, inputs)
    held = {"input": inputs, "output": outs, "residual": outs[count:]}
    made = evaluate(gradient.backward, [*(held[kind][i] for kind, i in gradient.saved), *cts])
    return [None if place is None else made[place] for place in gradient.grads]
