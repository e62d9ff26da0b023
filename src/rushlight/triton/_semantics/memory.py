"""Loads, stores, block pointers, tensor descriptors, atomics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rushlight._interface.blocks import Value

from .ambient import builder, builtin
from .arithmetic import cast
from .constants import unwrap_deep
from .dtypes import BY_TRITON_NAME, dtype
from .promotion import broadcast_to_shape, join_shapes
from .shapes import arange, expand_dims
from .values import constant, make, member, shaped, tensor, to_tensor

__all__ = [
    "advance", "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_store", "atomic_xchg",
    "atomic_xor", "block_pointer", "load", "load_tensor_descriptor", "make_block_ptr", "make_tensor_descriptor", "store",
    "store_tensor_descriptor", "tensor_descriptor",
]  # fmt: skip

_INT1, _INT32, _INT64 = (BY_TRITON_NAME[n] for n in ("int1", "int32", "int64"))
_CACHE_LOAD, _CACHE_STORE = ("", ".ca", ".cg", ".cv"), ("", ".wb", ".cg", ".cs", ".wt")
_EVICTION = ("", "evict_last", "evict_first", "evict_normal")
_ORDERS = {None: "acq_rel", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel", "relaxed": "relaxed"}
_SCOPES = {None: "gpu", "gpu": "gpu", "cta": "cta", "sys": "sys"}


def _one_of(value: Any, words: Collection[Any], what: str) -> Any:
    if value not in words:
        raise ValueError(f"{what} {value!r} is not supported; there are {', '.join(repr(w) for w in words)}")
    return value


def _hints(cache: str, allowed: Sequence[str], eviction: str, volatile: bool = False) -> dict[str, Any]:
    """Options beside the plain operation."""
    given = {
        "cache": _one_of(cache or "", allowed, "cache modifier"),
        "eviction": _one_of(eviction or "", _EVICTION, "eviction policy"),
        "volatile": volatile,
    }
    return {key: value for key, value in given.items() if value}


def _pointers(pointer: Any) -> tuple[tensor, dtype]:
    if not isinstance(pointer, tensor) or not pointer.dtype.is_ptr():
        shown = pointer.type if isinstance(pointer, tensor) else repr(pointer)
        raise ValueError(f"Unsupported ptr type {shown} in `tl.load` or `tl.store`")
    return pointer, pointer.dtype.element_ty


# ***** loads and stores *****


@member()
@builtin
def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Sequence[int] = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:
    """The elements that pointers point to; where the mask is false nothing is read and `other` (0) stands.

    A block pointer reads its block; dims in `boundary_check` are cut to the array's shape, with `padding_option` "zero" or
    "nan" beyond.
    """
    hints = _hints(cache_modifier, _CACHE_LOAD, eviction_policy, volatile)
    _one_of(padding_option or "", ("", "zero", "nan"), "padding option")
    if isinstance(pointer, block_pointer):
        if mask is not None or other is not None:
            raise ValueError("`mask` and `other` arguments cannot be specified for loading block pointers")
        return pointer.read(boundary_check, padding_option, hints)
    if boundary_check or padding_option:
        raise ValueError(
            "`padding_option` or `boundary_check` argument is not supported for loading a tensor of pointers"
        )
    if mask is None and other is not None:
        raise ValueError("`other` cannot be provided without `mask`")
    return read(pointer, mask, other, hints)


def read(pointer: Any, mask: Any, other: Any, hints: dict[str, Any]) -> tensor:
    """`load` through pointers."""
    pointer, element = _pointers(pointer)
    if mask is None:
        return _loaded(builder().load(pointer.handle, **hints), element)
    given = cast(to_tensor(mask), _INT1)
    filled = constant(0, element) if other is None else cast(to_tensor(other), element)
    shape = join_shapes([pointer.shape, given.shape, filled.shape])
    pointer, given, filled = (broadcast_to_shape(v, shape) for v in (pointer, given, filled))
    return _loaded(builder().load(pointer.handle, given.handle, filled.handle, **hints), element)


def _loaded(handle: Value, element: dtype) -> tensor:
    """The loaded value; elements of arrays of pointers are addresses."""
    return cast(make(handle, _INT64), element) if element.is_ptr() else make(handle, element)


@member()
@builtin
def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Sequence[int] = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Writes where the mask is true; numbers take the type that the pointers point to."""
    hints = _hints(cache_modifier, _CACHE_STORE, eviction_policy)
    if isinstance(pointer, block_pointer):
        if mask is not None:
            raise ValueError("`mask` argument cannot be specified for storing block pointers")
        pointer.write(to_tensor(value), boundary_check, hints)
        return
    if boundary_check:
        raise ValueError("`boundary_check` argument is not supported for storing a tensor of pointers")
    write(pointer, value, mask, hints)


