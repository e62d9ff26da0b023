"""Primitives that move elements unchanged.  Those with a `layout` rule can be views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import lift
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.layout import numel, view_strides

__all__: list[str] = []

Ints = tuple[int, ...]
Layout = tuple[Ints, Ints, int]


def _after(dims: Sequence[int]) -> Ints:
    """The same dims after a new leading one."""
    return tuple(d + 1 for d in dims)


def _fail(name: str, why: str) -> None:
    raise ValueError(f"prim.{name}: {why}")


# ***** broadcast *****


def _broadcast_spec(x: Any, shape: Ints, dims: Ints) -> Aval:
    if (
        len(dims) != len(x.shape)
        or list(dims) != sorted(set(dims))
        or (dims and not 0 <= dims[0] <= dims[-1] < len(shape))
    ):
        _fail("broadcast", f"dims {dims} do not place {list(x.shape)} in {list(shape)}")
    if any(size not in (1, shape[d]) for size, d in zip(x.shape, dims, strict=True)):
        _fail("broadcast", f"{list(x.shape)} at dims {dims} does not fit {list(shape)}")
    return shape, x.dtype


def _broadcast(x: Any, shape: Ints, dims: Ints) -> Any:
    middle = [1] * len(shape)
    for size, d in zip(x.shape, dims, strict=True):
        middle[d] = size
    return np.broadcast_to(x.reshape(middle), shape)


def _broadcast_vjp(ct: Any, out: Any, x: Any, shape: Ints, dims: Ints) -> tuple[Any]:
    grown = [d for d in range(len(shape)) if d not in dims or (x.shape[dims.index(d)] == 1 and shape[d] != 1)]
    return (build.reshape(build.total(ct, grown), x.shape),)


def _broadcast_layout(shape_in: Ints, strides: Ints, offset: int, shape: Ints, dims: Ints) -> Layout:
    steps = [0] * len(shape)
    for size, stride, d in zip(shape_in, strides, dims, strict=True):
        steps[d] = stride if size == shape[d] else 0
    for d in range(len(shape) - 1, -1, -1) if dims else ():
        if d not in dims and shape[d] == 1:  # a new dim that repeats nothing steps over the dims behind it
            steps[d] = shape[d + 1] * steps[d + 1] if d + 1 < len(shape) else 1
    return shape, tuple(steps), offset


def _broadcast_samples() -> Samples:
    yield [floats((3, 1))], {"shape": (2, 3, 4), "dims": (1, 2)}
    yield [floats(())], {"shape": (2, 3), "dims": ()}
    yield [floats((3,), dtype="float32")], {"shape": (3, 2), "dims": (0,)}
    yield [floats((1,))], {"shape": (0,), "dims": (0,)}
    yield [integers((3,))], {"shape": (2, 3), "dims": (1,)}


Primitive(
    "broadcast", "Dim i of x becomes dim dims[i] of the result; sizes 1 grow, other dims repeat x.", family="shape",
    spec=_broadcast_spec, reference=_broadcast, lower=("index", "broadcast"), layout=_broadcast_layout, samples=_broadcast_samples,
    vjp=_broadcast_vjp, jvp=lambda tangents, out, x, **p: prim.broadcast(tangents[0], **p),
    batch=lambda batched, x, shape, dims: prim.broadcast(x, shape=(x.shape[0], *shape), dims=(0, *_after(dims))),
)  # fmt: skip

# ***** reshape *****


def _reshape_spec(x: Any, shape: Ints) -> Aval:
    if numel(shape) != numel(x.shape):
        _fail("reshape", f"{list(x.shape)} has {numel(x.shape)} elements, {list(shape)} has {numel(shape)}")
    return shape, x.dtype


def _reshape_layout(shape_in: Ints, strides: Ints, offset: int, shape: Ints) -> Layout | None:
    steps = view_strides(shape_in, strides, shape)
    return None if steps is None else (shape, steps, offset)


def _reshape_samples() -> Samples:
    yield [floats((2, 6))], {"shape": (3, 4)}
    yield [floats(())], {"shape": (1, 1)}
    yield [floats((0, 3), dtype="float32")], {"shape": (5, 0)}


Primitive(
    "reshape", "The same elements, in row-major order, under another shape.", family="shape", spec=_reshape_spec,
    reference=lambda x, shape: x.reshape(shape), lower=("index", "reshape"), layout=_reshape_layout, samples=_reshape_samples,
    vjp=lambda ct, out, x, shape: (build.reshape(ct, x.shape),),
    jvp=lambda tangents, out, x, shape: prim.reshape(tangents[0], shape=shape),
    batch=lambda batched, x, shape: prim.reshape(x, shape=(x.shape[0], *shape)),
)  # fmt: skip

# ***** transpose *****


def _transpose_spec(x: Any, perm: Ints) -> Aval:
    if sorted(perm) != list(range(len(x.shape))):
        _fail("transpose", f"{perm} does not permute the dims of {list(x.shape)}")
    return tuple(x.shape[d] for d in perm), x.dtype


def inverse(perm: Sequence[int]) -> Ints:
    """The inverse of the permutation `perm`."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _transpose_samples() -> Samples:
    yield [floats((2, 3, 4))], {"perm": (2, 0, 1)}
    yield [floats((), dtype="float32")], {"perm": ()}
    yield [integers((0, 3))], {"perm": (1, 0)}


