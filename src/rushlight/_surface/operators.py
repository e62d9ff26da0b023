"""Python's operators (`a + b`, `a[...] += b`, `a < b`) on tensors."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.registry import LazyMethod, binary_of, function_of, inplace_operator_of, method_of

__all__ = ["install_python_operators"]

BINARY = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div", "__floordiv__": "floor_divide",
    "__mod__": "remainder", "__pow__": "pow", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__rand__": "bitwise_and", "__ror__": "bitwise_or", "__rxor__": "bitwise_xor", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__rsub__": "rsub", "__matmul__": "matmul",
}  # fmt: skip
REVERSED = {
    "__rfloordiv__": "floor_divide", "__rmod__": "remainder", "__rpow__": "pow", "__rlshift__": "bitwise_left_shift",
    "__rrshift__": "bitwise_right_shift", "__rmatmul__": "matmul",
}  # fmt: skip
INPLACE = {
    "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div", "__ifloordiv__": "floor_divide", "__imod__": "remainder",
    "__ipow__": "pow", "__iand__": "bitwise_and", "__ior__": "bitwise_or", "__ixor__": "bitwise_xor", "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
}  # fmt: skip
UNARY = {"__neg__": "neg", "__abs__": "abs"}


def install_python_operators() -> None:
    """Put them on the class."""
    for table, make in ((BINARY, binary_of), (REVERSED, _reversed), (INPLACE, inplace_operator_of), (UNARY, method_of)):
        for special, name in table.items():
            setattr(Tensor, special, LazyMethod(special, make, name))
    Tensor.__invert__ = _invert
    Tensor.__pos__ = _same
    Tensor.__hash__ = _identity  # type: ignore[method-assign]
    Tensor.__rtruediv__ = Tensor.__rdiv__ = _divide_number  # type: ignore[attr-defined]


def _same(self: Tensor) -> Tensor:
    """`+x`."""
    return self


def _identity(self: Tensor) -> int:
    """Tensors are keys by identity: equality is element by element."""
    return id(self)


@forms("(self: Tensor, other: Scalar) -> Tensor")
def _divide_number(self: Tensor, other: Any) -> Tensor:
    """`2 / x`: PyTorch multiplies by the reciprocal."""
    try:
        return self.reciprocal() * other
    except TypeError:
        return NotImplemented


def _invert(self: Tensor) -> Tensor:
    """`~x`."""
    if self._spec.dtype.kind in "fc":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return method_of("bitwise_not")(self)


def _reversed(name: str) -> Any:
    function = function_of(name)

    def method(self: Tensor, other: Any) -> Any:
        try:
            return function(other, self)
        except TypeError:
            return NotImplemented

    return method
