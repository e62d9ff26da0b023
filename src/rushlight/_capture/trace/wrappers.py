"""Tensors that are made of others (`DTensor`): a trace works on a wrapper over stand-ins for what it is made of.

What operators do to a wrapper is done, below its class, to the tensors inside, and these are recorded.  The wrapper is
part of no program: where one leaves the trace it is made again around the program's results.  A class says how by
`__tensor_flatten__` and `__tensor_unflatten__`, and `HOOKS.wrappers` names it.

A program differentiates plain tensors.  Where a wrapper wants gradients the program is given what is inside with a
history of one node, which makes the gradient a wrapper's; where a wrapper with a history leaves, a node of the other
kind leads to the result inside.  `_gradient_context` and `_as_gradient` of the class say how gradients are made.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._base.own_names import own_module
from rushlight._capture.recording.memory import InputBackward
from rushlight._capture.trace.reports.events import Unbuildable
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.autograd.node import Node, split_edge
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, alias, edge_of, meta_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rushlight._capture.trace.guards.sources import Source
    from rushlight._capture.trace.outside import Outside
    from rushlight._capture.trace.segments.rebuild import Rebuild

__all__ = ["Given", "check_histories", "expression", "facts", "give_histories", "stand_in", "write_gradients"]


class GradientForm(NamedTuple):
    """How a gradient of a wrapper is made of one plain tensor: the class, the tensor's name there, what
    `__tensor_unflatten__` takes.
    """

    kind: Any
    name: str
    context: Any
    shape: Any
    stride: Any

    @classmethod
    def of(cls, value: Tensor) -> GradientForm:
        """Unbuildable for a wrapper of several tensors."""
        names, _ = value.__tensor_flatten__()
        if len(names) != 1:
            raise Unbuildable(f"a gradient of a {type(value).__name__}, which is made of {len(names)} tensors", value)
        wrapper: Any = value
        return cls(type(value), names[0], wrapper._gradient_context(), tuple(value.shape), value.stride())

    def whole(self, part: Tensor) -> Tensor:
        """The wrapper around a plain gradient."""
        made: Tensor = self.kind.__tensor_unflatten__({self.name: part}, self.context, self.shape, self.stride)
        return made

    def part(self, grad: Tensor) -> Tensor:
        """The plain tensor inside of a wrapper's gradient, once that lies as this says."""
        found: Tensor = getattr(self.kind._as_gradient(grad, self.context), self.name)
        return found


class _FormNode(Node):
    """A node of one edge that changes the form of a gradient."""

    __slots__ = ("form",)

    form: GradientForm

    @classmethod
    def leading(cls, form: GradientForm, edge: Any) -> _FormNode:
        node = cls()
        node._start([edge])
        node.form = form
        return node

    def _checked(self, grad: Tensor) -> Tensor:
        """RuntimeError for a gradient that is to be differentiated again: it would lose its history."""
        if STATE.word & GRAD and grad.requires_grad:
            raise RuntimeError(
                f"a second derivative through a {self.form.kind.__name__} that a compiled program was given, or gave:"
                " compile the whole of it, or run it eagerly"
            )
        return grad.detach()


class PartBackward(_FormNode):
    """From the tensor inside of a wrapper to the wrapper."""

    __slots__ = ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The plain gradient as one of the wrapper's class."""
        (grad,) = grads
        return [None if grad is None else self.form.whole(self._checked(grad))]


class WholeBackward(_FormNode):
    """From a wrapper to the tensor inside of it."""

    __slots__ = ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The inner part of the wrapper's gradient."""
        (grad,) = grads
        return [None if grad is None else self.form.part(self._checked(grad))]


class InnerWholeBackward(WholeBackward):
    """That of a wrapper from which the same program has computed other results: its gradient comes in parts, which
    nobody sees together.
    """

    __slots__ = ()

    def _more(self) -> Any:
        raise RuntimeError(
            f"a hook on a {self.form.kind.__name__} of a compiled function that has computed other results from it, or"
            " its gradient: return it from a function of its own"
        )


def with_history(part: Tensor, whole: Tensor, form: GradientForm) -> Tensor:
    """The inner part of a wrapper as a program gets it: gradients go on to the wrapper."""
    made, edge = alias(part), edge_of(whole) if STATE.word & GRAD else None
    if edge is not None:
        made._rg, made._node = True, PartBackward.leading(form, edge)
    return made


def around(whole: Tensor, part: Tensor, form: GradientForm, inner: bool) -> Tensor:
    """A wrapper that was made around the result of a program, with its history."""
    if part._rg:
        node = (InnerWholeBackward if inner else WholeBackward).leading(form, edge_of(part))
        whole._rg, whole._node = True, node
    return whole


class Given(NamedTuple):
    """A wrapper from outside: the real one, what the trace works on, where it comes from, its first `.grad` there, the
    condition that it has none, and its first history.
    """

    real: Tensor
    made: Tensor
    source: Source
    grad: Tensor | None
    without: str
    node: Any

    @property
    def inside(self) -> Tensor | None:
        """The real tensor inside of a wrapper that wants gradients."""
        if not self.real._rg:
            return None
        found: Tensor = getattr(self.real, GradientForm.of(self.real).name)
        return found

    def part(self, grad: Tensor) -> Tensor:
        """The plain tensor inside of a gradient, which lies as the wrapper does."""
        return GradientForm.of(self.made).part(grad)


