"""Operators made from operators: the same for a whole batch, and the same with tangents.

A derived operator is a row like those of the table, though it stands in no table: its body is the batched (or pushed-forward) graph of the
original's body, so plans, kernels, views, gradients and further derivation follow from it as from any other row.  It takes the call's tensors,
then its Python numbers; all else is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._engine.lower import Backward, differentiate, trace_operator
from rushlight._engine.pieces import node_name
from rushlight._graph.core import Graph, evaluate, trace
from rushlight._ops.table import Operator
from rushlight._prims import build, prim
from rushlight._transforms.batching import batch
from rushlight._transforms.jvp import jvp
from rushlight._transforms.vjp import carries_gradient, vjp
from rushlight._types.spec import Spec

__all__ = ["DerivedOperator", "batched_graph", "batched_operator", "tangent_operator"]


class DerivedOperator(Operator):
    """A row made from a row; it is registered nowhere."""

    def __init__(self, signature: str, body: Callable[..., Any], kind: str, options: dict[str, Any]) -> None:
        self.signature, self.body, self.kind = signature, body, kind
        self.name = self.public = signature[: signature.index("(")]
        self.spaces, self.method = (), False
        self.__dict__.update(options)


def _row(name: str, graph: Graph, count: int, **options: Any) -> DerivedOperator:
    """A row around `graph`, whose inputs are tensors and weak numbers in any order; what stands after `count` outputs are residuals."""
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
    """The places of tensors, then of numbers, among the inputs: the order in which a derived operator takes them."""
    weak = [v.weak for v in graph.inputs]
    return [i for i, w in enumerate(weak) if not w] + [i for i, w in enumerate(weak) if w]


# ***** for a batch *****


def batched_operator(op: Operator, template: Sequence[Any], specs: Sequence[Spec], mask: Sequence[bool], size: int) -> DerivedOperator:
    """The operator over `size` items at once: tensors that `mask` marks have a leading dim, and so has every result."""
    name, view = f"vmap_{op.name}", op.kind == "view"
    several = op.schema.returns_list or (view and len(op.schema.results) > 1)
    node = node_name(op, template, specs)
    like = op.like if isinstance(op.like, str) else "contiguous"
    graph, count = trace_operator(op, template, specs)
    flags = [*mask, *[False] * (len(graph.inputs) - len(mask))]
    if op.gradient_rule is None or view or several:
        return _row(name, batch(graph, flags, size), count, view=view, several=several, node=node, like=like)
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
    """The hand-written gradient of the original, for a batch; what serves all items gets the sum."""
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
    """A backward's graph over `size` items, and the order in which it takes the graph's inputs: tensors, then numbers."""
    made = batch(graph, mask, size)
    return _row(f"vmap_{name}", made, len(made.outputs), several=True, node=name), _reorder(graph)


# ***** with tangents *****


def tangent_operator(op: Operator, template: Sequence[Any], specs: Sequence[Spec], mask: Sequence[bool]) -> tuple[DerivedOperator, list[bool]]:
    """The operator with tangents: it takes the call's tensors, then a tangent for each that `mask` marks, and gives the results, then the tangents
    of those results for which the returned list is True.
    """
    graph, _ = trace_operator(op, template, specs)
    moved = [carries_gradient(v.dtype) for v in graph.outputs]
    several = op.schema.returns_list
    whole = None
    if op.gradient_rule is not None and any(moved) and not several and "reverse_only" not in op.tags:
        whole = _transposed(op, template, specs, mask, moved)
    if whole is None:
        whole = jvp(graph, [*mask, *[False] * (len(graph.inputs) - len(mask))])
    options = {"node": node_name(op, template, specs), "like": op.like if isinstance(op.like, str) else "contiguous"}
    return _row(f"jvp_{op.name}", whole, len(whole.outputs), several=several, **options), moved




def _transposed(op: Operator, template: Sequence[Any], specs: Sequence[Spec], mask: Sequence[bool], moved: Sequence[bool]) -> Graph | None:
    """Forward mode from a hand-written gradient, so that both modes choose alike: the gradient is linear in the cotangents, and its transpose
    takes tangents to tangents.  None where the gradient itself has no derivative, or does not reach the tangents.
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

    def both(*values: Any) -> list[Any]:
        inputs, tangents = values[:given], values[given:]
        outs = evaluate(found.forward, inputs)
        held = {"input": inputs, "output": outs, "residual": outs[count:]}
        # Where a linear map is transposed does not matter, except to rules that look for cotangents that are zero.
        somewhere = [build.full_like(o, 1) for o, flag in zip(outs, moved) if flag]
        arguments = [*(held[kind][i] for kind, i in found.saved), *somewhere]
        results = evaluate(back.forward, arguments)
        kept = {"input": arguments, "output": results, "residual": results[len(found.graph.outputs) :]}
        seeds: list[Any] = [None] * len(found.graph.outputs)
        for place, tangent in zip(found.outputs, tangents, strict=True):
            seeds[place] = build.add_any(seeds[place], tangent)  # type: ignore[index]
        seeds = [build.zeros_like(v) if s is None else s for s, v in zip(seeds, found.graph.outputs, strict=True)]
        pushed = evaluate(back.backward, [*(kept[kind][i] for kind, i in back.saved), *seeds])
        moves = [build.zeros_like(v) if place is None else pushed[place] for place, v in zip(back.grads, somewhere, strict=True)]
        return [*outs[:count], *moves]

    avals: list[Any] = [(v.shape, v.dtype, v.weak) for v in found.forward.inputs]
    return trace(both, [*avals, *[(found.forward.inputs[i].shape, found.forward.inputs[i].dtype) for i in wrt]])