def write(pointer: Any, value: Any, mask: Any, hints: dict[str, Any]) -> None:
    """`store` through pointers."""
    pointer, element = _pointers(pointer)
    if pointer.dtype.is_const():
        raise ValueError("Cannot store to a constant pointer")
    given, masked = _for_store(pointer, value, mask, element)
    shape = given.shape
    pointer = broadcast_to_shape(pointer, shape)
    builder().store(pointer.handle, given.handle, None if masked is None else masked.handle, **hints)


def _for_store(pointer: tensor, value: Any, mask: Any, element: dtype) -> tuple[tensor, tensor | None]:
    """Value and mask in the type and in the common shape."""
    given = cast(to_tensor(value), element)
    if element.is_ptr():
        given = cast(given, _INT64)
    if mask is None:
        if not pointer.shape and given.shape:
            raise ValueError("Value argument cannot be block type if pointer argument is not a block")
        return broadcast_to_shape(given, join_shapes([pointer.shape, given.shape])), None
    masked = cast(to_tensor(mask), _INT1)
    shape = join_shapes([pointer.shape, given.shape, masked.shape])
    return broadcast_to_shape(given, shape), broadcast_to_shape(masked, shape)


# ***** blocks of arrays *****


class block_pointer:
    """A block of an array: `make_block_ptr`, `advance`."""

    is_runtime = True

    def __init__(
        self,
        base: tensor,
        shape: Sequence[tensor],
        strides: Sequence[tensor],
        offsets: Sequence[tensor],
        block_shape: Sequence[int],
    ) -> None:
        self.base, self.block_shape = base, tuple(block_shape)
        self.array, self.strides, self.offsets = list(shape), list(strides), list(offsets)

    @property
    def type(self) -> dtype:
        return self.base.type

    @property
    def dtype(self) -> dtype:
        return self.base.dtype

    def _parts(self) -> list[tensor]:
        return [self.base, *self.array, *self.strides, *self.offsets]

    def flatten(self) -> list[Value]:
        return [part.handle for part in self._parts()]

    def rebuild(self, handles: Sequence[Value]) -> block_pointer:
        parts = [tensor(h, p.type) for h, p in zip(handles, self._parts(), strict=True)]
        n = len(self.array)
        return block_pointer(parts[0], parts[1 : n + 1], parts[n + 1 : 2 * n + 1], parts[2 * n + 1 :], self.block_shape)

    def signature(self) -> str:
        return f"block pointer {self.base.type} {list(self.block_shape)} of {len(self.array)} dims"

    def places(self, checked: Sequence[int]) -> tuple[tensor, tensor | None]:
        """Pointers to the elements, and which of them lie inside of the array in the dims that are checked."""
        n = len(self.block_shape)
        pointer, mask = self.base, None
        for dim, size in enumerate(self.block_shape):
            at: Any = arange(0, size)
            for _ in range(n - dim - 1):
                at = expand_dims(at, -1)
            at = cast(self.offsets[dim], _INT64) + at
            pointer = pointer + at * self.strides[dim]
            if dim in checked:
                inside = (at >= 0) & (at < self.array[dim])
                mask = inside if mask is None else mask & inside
        pointer = broadcast_to_shape(pointer, self.block_shape)
        return pointer, None if mask is None else broadcast_to_shape(mask, self.block_shape)

    def read(self, checked: Sequence[int], padding: str, hints: dict[str, Any]) -> tensor:
        pointer, mask = self.places(self._checked(checked))
        element = self.base.dtype.element_ty
        if padding == "nan" and not element.is_floating():
            raise ValueError("Padding option `nan` is not supported for integer block pointers")
        other = None if mask is None else (float("nan") if padding == "nan" else 0)
        return read(pointer, mask, other, hints)

    def write(self, value: tensor, checked: Sequence[int], hints: dict[str, Any]) -> None:
        pointer, mask = self.places(self._checked(checked))
        if value.shape and join_shapes([value.shape, self.block_shape]) != self.block_shape:
            raise ValueError(f"Block shape({list(self.block_shape)}) and value shape({list(value.shape)}) mismatch")
        write(pointer, value, mask, hints)

    def _checked(self, checked: Any) -> tuple[int, ...]:
        dims = unwrap_deep(checked) if isinstance(checked, (tuple, list, range)) else (checked,)
        for dim in dims:
            if not 0 <= dim < len(self.block_shape):
                raise ValueError(f"boundary_check {dim} is no dim of a block of {list(self.block_shape)}")
        return tuple(dims)


