"""Nodes of autograd whose backward is made of aten operators, so that modes and classes see it, and its own derivative."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._interface.autograd import Node, Packed, add_view, check_writable, edge_of, meta_of, packed, rebase
from rushlight._interface.base import BY_VARIABLE, LazyModule
from rushlight._interface.tensors import GRAD, SAVED_HOOKS, STATE, is_dense
from rushlight.library.aten import derivatives
from rushlight.library.aten.calls import bound, redispatch

tables: Any = LazyModule("rushlight.library.aten.tables")
derived: Any = LazyModule("rushlight.library.aten.derived")

__all__ = ["AtenNode", "Context", "own", "recorded"]


class Context:
    """Values that a formula may read: `c.<argument>`, `c.result`, `c.results`, and which inputs want a gradient."""

    def __init__(self, op: Any, values: dict[str, Any]) -> None:
        self.op = op
        self._values = dict(values)
        self._saved: dict[str, Any] = {}
        self._specs = {k: v._spec for k, v in values.items() if isinstance(v, rushlight.Tensor)}
        self._offset = values["self"].storage_offset() if op._opname.startswith("as_strided") else 0
        # Numbers in places of tensors take part in products as tensors do.
        self._operands = {
            a.name
            for a in op.form.parsed().arguments
            if a.base == "Tensor" and not a.list_depth and isinstance(values[a.name], (int, float, complex))
        }
        self.node: Any = None

    def __getattr__(self, name: str) -> Any:
        saved = self.__dict__["_saved"]
        if name in saved:
            return saved[name].get(self.node)
        values = self.__dict__["_values"]
        if name in values:
            value = values[name]
            return derivatives.Value(value) if isinstance(value, rushlight.Tensor) or name in self._operands else value
        raise AttributeError(name)

    def _settle(self) -> None:
        """Take the versions of what is kept from now on: some operators write to arguments that their schema does not
        name.
        """
        for saved in self._saved.values():
            saved.version = derived.version_of(saved.held)

    def spec(self, name: str) -> Any:
        """The layout and dtype of a tensor argument."""
        return self._specs[name]

    def storage_start(self) -> int:
        """Where `self` begins in its storage."""
        return self._offset

    def sizes(self, name: str) -> list[int]:
        """The shape of a tensor argument."""
        return list(self._specs[name].shape)

    def has(self, name: str) -> bool:
        """Whether an argument is a tensor."""
        return name in self._specs

    @property
    def arguments(self) -> list[str]:
        """The names of the arguments that are no tensors."""
        return list(self._values)

    def needs(self, name: str) -> bool:
        """Whether an argument wants a gradient."""
        return name in self.node.wants


class _Saved:
    """A tensor kept for backward, through the hooks of `saved_tensors_hooks`; of a result, the detached tensor."""

    __slots__ = ("held", "is_result", "number", "shown", "version")

    def __init__(self, tensor: Any, is_result: bool, number: int = 0) -> None:
        self.is_result, self.number = is_result, number
        self.version = derived.version_of(tensor)
        self.shown: Any = None
        hooks = STATE.saved_hooks if STATE.word & SAVED_HOOKS else ()
        self.held = packed(tensor, *hooks[-1]) if hooks else tensor

    def unpack(self) -> None:
        """Make the tensor that the formulas of one backward see, of a result."""
        if self.is_result and not isinstance(self.held, Packed):
            self.shown = redispatch(rushlight.ops.aten.detach.default, (self.held,), {})

    def get(self, node: Any) -> Any:
        held: Any = self.held
        tensor: Any = held.unpack(node) if isinstance(held, Packed) else held
        if tensor is held:
            derived.check_version(tensor, self.version, node.name())
        if self.is_result and self.shown is not None:
            tensor = self.shown
        if self.is_result and STATE.word & GRAD and not tensor.requires_grad:
            tensor = _twin(tensor)
            tensor._node, tensor._rg = node, True
            if self.number:
                meta_of(tensor).output_nr = self.number
        return derivatives.Value(tensor)


def _twin(tensor: Any) -> Any:
    """Another object for the same tensor with the same attributes and slots, outside of any graph."""
    made = copy.copy(tensor)
    made._rg, made._node, made._autograd_meta = False, None, None
    return made


class AtenNode(Node):
    """A node whose backward is a table of formulas, one for each input or for several."""

    __slots__ = ("context", "rules", "specs", "wants", "whole")

    context: Any
    rules: Any
    specs: Sequence[Any]
    wants: dict[str, list[int]]
    # The call itself, where formulas read results that have no gradient: another derivative starts from it.
    whole: derived.Call | None

    def _release(self) -> None:
        self.context = self.whole = None

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        context = self.context
        if context is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
                "Specify retain_graph=True if you need to backward through the graph a second time."
            )
        found: list[Any] = [None] * len(self._edges)
        if all(g is None for g in grads):
            return found
        if self.whole is not None and STATE.word & GRAD:
            for place, value in zip(self.whole.edges, self.whole.gradients(grads), strict=True):
                found[place] = value
            return [self._checked(g, s) for g, s in zip(found, self.specs, strict=True)]
        for name in sorted(context._saved):
            if name != "result":
                context._saved[name].unpack()
        given = [None if g is None else derivatives.Value(g) for g in grads]
        for names, rule in self.rules.items():
            wanted = [n for n in names if n in self.wants]
            if not wanted:
                continue
            made = rule(given if derivatives.takes_all(rule) else given[0], context)
            for name, each in zip(names, made if len(names) > 1 else (made,), strict=True):
                places = self.wants.get(name, ())
                values = each if isinstance(each, (list, tuple)) else [each] * len(places)
                for place, value in zip(places, values, strict=True) if len(values) == len(places) else ():
                    found[place] = derivatives.bare(value)
        return [self._checked(g, s) for g, s in zip(found, self.specs, strict=True)]

    def _checked(self, grad: Any, spec: Any) -> Any:
        """The gradient with the shape and dtype of the input."""
        if grad is None:
            return None
        if grad._spec.shape != spec.shape:
            grad = derivatives.sum_to(grad, list(spec.shape))
        if grad._spec.dtype is not spec.dtype:
            if grad._spec.dtype.is_complex and not spec.dtype.is_complex:
                grad = derivatives.bare(derivatives.Value(grad).real_part())
            if grad._spec.dtype is not spec.dtype:
                grad = rushlight.ops.aten._to_copy.default(grad, dtype=spec.dtype)
        return grad


_CLASSES: dict[str, type[AtenNode]] = {}


def _node_class(name: str) -> type[AtenNode]:
    found = _CLASSES.get(name)
    if found is None:
        found = _CLASSES[name] = type(name, (AtenNode,), {"__slots__": ()})
    return found


def _tensors(values: dict[str, Any]) -> dict[str, list[Any]]:
    """The tensors of each argument that has some."""
    found = {}
    for name, value in values.items():
        if isinstance(value, rushlight.Tensor):
            found[name] = [value]
        elif isinstance(value, (list, tuple)) and any(isinstance(v, rushlight.Tensor) for v in value):
            found[name] = [v for v in value if isinstance(v, rushlight.Tensor)]
    return found


def recorded(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an overload below autograd, and give its results their history."""
    tensors = [t for t in _flat((*args, *kwargs.values())) if isinstance(t, rushlight.Tensor)]
    written = [a for a in op.form.parsed().arguments if a.written] if op.form is not None else []
    if not any(t._rg for t in tensors):
        return _relate(op, args, redispatch(op, args, kwargs), False)
    rules = tables.rules_of(op)
    if rules is None:
        return derived.recorded(op, args, kwargs)
    values = bound(op, args, kwargs)
    target = values[written[0].name] if written and (op.in_place or written[0].kwarg_only) else None
    if isinstance(target, rushlight.Tensor):
        check_writable(target, True)
        if written[0].kwarg_only:
            raise RuntimeError(
                f"{op.form.name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
            )
    context = Context(op, values)
    inputs, wants = _inputs(values, rules)
    node = _start(op, inputs, wants, rules, context) if wants else None
    if node is not None:
        _save(context, rules, values, node, target)
    made = redispatch(op, args, kwargs)
    context._settle()
    if node is None:
        return _relate(op, args, made, True)
    if target is None and _reads_constants(op, made, derivatives.names_read(rules, node.wants)):
        node.whole = derived.Call(op, args, kwargs, inputs)
    return _attach(op, args, made, node, context, rules, target)


