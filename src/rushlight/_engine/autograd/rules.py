"""Nodes whose backward is a Python function: what dispatch types and composites of public packages record with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.autograd.node import Node, check_attached
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, edge_of, meta_of, version_of
from rushlight._types.spec import Spec

__all__ = ["RuleNode", "as_it_is", "record", "record_all"]


class RuleNode(Node):
    """A node whose backward is a Python function of the gradient: one result (or a function that makes it) for each
    input.
    """

    __slots__ = ("rule", "saved", "specs")

    rule: Any
    saved: Sequence[tuple[Tensor, int, Any]]
    specs: Sequence[Spec]

    def _release(self) -> None:
        self.rule, self.saved = None, ()

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if self.rule is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
                "Specify retain_graph=True if you need to backward through the graph a second time."
            )
        for tensor, version, edge in self.saved:
            check_attached(tensor, edge, self)
            if version_of(tensor) != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[torch.{tensor.dtype.name} {list(tensor.shape)}], which is saved for {self.name()}, is at version "
                    f"{version_of(tensor)}; expected version {version} instead."
                )
        found = self.rule(*grads)
        made = []
        for edge, item, spec in zip(self._edges, found, self.specs, strict=True):
            item = None if edge is None else item() if callable(item) and not isinstance(item, Tensor) else item
            if item is not None and item._spec.dtype is not spec.dtype:
                item = (item.real if item._spec.dtype.is_complex and not spec.dtype.is_complex else item).to(spec.dtype)
            made.append(item)
        return made


_CLASSES: dict[str, type[RuleNode]] = {}


def as_it_is(x: Any) -> Any:
    """A tensor for a rule that reads it later, and for `saved`: whatever changes `x` in place, this one stays or is found
    changed.

    A kind of tensor that gets other parts when it is changed in place has the method `_copy_of_parts`: another object over
    the parts of now, with the history of now.  Strided tensors and leaves are taken as they are.
    """
    copy = getattr(x, "_copy_of_parts", None)
    if copy is None or x._rg and x._node is None:
        return x
    made = copy()
    made._node, made._rg = x._node, x._rg
    if x.output_nr:
        meta_of(made).output_nr = x.output_nr
    return made


def record(
    name: str, inputs: Sequence[Tensor], out: Any, rule: Callable[..., Sequence[Any]], saved: Sequence[Tensor] = ()
) -> Any:
    """`out` as the result of an operation on `inputs`, whose backward is `rule`; `saved` must not be changed until
    then.
    """
    if (
        not STATE.word & GRAD
        or not any(t._rg for t in inputs)
        or not (out._spec.dtype.is_floating_point or out._spec.dtype.is_complex)
    ):
        return out
    cls = _CLASSES.get(name)
    if cls is None:
        cls = _CLASSES[name] = type(name, (RuleNode,), {"__slots__": ()})
    node = cls()
    node._start([edge_of(t) for t in inputs])
    node.rule, node.specs = rule, [t._spec for t in inputs]
    places = {id(t): edge for t, edge in zip(inputs, node._edges, strict=True)}
    node.saved = [(t, version_of(t), places.get(id(t))) for t in saved]
    out._node, out._rg = node, True
    return out


def record_all(
    name: str, inputs: Sequence[Tensor], outs: Sequence[Any], rule: Callable[..., Sequence[Any]]
) -> Sequence[Any]:
    """`record` for several results: `rule` gets a gradient, or None, for each."""
    if outs and record(name, inputs, outs[0], rule)._node is not None:
        node = outs[0]._node
        node._n_outputs = len(outs)
        for number, out in enumerate(outs[1:], 1):
            out._node, out._rg = node, True
            meta_of(out).output_nr = number
    return outs