def _numbers(values: Any, element: dtype) -> list[tensor]:
    if not isinstance(values, (tuple, list)):
        values = (values,)
    return [cast(to_tensor(value), element) for value in values]


@builtin
def make_block_ptr(base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    """A block of the array at `base`: sizes and strides of the array in elements, where the block begins, its sizes.

    `order` (of dims in memory) is a hint.
    """
    if not isinstance(base, tensor) or not base.dtype.is_ptr() or base.shape:
        raise ValueError("Expected `base` to be a pointer type (but not a block pointer type or others)")
    sizes = block_shape if isinstance(block_shape, (tuple, list)) else (block_shape,)
    made = block_pointer(base, _numbers(shape, _INT64), _numbers(strides, _INT64), _numbers(offsets, _INT32), sizes)
    if len({len(made.array), len(made.strides), len(made.offsets), len(made.block_shape)}) != 1:
        raise ValueError("Expected shape/strides/offsets/block_shape to have the same length")
    if sorted(order) != list(range(len(sizes))):
        raise ValueError(f"Expected a permutation of (0, 1, ..., len(order)-1) in order, got {order}")
    return made


@member()
@builtin
def advance(base: block_pointer, offsets: Any) -> block_pointer:
    """The block moved by a number of elements in each dim."""
    moved = _numbers(offsets, _INT32)
    if len(moved) != len(base.offsets):
        raise ValueError(f"advance takes {len(base.offsets)} offsets, not {len(moved)}")
    sums = [a + b for a, b in zip(base.offsets, moved, strict=True)]
    return block_pointer(base.base, base.array, base.strides, sums, base.block_shape)


class tensor_descriptor(block_pointer):
    """An array whose blocks are read and written at given offsets: `make_tensor_descriptor`."""

    padding = "zero"

    @property
    def block_type(self) -> dtype:
        return shaped(self.dtype, self.block_shape)

    @property
    def dtype(self) -> dtype:
        return self.base.dtype.element_ty

    @property
    def shape(self) -> tuple[tensor, ...]:
        return tuple(self.array)

    def rebuild(self, handles: Sequence[Value]) -> tensor_descriptor:
        plain = super().rebuild(handles)
        made = tensor_descriptor(plain.base, plain.array, plain.strides, plain.offsets, plain.block_shape)
        made.padding = self.padding
        return made

    def signature(self) -> str:
        return f"tensor descriptor {self.base.type} {list(self.block_shape)}"

    def at(self, offsets: Any) -> block_pointer:
        """The block that begins at offsets."""
        begin = _numbers(unwrap_deep(offsets), _INT32)
        if len(begin) != len(self.block_shape):
            raise ValueError(f"expected {len(self.block_shape)} offsets, but got {len(begin)}")
        return block_pointer(self.base, self.array, self.strides, begin, self.block_shape)

    def load(self, offsets: Any, cache_modifier: Any = "", eviction_policy: Any = "") -> tensor:
        """The block at offsets; 0 (or NaN, as the descriptor says) outside of the array."""
        hints = _hints(*unwrap_deep((cache_modifier, _CACHE_LOAD, eviction_policy)))
        return self.at(offsets).read(range(len(self.block_shape)), self.padding, hints)

    def store(self, offsets: Any, value: Any) -> None:
        """Writes the part of a block that lies inside of the array."""
        self.at(offsets).write(to_tensor(value), range(len(self.block_shape)), {})

    def _rows(self, x_offsets: tensor, y_offset: Any) -> tuple[tensor, tensor]:
        """Places of rows of one column block."""
        if len(self.block_shape) != 2 or self.block_shape[0] != 1:
            raise ValueError(f"gather and scatter take a descriptor with blocks [1, n], not {list(self.block_shape)}")
        rows = expand_dims(cast(x_offsets, _INT64), 1)
        columns = cast(to_tensor(y_offset), _INT64) + expand_dims(arange(0, self.block_shape[1]), 0)
        inside = (rows >= 0) & (rows < self.array[0]) & (columns >= 0) & (columns < self.array[1])
        return self.base + (rows * self.strides[0] + columns * self.strides[1]), inside

    def gather(self, x_offsets: tensor, y_offset: Any, *hints: Any) -> tensor:
        """Rows at `x_offsets`, from column `y_offset` on."""
        pointer, inside = self._rows(x_offsets, y_offset)
        return read(pointer, inside, 0, {})

    def scatter(self, value: tensor, x_offsets: tensor, y_offset: Any) -> None:
        pointer, inside = self._rows(x_offsets, y_offset)
        write(pointer, value, inside, {})

    def _atomic(self, combine: str, offsets: Any, value: Any) -> None:
        pointer, inside = self.at(offsets).places(range(len(self.block_shape)))
        _atomic(combine, pointer, value, inside, "relaxed", None)

    def atomic_add(self, offsets: Any, value: Any) -> None:
        self._atomic("add", offsets, value)

    def atomic_max(self, offsets: Any, value: Any) -> None:
        self._atomic("max", offsets, value)

    def atomic_min(self, offsets: Any, value: Any) -> None:
        self._atomic("min", offsets, value)

    def atomic_and(self, offsets: Any, value: Any) -> None:
        self._atomic("and", offsets, value)

    def atomic_or(self, offsets: Any, value: Any) -> None:
        self._atomic("or", offsets, value)

    def atomic_xor(self, offsets: Any, value: Any) -> None:
        self._atomic("xor", offsets, value)


@builtin
def make_tensor_descriptor(
    base: tensor, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> tensor_descriptor:
    """A descriptor of the array at `base`; the last stride is 1."""
    n = len(shape)
    if not 1 <= n <= 5 or not n == len(strides) == len(block_shape):
        raise ValueError(f"a descriptor has 1 to 5 dims, with as many strides and block sizes; got {n} dims")
    if not isinstance(strides[-1], tensor) and strides[-1] != 1:
        raise ValueError(f"Tensor descriptor last dim must be contiguous, got the stride {strides[-1]}")
    zero = [0] * n
    made = tensor_descriptor(
        base, _numbers(shape, _INT64), _numbers(strides, _INT64), _numbers(zero, _INT32), block_shape
    )
    made.padding = _one_of(padding_option, ("zero", "nan"), "padding option")
    return made


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any, *hints: Any) -> tensor:
    """As `desc.load(offsets)`."""
    return desc.load(offsets)


@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: Any) -> None:
    """As `desc.store(offsets, value)`."""
    desc.store(offsets, value)


