"""`swap_tensors`: two tensors become each other, for everybody who holds them."""

from __future__ import annotations

import copyreg
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

from rushlight import Tensor
from rushlight._interface.autograd import add_view, bump
from rushlight._interface.base import trace_marks

__all__ = ["set_module", "swap_tensors"]


@trace_marks.changes_later_calls
def set_module(obj: Any, mod: str) -> None:
    """Say which module an object belongs to; TypeError unless it is a text."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange all that two tensors are: memory, class, attributes, gradient.  Whoever holds one of them sees the
    other.

    RuntimeError where one has weak references, which would then lead to the other one, where one has views, and where
    their classes have different slots. Graphs that lead to the tensors, or have saved them for backward, belong to what
    these were: their backward raises RuntimeError.

        >>> a, b = torch.ones(2), torch.zeros(3)
        >>> torch.utils.swap_tensors(a, b)
        >>> a
        tensor([0., 0., 0.])
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"swap_tensors: expected {name} to be a tensor, found {type(tensor).__name__}")
    slots = [copyreg._slotnames(type(t)) for t in (t1, t2)]  # type: ignore[attr-defined]
    if set(slots[0]) != set(slots[1]):
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    if t1 is t2:
        return
    _check_views(t1, "t1")
    _check_views(t2, "t2")
    bases = [_leave_base(t) for t in (t1, t2)]
    try:
        _check_unwatched(t1, "t1")
        _check_unwatched(t2, "t2")
    except RuntimeError:
        _join_bases((t1, t2), bases)
        raise
    for tensor in (t1, t2):
        _poison(tensor)
    names = ["__class__", "__dict__", *slots[0]]
    first, second = ([getattr(t, name, _MISSING) for name in names] for t in (t1, t2))
    for tensor, values in ((t1, second), (t2, first)):
        for name, value in zip(names, values, strict=True):
            if value is not _MISSING:
                setattr(tensor, name, value)
            elif hasattr(tensor, name):
                delattr(tensor, name)
    _join_bases((t2, t1), bases)
    _count_as_changed(t1, t2)


_MISSING: Any = object()


def _check_unwatched(tensor: Tensor, name: str) -> None:
    """RuntimeError if weak references, other than that of the node of its gradient, lead to the tensor."""
    meta: Any = tensor._autograd_meta
    node = meta.accumulator if meta is not None else None
    if node is not None:
        node._variable = _nothing  # Python gives out one weak reference: with it, those of others would not be seen
    watched = weakref.getweakrefcount(tensor)
    if node is not None:
        node._variable = weakref.ref(tensor)
    if watched:
        raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")


def _check_views(tensor: Tensor, name: str) -> None:
    """RuntimeError if there are views of the tensor: they would be views of another one."""
    meta: Any = tensor._autograd_meta
    views = sum(view() is not None for view in (meta.views or ())) if meta is not None else 0
    if views:
        raise RuntimeError(
            f"Expected use_count of {name} to be 1 or 2 with an AccumulateGrad node but got {2 + views} "
            "make sure you are not holding references to the tensor in other places: it has views."
        )


def _leave_base(tensor: Tensor) -> Tensor | None:
    """Take a view from the list, of weak references, that its base keeps; returns the base."""
    base: Any = tensor._base
    known = base._autograd_meta.views if base is not None and base._autograd_meta is not None else None
    if not known:
        return None
    others = [view for view in known if view() is not tensor]
    if len(others) == len(known):
        return None
    known[:] = others
    return base


def _join_bases(views: Sequence[Tensor], bases: Sequence[Tensor | None]) -> None:
    for view, base in zip(views, bases, strict=True):
        if base is not None:
            add_view(base, view)


def _nothing() -> None:
    """A weak reference to what is gone."""


def _poison(tensor: Tensor) -> None:
    """Let backward fail where graphs lead to what this leaf was: it would add to the gradient of another tensor, or
    to that of none.
    """
    meta: Any = tensor._autograd_meta
    if meta is None or meta.accumulator is None:
        return
    meta.accumulator.register_prehook(_refuse)
    meta.accumulator._variable = _nothing
    meta.accumulator = None


def _refuse(grad_outputs: Any) -> NoReturn:
    raise RuntimeError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: the graph was made before its leaf was swapped with another "
        "tensor. With `torch.__future__.set_swap_module_params_on_conversion(True)`, change the device or dtype of a module (`m.cpu()`, "
        "`m.half()`) before forward or after backward, not between them."
    )


def _count_as_changed(t1: Any, t2: Any) -> None:
    """Let no node that saved one of the tensors take what it is now for what it was."""
    storages = [t._storage for t in (t1, t2) if t._storage is not None]
    version = max((s.version for s in storages), default=0)
    for storage in storages:
        storage.version = version
        bump(storage)
