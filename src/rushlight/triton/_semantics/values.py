"""`tensor`: a value of a running kernel, with Python's operators and the methods of the language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._interface.blocks import Value

from .ambient import builder
from .constants import constexpr, unwrap
from .dtypes import BY_TRITON_NAME, block_type, dtype, tile_of

__all__ = ["constant", "make", "member", "shaped", "tensor", "to_tensor", "type_of_number"]


class tensor:
    """A scalar or a block of numbers or pointers, known when the kernel runs.

    `type` is its whole type, `dtype` that of its elements, `shape` a tuple of sizes.
    """

    is_runtime = True
    __slots__ = ("dtype", "handle", "type")

    def __init__(self, handle: Value, type: dtype) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.get_block_shapes()

    @property
    def numel(self) -> constexpr:
        return constexpr(self.handle.type.numel)

    @property
    def ndim(self) -> constexpr:
        return constexpr(len(self.shape))

    def flatten(self) -> list[Value]:
        """The values of the block IR in it."""
        return [self.handle]

    def rebuild(self, handles: Sequence[Value]) -> tensor:
        """One of the same type over other values."""
        return tensor(handles[0], self.type)

    def signature(self) -> str:
        return str(self.type)

    def __bool__(self) -> bool:
        raise TypeError("a value of a running kernel has no truth value while the kernel is compiled")

    def __repr__(self) -> str:
        return f"tensor({self.type})"

    __hash__ = object.__hash__

    if TYPE_CHECKING:  # the functions of the language attach these

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, places: Any) -> Any: ...
        def __neg__(self) -> tensor: ...
        def __invert__(self) -> tensor: ...
        def __eq__(self, other: Any) -> tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> tensor: ...  # type: ignore[override]
        def __add__(self, other: Any) -> tensor: ...
        def __radd__(self, other: Any) -> tensor: ...
        def __sub__(self, other: Any) -> tensor: ...
        def __rsub__(self, other: Any) -> tensor: ...
        def __mul__(self, other: Any) -> tensor: ...
        def __rmul__(self, other: Any) -> tensor: ...
        def __truediv__(self, other: Any) -> tensor: ...
        def __rtruediv__(self, other: Any) -> tensor: ...
        def __floordiv__(self, other: Any) -> tensor: ...
        def __rfloordiv__(self, other: Any) -> tensor: ...
        def __mod__(self, other: Any) -> tensor: ...
        def __rmod__(self, other: Any) -> tensor: ...
        def __and__(self, other: Any) -> tensor: ...
        def __rand__(self, other: Any) -> tensor: ...
        def __or__(self, other: Any) -> tensor: ...
        def __ror__(self, other: Any) -> tensor: ...
        def __xor__(self, other: Any) -> tensor: ...
        def __rxor__(self, other: Any) -> tensor: ...
        def __lshift__(self, other: Any) -> tensor: ...
        def __rlshift__(self, other: Any) -> tensor: ...
        def __rshift__(self, other: Any) -> tensor: ...
        def __rrshift__(self, other: Any) -> tensor: ...
        def __lt__(self, other: Any) -> tensor: ...
        def __le__(self, other: Any) -> tensor: ...
        def __gt__(self, other: Any) -> tensor: ...
        def __ge__(self, other: Any) -> tensor: ...


def member(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function also be a method of tensors, under its name or `names`."""

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names or (function.__name__,):
            setattr(tensor, name, function)
        return function

    return attach


def shaped(element: dtype, shape: Sequence[int]) -> dtype:
    """A block type, or the element type itself for a scalar."""
    return block_type(element, shape) if shape else element


def make(handle: Value, element: dtype) -> tensor:
    """A tensor of the value's shape with elements of a type."""
    return tensor(handle, shaped(element, handle.shape))


def type_of_number(value: Any) -> dtype:
    """The type that a Python number gets in a kernel."""
    if isinstance(value, bool):
        return BY_TRITON_NAME["int1"]
    if isinstance(value, int):
        for name, low, high in (
            ("int32", -(2**31), 2**31),
            ("uint32", 0, 2**32),
            ("int64", -(2**63), 2**63),
            ("uint64", 0, 2**64),
        ):
            if low <= value < high:
                return BY_TRITON_NAME[name]
        raise ValueError(f"Nonrepresentable integer {value}.")
    if isinstance(value, float):
        size = abs(value)
        fits = size in (0.0, float("inf")) or size != size or 2**-126 <= size <= (2 - 2**-23) * 2.0**127
        return BY_TRITON_NAME["fp32" if fits else "fp64"]
    raise TypeError(f"cannot convert {value!r} of type {type(value)} to tensor")


def constant(value: Any, element: dtype, shape: Sequence[int] = ()) -> tensor:
    """A number of a type at each place of a shape."""
    ours = tile_of(element).dtype
    if element.is_floating():
        number: Any = float(value)
    else:
        number = bool(value) if element.is_int1() else _wrapped(int(value), element)
    if ours.wide is not ours and not ours.is_complex or element.is_fp8():
        wide = builder().constant(number, ours.wide)
        made = builder().pointwise("convert", wide, dtype=ours)
        return make(builder().splat(made, shape) if shape else made, element)
    return make(builder().constant(number, ours, shape), element)


def _wrapped(value: int, element: dtype) -> int:
    """Modulo 2 to the number of bits."""
    bits = element.int_bitwidth
    value &= (1 << bits) - 1
    return value - (1 << bits) if element.is_int_signed() and value >> (bits - 1) else value


def to_tensor(value: Any) -> tensor:
    """A number as a scalar of the kernel; tensors as they are; TypeError for anything else."""
    value = unwrap(value)
    if isinstance(value, tensor):
        return value
    return constant(value, type_of_number(value))
