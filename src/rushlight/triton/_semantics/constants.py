"""`constexpr`: a value that is known when a kernel is compiled."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["constexpr", "constexpr_function", "is_constant", "unwrap", "unwrap_deep"]

_BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "floordiv": operator.floordiv,
    "mod": operator.mod, "pow": operator.pow, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "lshift": operator.lshift, "rshift": operator.rshift,
}  # fmt: skip
_COMPARE = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "invert": operator.invert}


class constexpr:
    """A compile-time value.  Python's operators on it give constexpr again.

    >>> from rushlight.triton.language import constexpr
    >>> constexpr(3) * 2
    constexpr[6]
    """

    __slots__ = ("value",)
    value: Any

    def __init__(self, value: Any) -> None:
        while isinstance(value, constexpr):
            value = value.value
        self.value = value

    @property
    def type(self) -> Any:
        return constexpr

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __hash__(self) -> int:
        return hash((constexpr, self.value))

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __not__(self) -> constexpr:
        return constexpr(not self.value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return self.value[unwrap(index)]

    def __iter__(self) -> Any:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def logical_and(self, other: Any) -> constexpr:
        return constexpr(self.value and unwrap(other))

    def logical_or(self, other: Any) -> constexpr:
        return constexpr(self.value or unwrap(other))


def _binary(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def method(self: constexpr, other: Any) -> Any:
        if is_runtime(other):
            return NotImplemented
        values = (unwrap(other), self.value) if swapped else (self.value, unwrap(other))
        return constexpr(function(*values))

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: constexpr(function(self.value))


for _name, _function in _BINARY.items():
    setattr(constexpr, f"__{_name}__", _binary(_function, False))
    setattr(constexpr, f"__r{_name}__", _binary(_function, True))
for _name, _function in _COMPARE.items():
    setattr(constexpr, f"__{_name}__", _binary(_function, False))
for _name, _one in _UNARY.items():
    setattr(constexpr, f"__{_name}__", _unary(_one))


def is_runtime(value: Any) -> bool:
    """Whether a value is known only when the kernel runs: a tensor, or what is made of tensors."""
    return getattr(type(value), "is_runtime", False)


def is_constant(value: Any) -> bool:
    return isinstance(value, constexpr)


def unwrap(value: Any) -> Any:
    """The value of a constexpr; anything else as it is."""
    return value.value if isinstance(value, constexpr) else value


def unwrap_deep(value: Any) -> Any:
    """As `unwrap`, within tuples, lists, dicts and slices too."""
    value = unwrap(value)
    if isinstance(value, tuple):
        items = [unwrap_deep(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [unwrap_deep(item) for item in value]
    if isinstance(value, slice):
        return slice(unwrap(value.start), unwrap(value.stop), unwrap(value.step))
    return value


def constexpr_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function that kernels call at compile time: it takes the values of constexpr arguments.

    On the host it is an ordinary function.
    """

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        return function(*unwrap_deep(args), **{k: unwrap_deep(v) for k, v in kwargs.items()})

    vars(called).update(__triton_builtin__=True, __constexpr_function__=True)
    return called
