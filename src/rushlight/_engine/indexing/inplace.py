"""In-place changes: which tensors may be changed, version counters, and rebased history."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._engine.autograd.hooks import retain, stop_retaining
from rushlight._engine.autograd.node import Node
from rushlight._engine.core.hooks import HOOKS, OPS, bump
from rushlight._engine.core.memory import check_resizable, device_of, empty_spec, own, root_of
from rushlight._engine.core.state import FUNCTION_MODE, GRAD, INFERENCE, RECORDING, STATE, TRANSFORMS
from rushlight._engine.core.tensor import Tensor, dispatch_classes, edge_of, make, meta_of
from rushlight._engine.indexing.view import Window, as_strided, refusal, regenerate, shown_through
from rushlight._engine.sharing.shared import relocate, seen_by_others
from rushlight._types.dtype import UINT8 as BYTE
from rushlight._types.layout import is_dense
from rushlight._types.spec import Spec, check_memory, check_sizes

__all__ = [
    "apart",
    "bump",
    "check_captured",
    "check_inference",
    "check_writable",
    "follow_program",
    "give_history",
    "one_memory",
    "overlaps_partly",
    "rebase",
    "share_memory",
]


_CHANGED_LEAF = "{} that requires grad is being used in an in-place operation. Change it under torch.no_grad(), or change a clone() of it."


def check_writable(x: Tensor, wants_grad: bool) -> None:
    """RuntimeError if autograd forbids changing `x` in place; `wants_grad`: the new values will have a history."""
    meta = x._autograd_meta
    word = STATE.word
    check_inference(x)
    if not word & GRAD or not (wants_grad or x._rg):
        return
    if meta is None or meta.base is None:
        if x._rg and x._node is None:
            raise RuntimeError(_CHANGED_LEAF.format("a leaf Variable"))
        return
    check_view_writable(x, meta)


def check_inference(x: Tensor) -> None:
    """RuntimeError if `x` was made in inference mode, and that has ended."""
    meta = x._autograd_meta
    if meta is not None and meta.inference and not STATE.word & INFERENCE:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal tensor before doing "
            "inplace update. See https://github.com/pytorch/rfcs/pull/17 for more details."
        )


def check_captured(x: Tensor, name: str) -> None:
    """RuntimeError if the function being differentiated may not change `x`: see `_engine.functorch.transformed`."""
    if "captured" in TRANSFORMS:
        TRANSFORMS["captured"](x, name)


def check_view_writable(x: Tensor, meta: Any) -> None:
    """RuntimeError if a view may not be changed in place while recording."""
    if meta.creation:
        raise RuntimeError(refusal(x))
    if x._rg and meta.base._node is None:
        kind = "a leaf Variable" if x._node is None else "a view of a leaf Variable"
        raise RuntimeError(_CHANGED_LEAF.format(kind))


class CopySlices(Node):
    """History of a base whose part (a view) was changed in place.

    The gradient of the base is the gradient of its new value, with the changed part sent through `function`, the node
    of the change.  The first edge of that node is the changed tensor itself.
    """

    __slots__ = ("base", "function", "own", "window")
    _namespace = "torch::autograd::"

    def __init__(self, base: Tensor, view: Tensor, function: Node, own: int | None) -> None:
        rest = [e for i, e in enumerate(function._edges) if i != own]
        self._start([edge_of(base), *rest])
        self.base, self.function, self.own = base._spec, function, own
        self.window = Window(view, base)
        function._within = weakref.ref(self)

    def of_saved(self, x: Tensor, number: int) -> None:
        """Give a value that `function` has saved, one of its results or residuals, the history behind this node."""
        if number:
            x._node, meta_of(x).output_nr = self, number
        else:
            x._node = shown_through(self.window, x, self.base, self)

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        grad, rest = grads[0], grads[1:]
        if grad is None:
            if not any(g is not None for g in rest):
                return [None] * len(self._edges)
            grad = OPS["zeros"](tuple(self.base.shape), dtype=self.base.dtype, device=self.base.device)
        if STATE.word & FUNCTION_MODE or type(grad) in dispatch_classes:
            return self._below_modes(grad, rest)
        whole = OPS["clone_like"](grad, self.base) if grad._spec is not self.base else OPS["clone"](grad)
        if whole._spec is not self.base:
            whole = as_strided(whole, self.base.shape, self.base.strides)
        found = list(self.function.apply([OPS["clone"](self.window.of(whole)), *rest]))
        mine = found.pop(self.own) if self.own is not None else None
        part = self.window.of(whole)
        if mine is None:
            OPS["zero_"](part)
        else:
            OPS["copy_"](part, mine)
        return [whole, *found]

    def _below_modes(self, grad: Any, rest: Sequence[Any]) -> Sequence[Tensor | None]:
        """The same by functions that dispatch modes and classes see."""
        shape, strides, step = self.window.geometry
        if self.window.parts or self.window.pairs or self.window.conj:
            raise NotImplementedError("the gradient of a change of parts of complex numbers, below dispatch modes")
        whole = grad.new_empty_strided(self.base.shape, self.base.strides).copy_(grad)
        part = whole.as_strided(shape, strides, step)
        found = list(self.function.apply([part.clone(), *rest]))
        mine = found.pop(self.own) if self.own is not None else None
        if mine is None:
            part.zero_()
        else:
            part.copy_(mine)
        return [whole, *found]

    def _release(self) -> None:
        self.function._release()


def rebase(x: Tensor, node: Node | None, own: int | None) -> None:
    """Give `x`, just changed in place, its new history: `node`, whose edge number `own` leads to the old `x`.

    Where `x` is a view, its base's history is rebased too, and every living view of that base follows.
    """
    meta = x._autograd_meta
    base = meta.base if meta is not None else None
    if node is None:
        return
    changed = x if base is None else base
    give_history(changed, node if base is None else CopySlices(base, x, node, own))
    if changed._autograd_meta is not None:
        _refresh(changed)


def give_history(x: Tensor, node: Node, number: int = 0) -> None:
    """Let result `number` of `node` be the history of `x`, which may have had another; a retained gradient is that of
    the new one.
    """
    meta = x._autograd_meta
    retained = meta is not None and meta.retains and stop_retaining(x)
    x._node, x._rg = node, True
    if number or meta is not None:
        meta_of(x).output_nr = number
    if retained:
        retain(x)


def _refresh(base: Tensor, besides: Collection[int] = ()) -> None:
    """Let every living view of `base` follow the history of `base`, but for those with the ids `besides`."""
    for reference in list(meta_of(base).views or ()):
        view = reference()
        if view is not None and id(view) not in besides:
            regenerate(view, base)


def follow_program(base: Tensor, results: Sequence[Tensor]) -> None:
    """Let views from before a program follow the history that it gave to `base`; its results have their own."""
    _refresh(base, {id(x) for x in results})


def one_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors share one storage, or storages over the same memory."""
    x, y = a._storage, b._storage
    if x is None or y is None:  # without memory, on the device meta
        return False
    return x is y or (x.owner is not None or y.owner is not None) and root_of(x) is root_of(y)


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors' memory may overlap (by their address ranges)."""
    if a._storage is None or b._storage is None or not a._spec.numel or not b._spec.numel:
        return False
    return a._ptr < b._ptr + _span(b) and b._ptr < a._ptr + _span(a)