# ***** atomics *****


def _atomic(combine: str, pointer: Any, value: Any, mask: Any, sem: Any, scope: Any) -> tensor:
    pointer, element = _pointers(pointer)
    if element.is_fp8() or element.is_int1():
        raise ValueError(f"atomic_{combine} does not support {element}")
    if element.is_floating() and combine in ("and", "or", "xor"):
        raise TypeError(f"atomic_{combine} takes integers, not {element}")
    given, masked = _for_store(pointer, value, mask, element)
    operands = [
        broadcast_to_shape(pointer, given.shape).handle,
        given.handle,
        *([] if masked is None else [masked.handle]),
    ]
    order, within = _ORDERS[_one_of(sem, _ORDERS, "memory semantic")], _SCOPES[_one_of(scope, _SCOPES, "scope")]
    before = builder().value("atomic", *operands, combine=combine, order=order, scope=within)
    return make(before, element)


def _atomic_function(combine: str, doc: str) -> Any:
    def function(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
        return _atomic(combine, pointer, val, mask, sem, scope)

    function.__name__ = function.__qualname__ = f"atomic_{combine}"
    function.__doc__ = f"{doc}  Gives what was there before; `sem` is acq_rel unless given, `scope` gpu."
    return member()(builtin(function))


atomic_add = _atomic_function("add", "Adds in memory.")
atomic_max = _atomic_function("max", "Keeps the greater in memory.")
atomic_min = _atomic_function("min", "Keeps the lesser in memory.")
atomic_and = _atomic_function("and", "Keeps the bits that are set in both.")
atomic_or = _atomic_function("or", "Sets bits in memory.")
atomic_xor = _atomic_function("xor", "Flips bits in memory.")
atomic_xchg = _atomic_function("xchg", "Replaces what is in memory.")


@member()
@builtin
def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> tensor:
    """Writes `val` where `cmp` is in memory; gives what was there before."""
    pointer, element = _pointers(pointer)
    expected, value = (broadcast_to_shape(cast(to_tensor(v), element), pointer.shape) for v in (cmp, val))
    order, within = _ORDERS[_one_of(sem, _ORDERS, "memory semantic")], _SCOPES[_one_of(scope, _SCOPES, "scope")]
    before = builder().value("atomic_cas", pointer.handle, expected.handle, value.handle, order=order, scope=within)
    return make(before, element)


@member()
@builtin
def atomic_load(pointer: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Load atomically."""
    _, element = _pointers(pointer)
    return (
        _atomic("or", pointer, 0, mask, sem, scope)
        if element.is_int()
        else _atomic("add", pointer, 0, mask, sem, scope)
    )


@member()
@builtin
def atomic_store(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> None:
    """Writes at once."""
    _atomic("xchg", pointer, val, mask, sem, scope)
