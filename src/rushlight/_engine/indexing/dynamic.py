"""Operators whose result's shape depends on the data: they run in two steps, with a size read back in between."""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._engine.core import convert
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import empty_spec, has_memory
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, make, plain_classes
from rushlight._engine.dispatch.plans.native_plans import native_device
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import BOOL, INT64
from rushlight._types.layout import broadcast_shapes
from rushlight._types.spec import Spec, check_memory

__all__ = ["masked_select", "nonzero", "nonzero_places", "nonzero_tuple", "run_lengths", "run_numbers", "run_starts"]


def _routine(x: Tensor, name: str, key: Any = None) -> Any:
    """A routine of the tensor's device; see `Backend.routine`."""
    return backend_of(x._spec.device).routine(name, key)


def _as_mask(x: Tensor) -> Tensor:
    """Contiguous bool: what is not zero."""
    check_memory(x._spec)
    if x._spec.dtype is BOOL and x._spec.contiguous and x._storage is not None and not isinstance(x, DispatchType):
        return x
    if not has_memory(x._spec):
        raise NotImplementedError("nonzero and mask indexing need the data, which a meta tensor does not have")
    if type(x) in plain_classes and not x._rg and x._spec.dtype is not BOOL:
        return convert.contiguous(convert.call("ne", x, 0))
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        mask = x if x._spec.dtype is BOOL else convert.call("ne", x, 0)
        if isinstance(mask, DispatchType):
            return type(mask).answer(nonzero, (mask,), {})
        return convert.contiguous(mask)
    finally:
        STATE.word = before


