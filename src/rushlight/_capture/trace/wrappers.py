"""Tensors that are made of others (`DTensor`): a trace works on a wrapper over stand-ins for what it is made of.

What operators do to a wrapper is done, below its class, to the tensors inside, and these are recorded.  The wrapper is
part of no program: where one leaves the trace it is made again around the program's results.  A class says how by
`__tensor_flatten__` and `__tensor_unflatten__`, and `HOOKS.wrappers` names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._capture.trace.reports.events import Break, Unbuildable
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.autograd.node import split_edge
from rushlight._engine.core.tensor import Tensor, meta_of

if TYPE_CHECKING:
    from rushlight._capture.trace.guards.sources import Source
    from rushlight._capture.trace.outside import Outside
    from rushlight._capture.trace.segments.rebuild import Rebuild

__all__ = ["Given", "check_histories", "expression", "facts", "stand_in", "write_gradients"]


class Given(NamedTuple):
    """A wrapper from outside: the real one, what the trace works on, where it comes from, its first `.grad` there, and the
    condition that it has none.
    """

    real: Tensor
    made: Tensor
    source: Source
    grad: Tensor | None
    without: str


def facts(value: Tensor) -> tuple[str, ...] | None:
    """The attributes that say how a wrapper is made of its tensors; None for other tensors."""
    kind = type(value)
    return HOOKS.wrappers.get((kind.__module__, kind.__qualname__)) if HOOKS.wrappers else None


def stand_in(outside: Outside, value: Tensor, source: Source, said: tuple[str, ...], without: str) -> Tensor:
    """What the trace works on in the place of a wrapper from outside, which is guarded by these attributes."""
    kind: Any = type(value)
    name = outside.reads.constants.name
    if value._node is not None:
        raise Break(f"a {kind.__name__} from outside has a history")
    outside.reads.check(source, " and ".join(f"{{}}.{fact} == {name(getattr(value, fact))}" for fact in said))
    names, context = value.__tensor_flatten__()
    parts = {each: outside.part(getattr(value, each), outside.reads.source(f"{{}}.{each}", source)) for each in names}
    made: Tensor = kind.__tensor_unflatten__(parts, context, value.shape, value.stride())
    made.__dict__.update({k: v for k, v in value.__dict__.items() if k not in made.__dict__})
    held = None if value._autograd_meta is None else value._autograd_meta.grad
    grad = None if held is None else outside.wrap(held, outside.reads.source("{}.grad", source))
    if grad is not None:
        meta_of(made).grad = grad
    outside.wrappers.append(Given(value, made, source, grad, without))
    return made


def expression(rebuild: Rebuild, value: Tensor) -> str:
    """A wrapper that the trace made, made again around results of the program."""
    kind = type(value)
    if value._node is not None:
        raise Unbuildable(f"a {kind.__name__} with a history", value)
    names, context = value.__tensor_flatten__()
    parts = ", ".join(f"{each!r}: {rebuild.value(getattr(value, each))}" for each in names)
    shape, stride = rebuild.constant(tuple(value.shape)), rebuild.constant(value.stride())
    made = f"{rebuild.constant(kind)}.__tensor_unflatten__({{{parts}}}, {rebuild.constant(context)}, {shape}, {stride})"
    return rebuild.variable(made, value)


def write_gradients(rebuild: Rebuild) -> None:
    """Statements that give wrappers from outside the gradients that the trace has set."""
    for given in rebuild.outside.wrappers:
        meta = given.made._autograd_meta
        now = None if meta is None else meta.grad
        if now is not given.grad:
            if given.grad is None:  # native code asked for it
                rebuild.tracer.reads.check(given.source, given.without)
            rebuild.lines.append(f"{rebuild.source(given.source)}.grad = {rebuild.value(now)}")


def check_histories(outside: Outside, outputs: list[Any]) -> None:
    """Unbuildable where the history of an output leads to a wrapper from outside: a program's backward gives gradients of
    plain tensors.
    """
    wrappers = {id(given.made): given.made for given in outside.wrappers if given.made._rg}
    waiting = [x._node for x in outputs if isinstance(x, Tensor) and x._node is not None] if wrappers else []
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        leaf = wrappers.get(id(getattr(node, "variable", None)))
        if leaf is not None:
            raise Unbuildable(f"a result whose history leads to a {type(leaf).__name__}", leaf)
        waiting += [split_edge(edge)[0] for edge in node._edges if edge is not None]
