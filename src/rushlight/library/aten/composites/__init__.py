"""Functions that PyTorch's native code makes of several operators above autograd: copies, casts and shapes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.sizes import is_unknown, require_between, require_equal
from rushlight._interface.tensors import STATE, view_strides
from rushlight.library.aten.derivatives import sum_to
from rushlight.library.aten.fronts import CASTS
from rushlight.library.aten.handlers import handles

__all__: list[str] = []

Tensor = rushlight.Tensor


def aten(name: str) -> Any:
    """An overload, for tensors."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(rushlight.ops.aten, packet), overload or "default")


def symbolic(sizes: Sequence[Any]) -> bool:
    """Whether there are symbols among sizes."""
    return any(isinstance(n, rushlight.SymInt) for n in sizes)


def loose(sizes: Sequence[Any]) -> list[int]:
    """Sizes that were given one by one, or as one sequence."""
    if len(sizes) == 1 and not isinstance(sizes[0], int) and not isinstance(sizes[0], Tensor):
        return [rushlight.sym_int(s) for s in sizes[0]]
    return [rushlight.sym_int(s) for s in sizes]


# ***** copies and casts *****


def to_copy(x: Any, **options: Any) -> Any:
    """`_to_copy` with what is given."""
    given = {k: v for k, v in options.items() if v is not None and v is not False}
    return aten("_to_copy")(x, **given)


@handles("to")
def to(self: Any, *args: Any, **kwargs: Any) -> Any:
    dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
    other, layout = kwargs.pop("other", None), kwargs.pop("layout", None)
    rest = list(args)
    whole = False
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], rushlight.dtype) or rest and rest[0] in (float, int, bool, complex):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], rushlight.dtype)):
            dtype = rest.pop(0)
    if other is not None:
        dtype, device = other.dtype, other.device
        whole = True
    non_blocking = rest.pop(0) if rest else kwargs.pop("non_blocking", False)
    copy = rest.pop(0) if rest else kwargs.pop("copy", False)
    memory_format = kwargs.pop("memory_format", None)
    if dtype in (float, int, bool, complex):
        dtype = {float: rushlight.float64, int: rushlight.int64, bool: rushlight.bool, complex: rushlight.complex128}[
            dtype
        ]
    if isinstance(device, (str, int)):
        device = rushlight.device(device)
    whole = whole or device is not None
    same = (dtype is None or dtype is self.dtype) and (device is None or device == self.device)
    if (
        same
        and not copy
        and (
            memory_format is None
            or memory_format is rushlight.preserve_format
            or self.is_contiguous(memory_format=memory_format)
        )
    ):
        return self
    if whole:
        return to_copy(
            self,
            dtype=dtype or self.dtype,
            layout=layout or self.layout,
            device=self.device if device is None else device,
            non_blocking=non_blocking,
            memory_format=memory_format,
        )
    return to_copy(self, dtype=dtype, layout=layout, non_blocking=non_blocking, memory_format=memory_format)


def _cast(name: str, dtype: Any) -> None:
    @handles(name)
    def cast(self: Any, memory_format: Any = None) -> Any:
        return to(self, dtype, memory_format=memory_format)


for _name, _word in CASTS.items():
    _cast(_name, getattr(rushlight, _word))


@handles("type_as")
def type_as(self: Any, tensor: Any) -> Any:
    return to(self, tensor)


@handles("cpu")
def cpu(self: Any, memory_format: Any = None) -> Any:
    return to(self, "cpu", memory_format=memory_format)


@handles("contiguous")
def contiguous(self: Any, memory_format: Any = None) -> Any:
    memory_format = rushlight.contiguous_format if memory_format is None else memory_format
    if self.is_contiguous(memory_format=memory_format):
        return self
    return aten("clone")(self, memory_format=memory_format)


@handles("item __float__ __int__ __bool__ __index__ __complex__")
def item(self: Any) -> Any:
    if self.numel() != 1:
        return NotImplemented
    return aten("_local_scalar_dense")(self)


