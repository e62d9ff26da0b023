"""`x[index]` and `x[index] = value`: NumPy's forms, views where it can be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_user
from rushlight._base.lazy import numpy as np
from rushlight._engine.core import convert
from rushlight._engine.core.creation import tensor as make_tensor
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.integers import as_flag
from rushlight._engine.core.memory import has_memory
from rushlight._engine.core.packing import is_array
from rushlight._engine.core.state import AUTOCAST, GRAD, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran, uncached
from rushlight._engine.dispatch.plans.native_plans import part_plan, shifted_plan
from rushlight._engine.indexing.view import link_view
from rushlight._types.device import Device
from rushlight._types.dtype import BOOL, INT32, INT64, UINT8, DType
from rushlight._types.layout import LARGEST
from rushlight._types.spec import Spec, bytes_on
from rushlight._types.symbols import as_index, is_symbolic

__all__ = ["get_item", "index_put", "index_put_", "put", "set_item", "split_index", "take"]

_SIGNED = 2**63
_ALL = ("s", None, None, 1)
# The data-dependent part: mask -> one int64 tensor per dim.  Set by the module that provides `nonzero`.


def _too_many(ndim: int) -> IndexError:
    return IndexError(f"too many indices for tensor of dimension {ndim}")


def _is_list(item: Any) -> bool:
    return isinstance(item, (list, tuple, range)) or is_array(item)


def _stands_for_tuple(index: Any) -> bool:
    """PyTorch's old rule: a short list that holds sequences, tensors, slices, None or `...` counts as a tuple of them."""
    if not isinstance(index, list) or len(index) >= 32:
        return False
    return any(
        i is None or i is Ellipsis or isinstance(i, (Tensor, slice)) or _is_list(i) or isinstance(i, str) for i in index
    )


def _place(x: Tensor) -> Device | None:
    """Where tensors are made that index `x`."""
    return x._spec.device if has_memory(x._spec) else None


def _tensor_of(item: Any, device: Device | None) -> Tensor:
    made = make_tensor(item, device=device)
    kept = (
        not made._spec.numel and is_array(item) or made._spec.dtype in (BOOL, UINT8, INT32, INT64) and made._spec.numel
    )
    return made if kept else convert.to(made, INT64)  # numbers of a list are cut to integers


