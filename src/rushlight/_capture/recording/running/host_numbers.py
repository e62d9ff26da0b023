"""Host numbers: Python numbers of a recorded program that are computed anew by each call.

A read of a counter that the program was given (`step.item()`) gives a `HostFloat` or `HostInt`.  Arithmetic on it is
noted and done again by each call, by the same operations of Python, so that the bits are those of eager; kernels get
the result as a number.  What asks for the value itself (a comparison, `float()`, printing) raises DataDependentError.

>>> import rushlight as torch
>>> from rushlight._capture.recording import Recording
>>> x, step = torch.ones(2), torch.tensor(3.0)
>>> with Recording() as recording:
...     count = recording.stand_in(step).item()
...     program = recording.finish([recording.stand_in(x) * (1 - 0.5**count)])
>>> step.fill_(1.0)
tensor(1.)
>>> program(recording.inputs)
[tensor([0.5000, 0.5000])]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.recording.errors import DataDependentError
from rushlight._engine.dispatch.lower import NUMBERS

__all__ = ["asked", "HostFloat", "HostInt", "HostNumber", "Leaf", "host_number"]


class Leaf:
    """Where a host number begins: an element of memory at some place of the log (`address`, `dtype`), or what a
    function gives (`getter`).

    `value` is its array in the graph, once that is assembled.
    """

    __slots__ = ("address", "dtype", "getter", "value")

    def __init__(self, address: int = 0, dtype: Any = None, getter: Callable[[], Any] | None = None) -> None:
        self.address, self.dtype, self.getter = address, dtype, getter
        self.value: Any = None


def asked(what: str) -> DataDependentError:
    """The error for what needs the value of a number."""
    return DataDependentError(f"{what} asks for the value of a number that each call of the program computes")


class HostNumber:
    """A number that is a `Leaf`, or an operation of Python on numbers."""

    __slots__ = ("function", "operands")

    kind: type = float
    computed = False
    """Whether it is an element of a tensor that the program computes."""

    def __init__(self, function: Any, operands: Sequence[Any]) -> None:
        self.function, self.operands = function, tuple(operands)

    def _made(self, function: Any, *operands: Any) -> Any:
        kinds = [x.kind if isinstance(x, HostNumber) else type(x) for x in operands]
        if any(kind not in (bool, int, float) for kind in kinds):
            return NotImplemented
        for x in operands:
            if isinstance(x, HostNumber) and x.computed:
                return x._made(function, *operands)
        whole = all(kind is not float for kind in kinds) and function in _WHOLE
        if function is operator.pow and all(kind is not float for kind in kinds):
            raise asked("the power of two integers")  # whether that is an integer depends on the sign
        if function in _DIVISIONS:
            if kinds[1] is int and isinstance(operands[1], HostNumber):
                raise asked("a division by an integer")  # which may be zero
            if not isinstance(operands[1], HostNumber):
                function(1, operands[1])  # raises what a division by zero does
        return (HostInt if whole else HostFloat)(function, operands)

    def __getattr__(self, name: str) -> Any:
        if hasattr(self.kind, name):
            raise asked(name)
        raise AttributeError(f"'{self.kind.__name__}' object has no attribute '{name}'")

    def __bool__(self) -> bool:
        raise asked("bool()")

    def __float__(self) -> float:
        raise asked("float()")

    def __int__(self) -> int:
        raise asked("int()")

    def __index__(self) -> int:
        raise asked("an index")

    def __eq__(self, other: object) -> bool:
        raise asked("a comparison")

    def __hash__(self) -> int:
        raise asked("hash()")

    def __repr__(self) -> str:
        raise asked("printing")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise asked("NumPy")

    __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __eq__


_WHOLE = frozenset(
    (
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.mod,
        operator.neg,
        operator.pos,
        operator.abs,
    )
)


_DIVISIONS = frozenset((operator.truediv, operator.floordiv, operator.mod))
# Methods of Python's numbers that are no arithmetic of here.
_OTHERS = (
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "divmod",
    "matmul",
    "invert",
    "round",
    "trunc",
    "floor",
    "ceil",
    "complex",
    "format",
)


def _operations() -> None:
    """Give the class Python's arithmetic."""
    for name in _OTHERS:
        for method in (f"__{name}__", f"__r{name}__"):
            setattr(HostNumber, method, _refusal(name))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
        function = getattr(operator, name)
        setattr(HostNumber, f"__{name}__", lambda self, other, f=function: self._made(f, self, other))
        setattr(HostNumber, f"__r{name}__", lambda self, other, f=function: self._made(f, other, self))
    for name in ("neg", "pos", "abs"):
        setattr(HostNumber, f"__{name}__", lambda self, f=getattr(operator, name): self._made(f, self))


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: HostNumber, *args: Any) -> Any:
        raise asked(f"{name}()")

    return refuse


_operations()


class HostFloat(HostNumber):
    """A float."""

    __slots__ = ()


class HostInt(HostNumber):
    """An int."""

    __slots__ = ()

    kind = int


# Operators take host numbers where they take numbers that each call passes on.
_KINDS: dict[Any, Any] = NUMBERS
_KINDS[HostFloat], _KINDS[HostInt] = NUMBERS[float], NUMBERS[int]


def host_number(leaf: Leaf, kind: type) -> HostNumber:
    """The host number of a leaf: `kind` is float or int."""
    return (HostInt if kind is int else HostFloat)(leaf, ())
