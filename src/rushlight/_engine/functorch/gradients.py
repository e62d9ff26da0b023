"""Gradients of transformed tensors, and backward with transformed gradients.

Graphs are recorded on plain tensors alone.  The gradient of a batch is the gradient inside, as items do not influence
each other.  The gradient of a dual tensor has a tangent: with results y, y' and cotangents u, u' it is (grad(y; u),
grad(y, y'; u', u)), because the tangent y' = J v moves with the argument as the gradient moves along v.  Where only the
cotangents are batched (`vmap` over a function of `vjp`), the nodes that were recorded run for the whole batch: their
graphs are batched like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.pytree import tree_map
from rushlight._engine.autograd.engine import filled, run_backward
from rushlight._engine.autograd.engine import run_node as run_plain
from rushlight._engine.autograd.node import AccumulateGrad, Node, OpNode, split_edge
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.state import STATE, TRANSFORMS, new_plan_table
from rushlight._engine.core.tensor import Tensor, accumulator_of, alias, edge_of
from rushlight._engine.dispatch.call import Caller, make_function
from rushlight._engine.dispatch.modes import enable_grad
from rushlight._engine.dispatch.override import dispatch_classes
from rushlight._engine.functorch.batched import BatchedTensor, batched, in_front, peeled
from rushlight._engine.functorch.batched_operators import batched_graph
from rushlight._engine.functorch.dual import DualTensor, dual, parts
from rushlight._engine.functorch.functional import FunctionalTensor, functional, value_below, value_of
from rushlight._engine.functorch.numpy_callback import call_numpy
from rushlight._engine.functorch.transformed import (
    LEVELS,
    Level,
    Transformed,
    refuse_backward,
    table_function,
    tensors_in,
    top_level,
)
from rushlight._types.device import CPU
from rushlight._types.dtype import FLOAT32

__all__ = ["cut", "depends_on_others", "fresh", "plain_parts", "vjp_through"]


# ***** gradients *****


def vjp_through(
    outs: Sequence[Any], ins: Sequence[Any], cts: Sequence[Any], create_graph: bool, keep: bool = True
) -> list[Any]:
    """The gradients of `outs` by `ins` with cotangents `cts`; None for an input that no path reaches."""
    chosen = [(o, c) for o, c in zip(outs, cts, strict=True) if c is not None and o.requires_grad]
    if not chosen:
        return [None] * len(ins)
    outs, cts = [o for o, _ in chosen], [c for _, c in chosen]
    top = top_level([outs, ins])
    if top is None:
        return _vjp_plain(outs, ins, cts, create_graph, keep)
    level = top.level
    if isinstance(top, FunctionalTensor):
        found = vjp_through(
            [value_of(o) for o in outs],
            [value_of(i) for i in ins],
            [value_below(c, level) for c in cts],
            create_graph,
            keep,
        )
        return [None if g is None else functional(g, level) for g in found]
    if isinstance(top, BatchedTensor):
        return _vjp_batch(outs, ins, cts, level, create_graph, keep)
    pairs = [parts(o, level) for o in outs]
    primal_ins = [p[0] if (p := parts(i, level)) is not None else i for i in ins]
    ct_pairs = [parts(c, level) or (c, None) for c in cts]
    values = [o if p is None else p[0] for o, p in zip(outs, pairs, strict=True)]
    grads = vjp_through(values, primal_ins, [u for u, _ in ct_pairs], create_graph, True)
    moving = [*values, *[p[1] for p in pairs if p is not None]]
    seeds = [*[du for _, du in ct_pairs], *[u for (u, _), p in zip(ct_pairs, pairs, strict=True) if p is not None]]
    moves = vjp_through(moving, primal_ins, seeds, create_graph, keep)
    return [g if m is None else dual(m * 0 if g is None else g, m, level) for g, m in zip(grads, moves, strict=True)]


def _vjp_batch(
    outs: Sequence[Any], ins: Sequence[Any], cts: Sequence[Any], level: int, create_graph: bool, keep: bool
) -> list[Any]:
    size = next(v for v in (peeled(t, level) for t in tensors_in([outs, ins])) if v is not None).shape[0]
    inside = [peeled(i, level) for i in ins]
    whole, seeds = [in_front(o, level, size) for o in outs], [in_front(c, level, size) for c in cts]
    if any(v is None and i.requires_grad for v, i in zip(inside, ins, strict=True)):
        return _pull_shared(
            whole,
            [i if v is None else v for v, i in zip(inside, ins, strict=True)],
            seeds,
            inside,
            level,
            create_graph,
            keep,
        )
    found = vjp_through(whole, inside, seeds, create_graph, keep)
    return [None if g is None else batched(g, level) for g in found]


def _pull_shared(
    outs: Sequence[Any],
    ins: Sequence[Any],
    cts: Sequence[Any],
    inside: Sequence[Any],
    level: int,
    create_graph: bool,
    keep: bool,
) -> list[Any]:
    """Gradients of each item by inputs that all items share: one backward per item, with zero cotangents for the other
    items.
    """
    size = outs[0].shape[0]
    items = OPS["zeros"]((size, size), dtype=FLOAT32, device=CPU).fill_diagonal_(1)

    def alone(ct: Any) -> Any:
        return items.to(ct.dtype).reshape(size, size, *[1] * (ct.ndim - 1)) * ct

    found = vjp_rows(outs, ins, [alone(c) for c in cts], create_graph, keep)
    # By a batched input each item's gradient lies on the diagonal; all else is zero.
    return [
        None if g is None else batched(g if v is None else g.sum(0), level) for g, v in zip(found, inside, strict=True)
    ]


def _vjp_plain(
    outs: Sequence[Any], ins: Sequence[Any], cts: Sequence[Any], create_graph: bool, keep: bool
) -> list[Any]:
    top = top_level(cts)
    if isinstance(top, DualTensor):  # a gradient is linear in the cotangents
        pairs = [parts(c, top.level) or (c, None) for c in cts]
        grads = vjp_through(outs, ins, [u for u, _ in pairs], create_graph, True)
        moves = vjp_through(outs, ins, [du for _, du in pairs], create_graph, keep)
        return [g if m is None or g is None else dual(g, m, top.level) for g, m in zip(grads, moves, strict=True)]
    wanted = [i for i in ins if i.requires_grad]
    if not wanted:
        return [None] * len(ins)
    found = iter(run_backward(outs, list(cts), keep or create_graph, create_graph, wanted, accumulate=False))
    return [next(found) if i.requires_grad else None for i in ins]


def vjp_rows(
    outs: Sequence[Any], ins: Sequence[Any], cts: Sequence[Any], create_graph: bool, keep: bool = True
) -> list[Any]:
    """`vjp_through` for all rows of the cotangents at once; gradients have the rows as their first dim."""
    size = next(c for c in cts if c is not None).shape[0]
    with Level("vmap", size) as level:
        seeds = [None if c is None else batched(c, level.number) for c in cts]
        found = vjp_through(outs, ins, seeds, create_graph, keep)
    return [None if g is None else in_front(g, level.number, size) for g in found]


# ***** backward for a batch of cotangents *****

_ROWS: dict[int, Any] = {}


def run_node(node: Any, grads: list[Any]) -> Sequence[Any]:
    """Run one node with gradients of which some are transformed tensors."""
    top = top_level([grads])
    if top is None:
        return run_plain(node, grads)
    if isinstance(top, FunctionalTensor):
        return [None if g is None else functional(g, top.level) for g in run_node(node, [value_of(g) for g in grads])]
    if isinstance(top, DualTensor):
        raise NotImplementedError(f"rushlight has no backward of {node.name()} with dual gradients yet")
    level = top.level
    if (
        isinstance(node, OpNode)
        and node._extra is None
        and node.saved is not None
        and not any(g is not None for g in grads[node.info.n_results :])
    ):
        return _run_graph(node, grads, level)
    size = top.value.shape[0]
    rows = [run_node(node, [None if g is None else in_front(g, level, size)[k] for g in grads]) for k in range(size)]
    stack = table_function("stack")
    return [
        None if any(g is None for g in column) else batched(stack(list(column)), level)
        for column in zip(*rows, strict=True)
    ]


def _run_graph(node: OpNode, grads: list[Any], level: int) -> list[Any]:
    info = node.info
    if not info.graph.outputs:  # no wanted gradient is left
        return [None] * len(info.outputs)
    saved = node.unpacked() if node.saved else []
    given = [info._zeros(i) if g is None else g for i, g in enumerate(grads[: info.n_results]) if info.mask[i]]
    inputs = [*saved, *given]
    values = [peeled(v, level) for v in inputs]
    size = next(v for v in values if v is not None).shape[0]
    mask = tuple(v is not None for v in values)
    table = _ROWS.get(id(info))
    if table is None:
        table = _ROWS[id(info)] = (info, new_plan_table())
    found = table[1].get((mask, size))
    if found is None:
        row, order = batched_graph(info.graph, node.name(), mask, size)
        found = table[1][mask, size] = make_function(Caller(row)), order, len(order) - len(row.schema.arguments) + 1
    function, order, count = found
    flat = [inputs[i] if values[i] is None else values[i] for i in order]
    found = function(flat[:count], *flat[count:])
    made = found if isinstance(found, tuple) else (found,)
    return [None if place is None else batched(made[place], level) for place in info.outputs]


# ***** functions that NumPy computes *****


def _ones_like(x: Any) -> Any:
    """Ones like `x`, a point at which to transpose a linear map; some rules test for zeros, so ones are safe."""
    return x.new_ones(tuple(x.shape))


def call_numpy_transformed(name: str, function: Callable[..., Any], inputs: Sequence[Any], gradient: Any) -> list[Any]:
    """`call_numpy` on transformed tensors: item by item for a batch; tangents by the transpose of the gradient."""
    top = top_level([inputs])
    assert top is not None
    level = top.level
    if isinstance(top, BatchedTensor):
        size = top.value.shape[0]
        rows = [
            call_numpy(name, function, [in_front(x, level, size)[k] for x in inputs], gradient) for k in range(size)
        ]
        stack = table_function("stack")
        return [batched(stack(list(column)), level) for column in zip(*rows, strict=True)]
    pairs = [parts(x, level) for x in inputs]
    values = [x if p is None else p[0] for x, p in zip(inputs, pairs, strict=True)]
    outs = call_numpy(name, function, values, gradient)
    if gradient is None:
        return outs
    floats = [o.dtype.is_floating_point or o.dtype.is_complex for o in outs]
    moving = [k for k, p in enumerate(pairs) if p is not None]
    with enable_grad():
        seeds = [fresh(_ones_like(o)) if flag else None for o, flag in zip(outs, floats, strict=True)]
        grads = gradient([s if s is not None else None for s in seeds], values, outs)
        chosen = [(grads[k], pairs[k][1]) for k in moving if grads[k] is not None]  # type: ignore[index]
        wanted = [s for s in seeds if s is not None]
        found = iter(vjp_through([g for g, _ in chosen], wanted, [t for _, t in chosen], True))
    tangents = [next(found) if flag else None for flag in floats]
    return [o if t is None else dual(o, t, level) for o, t in zip(outs, tangents, strict=True)]


# ***** the arguments of `grad` *****


class FreshBackward0(Node):
    """An argument of a transformed function: the gradient goes to the tensor that was given."""

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return grads


def fresh(x: Any) -> Any:
    """An alias of `x` that a gradient can be asked for; gradients flow on through it to `x`."""
    if isinstance(x, FunctionalTensor):
        return functional(fresh(value_of(x)), x.level)
    if isinstance(x, BatchedTensor):
        return batched(fresh(x.value), x.level, x.shared)
    if isinstance(x, DualTensor):
        return dual(fresh(x.primal), x.tangent, x.level)
    made = x.detach() if STATE.dispatch_modes or type(x) in dispatch_classes else alias(x)
    made._rg = True
    if x._rg:
        node = FreshBackward0()
        node._start([edge_of(x)])
        made._node = node
    elif LEVELS.stack:
        accumulator_of(made).level = LEVELS.stack[-1]
    return made


def plain_parts(x: Any) -> list[Tensor]:
    """The plain tensors inside a transformed tensor."""
    if isinstance(x, FunctionalTensor):
        return plain_parts(value_of(x))
    if isinstance(x, BatchedTensor):
        return plain_parts(x.value)
    if isinstance(x, DualTensor):
        return [*plain_parts(x.primal), *plain_parts(x.tangent)]
    return [x]


def depends_on_others(tensors: Sequence[Any], own: Sequence[Any]) -> bool:
    """Whether the graphs of these tensors reach any leaf but those in `own`."""
    leaves = {id(p) for x in own for p in plain_parts(x) if p._node is None}
    stack = [split_edge(edge_of(p))[0] for x in tensors for p in plain_parts(x) if p._rg]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, AccumulateGrad):
            # the leaves of a finished transform do not count
            if id(node.variable) not in leaves and (
                node.level is None or any(node.level is level for level in LEVELS.stack)
            ):
                return True
            continue
        if getattr(node, "from_outside", False):  # a history that a recording does not look into
            return True
        stack += [split_edge(edge)[0] for edge in node._edges if edge is not None]
    return False


def cut(x: Any, own: Sequence[Any]) -> Any:
    """`x` without its history if that leads to `own` alone: results of a transform do not refer to its inner leaves."""
    if isinstance(x, FunctionalTensor):
        return functional(cut(value_of(x), own), x.level)
    if isinstance(x, BatchedTensor):
        return batched(cut(x.value, own), x.level, x.shared)
    if isinstance(x, DualTensor):
        return dual(cut(x.primal, own), cut(x.tangent, own), x.level)
    if not isinstance(x, Tensor) or isinstance(x, Transformed) or not x._rg:
        return x
    return x if STATE.word & 1 and depends_on_others([x], own) else x.detach()


def grad_of_transformed(
    outs: Sequence[Any],
    ins: Sequence[Any],
    given: Any,
    create_graph: bool,
    allow_unused: bool | None,
    materialize: bool,
) -> tuple[Any, ...] | None:
    """`autograd.grad` with transformed tensors; None if there are none."""
    seeds = [None] * len(outs) if given is None else [given] if isinstance(given, Tensor) else list(given)
    if top_level([outs, ins, seeds]) is None:
        return None
    for out, seed in zip(outs, seeds, strict=True):
        if seed is None and out.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
    cts = [o * 0 + 1 if s is None else s for o, s in zip(outs, seeds, strict=True)]
    found = vjp_through(
        outs, ins, [c.detach() if s is None else c for c, s in zip(cts, seeds, strict=True)], create_graph
    )
    return filled(
        [x.detach() * 0 if g is None and materialize else g for g, x in zip(found, ins, strict=True)],
        ins,
        allow_unused,
        False,
    )


def active() -> bool:
    """Whether a transform is running a function; a level of `forward_ad` does not count."""
    stack = LEVELS.stack
    return bool(stack) and any(level.kind != "dual" for level in stack)


@DualTensor.implements("backward")
def _backward(level: int, function: Any, *args: Any, **kwargs: Any) -> None:
    """In a level of `forward_ad`, backward of the values."""
    if active():
        refuse_backward()
    args, kwargs = tree_map(_value, (args, kwargs))
    function(*args, **kwargs)


def _value(x: Any) -> Any:
    return x.primal if isinstance(x, DualTensor) else x


def values(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Primal values for backward in a level of `forward_ad`: tangents do not reach `.grad`."""
    return tuple(map(_value, tensors))


TRANSFORMS.update(
    grad=grad_of_transformed, run=run_node, call_numpy=call_numpy_transformed, active=active, values=values
)
