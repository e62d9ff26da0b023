"""Tensors that join a level after they were made, because something of that level is written to them.

Memory is seen through more than one tensor: a base and its views.  Where one of them becomes dual or batched, all do, each as the same view of
what belongs to the base (a tangent, or the whole batch).  Every one of them stays the object that it is; what it was goes over to another object,
and bases and views are linked among the new ones as they are among the old.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.autograd.engine import OPS
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, add_view, meta_of
from rushlight._engine.functorch.transformed import Transformed, root
from rushlight._engine.indexing.view import as_strided
from rushlight._types.layout import numel

__all__ = ["Windows", "families", "join", "leave", "link", "relatives"]


def relatives(x: Tensor) -> list[Tensor]:
    """The tensors that are views of the same memory as `x`, as far as they live: their base, then they."""
    base = x._base if x._base is not None else x
    views = base._autograd_meta.views if base._autograd_meta is not None else None
    return [base, *[v for v in [reference() for reference in views or ()] if v is not None]]


def families(x: Tensor) -> list[list[Tensor]]:
    """The tensors that show the memory of `x`, each base with its views; first those that a graph knows, of which there is at most one family.

    Nothing links a detached tensor with the one that it was made of; where the storage has more owners than `x` and its relatives, they are looked
    for among all objects.
    """
    found = [relatives(x)]
    storage = x._storage
    if (
        storage is not None and sys.getrefcount(storage) > len(found[0]) + 2
    ):  # two: the name above, and the argument of the count
        known = {id(member) for member in found[0]}
        for other in gc.get_referrers(storage):
            if isinstance(other, Tensor) and other._storage is storage and id(other) not in known:
                found.append([member for member in relatives(other) if member._storage is storage])
                known.update(map(id, found[-1]))
    found.sort(key=lambda family: not any(member._rg for member in family))
    if len(found) > 1 and any(member._rg for member in found[1]):
        raise NotImplementedError(
            "a tensor without a batch cannot have one from now on: two tensors that have gradients of their own show its memory"
        )
    return found


def link(parent: Any, made: Any) -> None:
    """Remember that the transformed tensors `made` (one, or several) are views of `parent`."""
    for view in (made,) if isinstance(made, Tensor) else made:
        if isinstance(view, Transformed) and view is not parent:
            base = parent._base if parent._base is not None else parent
            meta_of(view).base = base
            add_view(base, view)


class Windows:
    """Where each of some relatives, the base first, lies in their common memory; in bytes, from the first that any of them shows."""

    def __init__(self, members: Sequence[Tensor]) -> None:
        self.base = members[0]
        self.low = min(root(m)._ptr for m in members)
        high = max(root(m)._ptr + _span(m) * m.dtype.itemsize for m in members)
        self.span = (high - self.low) // self.base.dtype.itemsize

    def memory(self, base: Tensor) -> Any:
        """All of the memory as one dim, of the base or what it has become."""
        if base.is_contiguous() and not root(base)._spec.conj and self.span == base.numel():
            return base.view(-1)
        whole = as_strided(
            base, (self.span,), (1,), base.storage_offset() - (root(base)._ptr - self.low) // base.dtype.itemsize
        )
        return whole.conj() if root(base)._spec.conj and base.dtype.is_complex else whole

    def shown(self, flat: Any, member: Tensor, leading: int = 0) -> Any:
        """What `member` shows of `flat`, which has `leading` dims and then one for all of the memory."""
        memory = flat if member.dtype is self.base.dtype else OPS["view_as_real"](flat).flatten(leading)
        start = (root(member)._ptr - self.low) // member.dtype.itemsize
        front, steps = tuple(memory.shape)[:leading], tuple(memory.stride())[:leading]
        seen = as_strided(
            memory,
            (*front, *member.shape),
            (*steps, *member._spec.strides),
            memory.storage_offset() + start * memory.stride(leading),
        )
        if not root(member)._spec.conj:
            return seen
        return seen.conj() if member.dtype.is_complex else seen._neg_view()


def _span(x: Tensor) -> int:
    spec = x._spec
    return 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) if numel(spec.shape) else 0


def join(members: Sequence[Any], kind: type[Transformed], contents: Callable[[Tensor, Tensor], dict[str, Any]]) -> None:
    """Let relatives, the base first, be tensors of another kind from now on.

    `contents(member, held)` gives the attributes of one; `held` is the tensor that it was.
    """
    held = _handed_over(members)
    found = [contents(m, h) for m, h in zip(members, held, strict=True)]
    for member, attributes in zip(members, found, strict=True):
        member._storage, member._ptr, member._rg, member._node, member._autograd_meta = None, 0, False, None, None
        if isinstance(member, Transformed):
            member.__dict__.clear()
        member.__class__ = kind
        member.__dict__.update(attributes)
    for view in members[1:]:
        link(members[0], view)


def _handed_over(members: Sequence[Any]) -> list[Any]:
    """Other objects that are what the members were, linked among themselves."""
    held = []
    for m in members:
        other = object.__new__(type(m))
        other._storage, other._spec, other._ptr = m._storage, m._spec, m._ptr
        other._rg, other._node, other._autograd_meta = m._rg, m._node, m._autograd_meta
        other.__dict__.update(m.__dict__)
        held.append(other)
    _relink(held)
    return held


def _relink(members: Sequence[Any]) -> None:
    base, *views = members
    if views:
        meta_of(base).views = [weakref.ref(v) for v in views]
        for v in views:
            meta_of(v).base = base


def leave(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Let each first tensor of a pair be what the second one is; bases and views among them follow."""
    known = {id(held): x for x, held in pairs}
    for x, held in pairs:
        x.__dict__.clear()
        x.__class__ = type(held)
        x.__dict__.update(held.__dict__)
        x._storage, x._spec, x._ptr = held._storage, held._spec, held._ptr
        x._rg, x._node, x._autograd_meta = held._rg, held._node, held._autograd_meta
    for x, _ in pairs:
        meta = x._autograd_meta
        if meta is not None and meta.base is not None:
            if id(meta.base) not in known:
                add_view(meta.base, x)
            meta.base = known.get(id(meta.base), meta.base)
        if meta is not None and meta.views:
            seen = [reference() for reference in meta.views]
            meta.views = [weakref.ref(known.get(id(v), v)) for v in seen if v is not None]


def without_grad(function: Callable[[], Any]) -> Any:
    """What `function` gives, outside of any graph."""
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        return function()
    finally:
        STATE.word = word


__all__ += ["without_grad"]