@handles("detach_")
def detach_(self: Any) -> Any:
    return aten("detach_")(self)


# ***** shapes *****


def viewable(x: Any, shape: Sequence[int]) -> bool:
    """Whether memory can be seen under another shape."""
    sizes, strides = list(x.shape), list(x.stride())
    if not x.numel():
        return True
    if any(map(is_unknown, shape)):
        return view_strides(sizes, strides, shape) is not None
    old = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    at, left = 0, [n for n in shape if n != 1]
    while at < len(old):
        block = old[at][0]
        end = at + 1
        while end < len(old) and old[end - 1][1] == old[end][0] * old[end][1]:
            block *= old[end][0]
            end += 1
        while block > 1:
            if not left or block % left[0]:
                return False
            block //= left.pop(0)
        at = end
    return True


def full_shape(x: Any, shape: Sequence[int]) -> list[int]:
    """A shape with -1 replaced; RuntimeError where it does not fit."""
    shape = list(shape)
    if -1 in shape:
        known = math.prod(s for s in shape if s != -1)
        left = x.numel() // known if known else -1
        if not require_equal(left * known, x.numel()) and (not known or x.numel() % known):
            raise RuntimeError(f"shape '{shape}' is invalid for input of size {x.numel()}")
        shape[shape.index(-1)] = left
    elif not require_equal(math.prod(shape), x.numel()) and math.prod(shape) != x.numel():
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {x.numel()}")
    return shape


def reshaped(x: Any, shape: Sequence[int]) -> Any:
    """`reshape`: a view, or a copy seen as a view."""
    given, shape = list(shape), full_shape(x, shape)
    if viewable(x, shape):
        return aten("view")(x, given if symbolic(x.shape) else shape)
    return aten("_unsafe_view")(aten("clone")(x, memory_format=rushlight.contiguous_format), shape)


@handles("reshape")
def reshape(self: Any, *shape: Any, **kwargs: Any) -> Any:
    if "shape" in kwargs:
        shape = (kwargs["shape"],)
    return reshaped(self, loose(shape))


@handles("reshape_as")
def reshape_as(self: Any, other: Any) -> Any:
    return reshaped(self, other.shape)


@handles("view_as")
def view_as(self: Any, other: Any) -> Any:
    return aten("view")(self, list(other.shape))


@handles("flatten")
def flatten(input: Any, start_dim: Any = 0, end_dim: Any = -1) -> Any:
    n = input.dim()
    if not isinstance(start_dim, int) or not isinstance(end_dim, int):
        return NotImplemented
    if not n:
        return reshaped(input, [1])
    start, end = start_dim % n, end_dim % n
    if start == end:
        return input
    sizes = list(input.shape)
    return reshaped(input, [*sizes[:start], math.prod(sizes[start : end + 1]), *sizes[end + 1 :]])


@handles("unflatten")
def unflatten(input: Any, dim: int, sizes: Any) -> Any:
    if not isinstance(dim, int):
        return NotImplemented
    dim %= input.dim()
    sizes = list(sizes)
    shape = list(input.shape)
    if -1 in sizes:
        known = math.prod(s for s in sizes if s != -1)
        sizes[sizes.index(-1)] = shape[dim] // known if known else 0
    return aten("view")(input, [*shape[:dim], *sizes, *shape[dim + 1 :]])


@handles("ravel")
def ravel(input: Any) -> Any:
    return aten("view")(contiguous(input), [-1])


@handles("expand_as")
def expand_as(self: Any, other: Any) -> Any:
    return aten("expand")(self, list(other.shape))


@handles("broadcast_to")
def broadcast_to(input: Any, size: Any) -> Any:
    return aten("expand")(input, list(size))


@handles("sum_to_size")
def sum_to_size(self: Any, *size: Any) -> Any:
    shape = loose(size)
    return sum_to(self, shape)


