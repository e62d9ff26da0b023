"""Operators that choose by value: `max`, `min`, `nonzero`, `masked_select`, `where` in its three forms."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core import convert
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.plans.native_lookup import RUNS
from rushlight._engine.indexing import dynamic
from rushlight._ops.forms import forms
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of, reads_elements
from rushlight._types.dtype import INT64

__all__: list[str] = []

T = SPACES["torch"]


def _extreme(name: str) -> None:
    both, along, whole = ("maximum", "max_dim", "amax") if name == "max" else ("minimum", "min_dim", "amin")

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        other = kwargs.get("other", args[0] if args else None)
        if isinstance(other, Tensor) and "dim" not in kwargs:
            return torch_call(both, input, *args, **kwargs)
        if args or "dim" in kwargs:
            return torch_call(along, input, *args, **kwargs)
        out = kwargs.pop("out", None)
        if kwargs:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if not input._spec.numel:
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
            )
        found = torch_call(name + "_all", input)
        return into(out, found, name)

    forms(
        "(input: Tensor, *, out: Tensor | None = None) -> Tensor",
        "(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor",
        f"(input: Tensor, dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.{name}",
    )(function)
    function.__doc__ = (
        f"`{name}(input)`: the {whole[1:]}imum of all; `{name}(input, dim, keepdim=False)`: (values, indices) along a dim; `{name}(input, other)`: "
        "of two tensors, element by element."
    )
    composite(name, method=True, cached=("input", "dim?", "keepdim"))(function)


def torch_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """A table operator's function, with `out=` and overrides."""
    if RUNS.now is not None and "out" not in kwargs:
        return convert.call(name, *args, **kwargs)
    return function_of(name)(*args, **kwargs)


_extreme("max")
_extreme("min")


@composite("nonzero", method=True, once=True)
@reads_elements
@forms(
    "(input: Tensor, *, out: Tensor | None = None, as_tuple: Literal[False] = False) -> Tensor",
    "(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]",
)
def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: bool = False) -> Any:
    """Coordinates of what is not zero: (count, ndim), or one tensor per dim with `as_tuple`."""
    if as_tuple:
        if out is not None:
            raise RuntimeError("nonzero does not support the out kwarg when as_tuple is True")
        return dynamic.nonzero_tuple(input)
    if out is not None and out.dtype is not INT64:
        raise RuntimeError(
            f"nonzero: Expected out tensor to have scalar type Long but got scalar type{out.dtype.scalar}"
        )
    return into(out, dynamic.nonzero(input), "nonzero", exact=True)


@composite("argwhere", method=True, once=True)
@reads_elements
def argwhere(input: Tensor) -> Tensor:
    """`nonzero` as one tensor."""
    return dynamic.nonzero(input)


@composite("masked_select", method=True, apart=True, once=True)
@reads_elements
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` is set, as one dim."""
    return into(out, dynamic.masked_select(input, mask), "masked_select", exact=True)


@composite("where", method="_where_function", cached=("condition", "input*", "other*"))
@reads_elements
@forms(
    "(condition: Tensor) -> tuple[Tensor, ...]",
    "(condition: Tensor, input: Tensor | Scalar, other: Tensor | Scalar, *, out: Tensor | None = None) -> Tensor",
)
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """`input` where the condition holds, else `other`; with the condition alone, the coordinates where it holds."""
    if input is None and other is None:
        return dynamic.nonzero_tuple(condition)
    return torch_call("where", condition, input, other, **({} if out is None else {"out": out}))


def _method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """`torch.where(condition, self, other)`."""
    return where(condition, self, other)


Tensor.where = _method  # type: ignore[attr-defined]


@composite("equal", method=True, cached=True)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    if input._spec.shape != other._spec.shape:
        return False
    return convert.answer(convert.call("all", convert.call("eq", input, other))) if input._spec.numel else True


@composite("allclose", method=True, cached=True)
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close: |input - other| <= atol + rtol * |other|."""
    close = torch_call("isclose", input, other, rtol, atol, equal_nan)
    return convert.answer(convert.call("all", close)) if close.numel() else True


@composite("nonzero_static", method=True)
@reads_elements
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1, out: Any = None) -> Tensor:
    """`nonzero` with `size` rows: cut, or filled up with `fill_value`."""
    if out is not None and out._spec.dtype is not INT64:
        raise RuntimeError(
            f"nonzero_static: Expected out tensor to have scalar type Long but got scalar type {out._spec.dtype.scalar}"
        )
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = dynamic.nonzero(input)
    rows = found._spec.shape[0]
    if rows >= size:
        found = found.narrow(0, 0, size)
    else:
        more = T["full"]((size - rows, found._spec.shape[1]), fill_value, dtype=INT64, device=found.device)
        found = T["cat"]([found, more], 0)
    return into(out, convert.call("clone_contiguous", found))
