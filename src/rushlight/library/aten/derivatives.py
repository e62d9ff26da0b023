"""The backward of aten operators in aten operators: a table of formulas, and what formulas are written with.

A formula is a function of the gradient and of the call (`c.self`, `c.dim`, `c.result`, `c.sizes("self")`).  Tensors are
`Value` objects, whose operators and methods call aten operators as PyTorch's native code does: `x * 2` is `mul.Scalar`,
`1 - x` fills a tensor with ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import rushlight

__all__ = ["Value", "bare", "conjugated", "joint", "names_read", "node_name", "rule", "sum_to", "takes_all"]

Rule = Callable[..., Any]
RULES: dict[str, dict[tuple[str, ...], Rule]] = {}
ONLY: dict[str, tuple[int, ...]] = {}


def bare(value: Any) -> Any:
    """The tensor of a value; anything else as it is."""
    if isinstance(value, Value):
        return value.tensor
    if isinstance(value, (list, tuple)):
        return type(value)(map(bare, value))
    return value


def _wrapped(made: Any) -> Any:
    if isinstance(made, rushlight.Tensor):
        return Value(made)
    if isinstance(made, (list, tuple)):
        return [_wrapped(m) for m in made]
    return made


def op(name: str) -> Callable[..., Any]:
    """An aten operator that takes and gives values; with `name.overload` this overload, else the one that fits."""
    packet, _, overload = name.partition(".")

    def run(*args: Any, **kwargs: Any) -> Any:
        found = getattr(rushlight.ops.aten, packet)
        found = getattr(found, overload) if overload else found
        return _wrapped(found(*map(bare, args), **{k: bare(v) for k, v in kwargs.items()}))

    return run


def conjugated(value: Any) -> Any:
    """The conjugate of a tensor or number in a formula."""
    return value.conj() if isinstance(value, Value) else value.conjugate() if isinstance(value, complex) else value


class Value:
    """A tensor in a formula."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        found = op(name)
        return lambda *args, **kwargs: found(self, *args, **kwargs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """An overload by its full name."""
        return op(name)(self, *args, **kwargs)

    @property
    def shape(self) -> list[int]:
        """The shape."""
        return list(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return int(self.tensor.dim())

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self.tensor.dtype

    @property
    def is_complex(self) -> bool:
        """Whether it holds complex numbers."""
        return (
            bool(self.tensor.dtype.is_complex)
            if isinstance(self.tensor, rushlight.Tensor)
            else isinstance(self.tensor, complex)
        )

    def options(self) -> dict[str, Any]:
        """Options of a new tensor like this one."""
        return {"dtype": self.tensor.dtype, "layout": self.tensor.layout, "device": self.tensor.device}

    def conj(self) -> Value:
        """The conjugate; itself where it is real."""
        if not self.is_complex:
            return self
        return op("_conj")(self) if isinstance(self.tensor, rushlight.Tensor) else Value(self.tensor.conjugate())

    def real_part(self) -> Value:
        """The real part, as a view."""
        plain = op("_conj")(self) if self.tensor.is_conj() else self
        return plain.view_as_real().call("select.int", self.ndim, 0)

    def _binary(self, name: str, other: Any) -> Any:
        return self.call(f"{name}.Tensor" if isinstance(other, (Value, rushlight.Tensor)) else f"{name}.Scalar", other)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._binary("div", other)

    def __neg__(self) -> Any:
        return self.neg()

    def _filled(self, number: Any) -> Any:
        return self.empty_like(memory_format=rushlight.preserve_format).call("fill_.Scalar", number)

    def __rsub__(self, number: Any) -> Any:
        return self._filled(number).call("sub_.Tensor", self)

    def __rtruediv__(self, number: Any) -> Any:
        return self._filled(number).call("div_.Tensor", self)


def scalar(number: Any, like: Value) -> Any:
    """A tensor without dims that holds a number, in the dtype of another."""
    return op("scalar_tensor")(number, **like.options())


def where(mask: Value, a: Any, b: Any) -> Any:
    """`where`, with numbers as tensors of the other operand's dtype."""
    like = a if isinstance(a, Value) else b
    a, b = (scalar(v, like) if not isinstance(v, Value) else v for v in (a, b))
    return op("where.self")(mask, a, b)


def zeros(shape: Sequence[int], like: Value) -> Any:
    """Zeros in the dtype of another tensor."""
    return op("zeros")(list(shape), **like.options())


def sum_to(grad: Any, shape: list[int]) -> Any:
    """A gradient summed over the dims along which its tensor was broadcast."""
    aten, given = rushlight.ops.aten, list(grad.shape)
    if not shape:
        return aten.sum.default(grad)
    leading = len(given) - len(shape)
    dims = list(range(leading)) + [i for i in range(leading, len(given)) if shape[i - leading] == 1 and given[i] != 1]
    if dims:
        grad = aten.sum.dim_IntList(grad, dims, True)
    return aten.view.default(grad, shape) if leading > 0 else grad


# ***** the table *****


def rule(names: str, **formulas: Rule) -> None:
    """Formulas of operators (or `name.overload`): for each argument one of the gradient of the first result."""
    for name in names.split():
        RULES.setdefault(name, {}).update({(k,): v for k, v in formulas.items()})


def joint(names: str, arguments: str, formula: Rule, only: tuple[int, ...] | None = None) -> None:
    """One formula for several arguments, or of all gradients: it takes the list of gradients and gives one for each
    argument.
    """
    formula.all_grads = True  # type: ignore[attr-defined]
    for name in names.split():
        RULES.setdefault(name, {})[tuple(arguments.split())] = formula
        if only is not None:
            ONLY[name] = only


def takes_all(formula: Rule) -> bool:
    """Whether a formula takes the gradients of all results."""
    return hasattr(formula, "all_grads")


@cache
def _read(formula: Rule) -> frozenset[str]:
    """The names that a formula reads, also inside of functions that it defines or that its module has."""
    found: set[str] = set()
    codes, names = [formula.__code__], formula.__globals__
    while codes:
        code = codes.pop()
        for name in code.co_names:
            helper = names.get(name)
            if name not in found and isinstance(helper, FunctionType) and helper.__globals__ is names:
                codes.append(helper.__code__)
            found.add(name)
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(found)


def names_read(rules: dict[tuple[str, ...], Rule], wants: Any) -> set[str]:
    """Names of the call that the formulas of the wanted arguments read."""
    found: set[str] = set()
    for names, formula in rules.items():
        if any(n in wants for n in names):
            found |= _read(formula)
            found |= getattr(formula, "reads", frozenset())
    return found


# Numbers at the end of nodes' names: overloads in the order of PyTorch's derivatives.
_NUMBERS = {
    "pow.Tensor_Tensor": 1, "pow.Scalar": 2, "sum.dim_IntList": 1, "mean.dim": 1, "squeeze.dim": 1, "squeeze.dims": 2, "std.correction": 0, "prod.dim_int": 1,
    "max.dim": 0, "max.default": 1, "min.dim": 0, "min.default": 1, "masked_fill.Tensor": 1, "where.self": 0, "clamp.Tensor": 1, "median.dim": 1,
    "lerp.Tensor": 1, "fmod.Tensor": 1, "remainder.Tensor": 1, "scatter.value": 1, "index_fill.int_Tensor": 1, "sort.stable": 1, "linalg_norm": 0,
}  # fmt: skip
_SPOKEN = {
    "transpose.int": "Transpose",
    "_unsafe_view.default": "UnsafeView",
    "_to_copy.default": "ToCopy",
    "copy_.default": "CopyBackwards",
}


def node_name(overload: Any) -> str:
    """The name of the node of an overload, as `MulBackward0`."""
    full = f"{overload._opname}.{overload._overloadname}"
    if full in _SPOKEN and full == "copy_.default":
        return "CopyBackwards"
    stem = _SPOKEN.get(full) or "".join(part[:1].upper() + part[1:] for part in overload._opname.strip("_").split("_"))
    plain = f"{overload._opname.rstrip('_')}.{overload._overloadname}"
    return f"{stem}Backward{_NUMBERS.get(full, _NUMBERS.get(plain, 0))}"