@handles("movedim moveaxis")
def movedim(input: Any, source: Any, destination: Any) -> Any:
    n = input.dim()
    sources = [s % n for s in ([source] if isinstance(source, int) else source)]
    targets = [d % n for d in ([destination] if isinstance(destination, int) else destination)]
    order = [-1] * n
    for s, d in zip(sources, targets, strict=True):
        order[d] = s
    rest = iter(d for d in range(n) if d not in sources)
    return aten("permute")(input, [next(rest) if o == -1 else o for o in order])


@handles("swapaxes_ swapdims_")
def swapaxes_(input: Any, a: int, b: int) -> Any:
    return aten("transpose_")(input, a, b)


@handles("swapaxes swapdims")
def swapaxes(input: Any, a: int, b: int) -> Any:
    return aten("transpose.int")(input, a, b)


@handles("narrow")
def narrow(input: Any, dim: int, start: Any, length: int) -> Any:
    if isinstance(start, Tensor):
        start = aten("_local_scalar_dense")(start)
    size = input.shape[dim]
    if is_unknown(start) and not (type(size) is int and size == 0):
        require_between(size + start, 0, math.inf)
        require_between(size - start, 0, math.inf)
        start = start % size  # also from the end; the end itself has no elements
    elif start < 0:
        start = start + size
    if is_unknown(start) or is_unknown(length):
        require_between(length, 0, math.inf)
        require_between(size - start - length, 0, math.inf)
    return aten("slice.Tensor")(input, dim, start, start + length)


@handles("atleast_1d")
def atleast_1d(*tensors: Any) -> Any:
    return _each(tensors, lambda x: x if x.dim() else reshaped(x, [1]))


@handles("atleast_2d")
def atleast_2d(*tensors: Any) -> Any:
    return _each(
        tensors, lambda x: reshaped(x, [1, 1]) if not x.dim() else aten("unsqueeze")(x, 0) if x.dim() == 1 else x
    )


@handles("atleast_3d")
def atleast_3d(*tensors: Any) -> Any:
    def one(x: Any) -> Any:
        if not x.dim():
            return reshaped(x, [1, 1, 1])
        if x.dim() == 1:
            return aten("unsqueeze")(aten("unsqueeze")(x, 0), -1)
        return aten("unsqueeze")(x, -1) if x.dim() == 2 else x

    return _each(tensors, one)


def _each(tensors: Any, one: Any) -> Any:
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        return tuple(one(t) for t in tensors[0])
    return one(tensors[0]) if len(tensors) == 1 else tuple(one(t) for t in tensors)


def listed(tensors: Any) -> list[Any]:
    return list(tensors[0]) if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else list(tensors)


