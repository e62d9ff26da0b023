"""Reverse mode: from a graph to a forward graph and a backward graph.

The derivative is built in the same builder as the forward (Griewank and Walther, "Evaluating Derivatives", chapter 3:
cotangents are carried from the outputs back to the inputs and added where a value is used more than once), simplified
as it is built, and then partitioned (`partition`).  Zero cotangents are never built: a rule returns None for them.

>>> from rushlight._graph.core import trace
>>> from rushlight._prims import prim
>>> from rushlight._transforms.vjp import vjp
>>> from rushlight._types.dtype import FLOAT32
>>> gradient = vjp(trace(lambda x: prim.tanh(x), [((3,), FLOAT32)]), wrt=[0])
>>> gradient.saved                      # tanh' = 1 - tanh^2 needs the result alone
[('output', 0)]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from rushlight._base.errors import NotDifferentiableError
from rushlight._graph.core import Graph, GraphBuilder, Node, Value, evaluate, trace
from rushlight._graph.rewrite import RewritingBuilder
from rushlight._prims import build
from rushlight._prims.effects import EFFECTS
from rushlight._prims.record import ByDecomposition, not_differentiable
from rushlight._transforms.partition import Joint, behind, is_expensive, lacking, partition
from rushlight._transforms.simplify import EXACT, GRADIENT
from rushlight._types.dtype import DType
from rushlight._types.layout import contiguous_strides

__all__ = ["Gradient", "as_one_call", "carries_gradient", "decomposed", "pull_back", "reached", "vjp"]

Source = tuple[str, int]


class Gradient:
    """The result of reverse mode on a graph.

    - `forward`: the graph's outputs, then the residuals.
    - `backward`: takes the `saved` values, then the cotangents of the outputs that have one; returns the gradients that
      exist.
    - `saved`: the location of each saved value: ("input", i), ("output", j) or ("residual", k), numbered from 0.
    - `grads`: for each index in `wrt`, the output of `backward` that is its gradient, or None if no path leads to it.
    """

    __slots__ = ("backward", "cotangents", "forward", "grads", "saved")

    def __init__(
        self, forward: Graph, backward: Graph, saved: list[Source], grads: list[int | None], cotangents: list[int]
    ) -> None:
        self.forward, self.backward, self.saved, self.grads, self.cotangents = (
            forward,
            backward,
            saved,
            grads,
            cotangents,
        )

    def __repr__(self) -> str:
        return f"Gradient(saved={self.saved}, grads={self.grads}, cotangents={self.cotangents})"


def carries_gradient(dtype: DType) -> bool:
    """Whether values of this dtype have derivatives."""
    return dtype.is_floating_point or dtype.is_complex


def vjp(
    graph: Graph,
    wrt: Sequence[int],
    ct_mask: Sequence[bool] | None = None,
    *,
    rule: Callable[..., Any] | None = None,
    outputs: int | None = None,
    overwritten: Collection[int] = (),
    only: Collection[Source] | None = None,
) -> Gradient:
    """The gradient of `graph` with respect to the inputs `wrt`.

    `ct_mask[j]` tells whether output j has a cotangent (default: those of float and complex dtype); the others count as
    zero.  `rule(cts, outs, *inputs)` is a hand-written gradient that replaces the derived one: it gets the cotangents
    (zeros where one is not defined, None for outputs that have no derivative) and returns one cotangent, or None, for
    every input of the graph.  `outputs` is the number of the graph's outputs that are results; further ones are
    residuals for the rule.  `overwritten` lists inputs that do not survive the forward (in-place): they cannot be
    saved.  `only` lists the available values if the forward has run already: the rest is recomputed, and
    NotImplementedError raised where it cannot be.  RuntimeError if a path to `wrt` leads through a primitive that has
    no derivative; a graph that changes memory is functionalized first.  Effects stay in the forward, and their results
    are saved.
    """
    count = len(graph.outputs) if outputs is None else outputs
    mask = (
        [carries_gradient(v.dtype) and type(v) is Value for v in graph.outputs[:count]]
        if ct_mask is None
        else list(ct_mask)
    )
    joint, grads = _joint(graph, wrt, mask, count, rule)
    joint = joint._replace(outputs=joint.outputs[:count])
    forward, backward, saved = partition(joint, overwritten, only)
    if only is None and len(forward.outputs) > count:
        besides = [joint.inputs[i] for i in _wanted_later(forward, count, wrt, saved) if i not in overwritten]
        if besides:
            forward, backward, saved = partition(joint, overwritten, besides=besides)
    order = iter(range(len(joint.grads)))
    return Gradient(
        forward,
        backward,
        saved,
        [None if g is None else next(order) for g in grads],
        [j for j, flag in enumerate(mask) if flag],
    )


def _joint(
    graph: Graph, wrt: Sequence[int], mask: Sequence[bool], count: int, rule: Callable[..., Any] | None
) -> tuple[Joint, list[Value | None]]:
    """Forward and backward in one graph, and the gradients of `wrt`."""
    results = graph.outputs[:count]
    builder = RewritingBuilder(EXACT)
    inputs = [builder.input_like(v) for v in graph.inputs]
    with builder:
        outs = evaluate(graph, inputs)
        cotangents = [Value(v.shape, v.dtype) if flag else None for v, flag in zip(results, mask, strict=True)]
        _forget(builder, outs[:count])
        builder.use(GRADIENT)
        if rule is None:
            grads = pull_back(builder, outs[:count], cotangents, [inputs[i] for i in wrt])
        else:
            grads = _by_rule(rule, cotangents, outs, count, inputs, wrt)
        wanted = [inputs[i] for i in wrt]  # an input without elements is not part of a graph, but was part of the call
        grads = [
            build.zeros_like(x) if g is None and 0 in x.shape and carries_gradient(x.dtype) else g
            for g, x in zip(grads, wanted, strict=True)
        ]
    present = ([v for v in values if v is not None] for values in (cotangents, grads))
    return Joint(inputs, outs, builder.nodes, *present), grads


def _wanted_later(forward: Graph, count: int, wrt: Sequence[int], saved: Sequence[Source]) -> list[int]:
    """Inputs that are not saved, but that differentiating the backward needs.

    The values that a backward reads have derivatives too, and these lead through the residuals back to the inputs: it
    must be possible to compute them from the saved values as well.
    """
    saved_keys = {
        ("output" if kind == "residual" else kind, count + i if kind == "residual" else i) for kind, i in saved
    }
    mask = [j >= count and carries_gradient(v.dtype) for j, v in enumerate(forward.outputs)]
    if not any(mask) or all(
        ("input", i) in saved_keys
        for i in behind([v for v, flag in zip(forward.outputs, mask) if flag], forward.inputs)
    ):
        return []
    try:
        joint, _ = _joint(forward, wrt, mask, len(mask), None)
    except NotDifferentiableError:  # differentiating the backward will raise it
        return []
    kept = {joint.inputs[i] if kind == "input" else joint.outputs[i] for kind, i in saved_keys}
    return lacking(joint, kept)


def _forget(builder: RewritingBuilder, outs: Sequence[Value]) -> None:
    """Let a rule that recomputes a result create a new node, so that only a rule that names the result has it saved.

    A saved value must not be changed in place, and programs rely on PyTorch's choice: the quotient of a division may be
    changed, the result of `exp` may not.
    """
    for value in outs:
        if value.node is not None and not is_expensive(value.node):
            builder.forget(value.node)


def _by_rule(
    rule: Callable[..., Any],
    cotangents: list[Value | None],
    outs: list[Value],
    count: int,
    inputs: list[Value],
    wrt: Sequence[int],
) -> list[Value | None]:
    cts = [
        ct if ct is not None or not carries_gradient(out.dtype) else build.zeros_like(out)
        for ct, out in zip(cotangents, outs[:count], strict=True)
    ]
    grads = rule(cts, outs, *inputs)
    grads = list(grads) if isinstance(grads, (tuple, list)) else [grads]
    if len(grads) != len(inputs):
        raise ValueError(f"the gradient rule returned {len(grads)} cotangents for {len(inputs)} inputs")
    for i in wrt:
        ct, x = grads[i], inputs[i]
        if isinstance(ct, not_differentiable):
            raise NotDifferentiableError(ct.why)
        if ct is not None and (ct.shape != x.shape or ct.dtype is not x.dtype):
            raise ValueError(
                f"the gradient rule returned {ct.dtype.name}{list(ct.shape)} for input {i}, which is {x.dtype.name}{list(x.shape)}"
            )
    return [grads[i] for i in wrt]


def pull_back(
    builder: GraphBuilder, outputs: Sequence[Value], cotangents: Sequence[Value | None], wrt: Sequence[Value]
) -> list[Value | None]:
    """Cotangents of `wrt` from those of `outputs`, built by the active builder over its nodes.

    None if no differentiable path leads from an output with a cotangent to the value; zeros if one does, but its
    derivative is zero everywhere.
    """
    nodes = list(builder.nodes)
    active = _reached_from(nodes, wrt)
    sums: dict[Value, Any] = {}
    touched: set[Value] = set()
    for out, ct in zip(outputs, cotangents, strict=True):
        if ct is not None:
            sums[out] = build.add_any(sums.get(out), ct)
            touched.add(out)
    for node in reversed(nodes):
        if not any(v in active for v in node.outputs) or not any(v in touched for v in node.outputs):
            continue
        rule = node.prim.vjp
        if isinstance(rule, not_differentiable):
            raise NotDifferentiableError(f"the derivative of prim.{node.prim.name} is not implemented: {rule.why}")
        touched.update(v for v in node.inputs if v in active)
        cts = tuple(sums.pop(v, None) for v in node.outputs)
        if all(ct is None for ct in cts):
            continue
        if isinstance(rule, ByDecomposition):
            input_cts: Sequence[Any] = _through(node, cts)
        else:
            outs = node.outputs if node.prim.multiple else node.outputs[0]
            input_cts = rule(cts if node.prim.multiple else cts[0], outs, *node.inputs, **node.params)
        for value, ct in zip(node.inputs, input_cts, strict=True):
            if isinstance(ct, not_differentiable) and value in active:
                raise NotDifferentiableError(f"this derivative of prim.{node.prim.name} is not implemented: {ct.why}")
            if ct is not None and value in active:
                ct = ct() if callable(ct) else ct
                _check(node.prim.name, value, ct)
                sums[value] = build.add_any(sums.get(value), ct)
    return [sums.get(v, build.zeros_like(v) if v in touched else None) for v in wrt]


def reached(graph: Graph, wrt: Sequence[int]) -> list[bool]:
    """The outputs that depend on the inputs `wrt` through floats."""
    reachable = _reached_from(graph.nodes, [graph.inputs[i] for i in wrt])
    return [v in reachable for v in graph.outputs]


def _check(name: str, value: Value, ct: Value) -> None:
    if ct.shape != value.shape or ct.dtype is not value.dtype:
        raise AssertionError(
            f"the vjp of prim.{name} gave {ct.dtype.name}{list(ct.shape)} for an input that is {value.dtype.name}{list(value.shape)}"
        )


def decomposed(node: Node) -> tuple[Graph, list[Value]]:
    """The decomposition of a node as a graph of its own, and the node's distinct inputs, which are those of the graph.

    A separate graph, because beside the nodes of its inputs it might be simplified together with them, and no longer
    depend on them.
    """
    decompose = node.prim.decompose
    assert decompose is not None
    inputs = list(dict.fromkeys(node.inputs))

    def written(*values: Value) -> Any:
        env = dict(zip(inputs, values, strict=True))
        return decompose(*(env[v] for v in node.inputs), **node.params)

    return trace(written, [(v.shape, v.dtype, v.weak) for v in inputs]), inputs


def _through(node: Node, cts: Sequence[Value | None]) -> list[Value | None]:
    """The rule of a primitive that is differentiated by its decomposition: one cotangent for each distinct input."""
    graph, inputs = decomposed(node)
    builder = RewritingBuilder(EXACT)
    values = [builder.input(v.shape, v.dtype, v.weak) for v in inputs]
    ct_inputs = [None if ct is None else builder.input(ct.shape, ct.dtype, ct.weak) for ct in cts]
    with builder:
        outs = evaluate(graph, values)
        builder.use(GRADIENT)
        input_cts = pull_back(builder, outs, ct_inputs, values)
    whole = builder.finish([v for v in input_cts if v is not None])
    flat = iter(evaluate(whole, [*inputs, *(ct for ct in cts if ct is not None)]))
    grads = {x: None if v is None else next(flat) for x, v in zip(inputs, input_cts, strict=True)}
    return [grads.pop(v, None) for v in node.inputs]


def _reached_from(nodes: Sequence[Any], start: Sequence[Value]) -> set[Value]:
    """The values that depend on `start` through floats."""
    active = {v for v in start if carries_gradient(v.dtype)}
    for node in nodes:
        if any(v in active for v in node.inputs) and node.prim.name != "stop_gradient":
            active.update(v for v in node.outputs if carries_gradient(v.dtype))
    return active


def as_one_call(graph: Graph) -> Graph:
    """The graph of a program with borders, with one more behind what is no result of a call yet."""
    open_ends = {v: None for v in graph.outputs if v.node is not None and v.node.prim.name != "border"}
    if not open_ends:
        return graph
    strides = tuple([contiguous_strides(v.shape) for v in open_ends])
    node = Node(EFFECTS["border"], tuple(open_ends), {"strides": strides}, [(v.shape, v.dtype) for v in open_ends])
    ends = dict(zip(open_ends, node.outputs, strict=True))
    return Graph(graph.inputs, [*graph.nodes, node], [ends.get(v, v) for v in graph.outputs])