def _reads_constants(op: Any, made: Any, read: set[str]) -> bool:
    """Whether formulas read numbers among the results that have no gradient: the mean of a layer norm, an LU factor."""
    chosen = tables.differentiable(op)
    if chosen is None or not isinstance(made, (tuple, list)):
        return False
    return any(
        number not in chosen
        and f"result{number}" in read
        and isinstance(out, rushlight.Tensor)
        and out.is_floating_point()
        for number, out in enumerate(made)
    )


def _flat(values: Any) -> Any:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value


def _inputs(values: dict[str, Any], rules: Any) -> tuple[list[Any], dict[str, list[int]]]:
    """The tensors for which there are formulas, and by name the places of those that want a gradient among them."""
    known = {name for names in rules for name in names}
    inputs: list[Any] = []
    wants: dict[str, list[int]] = {}
    for name, tensors in _tensors(values).items():
        if name not in known:
            continue
        if any(t._rg for t in tensors):
            wants[name] = list(range(len(inputs), len(inputs) + len(tensors)))
        inputs += tensors
    return inputs, wants


def _start(op: Any, inputs: list[Any], wants: dict[str, list[int]], rules: Any, context: Context) -> Any:
    node = _node_class(derivatives.node_name(op))()
    node._start([edge_of(t) for t in inputs])
    node.rules, node.specs, node.wants, node.context = rules, [t._spec for t in inputs], wants, context
    node.whole, context.node = None, node
    return node