def _count(mask: Tensor) -> tuple[int, int, array[int]]:
    """How many of a dense mask are set, the address of how many are before each piece of it, and what is there."""
    n, backend = mask._spec.numel, backend_of(mask._spec.device)
    before = array("q", bytes(8 * (-(-n // backend.selection_piece) + 1)))
    where = before.buffer_info()[0]
    return (backend.routine("count_true")(mask._ptr, n, where) if n else 0), where, before


_SMALL, _DIMS = 1 << 13, 32  # elements and dims up to which one call counts, allocates and writes


# By device the native function that counts, allocates and writes the coordinates of a small dense mask, None where
# there is none: `(address, sizes)` gives (count, storage of int64): all first coordinates, all second ones, ... by
# these sizes.
_COUNTERS: dict[Device, Any] = {}


def _small_counter(x: Tensor) -> Any:
    """That function for a tensor, None where the tensor is larger than one call should take."""
    spec = x._spec
    if not 0 < spec.numel <= _SMALL or spec.ndim > _DIMS:
        return None
    device = spec.device
    counter = _COUNTERS.get(device, ...)
    if counter is ...:
        native = native_device(device)
        counter = _COUNTERS[device] = None if native is None else native.coordinates
    return counter


@lru_cache(maxsize=512)
def _places_spec(count: int, ndim: int = 0) -> Spec:
    """That of so many coordinates in each of `ndim` columns, which lie one after the other; without a column, of one as
    a vector.
    """
    return Spec.of(INT64, CPU, (count, ndim), (1, count)) if ndim else Spec.of(INT64, CPU, (count,))


def nonzero_places(x: Tensor) -> Tensor:
    """Flat places (row-major) of what is not zero, int64."""
    mask = _as_mask(x)
    n = mask._spec.numel
    coordinates = _small_counter(mask)
    if coordinates is not None:
        count, storage = coordinates(mask._ptr, (n,))
        return make(storage, _places_spec(count), storage.ptr)
    count, where, _before = _count(mask)
    made = empty_spec(Spec.of(INT64, x._spec.device, (count,)))
    if count:
        _routine(mask, "list_true")(mask._ptr, n, where, made._ptr)
    return made


def nonzero(x: Tensor) -> Tensor:
    """Coordinates of what is not zero: (count, ndim) int64, in row-major order."""
    ndim = x._spec.ndim
    coordinates = _small_counter(x) if ndim else None
    if coordinates is not None:
        mask = _as_mask(x)
        count, storage = coordinates(mask._ptr, x._spec.shape)
        return make(storage, _places_spec(count, ndim), storage.ptr)  # as in PyTorch: `unbind(1)` gives dense tensors
    places = nonzero_places(x)
    count = places._spec.numel
    if ndim == 1:
        return make(places._storage, Spec.of(INT64, x._spec.device, (count, 1), (1, count)), places._ptr)
    # As in PyTorch: `unbind(1)` gives dense tensors
    made = empty_spec(Spec.of(INT64, x._spec.device, (count, ndim), (1, count)))
    if count and ndim:
        sizes = array("q", x._spec.shape)
        _routine(places, "unravel")(places._ptr, count, sizes.buffer_info()[0], ndim, made._ptr)
    return made


def nonzero_tuple(x: Tensor) -> tuple[Tensor, ...]:
    """One int64 tensor of coordinates per dim (a 0-dim tensor counts as one dim)."""
    if x._spec.ndim == 1:
        return (nonzero_places(x),)
    if x._spec.ndim == 0:
        return (nonzero_places(x),)
    coordinates = _small_counter(x)
    if coordinates is not None and not isinstance(x, DispatchType):
        mask = _as_mask(x)
        count, storage = coordinates(mask._ptr, x._spec.shape)
        spec, start = _places_spec(count), storage.ptr
        return tuple([make(storage, spec, start + 8 * count * d) for d in range(x._spec.ndim)])
    return tuple(nonzero(x).unbind(1))


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is set, in row-major order, as one dim; both are broadcast."""
    if mask._spec.dtype is not BOOL:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(x._spec.shape, mask._spec.shape)
    if tuple(x._spec.shape) != shape:
        x = x.expand(shape)
    if tuple(mask._spec.shape) != shape:
        mask = mask.expand(shape)
    size = x._spec.dtype.itemsize
    if (STATE.word & GRAD and x._rg) or size > 8 or isinstance(x, DispatchType):
        flat = convert.call("clone_contiguous", x) if not x._spec.contiguous else x
        return convert.call("index", flat.reshape(-1), (0,), (nonzero_places(mask),))
    dense, source = _as_mask(mask), convert.contiguous(convert.resolved(x))
    check_memory(source._spec)
    n = dense._spec.numel
    count, where, _before = _count(dense)
    made = empty_spec(Spec.of(x._spec.dtype, x._spec.device, (count,)))
    if count:
        _routine(source, "compact", size)(source._ptr, dense._ptr, n, where, made._ptr)
    return made


# ***** runs of equal neighbours *****


def run_starts(x: Tensor) -> Tensor:
    """A mask of where an element of a dense vector, not of complex numbers, differs from the one before it."""
    check_memory(x._spec)
    n = x._spec.numel
    mask = empty_spec(Spec.of(BOOL, x._spec.device, (n,)))
    if n:
        _routine(x, "mark_runs", x._spec.dtype.name)(x._ptr, n, mask._ptr)
    return mask


def run_numbers(starts: Tensor, order: Tensor | None = None) -> Tensor:
    """The number of its run for each element of a vector; with `order`, a dense permutation, at the place that it
    names.
    """
    mask = _as_mask(starts)
    check_memory(None if order is None else order._spec)
    n = mask._spec.numel
    made = empty_spec(Spec.of(INT64, mask._spec.device, (n,)))
    if n:
        _, where, _before = _count(mask)
        _routine(mask, "number_runs")(mask._ptr, n, where, order._ptr if order is not None else 0, made._ptr)
    return made


def run_lengths(starts: Tensor) -> Tensor:
    """How long each run of a vector is."""
    places = nonzero_places(starts)
    made = empty_spec(places._spec)
    if places._spec.numel:
        _routine(places, "run_lengths")(places._ptr, places._spec.numel, starts._spec.numel, made._ptr)
    return made


HOOKS.nonzero = nonzero_tuple
HOOKS.masked_select = masked_select
