"""Numbers that a program reads of its own tensors: `x.sum().item()` while scalar outputs are captured.

Such a number is a tensor of one element that passes for a Python number: its arithmetic is that of float64 and int64
tensors, a kernel that is given it reads its memory, and it leaves the program as an output.  Comparisons give numbers
of the kind bool, which checks can look at.  What needs the value itself raises DataDependentError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._backends.protocol import Block
from rushlight._capture.recording.errors import DataDependentError
from rushlight._capture.recording.running.host_numbers import HostFloat, HostInt, HostNumber, asked
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, from_owner, make
from rushlight._engine.dispatch.lower import NUMBERS
from rushlight._types.dtype import BOOL, FLOAT64, INT64, UINT64, DType
from rushlight._types.spec import Spec
from rushlight._types.symbols import is_symbolic

__all__ = ["ElementNumber", "element_number", "fails"]

_EXACT = 1 << 53  # integers up to here are floats
_WHOLE_LIMIT = float(1 << 63)  # floats below it, in size, are int64


class ElementNumber(HostNumber):
    """See the module's text; `tensor` has the number's value, in float64, int64 or bool."""

    __slots__ = ()

    computed = True
    tensor: Tensor
    counter: HostNumber | None  # what the host computes of counters alone, for what tensors do not compute

    def _made(self, function: Any, *operands: Any) -> Any:
        return computed(function, operands)

    def __hash__(self) -> int:
        raise asked("hash()")


class ElementFloat(ElementNumber, HostFloat):
    """A float."""

    __slots__ = ("counter", "tensor")


class ElementInt(ElementNumber, HostInt):
    """An int."""

    __slots__ = ("counter", "tensor")


class ElementBool(ElementNumber):
    """A bool."""

    __slots__ = ("counter", "tensor")

    kind = bool


_CLASSES: dict[Any, Any] = {FLOAT64: ElementFloat, INT64: ElementInt, BOOL: ElementBool}
_KINDS: dict[Any, Any] = NUMBERS  # operators take them where they take numbers that each call passes on
for _class in _CLASSES.values():
    _KINDS[_class] = NUMBERS[_class.kind]


@contextmanager
def _detached() -> Iterator[None]:
    """The time in which nothing gets a history."""
    word = STATE.word
    STATE.word &= ~GRAD
    try:
        yield
    finally:
        STATE.word = word


def _number(tensor: Tensor, counter: HostNumber | None = None) -> ElementNumber:
    made: Any = _CLASSES[tensor._spec.dtype](None, ())
    made.tensor, made.counter = tensor, counter
    found: ElementNumber = made
    return found


def element_number(address: int, dtype: DType, counter: HostNumber | None) -> tuple[ElementNumber] | None:
    """The number at an address of the recording, as it is now, in a tuple; None for dtypes without one.

    `counter` is the host number that it is, too, if it is one.
    """
    if dtype.is_complex or dtype is UINT64:
        return None
    size = dtype.itemsize
    device = STATE.recording.memory_at(address).device
    block = from_owner(address, size, Block(address, size, device))
    element = make(block, Spec.of(dtype, device, ()), address)
    wide = FLOAT64 if dtype.is_floating_point else BOOL if dtype is BOOL else INT64
    with _detached():
        return (_number(element.clone() if dtype is wide else element.to(wide), counter),)


def fails(number: ElementNumber, held: bool = True) -> Tensor:
    """A recorded bool that is True where the truth of a number is not `held`."""
    with _detached():
        false = number.tensor.logical_not()
        return false if held else false.logical_not()


# ***** arithmetic *****

_SAME: dict[Any, Callable[..., Any]] = {
    operator.add: operator.add, operator.sub: operator.sub, operator.mul: operator.mul, operator.neg: operator.neg, operator.pos: lambda x: x,
    operator.abs: abs,
}  # fmt: skip


def _kind(x: Any) -> Any:
    return x.kind if isinstance(x, HostNumber) else type(x)


def _plain(x: Any) -> Any:
    """A symbolic size as the number that it is for this trace: it meets a number that only a call of the program knows."""
    return x.pin() if is_symbolic(x) else x


def _as(x: Any, dtype: DType) -> Any:
    """A number as an operand of this dtype's arithmetic."""
    if isinstance(x, ElementNumber):
        return x.tensor if x.tensor._spec.dtype is dtype else x.tensor.to(dtype)
    if isinstance(x, HostNumber):
        return x
    return float(x) if dtype is FLOAT64 else int(x)