def _consumed(item: Any) -> int:
    """The number of dims of the tensor that an item indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item._spec.dtype in (BOOL, UINT8):
        return item._spec.ndim
    return 1


def split_index(x: Tensor, index: Any) -> tuple[tuple[Any, ...], list[tuple[int, Any]]]:
    """(items for the basic view, [(dim of that view, index tensor)]): first the view is taken, then the tensors index
    it.
    """
    as_tuple = _stands_for_tuple(index)
    if as_tuple:
        warn_user(
            "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; use x[tuple(seq)] instead of "
            "x[seq]. In pytorch 2.9 this will be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an error or a "
            "different result"
        )
    items = list(index) if as_tuple or isinstance(index, tuple) else [index]
    items = [_tensor_of(i, _place(x)) if _is_list(i) else i for i in items]
    ndim = x._spec.ndim
    used = sum(map(_consumed, items))
    if used > ndim:
        raise _too_many(ndim)
    if Ellipsis in [i for i in items if not isinstance(i, Tensor)]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at : at + 1] = [slice(None)] * (ndim - used)
        if any(i is Ellipsis for i in items):  # PyTorch takes a second one where no dim comes after it
            if used:
                raise IndexError("an index can only have a single ellipsis ('...')")
            items = [i for i in items if i is not Ellipsis]
    else:
        items += [slice(None)] * (ndim - used)
    basic: list[Any] = []
    tensors: list[tuple[int, Any]] = []
    dim = place = 0
    for item in items:
        if isinstance(item, Tensor) and (item._spec.ndim or item._spec.dtype in (BOOL, UINT8) or not _is_index(item)):
            if item._spec.dtype in (BOOL, UINT8) and item._spec.shape != x._spec.shape[dim : dim + item._spec.ndim]:
                raise _no_mask(x, items, item, place)
            dim, place = _tensor_item(x, item, dim, place, basic, tensors)
        elif item is None:
            basic.append(("n",))
            place += 1
        elif isinstance(item, bool):
            basic.append(("n",))
            tensors.append((place, make_tensor([0] if item else [], dtype=INT64, device=_place(x))))
            place += 1
        elif isinstance(item, slice):
            basic.append(_slice(item, x._spec.shape[dim]))
            dim, place = dim + 1, place + 1
        else:
            basic.append(_integer(item, x._spec.shape[dim], dim))
            dim += 1
    return tuple(basic), tensors


def _no_mask(x: Tensor, items: Sequence[Any], mask: Tensor, place: int) -> IndexError:
    """The error for a mask of a wrong shape; it shows the tensor after the ints, slices and Nones of the index."""
    shape: list[int] = []
    dim = 0
    for item in items:
        used = _consumed(item)
        part = list(x._spec.shape[dim : dim + used])
        dim += used
        if isinstance(item, slice):
            part = [len(range(*item.indices(part[0])))]
        elif isinstance(item, Tensor):
            part = part if item._spec.ndim or used else [1]
        elif used:
            part = []
        elif item is None or isinstance(item, bool):
            part = [1]
        shape += part
    at = next(k for k, n in enumerate(mask._spec.shape) if shape[place + k] != n)
    return IndexError(
        f"The shape of the mask {list(mask.shape)} at index {at} does not match the shape of the indexed tensor {shape} at index {place + at}"
    )


def _is_index(item: Tensor) -> bool:
    return item._spec.dtype.is_integer and not item._rg and item._storage is not None


def _tensor_item(
    x: Tensor, item: Tensor, dim: int, place: int, basic: list[Any], tensors: list[tuple[int, Any]]
) -> tuple[int, int]:
    dtype = item._spec.dtype
    if dtype is UINT8 and item._spec.ndim:
        warn_user("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    if dtype in (BOOL, UINT8):
        n = item._spec.ndim
        if n == 0:
            basic.append(("n",))
            tensors.append((place, HOOKS.nonzero(item.unsqueeze(0))[0]))
            return dim, place + 1
        for k, part in enumerate(HOOKS.nonzero(item)):
            basic.append(_ALL)
            tensors.append((place + k, part))
        return dim + n, place + n
    if dtype is not INT64 and dtype is not INT32:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    basic.append(_ALL)
    tensors.append((place, convert.to(item, INT64)))
    return dim + 1, place + 1


def _slice(item: slice, size: int) -> tuple[Any, ...]:
    if item.start is None and item.stop is None and item.step is None:
        return _ALL
    step = 1 if item.step is None else min(_whole(item.step), LARGEST)
    if not step:
        raise ValueError("slice step cannot be zero")
    if step < 0:
        raise ValueError("step must be greater than zero")
    first, last = _whole(item.start), _whole(item.stop)
    start, stop = _bounds(first, last, step, size)
    if not first and (last is None or last >= size) and step == 1:
        return _ALL
    return ("s", start, max(start, stop), step)


def _bounds(first: Any, last: Any, step: Any, size: Any) -> tuple[Any, Any]:
    """Where a slice begins and ends, as `slice.indices` says, which knows of no symbols."""
    if not any(is_symbolic(n) for n in (first, last, step, size)):
        return slice(first, last, step).indices(size)[:2]
    found = []
    for n, absent in ((first, 0), (last, size)):
        n = absent if n is None else n + size if n < 0 else n
        found.append(as_index(0 if n < 0 else size if n > size else n))
    return found[0], found[1]


def _whole(value: Any) -> Any:
    try:
        return None if value is None else as_index(value)
    except TypeError as error:
        if isinstance(value, Tensor):
            raise
        raise TypeError("slice indices must be integers or None or have an __index__ method") from error


def _integer(item: Any, size: int, dim: int) -> tuple[Any, ...]:
    try:
        k = int(convert.item(item)) if isinstance(item, Tensor) else as_index(item)
    except TypeError:
        if isinstance(item, str):
            raise TypeError("new(): invalid data type 'str'; a tensor is indexed by position, not by name") from None
        raise IndexError(
            f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {type(item).__name__})"
        ) from None
    if not -LARGEST - 1 <= k <= LARGEST:
        raise ValueError("Overflow when unpacking long long")
    if not -size <= k < size:
        raise IndexError(f"index {k} is out of bounds for dimension {dim} with size {size}")
    return ("i", k + size if k < 0 else k)


_VIEWS: list[Any] = []


def _view_caller() -> Any:
    if not _VIEWS:
        _VIEWS.append(convert.caller("basic_index"))
    return _VIEWS[0]


def basic_view(x: Tensor, items: tuple[Any, ...]) -> Tensor:
    """The view that the basic part of an index takes."""
    plan, inputs = _view_caller().prepare((x, items), {})
    return plan(*inputs)


_FAST = new_plan_table()


def _index_key(index: Any) -> Any:
    """A hashable form of an index of ints, slices and None; None for any other index."""
    kind = type(index)
    if kind is int:
        return index
    if kind is slice:
        start, stop, step = index.start, index.stop, index.step
        for bound in (start, stop, step):
            if bound is not None and type(bound) is not int:
                return None
        return (start, stop, step)
    if kind is not tuple:
        return "n" if index is None else "e" if index is Ellipsis else None
    key: list[Any] = []
    for item in index:
        if type(item) is int:
            key.append(item)
        else:
            part = _index_key(item) if type(item) is not tuple else None
            if part is None:
                return None
            key.append((part,))
    return ("t", *key)


def _reads_numbers(index: Any) -> bool:
    """Whether a tensor in an index is read as a number, so that the index depends on more than its spec."""
    if isinstance(index, (tuple, list)):
        return any(isinstance(i, Tensor) and not i._spec.ndim for i in index)
    return isinstance(index, Tensor) and not index._spec.ndim


def _read(x: Tensor, index: Any) -> Any:
    """An index with its 0-dim tensors read as ints; unchanged if there are none, or if they mean something else."""
    if type(x) is not Tensor or not x._spec.ndim:
        return index
    if type(index) is not tuple:
        return convert.item(index) if _is_number(index) else index
    return tuple([convert.item(i) if _is_number(i) else i for i in index]) if any(map(_is_number, index)) else index


def _is_number(item: Any) -> bool:
    return type(item) is Tensor and not item._spec.ndim and item._spec.dtype is not UINT8 and _is_index(item)


def _check_has_dims(x: Tensor, index: Any) -> None:
    """IndexError if a tensor without dims is indexed by a number."""
    if type(index) is int and not x._spec.ndim:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
        )


def _beside(x: Tensor, index: Any) -> Any:
    """An index whose tensors are where `x` is: those of the host are copied there; unchanged where none is elsewhere.

    RuntimeError for those of another device.
    """
    device = x._spec.device
    if isinstance(index, Tensor):
        there = index._spec.device
        if there is device or not index._spec.ndim or there.type == "meta" or device.type == "meta":
            return index
        if not backend_of(there.real).host_readable:
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({device})"
            )
        return convert.transferred(index.detach(), device)
    if isinstance(index, (tuple, list)) and any(isinstance(i, Tensor) and i._spec.device is not device for i in index):
        return type(index)([_beside(x, i) if isinstance(i, Tensor) else i for i in index])
    return index


def get_item(x: Tensor, index: Any) -> Tensor:
    """`x[index]`."""
    if type(index) is Tensor and RUNS.now is None and type(x) is Tensor and x._spec.ndim and _is_number(index):
        return x[convert.item(index)]
    key = _index_key(index)
    if key is not None:
        signature = (x._spec, x._rg, STATE.word, key)
        plan = _FAST.get(signature)
        if plan is None:
            _check_has_dims(x, index)
            plan, _ = _view_caller().prepare((x, split_index(x, index)[0]), {})
            _FAST[signature] = plan
        return ran(plan, (x,), plan(x))
    if RUNS.now is not None and _reads_numbers(index):
        return uncached(lambda: get_item(x, index))
    spec, there = x._spec, _beside(x, index)
    if there is not index:
        return uncached(lambda: get_item(x, there))
    numbers = _read(x, index)
    if numbers is not index:
        return x[numbers] if RUNS.now is None else get_item(x, numbers)
    if isinstance(index, Tensor) and index._spec.dtype is BOOL and index._spec.shape == spec.shape and spec.ndim:
        return HOOKS.masked_select(x, index)
    if is_array(index) and index.ndim:
        return x[_tensor_of(index, _place(x))]  # by a cached plan
    items, tensors = split_index(x, index)
    if not tensors:
        return basic_view(x, items)
    if any(i != _ALL for i in items):
        return _indexed_part(x, items, tensors)
    return convert.call("index", x, *_indices(x, tensors))


def _indexed_part(x: Tensor, items: tuple[Any, ...], tensors: Sequence[tuple[int, Any]]) -> Tensor:
    """A part of `x` indexed by tensors.  While a call is recorded and no gradient is wanted, its plan is noted as one
    of `x`.
    """
    outer, part = RUNS.now, basic_view(x, items)
    dims, places = _indices(part, tensors)
    runs: list[tuple[Any, Sequence[Any], Any, Any]] = []
    RUNS.now = None if outer is None else runs
    try:
        made: Tensor = convert.call("index", part, dims, places)
    finally:
        RUNS.now = outer
    if len(runs) == 1 and outer is not None and not part._rg:
        plan, inputs, _, _ = runs[0]
        whole = shifted_plan(
            plan, lambda x, *rest: convert.call("index", basic_view(x, items), dims, rest), part._ptr - x._ptr
        )
        if whole is not None and inputs[0] is part:
            outer.append((whole, (x, *inputs[1:]), made, None))
    return made


def _indices(x: Tensor, tensors: Sequence[tuple[int, Any]]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """(dims that are indexed, their index tensors)."""
    return tuple(d for d, _ in tensors), tuple(t for _, t in tensors)


def set_item(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`."""
    if isinstance(index, bool):
        if index:  # all of it
            set_item(x, ..., value)
        return
    if RUNS.now is not None and _reads_numbers(index):
        uncached(lambda: set_item(x, index, value))
        return
    there = _beside(x, index)
    if there is not index:
        uncached(lambda: set_item(x, there, value))
        return
    numbers = _read(x, index)
    if numbers is not index:
        x[numbers] = value
        return
    _check_has_dims(x, index)
    if _masks(x, index, value):
        _write(x, x, lambda: convert.call_inplace("masked_fill", x, index, value), set_item)
        return
    items, tensors = split_index(x, index)
    if "numpy" in sys.modules and isinstance(value, np.generic):
        value = value.item()
    if type(value) is int and not -_SIGNED <= value < (2 * _SIGNED if x._spec.dtype.name == "uint64" else _SIGNED):
        raise ValueError("Overflow when unpacking long long")
    elif not isinstance(value, (Tensor, bool, int, float, complex)):
        raise TypeError(
            f"can't assign a {type(value).__name__} to a torch.{x._spec.dtype.scalar}Tensor; make a tensor of it first"
        )
    target = basic_view(x, items) if any(i != _ALL for i in items) else x
    if not tensors:
        if isinstance(value, Tensor):
            value = _fit(value, target)
        _write(x, target, lambda: convert.copy_(target, value), lambda x, value: set_item(x, index, value))
        return
    if type(value) is complex and not x._spec.dtype.is_complex:
        if value.imag != 0:
            raise RuntimeError(
                f"value cannot be converted to type {x._spec.dtype.name} without overflow: it is {value}"
            )
        value = value.real
    if not isinstance(value, Tensor):
        value = value if _fits(x, value) else make_tensor(value, dtype=x._spec.dtype, device=_place(x))
    else:
        value = _put_value(x, index if isinstance(index, tuple) else (index,), value)
    if not isinstance(value, Tensor) or value._spec.numel == 1:
        _check_fill(x, index if isinstance(index, tuple) else (index,))
    dims, places = _indices(target, tensors)

    def again(x: Tensor, *rest: Any) -> None:
        part = basic_view(x, items) if target is not x else x
        convert.call_inplace("index_put_core", part, dims, rest[:-1], rest[-1], False)

    _write(x, target, lambda: convert.call_inplace("index_put_core", target, dims, places, value, False), again)