def _save(context: Context, rules: Any, values: dict[str, Any], node: Any, target: Any) -> None:
    """Keep the tensors that the formulas read; of the others only their layout."""
    read = derivatives.names_read(rules, node.wants)
    for name, value in values.items():
        if isinstance(value, rushlight.Tensor):
            if name in read:
                kept = redispatch(rushlight.ops.aten.clone.default, (value,), {}) if value is target else value
                context._saved[name] = _Saved(kept, False)
            context._values.pop(name, None) if name not in read else None


def _attach(op: Any, args: Sequence[Any], made: Any, node: Any, context: Context, rules: Any, target: Any) -> Any:
    outs = list(made) if isinstance(made, (tuple, list)) else [made]
    floats = [o for o in outs if isinstance(o, rushlight.Tensor) and (o.is_floating_point() or o.is_complex())]
    chosen = tables.differentiable(op)
    if chosen is not None:
        floats = [o for i, o in enumerate(outs) if i in chosen and isinstance(o, rushlight.Tensor)]
    if not floats:
        return made
    node._n_outputs = len(outs)
    given = {id(t) for t in _flat(args) if isinstance(t, rushlight.Tensor)}
    if target is not None:
        meta = target._autograd_meta
        if target._storage is None and meta is not None and meta.base is not None and not hasattr(target, "fake_mode"):
            raise NotImplementedError(
                f"{op}: a change in place of a view of a {type(target).__name__} with a gradient: it has no memory of its own"
            )
        rebase(target, node, 0 if target._rg or True else None)
        outs = [target]
    else:
        fresh = []
        for number, out in enumerate(outs):
            if out is not None and any(out is f for f in floats):
                if id(out) in given or out._node is not None:
                    out = _twin(out)
                out._node, out._rg = node, True
                if number:
                    meta_of(out).output_nr = number
            fresh.append(out)
        outs = fresh
    read = derivatives.names_read(rules, node.wants)
    for number, out in enumerate(outs):
        name = f"result{number}"
        wanted = name in read or not number and "result" in read
        if wanted and isinstance(out, rushlight.Tensor):
            differentiable = any(out is f for f in floats) or out._node is node
            kept = redispatch(rushlight.ops.aten.detach.default, (out,), {}) if differentiable else out
            saved = _Saved(_twin(out) if kept is out else kept, differentiable, number)
            context._saved[name] = saved
            if not number:
                context._saved["result"] = saved
    result = made if target is not None else type(made)(outs) if isinstance(made, (tuple, list)) else outs[0]
    return _relate(op, args, result, True)


def _relate(op: Any, args: Sequence[Any], made: Any, differentiable: bool) -> Any:
    """Let views know their base."""
    if op.form is None or not op.form.is_view or not args or not isinstance(args[0], rushlight.Tensor):
        if differentiable and not op.in_place:
            for out in made if isinstance(made, (tuple, list)) else (made,):
                meta = out._autograd_meta if isinstance(out, rushlight.Tensor) else None
                if meta is not None and meta.base is not None and all(out is not a for a in args):
                    meta.base, meta.creation = None, ""  # views inside of a kernel are none outside
        return made
    base = args[0]
    meta = base._autograd_meta
    root = meta.base if meta is not None and meta.base is not None else base
    for out in made if isinstance(made, (tuple, list)) else (made,):
        if not isinstance(out, rushlight.Tensor) or out is base:
            continue
        if out._storage is base._storage:
            own_meta = meta_of(out)
            own_meta.base, own_meta.creation = root, "multi" if isinstance(made, (tuple, list)) else ""
            if op is not rushlight.ops.aten.detach.default:  # a change of its base gives it no history
                add_view(root, out)
    return made


# ***** gradients of leaves *****


def own(leaf: Any, grad: Any) -> Any:
    """As `calls.own_below`.  A class may keep gradients in its own way: `_kept_gradient(leaf, grad)`.

    References to an unshared gradient: the loop's list, the engine's call and this one.
    """
    kept = getattr(type(grad), "_kept_gradient", None)
    if kept is not None:
        return kept(leaf, grad)
    spec = leaf._spec
    aten = rushlight.ops.aten
    if sys.getrefcount(grad) <= _SHARED and _same_layout(grad._spec, spec) and grad._node is None:
        return redispatch(aten.detach.default, (grad,), {})
    if grad._spec.shape != spec.shape:
        grad = aten.expand.default(grad, list(spec.shape))
    made = redispatch(
        aten.new_empty_strided.default, (grad, list(spec.shape), list(spec.strides)),
        {"dtype": spec.dtype, "layout": rushlight.strided, "device": leaf.device},
    )  # fmt: skip
    return redispatch(aten.copy_.default, (made, grad), {})


_SHARED = 6 if BY_VARIABLE == 2 else 1  # from CPython 3.14 on the calls borrow it


def _same_layout(given: Any, spec: Any) -> bool:
    """Whether a gradient lies in memory as its leaf, dims of size one apart; row-major, if the leaf is not dense."""
    if given.shape != spec.shape:
        return False
    if not is_dense(spec.shape, spec.strides):
        return bool(given.contiguous)
    return all(n == 1 or a == b for n, a, b in zip(spec.shape, given.strides, spec.strides, strict=True))


Rule = Callable[..., Any]
