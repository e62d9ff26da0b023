"""Overloads of statistics: `var(x, unbiased)`, `median`, and what sums to a size."""

from __future__ import annotations

from typing import Any

from rushlight._engine import convert
from rushlight._engine.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import composite, function_of

__all__: list[str] = []


def _spread(name: str) -> None:
    """var and its kin take `unbiased` in three positions, or `correction`."""

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if args and isinstance(args[0], bool):
            kwargs["unbiased"], args = args[0], args[1:]
        elif len(args) > 1 and isinstance(args[1], bool) and (len(args) > 2 or "keepdim" in kwargs or "correction" not in kwargs):
            kwargs["unbiased"] = args[1]
            if len(args) > 2:
                kwargs["keepdim"] = args[2]
            args = args[:1]
        unbiased = kwargs.pop("unbiased", None)
        if unbiased is not None:
            kwargs["correction"] = int(unbiased)
        return function_of(name)(input, *args, **kwargs)

    several = name.endswith("_mean")
    result, out = ("tuple[Tensor, Tensor]", "") if several else ("Tensor", ", out: Tensor | None = None")
    forms(
        f"(input: Tensor, dim: int | Sequence[int] | None = None, *, correction: Scalar | None = 1, keepdim: bool = False{out}) -> {result}",
        f"(input: Tensor, dim: int | Sequence[int] | None, unbiased: bool, keepdim: bool = False{', *' + out if out else ''}) -> {result}",
        f"(input: Tensor, unbiased: bool) -> {result}",
    )(function)
    function.__doc__ = OPERATORS[name].doc
    composite(name, method=name in ("var", "std"))(function)


for _name in ("var", "std", "var_mean", "std_mean"):
    if _name in OPERATORS:
        _spread(_name)


@composite("median", method=True)
@forms(
    "(input: Tensor) -> Tensor",
    "(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.median",
)
def median(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The lower median of all, or (values, indices) along a dim."""
    extra = {} if out is None else {"out": out}
    if dim is None:
        return function_of("median_all")(input, **extra)
    return function_of("median_dim")(input, dim, keepdim, **extra)


@composite("sum_to_size", spaces=(), method=True)
@forms("(self: Tensor, *size: int) -> Tensor", "(self: Tensor, size: Sequence[int]) -> Tensor")
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Summed over the dims that were broadcast from `size`."""
    from rushlight._engine.creation import as_shape

    target = as_shape(size)
    extra = self._spec.ndim - len(target)
    if extra < 0 or any(t not in (1, s) for s, t in zip(self._spec.shape[extra:], target, strict=True)):
        raise RuntimeError(f"size {{{list(target)}}} is not expandable to size {{{list(self._spec.shape)}}}.")
    dims = tuple(range(extra)) + tuple(extra + d for d, t in enumerate(target) if t == 1 and self._spec.shape[extra + d] != 1)
    if not dims:
        return convert.clone(self)
    return convert.call("sum", self, dims, True).reshape(target)  # type: ignore[no-any-return]