def _check(failed: Tensor) -> None:
    """Let a call of the program that would raise an error here run as it is."""
    STATE.recording.check(failed)


def computed(function: Any, operands: Sequence[Any]) -> Any:
    """Apply an operation of Python to numbers, one of which is an element of a tensor."""
    operands = [_plain(x) for x in operands]
    kinds = [_kind(x) for x in operands]
    if any(kind not in (bool, int, float) for kind in kinds):
        return NotImplemented
    counters = [x.counter if isinstance(x, ElementNumber) else x for x in operands]
    counted = _counted(function, counters) if all(x is not None for x in counters) else None
    made: Any = _computed(function, operands, kinds)
    if made is None:
        if counted is None:
            raise asked(f"{getattr(function, '__name__', function)}()")
        return counted
    made.counter = counted
    return made


def _counted(function: Any, counters: Sequence[Any]) -> HostNumber | None:
    """The same of host numbers; None where the host needs their values."""
    first = next(x for x in counters if isinstance(x, HostNumber))
    try:
        found = HostNumber._made(first, function, *counters)
    except DataDependentError:
        return None
    return found if isinstance(found, HostNumber) else None


def _computed(function: Any, operands: Sequence[Any], kinds: Sequence[type]) -> ElementNumber | None:
    """The same of tensors; None for operations that they do not do with Python's results."""
    whole = all(kind is not float for kind in kinds)
    with _detached():
        if function in _SAME:
            return _number(_SAME[function](*[_as(x, INT64 if whole else FLOAT64) for x in operands]))
        if function is float:
            return _number(_as(operands[0], FLOAT64))
        if function is int:
            return _truncated(operands[0])
        if function is operator.truediv and not whole:
            return _quotient(function, *operands)
        if function in (operator.floordiv, operator.mod) and whole:
            return _quotient(function, *operands)
    return None


def _truncated(x: ElementNumber) -> ElementNumber:
    if x.kind is not float:
        return _number(_as(x, INT64))
    _check((x.tensor.abs() < _WHOLE_LIMIT).logical_not())  # an error, or a larger integer
    return _number(x.tensor.trunc().to(INT64))


def _quotient(function: Any, a: Any, b: Any) -> ElementNumber:
    dtype = FLOAT64 if function is operator.truediv else INT64
    if isinstance(b, ElementNumber):
        _check(b.tensor.eq(0))
    elif isinstance(b, HostNumber):
        raise asked("a division")  # by what may be zero
    else:
        function(1, b)  # raises what a division by zero does
    return _number(function(_as(a, dtype), _as(b, dtype)))


# ***** comparisons *****


def _compared(function: Any) -> Callable[[Any, Any], Any]:
    def compare(self: ElementNumber, other: Any) -> Any:
        other = _plain(other)
        if _kind(other) not in (bool, int, float):
            return NotImplemented
        return _number(_comparison(function, self, other))

    return compare


def _comparison(function: Any, a: ElementNumber, b: Any) -> Tensor:
    whole = [_kind(x) is not float for x in (a, b)]
    if whole[0] is not whole[1]:
        inexact = whole[0] or isinstance(b, HostNumber) or abs(b) > _EXACT
        if whole[0] and type(b) is float and abs(b) <= _EXACT and b == int(b):
            b, inexact, whole = int(b), False, [True, True]
        if inexact:
            raise asked("a comparison of an integer and a float")
    dtype = INT64 if all(whole) else FLOAT64
    with _detached():
        found: Tensor = function(_as(a, dtype), _as(b, dtype))
        return found


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ElementNumber, f"__{_name}__", _compared(getattr(operator, _name)))