def apart(x: Tensor) -> Tensor:
    """A copy with the same strides, outside of any graph."""
    span = _span(x)
    check_memory(x._spec)
    made = empty_spec(Spec.of(BYTE, x._spec.device, (span,)))
    backend_of(x._spec.device).copy(made._ptr, x._ptr, span, x._spec.device)
    return make(made._storage, x._spec, made._ptr)


def overlaps_partly(a: Tensor, b: Tensor) -> bool:
    """Whether two dense tensors overlap in memory without being the same window; tensors with gaps never count, as in
    PyTorch.
    """
    if a._ptr == b._ptr and a._spec is b._spec or not share_memory(a, b):
        return False
    if a._ptr == b._ptr and a._spec.strides == b._spec.strides and a._spec.shape == b._spec.shape:
        return False
    return is_dense(a._spec.shape, a._spec.strides) and is_dense(b._spec.shape, b._spec.strides)


def _span(x: Tensor) -> int:
    spec = x._spec
    return (1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))) * spec.dtype.itemsize


# ***** results that get more memory *****


def grow(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Tensor:
    """`resize_` for results, which may want gradients."""
    if strides is None and tuple(x._spec.shape) == tuple(shape):
        return x
    if STATE.word & RECORDING:
        STATE.recording.burn_in()
    spec = Spec.of(x._spec.dtype, x.device, shape, strides, x._spec.conj)
    check_sizes(spec)
    if HOOKS.lazy_clones:
        own(x)
    storage = x._storage
    if storage is not None and (x._ptr - storage.ptr) + spec.nbytes > storage.nbytes:
        start = x._ptr - storage.ptr
        grown = _larger(storage, start + spec.nbytes)
        if seen_by_others(x) or storage.windows or storage.owner is not None:  # they go along
            grown = relocate(storage, grown)
        else:
            grown.stamp = storage.stamp
        storage, place = grown, grown.ptr + start
    else:
        place = x._ptr
    x._storage, x._ptr, x._spec = storage, place, spec
    return x


def _larger(storage: Any, nbytes: int) -> Any:
    """New memory of so many bytes that begins with the storage's; RuntimeError where the memory may not move."""
    check_resizable(storage)
    device = device_of(storage)
    grown, size = empty_spec(Spec.of(BYTE, device, (nbytes,))), Spec.of(BYTE, device, (storage.nbytes,))
    OPS["copy_"](make(grown._storage, size, grown._ptr), make(storage, size, storage.ptr))
    grown._storage.stamp = storage.stamp
    return grown._storage