def _put_value(x: Tensor, indices: Sequence[Any], value: Tensor) -> Tensor:
    """The values that `x[indices] = value` writes; RuntimeError for another dtype, except one element for a single
    mask, which is a number.
    """
    given, wanted = value._spec.dtype, x._spec.dtype
    if given is wanted:
        return value
    if value._spec.numel == 1 and _only_mask(x, indices) is BOOL:
        return convert.to(value, wanted)
    _check_room(x, indices, value)
    raise RuntimeError(
        f"Index put requires the source and destination dtypes match, got {wanted.scalar} for the destination and {given.scalar} for the source."
    )


def _only_mask(x: Tensor, indices: Sequence[Any]) -> DType | None:
    """The dtype of the one tensor or list with dims that `x[indices]` holds; None if there are more or none."""
    listed = [_tensor_of(i, _place(x)) if _is_list(i) else i for i in indices]
    listed = [
        i
        for i in listed
        if isinstance(i, bool) or (isinstance(i, Tensor) and (i._spec.ndim or i._spec.dtype in (BOOL, UINT8)))
    ]
    mask = listed[0] if len(listed) == 1 else None
    return mask._spec.dtype if isinstance(mask, Tensor) and mask._spec.ndim else None


def _check_fill(x: Tensor, indices: Sequence[Any]) -> None:
    """RuntimeError if a single mask of bytes chooses what one number fills: PyTorch does so by `masked_fill_`."""
    if _only_mask(x, indices) is UINT8:
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype unsigned char")


