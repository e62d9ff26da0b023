"""Formulas of views, copies, joins, and reading and writing at places."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.library.aten.derivatives import Value, bare, conjugated, joint, op, rule, sum_to, where, zeros

__all__: list[str] = []

rule("clone alias alias_copy contiguous lift lift_fresh", self=lambda g, c: g)
rule("detach")
rule(
    "view view_copy _unsafe_view _reshape_alias reshape",
    self=lambda g, c: op("view")(g, c.sizes("self")) if dense(g) else op("reshape")(g, c.sizes("self")),
)
rule("expand expand_copy", self=lambda g, c: Value(sum_to(bare(g), c.sizes("self"))))
rule("t t_copy", self=lambda g, c: g.t())
rule("transpose transpose.int transpose_copy.int", self=lambda g, c: g.call("transpose.int", c.dim0, c.dim1))
rule("permute permute_copy", self=lambda g, c: g.permute(inverse(c.dims)))
rule("squeeze squeeze_copy", self=lambda g, c: unsqueezed(g, range(len(c.sizes("self"))), c.sizes("self")))
rule("squeeze.dim squeeze_copy.dim", self=lambda g, c: unsqueezed(g, [c.dim], c.sizes("self")))
rule("squeeze.dims squeeze_copy.dims", self=lambda g, c: unsqueezed(g, c.dim, c.sizes("self")))
rule("unsqueeze unsqueeze_copy", self=lambda g, c: g.call("squeeze.dim", c.dim))
rule("select.int select_copy.int", self=lambda g, c: op("select_backward")(g, c.sizes("self"), c.dim, c.index))
rule("slice.Tensor slice_copy.Tensor", self=lambda g, c: sliced(g, c))
rule("diagonal diagonal_copy", self=lambda g, c: op("diagonal_backward")(g, c.sizes("self"), c.offset, c.dim1, c.dim2))
rule("unfold unfold_copy", self=lambda g, c: op("unfold_backward")(g, c.sizes("self"), c.dimension, c.size, c.step))
rule(
    "as_strided as_strided_copy",
    self=lambda g, c: strided(g, c.spec("self"), c.size, c.stride, c.storage_offset, c.storage_start()),
)
rule("narrow_copy", self=lambda g, c: op("slice_backward")(g, c.sizes("self"), c.dim, c.start, c.start + c.length, 1))
rule(
    "view_as_real",
    self=lambda g, c: (
        g if g.tensor.is_contiguous() else g.clone(memory_format=rushlight.contiguous_format)
    ).view_as_complex(),
)
rule("view_as_complex", self=lambda g, c: g.view_as_real())
rule("_to_copy", self=lambda g, c: cast_back(g, c.spec("self")))
rule("copy_", self=lambda g, c: g.zeros_like(), src=lambda g, c: g)
rule("copy", self=lambda g, c: g.zeros_like(), src=lambda g, c: g)
rule("flip", self=lambda g, c: g.flip(c.dims))
rule("roll", self=lambda g, c: g.roll([-s for s in reversed(c.shifts)], list(reversed(c.dims))))
rule("rot90", self=lambda g, c: g.rot90(-c.k, c.dims))
rule("tril", self=lambda g, c: g.tril(c.diagonal))
rule("triu", self=lambda g, c: g.triu(c.diagonal))
rule("diag_embed", self=lambda g, c: g.diagonal(c.offset, c.dim1, c.dim2))
rule("repeat", self=lambda g, c: repeated(g, c.repeats, c.sizes("self")))
rule("pixel_shuffle", self=lambda g, c: op("pixel_unshuffle")(g, c.upscale_factor))
rule("pixel_unshuffle", self=lambda g, c: op("pixel_shuffle")(g, c.downscale_factor))
rule("channel_shuffle", self=lambda g, c: op("channel_shuffle")(g, c.sizes("self")[1] // c.groups))
rule("constant_pad_nd", self=lambda g, c: g.constant_pad_nd([-p for p in c.pad]))
joint(
    "split.Tensor unsafe_split.Tensor",
    "self",
    lambda g, c: (joined(g, parts(c.sizes("self")[c.dim], c.split_size), c.dim, c),),
)
joint(
    "split_with_sizes unsafe_split_with_sizes split_with_sizes_copy",
    "self",
    lambda g, c: (joined(g, c.split_sizes, c.dim, c),),
)
joint("unbind.int unbind_copy.int", "self", lambda g, c: (stacked(g, c),))
rule("cat", tensors=lambda g, c: parted(g, c))
rule("stack", tensors=lambda g, c: [g.call("select.int", c.dim, i) for i in range(len(c.tensors))])
rule("block_diag", tensors=lambda g, c: blocks(g, c.tensors))
rule("gather", self=lambda g, c: g.new_zeros(c.sizes("self")).scatter_add(c.dim, c.index, g))
rule(
    "scatter.src",
    self=lambda g, c: g.call("scatter.value", c.dim, c.index, 0),
    src=lambda g, c: g.gather(c.dim, c.index),
)
rule("scatter.value", self=lambda g, c: g.call("scatter.value", c.dim, c.index, 0))
rule("scatter_add", self=lambda g, c: g, src=lambda g, c: g.gather(c.dim, c.index))
rule(
    "index.Tensor", self=lambda g, c: g.new_zeros(c.sizes("self"), **g.options()).call("index_put", c.indices, g, True)
)
rule(
    "_unsafe_index.Tensor", self=lambda g, c: g.new_zeros(c.sizes("self")).call("_unsafe_index_put", c.indices, g, True)
)
rule(
    "index_put index_put_ _index_put_impl_", self=lambda g, c: g if c.accumulate else g.call("index_put", c.indices, zeroed(c, g), False),
    values=lambda g, c: g.call("index.Tensor", c.indices),
)  # fmt: skip
rule("index_select", self=lambda g, c: g.new_zeros(c.sizes("self"), **g.options()).call("index_add", c.dim, c.index, g))
rule("index_add", self=lambda g, c: g, source=lambda g, c: added(g, c))
rule(
    "index_copy", self=lambda g, c: g.call("index_fill.int_Scalar", c.dim, c.index, 0), source=lambda g, c: picked(g, c)
)
rule("index_fill.int_Scalar", self=lambda g, c: g.call("index_fill.int_Scalar", c.dim, c.index, 0))
rule(
    "index_fill.int_Tensor",
    self=lambda g, c: g.call("index_fill.int_Scalar", c.dim, c.index, 0),
    value=lambda g, c: g.index_select(c.dim, op("_unique")(c.index, False)[0]).sum(),
)
joint("index_reduce", "self source", lambda g, c: index_reduced(g[0], c))
joint("scatter_reduce.two", "self src", lambda g, c: scatter_reduced(g[0], c))
rule("masked_fill.Scalar", self=lambda g, c: g.call("masked_fill.Scalar", c.mask, 0))
rule(
    "masked_fill.Tensor",
    self=lambda g, c: g.call("masked_fill.Scalar", c.mask, 0),
    value=lambda g, c: where(c.mask, g, 0).sum(),
)
rule(
    "masked_scatter",
    self=lambda g, c: g.call("masked_fill.Scalar", c.mask, 0),
    source=lambda g, c: op("masked_scatter_backward")(g, c.mask, c.sizes("source")),
)
rule("masked_select", self=lambda g, c: masked_selected(g, c))
rule("take", self=lambda g, c: op("zeros_like")(c.self).put(c.index, g, True))
rule(
    "put",
    self=lambda g, c: g if c.accumulate else g.put(c.index, zeros(c.sizes("source"), g), False),
    source=lambda g, c: op("view")(g.take(c.index), c.sizes("source")),
)
rule(
    "select_scatter",
    self=lambda g, c: g.select_scatter(zeros(c.sizes("src"), g), c.dim, c.index),
    src=lambda g, c: g.call("select.int", c.dim, c.index),
)
rule(
    "slice_scatter", self=lambda g, c: g.slice_scatter(zeros(c.sizes("src"), g), c.dim, c.start, c.end, c.step),
    src=lambda g, c: g.call("slice.Tensor", c.dim, c.start, c.end, c.step),
)  # fmt: skip
rule(
    "diagonal_scatter", self=lambda g, c: g.diagonal_scatter(zeros(c.sizes("src"), g), c.offset, c.dim1, c.dim2),
    src=lambda g, c: g.diagonal(c.offset, c.dim1, c.dim2),
)  # fmt: skip
rule(
    "_unsafe_masked_index",
    self=lambda g, c: op("_unsafe_masked_index_put_accumulate")(
        g.new_zeros(c.sizes("self"), **g.options()), c.mask, c.indices, g
    ),
)
rule(
    "_unsafe_masked_index_put_accumulate",
    self=lambda g, c: g,
    values=lambda g, c: op("_unsafe_masked_index")(g, c.mask, c.indices, 0),
)
rule("select_backward", grad_output=lambda g, c: g.call("select.int", c.dim, c.index))
rule("slice_backward", grad_output=lambda g, c: g.call("slice.Tensor", c.dim, c.start, c.end, c.step))
rule("diagonal_backward", grad_output=lambda g, c: g.diagonal(c.offset, c.dim1, c.dim2))
rule("unfold_backward", grad_in=lambda g, c: g.unfold(c.dim, c.size, c.step))
rule(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full new_empty_strided"
)
rule(
    "eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not logical_xor argmax argmin argsort bucketize searchsorted nonzero count_nonzero"
)
rule(
    "scalar_tensor _local_scalar_dense equal allclose signbit isposinf isneginf isin any all multinomial unique_dim _unique2 unique_consecutive"
)


def cast_back(g: Any, spec: Any) -> Any:
    """The gradient in the dtype and on the device of the tensor that was cast."""
    if g.dtype is spec.dtype and g.tensor.device == spec.device:
        return g
    if g.is_complex and not spec.dtype.is_complex:
        g = g.real_part()
        if g.dtype is spec.dtype:
            return g
    return g._to_copy(dtype=spec.dtype, layout=g.tensor.layout, device=spec.device)


def dense(g: Any) -> bool:
    """Whether a gradient can be viewed under another shape."""
    return bool(g.tensor.is_contiguous()) or not g.tensor.numel()


def inverse(dims: Any) -> list[int]:
    """The permutation that undoes one."""
    found = [0] * len(dims)
    for i, d in enumerate(dims):
        found[d % len(dims)] = i
    return found


def unsqueezed(g: Any, dims: Any, sizes: list[int]) -> Any:
    """The gradient with dims of size one put back."""
    if not sizes:
        return g
    for d in sorted(d % len(sizes) for d in dims):
        if sizes[d] == 1:
            g = g.unsqueeze(d)
    return g


def sliced(g: Any, c: Any) -> Any:
    """The gradient of a slice: zeros around it."""
    start = 0 if c.start is None else c.start
    end = 9223372036854775807 if c.end is None else c.end
    return op("slice_backward")(g, c.sizes("self"), c.dim, start, end, c.step)


def strided(g: Any, spec: Any, size: Any, stride: Any, offset: Any, own: int) -> Any:
    """The gradient of `as_strided`: of memory, seen through both layouts."""
    sizes, strides = list(spec.shape), list(spec.strides)
    offset = own if offset is None else offset
    first = min(own, offset)

    def span(shape: Any, steps: Any, start: int) -> int:
        return start - first + 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) if 0 not in shape else 0

    size, stride = list(size), list(stride)
    for d in reversed(range(len(size))):  # dims along which the same memory was read several times
        if size[d] > 1 and stride[d] == 0:
            g = g.call("sum.dim_IntList", [d], True)
            size[d] = 1
    for d in reversed(range(len(size))):
        if size[d] == 1:
            g = g.call("squeeze.dim", d)
            del size[d], stride[d]
    memory = g.new_zeros([max(span(sizes, strides, own), span(size, stride, offset))])
    if _overlaps(size, stride):
        places = op("arange.start")(
            0, memory.shape[0], dtype=rushlight.int64, layout=rushlight.strided, device=g.tensor.device
        ).as_strided(size, stride, offset - first)
        flat = g.reshape([-1])
        memory = memory.call("index_add_", 0, places.reshape([-1]), flat)
    else:
        memory.as_strided(size, stride, offset - first).copy_(g)
    return memory.as_strided(sizes, strides, own - first)


def _overlaps(size: list[int], stride: list[int]) -> bool:
    """Whether two places of a strided view may be the same."""
    reach = 0
    for s, n in sorted(zip(stride, size, strict=True)):
        if n > 1 and s <= reach:
            return True
        reach += s * (n - 1)
    return False


def repeated(g: Any, repeats: list[int], sizes: list[int]) -> Any:
    """The gradient of `repeat`: summed over the copies."""
    if 0 in repeats:
        return zeros(sizes, g)
    extra = len(repeats) - len(sizes)
    for _ in range(extra):
        g = g.call("sum.dim_IntList", [0])
    shape: list[int] = []
    dims: list[int] = []
    for count, size in zip(repeats[extra:], sizes, strict=True):
        if count == 1:
            shape.append(size)
        else:
            dims.append(len(shape))
            shape += [count, size]
    if not dims:
        return g
    return op("sum.dim_IntList")(g.view(shape) if dense(g) else g.reshape(shape), dims)


def parts(size: int, step: int) -> list[int]:
    """The sizes of the parts of a split."""
    if not size:
        return [0]
    return [min(step, size - at) for at in range(0, size, step)]


def joined(grads: Any, sizes: Any, dim: int, c: Any) -> Any:
    """The gradients of the parts, joined; zeros for parts without one."""
    like = next(g for g in grads if g is not None)
    shape = c.sizes("self")
    made = []
    for g, size in zip(grads, sizes, strict=False):
        if g is None:
            here = list(shape)
            here[dim] = size
            g = zeros(here, like)
        made.append(g)
    return op("cat")(made, dim)


def stacked(grads: Any, c: Any) -> Any:
    """The gradients of the items, stacked."""
    like = next(g for g in grads if g is not None)
    return op("stack")([zeros([], like).expand(like.shape) if g is None else g for g in grads], c.dim)


def parted(g: Any, c: Any) -> Any:
    """The part of the gradient for each tensor of a `cat`."""
    found, at = [], 0
    for tensor in c.tensors:
        shape = list(bare(tensor).shape)
        if shape == [0]:
            found.append(zeros([0], g))
            continue
        size = shape[c.dim]
        found.append(g.call("slice.Tensor", c.dim, at, at + size))
        at += size
    return found


def blocks(g: Any, tensors: Any) -> Any:
    """The block of the gradient for each matrix."""
    found, row, column = [], 0, 0
    for tensor in tensors:
        shape = list(bare(tensor).shape)
        rows, columns = [1, 1] if not shape else [1, shape[0]] if len(shape) == 1 else shape
        part = g.call("slice.Tensor", 0, row, row + rows).call("slice.Tensor", 1, column, column + columns)
        row, column = row + rows, column + columns
        if len(shape) == 1:
            part = part.call("squeeze.dim", -1)
        elif not shape:
            part = part.call("squeeze.dim", -1).call("squeeze.dim", -1)
        found.append(part)
    return found


def zeroed(c: Any, g: Any) -> Any:
    """Zeros like the values that were put."""
    return zeros(c.sizes("values"), g)


def added(g: Any, c: Any) -> Any:
    """The gradient of the source of `index_add`."""
    part = picked(g, c)
    return part if c.alpha == 1 else part * conjugated(c.alpha)


def picked(g: Any, c: Any) -> Any:
    """The gradient at the places of an index, in the shape of the source."""
    if c.sizes("source") or not c.sizes("self"):
        return g.index_select(c.dim, c.index).expand(c.sizes("source")) if c.sizes("source") else _first(g, c)
    return _first(g, c)


def _first(g: Any, c: Any) -> Any:
    return g.index_select(c.dim, c.index.call("squeeze.dim", 0))


def masked_selected(g: Any, c: Any) -> Any:
    """The gradient at the places of a mask."""
    shape = list(rushlight.broadcast_shapes(tuple(c.sizes("self")), tuple(c.sizes("mask"))))
    whole = c.self.expand(shape)
    return whole.zeros_like(memory_format=rushlight.preserve_format).masked_scatter(c.mask, g)


def scatter_reduced(g: Any, c: Any) -> Any:
    """The gradients of `scatter_reduce`."""
    dim, index, kind = c.dim, c.index, c.reduce
    to_self = to_src = None
    if kind == "sum":
        to_self, to_src = g, g.gather(dim, index)
    elif kind == "prod":
        to_self = _product_self(g, c)
        to_src = _product_source(g, c)
    elif kind == "mean":
        n = c.self.ones_like() if c.include_self else c.self.zeros_like()
        n = n.scatter_add(dim, index, c.src.ones_like())
        n = n.call("masked_fill_.Scalar", n.call("eq.Scalar", 0), 1)
        to_self = g / n
        there = n.gather(dim, index)
        to_src = g.gather(dim, index) / there
    else:
        hits = op("eq.Tensor")(c.self, c.result)
        value = c.result.gather(dim, index)
        same = op("eq.Tensor")(c.src, value)
        number = hits._to_copy(dtype=g.dtype).scatter_add(dim, index, same._to_copy(dtype=g.dtype))
        share = g / number
        to_self = hits * share
        to_src = same * share.gather(dim, index)
    if not c.include_self:
        to_self = to_self.call("scatter.value", dim, index, 0)
    return to_self if c.needs("self") else None, to_src if c.needs("src") else None


def _product_self(g: Any, c: Any) -> Any:
    masked = c.self.call("masked_fill.Scalar", c.self.call("eq.Scalar", 0), 1)
    result = masked.call("scatter_reduce.two", c.dim, c.index, c.src, c.reduce, include_self=c.include_self)
    return (g * result) / masked


def _product_source(g: Any, c: Any) -> Any:
    zero = c.src.call("eq.Scalar", 0)
    number = (
        op("zeros_like")(c.self).scatter_add(c.dim, c.index, zero._to_copy(dtype=c.self.dtype)).gather(c.dim, c.index)
    )
    single = zero.bitwise_and(number.call("eq.Scalar", 1))
    masked = c.src.call("masked_fill.Scalar", single, 1)
    alone = c.self.call("scatter_reduce.two", c.dim, c.index, masked, c.reduce, include_self=c.include_self)
    return op("where.self")(
        single,
        (g * alone).gather(c.dim, c.index),
        (g * c.result).gather(c.dim, c.index) / c.src.call("masked_fill.Scalar", zero, 1),
    )


def index_reduced(g: Any, c: Any) -> Any:
    """The gradients of `index_reduce`."""
    dim, index, kind = c.dim, c.index, c.reduce
    if kind == "prod":
        masked = c.self.call("masked_fill.Scalar", c.self.call("eq.Scalar", 0), 1)
        result = masked.index_reduce(dim, index, c.source, kind, include_self=c.include_self)
        to_self = (g * result) / masked
        zero = c.source.call("eq.Scalar", 0)
        number = (
            op("zeros_like")(c.self)
            .call("index_add", dim, index, zero._to_copy(dtype=c.self.dtype))
            .index_select(dim, index)
        )
        single = zero.bitwise_and(number.call("eq.Scalar", 1))
        alone = c.self.index_reduce(
            dim, index, c.source.call("masked_fill.Scalar", single, 1), kind, include_self=c.include_self
        )
        divisor = c.source.call("masked_fill.Scalar", zero, 1)
        several = (g * c.result).index_select(dim, index) / divisor
        to_source = op("where.self")(single, (g * alone).index_select(dim, index), several)
    elif kind == "mean":
        n = g.ones_like() if c.include_self else g.zeros_like()
        n = n.call("index_add", dim, index, c.source.ones_like())
        n = n.call("masked_fill_.Scalar", n.call("eq.Scalar", 0), 1)
        to_self = g / n
        n_source = n.index_select(dim, index)
        to_source = g.index_select(dim, index) / n_source
    else:
        value = c.result.index_select(dim, index)
        hits = op("eq.Tensor")(c.self, c.result)._to_copy(dtype=g.dtype)
        same = op("eq.Tensor")(c.source, value)._to_copy(dtype=g.dtype)
        number = hits.call("index_add", dim, index, same)
        share = g / number
        to_self = hits * share
        to_source = same * share.index_select(dim, index)
    if not c.include_self:
        to_self = to_self.call("index_fill.int_Scalar", dim, index, 0)
    return to_self if c.needs("self") else None, to_source if c.needs("source") else None