def facts(value: Tensor) -> tuple[str, ...] | None:
    """The attributes that say how a wrapper is made of its tensors; None for other tensors."""
    kind = type(value)
    return HOOKS.wrappers.get((own_module(kind.__module__), kind.__qualname__)) if HOOKS.wrappers else None


def stand_in(outside: Outside, value: Tensor, source: Source, said: tuple[str, ...], without: str) -> Tensor:
    """The traced stand-in for a wrapper from outside, which is guarded by these attributes."""
    kind: Any = type(value)
    name = outside.reads.constants.name
    outside.reads.check(source, " and ".join(f"{{}}.{fact} == {name(getattr(value, fact))}" for fact in said))
    names, context = value.__tensor_flatten__()
    held = value.__dict__  # native code knows its items, and no attributes
    places = {each: f"{{}}.__dict__[{each!r}]" if each in held else f"{{}}.{each}" for each in names}
    parts = {each: outside.part(getattr(value, each), outside.reads.source(places[each], source)) for each in names}
    made: Tensor = kind.__tensor_unflatten__(parts, context, value.shape, value.stride())
    made.__dict__.update({k: v for k, v in value.__dict__.items() if k not in made.__dict__})
    held = None if value._autograd_meta is None else value._autograd_meta.grad
    grad = None if held is None else outside.wrap(held, outside.reads.source("{}.grad", source))
    if grad is not None:
        meta_of(made).grad = grad
    if value._node is not None:
        behind, node = outside.behind, InputBackward(lambda: behind(value))
        node._start(())
        made._rg, made._node = True, node
    outside.wrappers.append(Given(value, made, source, grad, without, made._node))
    return made


def expression(rebuild: Rebuild, value: Tensor) -> str:
    """A wrapper that the trace made, made again around results of the program."""
    kind, known = type(value), facts(value) or ()
    names, context = value.__tensor_flatten__()
    inside = {each: getattr(value, each) for each in names}
    if value._node is not None:
        form = GradientForm.of(value)
        inside = {form.name: with_history(inside[form.name], value, form)}
    parts = ", ".join(f"{each!r}: {rebuild.value(part)}" for each, part in inside.items())
    shape, stride = rebuild.constant(tuple(value.shape)), rebuild.constant(value.stride())
    made = f"{rebuild.constant(kind)}.__tensor_unflatten__({{{parts}}}, {rebuild.constant(context)}, {shape}, {stride})"
    if value._node is not None:
        rebuild.left.append((value, form))
        inner = rebuild.constant(rebuild.inner)
        number = len(rebuild.left) - 1
        made = f"{rebuild.constant(around)}({made}, {rebuild.value(inside[form.name])}, {rebuild.constant(form)}, {number} in {inner})"
    name = rebuild.variable(made, value)
    for attribute, held in value.__dict__.items():
        if attribute not in names and attribute not in known:
            rebuild.lines.append(f"{name}.{attribute} = {rebuild.value(held)}")
    return name


def write_gradients(rebuild: Rebuild) -> None:
    """Statements that give wrappers from outside the gradients that the trace has set."""
    for given in rebuild.outside.wrappers:
        meta = given.made._autograd_meta
        now = None if meta is None else meta.grad
        if now is not given.grad:
            if given.grad is None:  # native code asked for it
                rebuild.tracer.reads.check(given.source, given.without)
            rebuild.lines.append(f"{rebuild.source(given.source)}.grad = {rebuild.value(now)}")


def check_histories(rebuild: Rebuild, outputs: Sequence[Any]) -> None:
    """Unbuildable where a wrapper from outside got another history: that of a real one stays as it is.

    Notes which of the wrappers that leave others are computed from.
    """
    for given in rebuild.outside.wrappers:
        if given.made._node is not given.node or given.made._rg is not given.real._rg:
            raise Unbuildable(f"a {type(given.made).__name__} from outside that gets another history", given.made)
    if not rebuild.left:
        return
    edges = _edges_behind(outputs)
    rebuild.inner.update(k for k, (value, _) in enumerate(rebuild.left) if edges[split_edge(edge_of(value))] > 1)


def _edges_behind(outputs: Sequence[Any]) -> Counter[tuple[Any, int]]:
    """How many edges lead to each result of a node in the histories of some tensors."""
    found: Counter[tuple[Any, int]] = Counter()
    waiting = [x._node for x in outputs if isinstance(x, Tensor) and x._node is not None]
    seen = set(waiting)
    while waiting:
        for edge in waiting.pop()._edges:
            if edge is None:
                continue
            found[split_edge(edge)] += 1
            node = split_edge(edge)[0]
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return found


def give_histories(rebuild: Rebuild, inputs: Sequence[Tensor], program: Any) -> None:
    """Let a program be given histories with inputs inside of wrappers that get gradients from it."""
    places, name = {id(x): i for i, x in enumerate(inputs)}, rebuild.constant
    for given in rebuild.outside.wrappers:
        place = None if given.inside is None else places.get(id(given.inside))
        if place is not None and place in program.differentiates:
            whole, form = rebuild.source(given.source), name(GradientForm.of(given.made))
            rebuild.inside[place] = f"{name(with_history)}(g[{place}], {whole}, {form})"
