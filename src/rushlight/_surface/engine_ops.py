"""Operators for the engine's own loops, provided once the table is complete."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core import convert, creation
from rushlight._engine.core.hooks import HOOKS, OPS
from rushlight._engine.core.memory import zeros_spec
from rushlight._engine.core.state import FUNCTION_MODE, STATE
from rushlight._engine.core.tensor import Tensor, dispatch_classes
from rushlight._engine.indexing import indexing
from rushlight._engine.indexing.view import as_strided
from rushlight._surface.registry import SPACES, inplace_of
from rushlight._types.dtype import DType
from rushlight._types.formats import FORMATS
from rushlight._types.layout import is_dense
from rushlight._types.spec import Spec

__all__ = ["provide_engine_operators"]


def clone_like(x: Tensor, spec: Spec) -> Tensor:
    """A copy of `x` laid out as `spec` where that is dense, else row-major."""
    if x._spec.strides == spec.strides or not is_dense(spec.shape, spec.strides) or x._spec.shape != spec.shape:
        return convert.clone(x)
    if spec.contiguous:
        return convert.call("clone_contiguous", x)
    made = creation.empty(tuple(spec.shape), dtype=x.dtype, device=x.device, strides=tuple(spec.strides))
    return convert.copy_(made, x)


def as_strided_index(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """For each place of a strided view, its place in the flat memory."""
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else 0
    places = SPACES["torch"]["arange"](offset, offset + span)
    return as_strided(places, shape, strides).reshape(-1)


def index_put(memory: Tensor, indices: tuple[Tensor, ...], values: Tensor, accumulate: bool) -> Tensor:
    """`memory` with values added at flat places."""
    return convert.call("index_put_core", memory, (0,), indices, values, accumulate)


_ONES: dict[Spec, Spec] = {}


def one(x: Tensor) -> Tensor:
    """Ones shaped like a result: where backward starts."""
    if STATE.word & FUNCTION_MODE or type(x) in dispatch_classes:
        return SPACES["torch"]["ones_like"](x, memory_format=FORMATS["preserve_format"])
    spec = _ONES.get(x._spec)
    if spec is None:
        if len(_ONES) > 1024:
            _ONES.clear()
        spec = _ONES[x._spec] = Spec.of(x._spec.dtype, x._spec.device, x._spec.shape)
    return creation.full(tuple(spec.shape), 1, spec)


def provide_engine_operators() -> None:
    """Fill the engine's table."""
    torch = SPACES["torch"]
    HOOKS.whole_view = lambda x: indexing.get_item(x, ...)
    OPS.makers.update(
        add=lambda: torch["add"],
        add_=lambda: inplace_of("add"),
        expand=lambda: Tensor.expand,  # type: ignore[attr-defined]
        zero_=lambda: Tensor.zero_,  # type: ignore[attr-defined]
        reshape=lambda: torch["reshape"],
        zeros_like=lambda: torch["zeros_like"],
        cat=lambda: torch["cat"],
        split_with_sizes=lambda: torch["split_with_sizes"],
    )
    OPS.update(
        stack=lambda tensors: torch["stack"](tensors),
        clone=convert.clone,
        clone_like=clone_like,
        zeros=zeros,
        one=one,
        copy_=convert.copy_,
        to_dtype=to_dtype,
        view_as_complex=lambda x: torch["view_as_complex"](x),
        resolve_conj=lambda x: torch["resolve_conj"](x),
        conj=lambda x: torch["conj"](x),
        neg=lambda x: torch["neg"](x),
        neg_view=lambda x: torch["_neg_view"](x),
        conj_physical=lambda x: torch["conj_physical"](x),
        view_as_real=lambda x: torch["view_as_real"](x),
        index_put=index_put,
        as_strided_index=as_strided_index,
    )


def zeros(shape: tuple[int, ...], dtype: DType, device: Any) -> Tensor:
    """Zeros of this dtype on this device."""
    return zeros_spec(Spec.of(dtype, device, shape))


def to_dtype(x: Tensor, dtype: DType) -> Tensor:
    """A cast."""
    return convert.to(x, dtype)
