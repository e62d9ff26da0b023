"""Reading and writing at places, and tensors of numbers: what an index in Python means in operators."""

from __future__ import annotations

import functools
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight._interface.sizes import is_symbolic
from rushlight.library.aten.composites import aten, unseen
from rushlight.library.aten.handlers import handles
from rushlight.utils._python_dispatch import _detect_infra_mode, _ModeKey

__all__: list[str] = []

compiler: Any = LazyModule("rushlight.compiler")
Tensor = rushlight.Tensor


# ***** reading and writing at places *****


@handles("basic_index")
def _basic_index(x: Any, index: Any) -> Any:
    """The same as an index of Python's: `("n",)` is a new dim, `("i", k)` one place, `("s", start, stop, step)` a range."""
    return getitem(x, tuple([None if i[0] == "n" else i[1] if i[0] == "i" else slice(*i[1:]) for i in index]))


@handles("clone_core")
def _clone(x: Any) -> Any:
    return rushlight.ops.aten.clone.default(x)


@handles("__getitem__")
def getitem(self: Any, index: Any) -> Any:
    shown, left = _indexed(self, index, compiler.is_exporting() and _is_of_numbers(index))
    if left is None:
        return aten("alias")(self) if shown is self else shown
    return aten("index.Tensor")(shown, left)


def _as_index(value: Any, x: Any) -> Any:
    if isinstance(value, Tensor):
        return value
    with unseen():
        made = rushlight.tensor(value, device=x.device)
    return aten("lift_fresh")(made)


def _whole(value: Any) -> Any:
    """A whole number; one of a class that notes where it came from stays of it."""
    return value if isinstance(value, int) and type(value) is not bool else rushlight.sym_int(value)


def _is_of_numbers(index: Any) -> bool:
    """Whether an index has a symbolic number, and no tensor or list but whole numbers."""
    items = index if isinstance(index, tuple) else (index,)
    ends = [e for i in items for e in ((i.start, i.stop, i.step) if isinstance(i, slice) else (i,))]
    plain = all(e is None or e is ... or isinstance(e, int) and type(e) is not bool or _is_number(e) for e in ends)
    return plain and any(isinstance(e, (rushlight.SymInt, Tensor)) for e in ends)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dim() == 0 and not (
            value.is_floating_point() or value.is_complex() or value.dtype is rushlight.bool
        )
    return isinstance(value, rushlight.SymInt)