def _check_room(x: Tensor, indices: Sequence[Any], value: Tensor) -> None:
    """RuntimeError if `x[indices]` has no room for the value: that comes before what is said of dtypes."""
    try:
        room, given = list(x.detach()[tuple(indices)].shape), list(value._spec.shape)
    except IndexError:  # an index is out of range, which is said after what is wrong with dtypes
        return
    lead = len(given) - len(room)
    kept = given[lead:] if lead > 0 and all(n == 1 for n in given[:lead]) else given
    if len(kept) > len(room) or any(n not in (1, m) for n, m in zip(kept[::-1], room[::-1], strict=False)):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {given} cannot be broadcast to indexing result of shape {room}"
        )


def _fits(x: Tensor, value: Any) -> bool:
    """Whether `x` takes any Python number without a check."""
    dtype = x._spec.dtype
    return (
        type(value) is float
        and dtype.is_floating_point
        or type(value) is int
        and (dtype.is_floating_point or dtype is INT64)
    )


def _masks(x: Tensor, index: Any, value: Any) -> bool:
    """Whether `x[index] = value` writes one number by a mask of the shape of `x`, outside of any graph."""
    whole = isinstance(index, Tensor) and index._spec.dtype is BOOL and index._spec.shape == x._spec.shape
    small = type(value) is not int or -_SIGNED <= value < _SIGNED
    return bool(_fits(x, value) and small and whole and x._spec.ndim and not (x._rg and STATE.word & GRAD))


