"""Memory that a program changes: `allocate`, `read` and `write`, and the parts of it that views show.

A reference to memory is not an array: other primitives take the result of `read`.  `write` returns the reference to use
from then on, so a graph of these primitives defines the order of reads and writes.  No reference shows a part of
another one: a write through a view names the memory and the views that lead to the part, so no alias analysis is
needed.

    views = (("slice", (("starts", (1,)), ("stops", (3,)), ("steps", (1,)))),)     # x[1:3]
    x = prim.write(x, value, views=views)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES, Aval, Effect, EffectPrimitive, never_batched, not_differentiable
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import BOOL
from rushlight._types.layout import numel

__all__ = ["VIEWS", "View", "Views", "replaced", "shown", "view_shape"]

View = tuple[str, tuple[tuple[str, Any], ...]]  # a primitive, and its parameters by name
Views = tuple[View, ...]

# The primitives through which memory can be written.  Elements of `window` may overlap.
VIEWS = frozenset(("broadcast", "diagonal", "reshape", "slice", "transpose"))
FIRST = not_differentiable("memory has no derivative: `functionalize` gives a graph of arrays that has one")


class _Shape:
    """The shape and dtype of an array without a value."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape, self.dtype = tuple(shape), dtype


def view_shape(memory: Any, views: Views) -> tuple[int, ...]:
    """The shape of `views` of a memory.  ValueError for a view that may show an element twice."""
    x: Any = memory
    for name, params in views:
        if name not in VIEWS:
            raise ValueError(f"prim.write goes through {', '.join(sorted(VIEWS))}, not through {name!r}")
        shape, dtype = PRIMITIVES[name].spec(x, **dict(params))
        if name == "broadcast" and numel(shape) != numel(x.shape):
            raise ValueError(f"prim.write: elements of {list(x.shape)} are repeated in {list(shape)}")
        x = _Shape(shape, dtype)
    return tuple(x.shape)


def shown(x: Any, views: Views) -> Any:
    """The elements of an array that `views` show."""
    for name, params in views:
        x = PRIMITIVES[name](x, **dict(params))
    return x


def replaced(x: Any, part: Any, views: Views) -> Any:
    """The array `x` with `part` in the elements that `views` show."""
    if not views:
        return part
    (name, params), *rest = views
    given = dict(params)
    inner = replaced(PRIMITIVES[name](x, **given), part, tuple(rest)) if rest else part
    if name == "broadcast":
        return build.reshape(inner, x.shape)
    spread = _spread(name, given, inner, x)
    if numel(inner.shape) == numel(x.shape):
        return spread
    return build.select(_spread(name, given, build.full(inner.shape, True, BOOL), x), spread, x)


def _spread(name: str, params: dict[str, Any], part: Any, x: Any) -> Any:
    """`part` scattered into an array shaped like `x`, with zeros around: the transpose of a view that shows every
    element at most once."""
    rule = PRIMITIVES[name].vjp
    assert callable(rule)
    (spread,) = rule(part, None, _Shape(x.shape, part.dtype), **params)
    return spread


# ***** allocate *****


def _allocate_samples() -> Samples:
    yield [floats((2, 3))], {}
    yield [integers(())], {}


EffectPrimitive(
    "allocate", "New memory with the elements of x.", Effect("allocates"), family="memory", samples=_allocate_samples,
    spec=lambda x: (x.shape, x.dtype), reference=lambda x: np.array(x), vjp=FIRST, jvp=FIRST, batch=never_batched,
)  # fmt: skip

# ***** read *****

EffectPrimitive(
    "read", "The elements that memory holds now.", Effect("reads"), family="memory", samples=_allocate_samples,
    spec=lambda memory: (memory.shape, memory.dtype), reference=lambda memory: np.array(memory), vjp=FIRST, jvp=FIRST,
    batch=never_batched,
)  # fmt: skip

# ***** write *****


def _write_spec(memory: Any, x: Any, views: Views) -> Aval:
    shape = view_shape(memory, views)
    if tuple(x.shape) != shape or x.dtype is not memory.dtype:
        raise ValueError(
            f"prim.write puts {memory.dtype.name}{list(shape)} into this memory, got {x.dtype.name}{list(x.shape)}"
        )
    return tuple(memory.shape), memory.dtype


def _write(memory: Any, x: Any, views: Views) -> Any:
    places = np.arange(memory.size).reshape(memory.shape)
    for name, params in views:
        places = PRIMITIVES[name].reference(places, **dict(params))
    result = np.array(memory)
    result.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    return result


def _write_samples() -> Samples:
    rows = ("slice", (("starts", (1, 0)), ("stops", (3, 4)), ("steps", (1, 2))))
    yield [floats((3, 4)), floats((3, 4), 1)], {"views": ()}
    yield [floats((3, 4)), floats((2, 2), 1)], {"views": (rows, ("transpose", (("perm", (1, 0)),)))}
    yield [integers((3, 3)), integers((3,), 1)], {"views": (("diagonal", (("start", (0, 0)), ("size", 3))),)}
    yield (
        [floats((6,)), floats((1, 2, 3), 1)],
        {"views": (("reshape", (("shape", (2, 3)),)), ("broadcast", (("shape", (1, 2, 3)), ("dims", (1, 2)))))},
    )


EffectPrimitive(
    "write", "The memory after x is put where `views` show it.", Effect("writes"), family="memory", samples=_write_samples,
    spec=_write_spec, reference=_write, vjp=FIRST, jvp=FIRST, batch=never_batched,
)  # fmt: skip
