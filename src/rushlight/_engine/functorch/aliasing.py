"""Tensors that join a level late, because a tensor of that level is written to them.

Several tensors show one memory: a base and its views.  When one of them becomes dual or batched, all do, each as the
same view of the base's tangent or batch.  Each stays the same Python object.  Its former content moves to a new object,
and the new objects are linked as bases and views like the old ones.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.collector import thawed
from rushlight._base.references import BY_VARIABLE
from rushlight._engine.core.hooks import OPS
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, add_view, meta_of
from rushlight._engine.functorch.transformed import Transformed, root
from rushlight._engine.indexing.view import as_strided
from rushlight._types.layout import numel

__all__ = ["Windows", "families", "join", "leave", "link", "relatives"]


def relatives(x: Tensor) -> list[Tensor]:
    """The base of `x`, then all living views of that base."""
    base = x._base if x._base is not None else x
    views = base._autograd_meta.views if base._autograd_meta is not None else None
    return [base, *[v for v in [reference() for reference in views or ()] if v is not None]]


def families(x: Tensor) -> list[list[Tensor]]:
    """All tensors over the memory of `x`, as lists of a base and its views; the list that belongs to a graph (at most
    one) comes first.

    A detached tensor is not linked to its source.  If the storage has more owners than `x` and its relatives, the
    others are searched for among all Python objects.
    """
    found = [relatives(x)]
    storage = x._storage
    if storage is not None and sys.getrefcount(storage) > len(found[0]) + BY_VARIABLE:
        known = {id(member) for member in found[0]}
        with thawed():
            holders = gc.get_referrers(storage)
        for other in holders:
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
    """Byte offsets of relatives (the base first) in their common memory, counted from the first byte that any of them
    shows.
    """

    def __init__(self, members: Sequence[Tensor]) -> None:
        self.base = members[0]
        self.low = min(root(m)._ptr for m in members)
        high = max(root(m)._ptr + _span(m) * m.dtype.itemsize for m in members)
        self.span = (high - self.low) // self.base.dtype.itemsize

    def memory(self, base: Tensor) -> Any:
        """The whole memory as one dim, of the base or of its transformed successor."""
        if base.is_contiguous() and not root(base)._spec.conj and self.span == base.numel():
            return base.view(-1)
        whole = as_strided(
            base, (self.span,), (1,), base.storage_offset() - (root(base)._ptr - self.low) // base.dtype.itemsize
        )
        return whole.conj() if root(base)._spec.conj and base.dtype.is_complex else whole

    def shown(self, flat: Any, member: Tensor, leading: int = 0) -> Any:
        """The view of `flat` that corresponds to `member`; `flat` has `leading` dims and then one dim for the whole
        memory.
        """
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
    """Turn relatives (the base first) into tensors of another kind, in place.

    `contents(member, held)` gives the new attributes of one; `held` is a tensor with its former content.
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
    """New tensors with the former content of the members, linked like them."""
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
    """Give the first tensor of each pair the content of the second; links between bases and views follow."""
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
    """The result of `function`, computed without recording."""
    word = STATE.word
    STATE.word = word & ~GRAD
    try:
        return function()
    finally:
        STATE.word = word


__all__ += ["without_grad"]