def _write(x: Tensor, target: Tensor, write: Callable[[], Any], again: Callable[..., Any]) -> None:
    """Run `write()`, which changes `target`, a part of `x`.  While a call is recorded, its plan is noted as one of `x`
    (see `part_plan`).

    `again` repeats the write with the arguments of a later call, if the plan cannot take them.
    """
    outer = RUNS.now
    if outer is None:
        write()
        return
    inner: list[tuple[Any, Sequence[Any], Any, Any]] = []
    RUNS.now = inner
    try:
        write()
    finally:
        RUNS.now = outer
    if len(inner) == 1 and inner[0][2] is target and inner[0][1][0] is target:
        plan, inputs, _, _ = inner[0]
        silent = part_plan(plan, again, target._ptr - x._ptr)
        if silent is not None:
            ran(silent, (x, *inputs[1:]), None)


def index_put_(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """Write (or add, with `accumulate`) `values` to the elements that `x[indices]` reads.

    `values` broadcasts to the shape of `x[indices]` and has the dtype of `x` (RuntimeError otherwise).
    """
    if RUNS.now is not None and _reads_numbers(indices):
        return uncached(lambda: index_put_(x, indices, values, accumulate))
    there = _beside(x, indices)
    if there is not indices:
        return uncached(lambda: index_put_(x, there, values, accumulate))
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put_(): argument 'indices' (position 1) must be tuple of Tensors, not {type(indices).__name__}"
        )
    for place, item in enumerate(indices):
        if not isinstance(item, Tensor):
            raise TypeError(
                f"index_put_(): expected Tensor as element {place} of 'indices', but got {type(item).__name__}"
            )
    if len(indices) > x._spec.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x._spec.ndim} (got {len(indices)})")
    as_flag("index_put_", "accumulate", accumulate)
    if not isinstance(values, Tensor):
        raise TypeError(f"index_put_(): argument 'values' (position 2) must be Tensor, not {type(values).__name__}")
    values = _put_value(x, () if accumulate else indices, values)
    items, tensors = split_index(x, tuple(indices))
    if values._spec.numel == 1 and not accumulate:
        _check_fill(x, indices)
    target = basic_view(x, items) if any(i != _ALL for i in items) else x
    if not tensors:  # all of them are read as numbers
        _same_rank(values, target._spec.shape)
        convert.call_inplace("add", target, values) if accumulate else convert.copy_(target, values)
        return x
    dims, parts = _indices(target, tensors)
    given = [i for i in indices if isinstance(i, Tensor)]
    fills = not accumulate and values._spec.numel == 1 and all(i._spec.dtype.name in ("bool", "uint8") for i in given)
    # One value for all elements that masks choose may have any dims.
    if not fills and values._spec.ndim > target._spec.ndim - len(dims) + max(p._spec.ndim for p in parts):
        _same_rank(values, get_item(x, tuple(indices))._spec.shape)
    convert.call_inplace(
        "index_put_core", target, dims, parts, values.reshape(()) if fills else values, bool(accumulate)
    )
    return x