Primitive(
    "transpose", "Dims in another order: dim i of the result is dim perm[i] of x.", family="shape", spec=_transpose_spec,
    reference=lambda x, perm: np.transpose(x, perm), lower=("index", "transpose"), samples=_transpose_samples,
    layout=lambda shape, strides, offset, perm: (tuple(shape[d] for d in perm), tuple(strides[d] for d in perm), offset),
    vjp=lambda ct, out, x, perm: (build.transpose(ct, inverse(perm)),),
    jvp=lambda tangents, out, x, perm: prim.transpose(tangents[0], perm=perm),
    batch=lambda batched, x, perm: prim.transpose(x, perm=(0, *_after(perm))),
)  # fmt: skip

# ***** slice *****


def _slice_spec(x: Any, starts: Ints, stops: Ints, steps: Ints) -> Aval:
    if not len(starts) == len(stops) == len(steps) == len(x.shape):
        _fail("slice", f"{len(x.shape)} dims need as many starts, stops and steps, got {starts}, {stops}, {steps}")
    for size, start, stop, step in zip(x.shape, starts, stops, steps, strict=True):
        if not 0 <= start <= stop <= size or step <= 0:
            _fail("slice", f"{start}:{stop}:{step} is not a range of a dim of size {size}")
    return tuple(-(-(stop - start) // step) for start, stop, step in zip(starts, stops, steps, strict=True)), x.dtype


def _slice_vjp(ct: Any, out: Any, x: Any, starts: Ints, stops: Ints, steps: Ints) -> tuple[Any]:
    spans = [(n - 1) * step + 1 if n else 0 for n, step in zip(ct.shape, steps, strict=True)]
    hi = tuple(size - start - span for size, start, span in zip(x.shape, starts, spans, strict=True))
    return (build.pad(ct, starts, hi, [s - 1 for s in steps]),)


def _slice_layout(shape: Ints, strides: Ints, offset: int, starts: Ints, stops: Ints, steps: Ints) -> Layout:
    sizes = tuple(-(-(stop - start) // step) for start, stop, step in zip(starts, stops, steps, strict=True))
    offset += sum(start * stride for start, stride in zip(starts, strides, strict=True) if start)
    return sizes, tuple(a * b for a, b in zip(strides, steps, strict=True)), offset


def _slice_samples() -> Samples:
    yield [floats((5, 7))], {"starts": (1, 0), "stops": (4, 7), "steps": (1, 3)}
    yield [floats((5,), dtype="float32")], {"starts": (2,), "stops": (2,), "steps": (1,)}
    yield [integers((6,))], {"starts": (1,), "stops": (6,), "steps": (2,)}
    yield [floats(())], {"starts": (), "stops": (), "steps": ()}


Primitive(
    "slice", "Elements starts:stops:steps of every dim.", family="shape", spec=_slice_spec, lower=("index", "slice"),
    reference=lambda x, starts, stops, steps: x[tuple(slice(*b) for b in zip(starts, stops, steps, strict=True))],
    layout=_slice_layout, samples=_slice_samples, vjp=_slice_vjp, jvp=lambda tangents, out, x, **p: prim.slice(tangents[0], **p),
    batch=lambda batched, x, starts, stops, steps: prim.slice(
        x, starts=(0, *starts), stops=(x.shape[0], *stops), steps=(1, *steps)),
)  # fmt: skip

# ***** pad *****


def _pad_spec(x: Any, value: Any, lo: Ints, hi: Ints, interior: Ints) -> Aval:
    if not len(lo) == len(hi) == len(interior) == len(x.shape) or any(n < 0 for n in (*lo, *hi, *interior)):
        _fail("pad", f"{list(x.shape)} takes as many lo, hi, interior >= 0, got {lo}, {hi}, {interior}")
    return tuple(a + max(n + (n - 1) * i, 0) + b for n, a, b, i in zip(x.shape, lo, hi, interior, strict=True)), x.dtype


def _pad(x: Any, value: Any, lo: Ints, hi: Ints, interior: Ints) -> Any:
    spans = [max(n + (n - 1) * i, 0) for n, i in zip(x.shape, interior, strict=True)]
    result = np.full([a + s + b for a, s, b in zip(lo, spans, hi, strict=True)], value).astype(x.dtype)
    result[tuple(slice(a, a + s, i + 1) for a, s, i in zip(lo, spans, interior, strict=True))] = x
    return result


def _pad_vjp(ct: Any, out: Any, x: Any, value: Any, lo: Ints, hi: Ints, interior: Ints) -> tuple[Any]:
    stops = tuple(size - b for size, b in zip(ct.shape, hi, strict=True))
    return (prim.slice(ct, starts=lo, stops=stops, steps=tuple(i + 1 for i in interior)),)


def _pad_samples() -> Samples:
    yield [floats((3, 4))], {"value": 0.0, "lo": (1, 0), "hi": (2, 1), "interior": (0, 2)}
    yield [floats((3,), dtype="float32")], {"value": -1.5, "lo": (0,), "hi": (3,), "interior": (0,)}
    yield [integers((0, 2))], {"value": 7, "lo": (1, 1), "hi": (1, 0), "interior": (3, 0)}


Primitive(
    "pad", "x surrounded by `value`: lo before, hi after, interior between neighbours, in every dim.", family="shape",
    spec=_pad_spec, reference=_pad, lower=("index", "pad"), samples=_pad_samples, vjp=_pad_vjp,
    jvp=lambda tangents, out, x, value, lo, hi, interior: build.pad(tangents[0], lo, hi, interior),
    batch=lambda batched, x, value, lo, hi, interior: prim.pad(
        x, value=value, lo=(0, *lo), hi=(0, *hi), interior=(0, *interior)),
)  # fmt: skip

# ***** flip *****


def _flip_spec(x: Any, dims: Ints) -> Aval:
    if len(set(dims)) != len(dims) or any(not 0 <= d < len(x.shape) for d in dims):
        _fail("flip", f"{dims} are not dims of {list(x.shape)}")
    return x.shape, x.dtype


def _flip_samples() -> Samples:
    yield [floats((3, 4))], {"dims": (0, 1)}
    yield [floats((5,), dtype="float32")], {"dims": (0,)}
    yield [integers((0, 2))], {"dims": (1,)}


Primitive(
    "flip", "The order of elements along dims reversed.", family="shape", spec=_flip_spec, lower=("index", "flip"),
    reference=lambda x, dims: np.flip(x, dims), samples=_flip_samples,
    vjp=lambda ct, out, x, dims: (prim.flip(ct, dims=dims),), jvp=lambda tangents, out, x, dims: prim.flip(tangents[0], dims=dims),
    batch=lambda batched, x, dims: prim.flip(x, dims=_after(dims)),
)  # fmt: skip

# ***** cat *****


def _cat_spec(*xs: Any, dim: int) -> Aval:
    if not xs or not 0 <= dim < len(xs[0].shape):
        _fail("cat", f"needs at least one operand with a dim {dim}")
    first = xs[0]
    for x in xs:
        if x.dtype is not first.dtype:
            raise TypeError(f"prim.cat takes operands of one dtype, got {first.dtype.name} and {x.dtype.name}")
        if x.shape[:dim] != first.shape[:dim] or x.shape[dim + 1 :] != first.shape[dim + 1 :]:
            _fail("cat", f"{list(x.shape)} does not fit {list(first.shape)} apart from dim {dim}")
    return (*first.shape[:dim], sum(x.shape[dim] for x in xs), *first.shape[dim + 1 :]), first.dtype


def _cat_vjp(ct: Any, out: Any, *xs: Any, dim: int) -> tuple[Any, ...]:
    grads, at = [], 0
    for x in xs:
        starts, stops = [0] * len(ct.shape), list(ct.shape)
        starts[dim], stops[dim] = at, at + x.shape[dim]
        at = stops[dim]
        grads.append(prim.slice(ct, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(ct.shape)))
    return tuple(grads)


def _cat_jvp(tangents: Any, out: Any, *xs: Any, dim: int) -> Any:
    if all(t is None for t in tangents):
        return None
    return prim.cat(*(build.zeros_like(x) if t is None else t for t, x in zip(tangents, xs, strict=True)), dim=dim)


def _cat_samples() -> Samples:
    yield [floats((2, 3), 1), floats((2, 1), 2), floats((2, 4), 3)], {"dim": 1}
    yield [floats((2,), 1, dtype="float32"), floats((0,), 2, dtype="float32")], {"dim": 0}
    yield [integers((1, 2))], {"dim": 0}


Primitive(
    "cat", "Operands one after another along dim.", family="shape", spec=_cat_spec, lower=("index", "cat"), samples=_cat_samples,
    reference=lambda *xs, dim: np.concatenate(xs, axis=dim), vjp=_cat_vjp, jvp=_cat_jvp,
    batch=lambda batched, *xs, dim: prim.cat(*lift(batched, xs), dim=dim + 1),
)  # fmt: skip