@handles("hstack")
def hstack(tensors: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    items = list(atleast_1d(tensors))
    return aten("cat")(items, 0 if items[0].dim() == 1 else 1)


@handles("vstack row_stack")
def vstack(tensors: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("cat")(list(atleast_2d(tensors)))


@handles("dstack")
def dstack(tensors: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("cat")(list(atleast_3d(tensors)), 2)


@handles("column_stack")
def column_stack(tensors: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    items = [reshaped(t, [t.numel(), 1]) if t.dim() <= 1 else t for t in tensors]
    return aten("cat")(items, 1)


@handles("concat concatenate")
def concat(tensors: Any, dim: int = 0, *, out: Any = None, axis: Any = None) -> Any:
    return NotImplemented if out is not None else aten("cat")(list(tensors), dim if axis is None else axis)


@handles("chunk")
def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    size = input.shape[dim]
    step = (size + chunks - 1) // chunks
    if not step and not size:
        return tuple(aten("split_with_sizes")(input, [0] * chunks, dim))
    return tuple(aten("split.Tensor")(input, step, dim))


@handles("unsafe_chunk")
def unsafe_chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    size = input.shape[dim]
    step = (size + chunks - 1) // chunks
    if not step and not size:
        return tuple(aten("unsafe_split_with_sizes")(input, [0] * chunks, dim))
    return tuple(aten("unsafe_split.Tensor")(input, step, dim))


@handles("split")
def split(tensor: Any, split_size_or_sections: Any = None, dim: int = 0, *, split_size: Any = None) -> Any:
    size = split_size if split_size_or_sections is None else split_size_or_sections
    if isinstance(size, int):
        return tuple(aten("split.Tensor")(tensor, size, dim))
    return tuple(aten("split_with_sizes")(tensor, list(size), dim))


@handles("tensor_split")
def tensor_split(input: Any, indices_or_sections: Any = None, dim: int = 0, **kwargs: Any) -> Any:
    given = next(iter(kwargs.values())) if kwargs else indices_or_sections
    size = input.shape[dim]
    if isinstance(given, Tensor):
        with unseen():
            given = given.tolist()
    if isinstance(given, int):
        low, more = divmod(size, given)
        found, at = [], 0
        for i in range(given):
            step = low + (i < more)
            found.append(aten("slice.Tensor")(input, dim, at, at + step))
            at += step
        return tuple(found)
    found, start = [], 0
    for end in given:
        found.append(aten("slice.Tensor")(input, dim, start, end))
        start = end
    found.append(aten("slice.Tensor")(input, dim, start, size))
    return tuple(found)


@handles("hsplit")
def hsplit(input: Any, given: Any) -> Any:
    return tensor_split(input, given, 0 if input.dim() == 1 else 1)


@handles("vsplit")
def vsplit(input: Any, given: Any) -> Any:
    return tensor_split(input, given, 0)


@handles("dsplit")
def dsplit(input: Any, given: Any) -> Any:
    return tensor_split(input, given, 2)


@handles("fliplr")
def fliplr(input: Any) -> Any:
    return aten("flip")(input, [1])


@handles("flipud")
def flipud(input: Any) -> Any:
    return aten("flip")(input, [0])


@handles("diag")
def diag(input: Any, diagonal: int = 0, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    return aten("diag_embed")(input, diagonal) if input.dim() == 1 else aten("diagonal_copy")(input, diagonal)


@handles("diagflat")
def diagflat(input: Any, offset: int = 0) -> Any:
    return aten("diag_embed")(aten("view")(contiguous(input), [-1]), offset)


@handles("linalg_diagonal")
def linalg_diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return aten("diagonal")(A, offset, dim1, dim2)


@handles("tile")
def tile(input: Any, *dims: Any) -> Any:
    reps = loose(dims) if dims else []
    return aten("repeat")(input, [1] * (input.dim() - len(reps)) + reps)


@handles("outer ger")
def outer(input: Any, vec2: Any, *, out: Any = None) -> Any:
    return NotImplemented if out is not None else aten("mul.Tensor")(reshaped(input, [input.shape[0], 1]), vec2)


@handles("repeat_interleave")
def repeat_interleave(input: Any, repeats: Any = None, dim: Any = None, *, output_size: Any = None) -> Any:
    if repeats is None:
        return (
            aten("repeat_interleave.Tensor")(input)
            if output_size is None
            else aten("repeat_interleave.Tensor")(input, output_size=output_size)
        )
    x = input if dim is not None else flatten(input)
    dim = 0 if dim is None else dim % max(x.dim(), 1)
    if not x.dim():
        x = reshaped(x, [1])
    if isinstance(repeats, int):
        shape = list(x.shape)
        wide = aten("expand")(aten("unsqueeze")(x, dim + 1), [*shape[: dim + 1], repeats, *shape[dim + 1 :]])
        return flatten(aten("clone")(wide, memory_format=rushlight.contiguous_format), dim, dim + 1)
    if repeats.dim() == 0 or repeats.dim() == 1 and repeats.shape[0] == 1:
        repeats = aten("expand")(reshaped(repeats, [1]), [x.shape[dim]])
    index = (
        aten("repeat_interleave.Tensor")(repeats)
        if output_size is None
        else aten("repeat_interleave.Tensor")(repeats, output_size=output_size)
    )
    return aten("index_select")(x, dim, index)


@handles("kron")
def kron(input: Any, other: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    n = max(input.dim(), other.dim())
    a = [1] * (n - input.dim()) + list(input.shape)
    b = [1] * (n - other.dim()) + list(other.shape)
    left = [s for pair in zip(a, [1] * n, strict=True) for s in pair]
    right = [s for pair in zip([1] * n, b, strict=True) for s in pair]
    made = aten("mul.Tensor")(unsafe_reshaped(input, left), unsafe_reshaped(other, right))
    return aten("_unsafe_view")(made, [x * y for x, y in zip(a, b, strict=True)])


def unsafe_reshaped(x: Any, shape: list[int]) -> Any:
    """`_unsafe_view` where memory allows it."""
    return aten("_unsafe_view")(x, shape) if viewable(x, shape) else reshaped(x, shape)


@handles("combinations")
def combinations(input: Any, r: int = 2, with_replacement: bool = False) -> Any:
    if not r:
        return aten("empty.memory_format")([0], dtype=input.dtype, layout=input.layout, device=input.device)
    n = input.shape[0]
    grids = _mesh([input] * r)
    index = aten("arange")(n, dtype=rushlight.int64, layout=rushlight.strided, device=input.device)
    places = _mesh([index] * r)
    mask = aten("full")([n] * r, True, dtype=rushlight.bool, layout=rushlight.strided, device=input.device)
    for a, b in itertools.pairwise(places):
        mask = aten("mul_.Tensor")(mask, aten("le.Tensor" if with_replacement else "lt.Tensor")(a, b))
    return aten("stack")([aten("masked_select")(g, mask) for g in grids], 1)


def _mesh(tensors: Sequence[Any]) -> list[Any]:
    shape = [t.numel() for t in tensors]
    found = []
    for i, t in enumerate(tensors):
        sizes = [1] * len(tensors)
        sizes[i] = -1
        found.append(aten("expand")(aten("view")(t, sizes), shape))
    return found


@handles("cartesian_prod")
def cartesian_prod(*tensors: Any) -> Any:
    items = listed(tensors)
    if len(items) == 1:
        return items[0]
    return aten("stack")([flatten(g) for g in _mesh(items)], 1)


@handles("take_along_dim")
def take_along_dim(input: Any, indices: Any, dim: Any = None, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if dim is None:
        return aten("gather")(aten("view")(input, [-1]), 0, aten("view")(indices, [-1]))
    dim %= input.dim()
    a, b = list(input.shape), list(indices.shape)
    a[dim] = b[dim] = 1
    shape = list(rushlight.broadcast_shapes(tuple(a), tuple(b)))
    size = input.shape[dim]
    index = aten("expand")(indices, [*shape[:dim], indices.shape[dim], *shape[dim + 1 :]])
    source = aten("expand")(input, [*shape[:dim], size, *shape[dim + 1 :]])
    return aten("gather")(source, dim, aten("remainder.Scalar")(index, size))


@handles("unravel_index")
def unravel_index(indices: Any, shape: Any) -> Any:
    shape = [shape] if isinstance(shape, int) else list(shape)
    coefs = _strides(shape)
    with unseen():
        steps = rushlight.tensor(coefs, device=indices.device, dtype=rushlight.int64)
        sizes = rushlight.tensor(shape, device=indices.device, dtype=rushlight.int64)
    wide = aten("unsqueeze")(indices, -1)
    quotient = aten("floor_divide")(wide, aten("lift_fresh")(steps))
    return tuple(aten("unbind.int")(aten("remainder.Tensor")(quotient, aten("lift_fresh")(sizes)), -1))


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


class unseen:
    """A context in which functions run as they are, unseen."""

    def __enter__(self) -> None:
        STATE.dispatch_off += 1

    def __exit__(self, *exc: object) -> None:
        STATE.dispatch_off -= 1