def _same_rank(values: Tensor, shape: Sequence[int]) -> None:
    """RuntimeError if values have more dims than their target: unlike assignment, `index_put_` drops none."""
    if values._spec.ndim > len(shape):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values._spec.shape)} cannot be broadcast to indexing result of shape {list(shape)}"
        )


def index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """`index_put_` on a copy."""
    return index_put_(convert.clone(x), indices, values, accumulate)


def _fit(value: Tensor, target: Tensor) -> Tensor:
    """Drop leading dims of size 1 that the target lacks, as PyTorch does."""
    extra = value._spec.ndim - target._spec.ndim
    if extra > 0 and all(s == 1 for s in value._spec.shape[:extra]):
        return value.reshape(value._spec.shape[extra:])
    return value


# ***** parts that ints and slices take, found by arithmetic *****

# A plan for `x[3, 5:9]` costs as much as twenty calls.  Programs that draw boxes, fill buffers step by step or cut
# windows use other indices every time, so an index gets a plan only after it was met a few times.
_MEETINGS = 4  # uses of an index before it gets a plan
_MOST = 1 << 14  # indices whose uses are counted
_met: dict[Any, int] = {}


def _layout(spec: Spec, index: Any) -> tuple[list[int], list[int], int] | None:
    """Shape, strides and first element of the part; None if the index holds anything but ints, slices of ints and
    `...`, or is invalid.
    """
    items = index if type(index) is tuple else (index,)
    shape, strides, ndim = spec.shape, spec.strides, spec.ndim
    sizes: list[int] = []
    steps: list[int] = []
    dim = first = 0
    for place, item in enumerate(items):
        kind = type(item)
        if item is Ellipsis:
            rest = items[place + 1 :]
            upto = ndim - len(rest)
            if upto < dim or Ellipsis in rest:
                return None
            sizes.extend(shape[dim:upto])  # `+=` would ask the shape first
            steps.extend(strides[dim:upto])
            dim = upto
            continue
        if dim >= ndim:
            return None
        size, stride = shape[dim], strides[dim]
        if kind is int:
            if not -size <= item < size:
                return None
            first += (item + size if item < 0 else item) * stride
        elif kind is slice and (item.step is None or item.step > 0):
            start, stop, step = item.indices(size)
            sizes.append(max(0, (stop - start + step - 1) // step))
            steps.append(stride * min(step, LARGEST))
            first += start * stride
        else:
            return None
        dim += 1
    return [*sizes, *shape[dim:]], [*steps, *strides[dim:]], first


def _part(x: Tensor, index: Any, word: int) -> Tensor | None:
    """The part of a plain tensor outside of any graph, as a view; None for other tensors, and for an index that was met
    before.
    """
    spec = x._spec
    if (
        type(x) is not Tensor
        or word & ~(GRAD | AUTOCAST)
        or x._storage is None
        or spec.released
        or x._rg
        and word & GRAD
        or RUNS.now is not None
    ):
        return None
    key = _index_key(index)
    if key is None:
        return None
    met = _met.get((spec, key), 0)
    if met >= _MEETINGS:
        return None
    found = _layout(spec, index)
    if found is None:
        return None
    if len(_met) >= _MOST:
        _met.clear()
    _met[spec, key] = met + 1
    shape, strides, first = found
    shown = Spec.of(spec.dtype, spec.device, shape, strides, spec.conj, spec.released)
    if x._spec is not spec:  # another thread resized the storage; no other thread runs until the view is made
        return None
    part = make(x._storage, shown, x._ptr + bytes_on(shown, first))
    link_view(x, part, "" if word & GRAD else "no_grad")
    return part


def take(x: Tensor, index: Any) -> Any:
    """`x[index]`, or NotImplemented if a plan should do it."""
    part = _part(x, index, STATE.word)
    return NotImplemented if part is None else part


def put(x: Tensor, index: Any, value: Any) -> Any:
    """`x[index] = value`; NotImplemented if a plan should do it."""
    kind, word = type(value), STATE.word
    if kind is Tensor:
        if value._rg and word & GRAD or value._spec.device is not x._spec.device:
            return NotImplemented
    elif kind not in (int, float, bool):
        return NotImplemented
    part = _part(x, index, word)
    if part is None:
        return NotImplemented
    convert.copy_(part, _fit(value, part) if kind is Tensor else value)
    return None