def _indexed(x: Any, index: Any, as_given: bool = False) -> tuple[Any, list[Any] | None]:
    """The view that whole numbers, slices, None and ... make, and the tensors that are left; None where there are none.

    `as_given`: slices are called with the ends that they have, None for those that they leave out.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if isinstance(index, list):
        items = [index]
    used = sum(
        1 if not isinstance(i, Tensor) or i.dtype not in (rushlight.bool, rushlight.uint8) else i.dim()
        for i in items
        if i is not None and i is not ... and not isinstance(i, bool)
    )
    dim, left, self_dim = 0, [], x.dim()
    for item in items:
        if item is ...:
            dim += self_dim - used
            continue
        if item is None:
            x = aten("unsqueeze")(x, dim)
            dim += 1
        elif isinstance(item, bool):
            x = aten("unsqueeze")(x, dim)
            left.append((dim, _as_index(item, x)))
            dim += 1
        elif isinstance(item, slice):
            step = 1 if item.step is None else _whole(item.step)
            size = x.shape[dim]
            start = 0 if item.start is None else _whole(item.start)
            stop = 9223372036854775807 if item.stop is None else _whole(item.stop)
            if as_given and item.start is item.stop is None and type(step) is int and step == 1:
                dim += 1
                continue
            if (
                type(step) is type(start) is int
                and (item.stop is None or type(stop) is int)
                and step == 1
                and start == 0
                and not isinstance(size, rushlight.SymInt)
                and stop >= size
            ):
                dim += 1
                continue
            if as_given:
                start, stop = (None if end is None else _whole(end) for end in (item.start, item.stop))
            x = aten("slice.Tensor")(x, dim, start, stop, step)
            dim += 1
        elif isinstance(item, Tensor) and not (item.dim() == 0 and item.dtype not in (rushlight.bool, rushlight.uint8)):
            left.append((dim, item))
            dim += item.dim() if item.dtype in (rushlight.bool, rushlight.uint8) else 1
        elif isinstance(item, Tensor):
            x = aten("select.int")(x, dim, aten("_local_scalar_dense")(item))
        elif isinstance(item, (list, tuple, range)) or hasattr(item, "__array__"):
            made = _as_index(list(item) if isinstance(item, (range, tuple)) else item, x)
            left.append((dim, made))
            dim += made.dim() if made.dtype is rushlight.bool else 1
        else:
            x = aten("select.int")(x, dim, _whole(item))
    if not left:
        return x, None
    found: list[Any] = []
    for place, tensor in left:
        at = place
        while len(found) < at:
            found.append(None)
        found.append(tensor)
    return x, found


def _has_sizes(data: Any) -> bool:
    """Whether there are symbolic numbers in nested lists and tuples."""
    return is_symbolic(data) or type(data) in (list, tuple) and any(map(_has_sizes, data))


def _dtype_of(data: Any) -> Any:
    """The dtype that numbers in nested lists and tuples have as a tensor."""
    if type(data) in (list, tuple):
        return functools.reduce(rushlight.promote_types, map(_dtype_of, data))
    if isinstance(data, complex):
        return rushlight.result_type(data, data)
    if isinstance(data, float):
        return rushlight.get_default_dtype()
    return rushlight.int64 if isinstance(data, int) and not isinstance(data, bool) else rushlight.bool


def _of_sizes(data: Any, dtype: Any, device: Any) -> Any:
    if type(data) in (list, tuple):
        return aten("stack")([_of_sizes(each, dtype, device) for each in data])
    return aten("scalar_tensor")(data, dtype=dtype, device=device)


def _literal(data: Any, dtype: Any, device: Any) -> Any:
    """The tensor of a literal; symbolic numbers in it stay as they are computed."""
    if _has_sizes(data):
        return _of_sizes(data, dtype or _dtype_of(data), device)
    with unseen():
        made = rushlight.tensor(data, dtype=dtype, device=device)
    return aten("lift_fresh")(made)


@handles("__setitem__")
def setitem(self: Any, index: Any, value: Any) -> None:
    number = compiler.is_exporting() and isinstance(value, (int, float, complex))
    if number:  # as PyTorch's tracer sees it
        value = _literal(value, self.dtype, self.device)
    shown, left = _indexed(self, index)
    if left is None:
        if number:
            aten("fill_.Tensor")(shown, value)
            return
        if not isinstance(value, Tensor):
            aten("fill_.Scalar")(shown, value) if not isinstance(value, (list, tuple)) else aten("copy_")(
                shown, _as_index(value, self)
            )
            return
        while value.dim() > shown.dim() and value.shape[0] == 1:
            value = aten("squeeze.dim")(value, 0)
        aten("copy_")(shown, value)
        return
    if not isinstance(value, Tensor):
        value = _literal(value, self.dtype, self.device)
    aten("index_put_")(shown, left, value)


def _holds_tensors(data: Any) -> bool:
    return isinstance(data, Tensor) or isinstance(data, (list, tuple)) and any(isinstance(d, Tensor) for d in data)


@handles("tensor")
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Any:
    if isinstance(data, Tensor):
        kind, place = data.dtype if dtype is None else dtype, data.device if device is None else device
        made = aten("_to_copy")(aten("detach")(data), dtype=kind, device=place)
        return made.requires_grad_() if requires_grad else made
    if _holds_tensors(data):
        return NotImplemented
    made = _literal(data, dtype, device)
    if compiler.is_exporting():  # as PyTorch, whose literals are detached in place
        made = aten("detach_")(made)
    return made.requires_grad_() if requires_grad else made


@handles("new_tensor")
def new_tensor(self: Any, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    device = self.device if device is None else device
    return tensor(data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


@handles("as_tensor")
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    return NotImplemented if _holds_tensors(data) else _lifted(rushlight.as_tensor, data, dtype=dtype, device=device)


@handles("asarray")
def asarray(obj: Any, *, requires_grad: bool | None = None, **options: Any) -> Any:
    if _holds_tensors(obj):
        return NotImplemented
    made = _lifted(rushlight.asarray, obj, **options)
    return made.requires_grad_() if requires_grad else made


@handles("from_numpy")
def from_numpy(ndarray: Any) -> Any:
    return _lifted(rushlight.from_numpy, ndarray)


@handles("__deepcopy__")
def deepcopy(self: Any, memo: Any) -> Any:
    if not _is_traced():
        return NotImplemented
    made = memo[id(self)] = aten("clone")(aten("detach")(self)).requires_grad_(self.requires_grad)
    return made


@handles("set_")
def set_(self: Any, source: Any = None, *place: Any) -> Any:
    if source is None or isinstance(source, Tensor) or not _is_traced():
        return NotImplemented
    raise NotImplementedError(f"set_: a graph holds no storages, got {type(source).__name__}")


def _is_traced() -> bool:
    """Whether calls are written down."""
    return _detect_infra_mode(_ModeKey.PROXY) is not None


def _lifted(function: Any, data: Any, **options: Any) -> Any:
    """What a function makes of numbers or of an array, as a value of its own at each run of a graph."""
    with unseen():
        made = function(data, **options)
    return aten("lift_fresh")(made)
