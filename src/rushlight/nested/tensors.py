"""Nested tensors as objects: batches whose items differ in size, packed into one plain tensor.

The strided layout packs items of any sizes into a flat buffer.  The jagged one lays them end to end along the one dim in
which they differ; `offsets` say where each begins, and `lengths`, where there are holes, how much of it counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any, ClassVar

import rushlight
from rushlight import Size, Tensor, is_grad_enabled
from rushlight import jagged as JAGGED
from rushlight._interface.autograd import record, record_all
from rushlight._interface.dispatch_types import DispatchType, form_there, make_dispatch_tensor
from rushlight._interface.tensors import Spec, alias, contiguous_strides
from rushlight.utils.weak import WeakIdKeyDictionary

__all__ = ["Jagged", "Nested", "RaggedSize", "StridedNested", "adopt", "from_items", "items", "like", "make_jagged", "make_strided", "values_of",
           "with_values"]  # fmt: skip

_numbers = count(1).__next__


class RaggedSize(int):
    """The size of a ragged dim: it is equal to itself alone, and prints as `j1`; as a number it is the sum of the
    items' sizes.
    """

    number: int
    factor: int

    def __new__(cls, total: int, number: int | None = None, factor: int = 1) -> RaggedSize:
        made = super().__new__(cls, total)
        made.number, made.factor = _numbers() if number is None else number, factor
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedSize) and (self.number, self.factor) == (other.number, other.factor)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.number, self.factor))

    def __repr__(self) -> str:
        return f"j{self.number}" if self.factor == 1 else f"{self.factor}*j{self.number}"

    __str__ = __repr__

    def __mul__(self, other: int) -> RaggedSize:
        return RaggedSize(int(self) * int(other), self.number, self.factor * int(other))

    __rmul__ = __mul__


class Nested(DispatchType):
    """Base of both layouts: one plain tensor with all elements, outside of any graph."""

    __slots__ = ("_held",)

    backend = "NestedTensorCPU"
    is_nested = True
    _held: Tensor
    passes: ClassVar[frozenset[str]] = frozenset(("mT", "adjoint"))

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Composites were written for plain tensors: all are refused but those named in `passes`."""
        if name in cls.passes or not hasattr(function, "__wrapped__"):
            return super().otherwise(function, name, args, kwargs)
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the '{cls.backend}' backend: rushlight has no such operator for nested tensors."
        )

    @property
    def data(self) -> Any:
        """The same elements outside of the graph."""
        return like(self, self._held)

    @data.setter
    def data(self, value: Any) -> None:
        if type(value) is not type(self) or value._spec.shape != self._spec.shape:
            raise RuntimeError("the data of a nested tensor can only be those of one with the same structure")
        self._held, self._spec = value._held, value._spec

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = like(self, self._held.clone())
            found._rg = self._rg
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        return form_there(self) or (_rebuild, (type(self), *parts_of(self), self._rg))


class StridedNested(Nested):
    """Items of any sizes in a flat buffer."""

    __slots__ = ("_sizes",)

    _sizes: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> Size:
        """Raises `RuntimeError`: there is no one size."""
        raise RuntimeError("Internal error: NestedTensorImpl doesn't support sizes. Please file an issue.")


class Jagged(Nested):
    """Items that differ in one dim, end to end along it."""

    __slots__ = ("_lengths", "_offsets", "_ragged", "_size")

    layout = JAGGED
    _offsets: Tensor
    _lengths: Tensor | None
    _ragged: int
    _size: RaggedSize

    @property
    def shape(self) -> Size:
        held = list(self._held.shape)
        held[self._ragged - 1] = self._size
        return Size((self._offsets.size(0) - 1, *held))

    @property
    def _max_seqlen(self) -> int:
        return max(_extents(self)[1], default=0)

    @property
    def _min_seqlen(self) -> int:
        return min(_extents(self)[1], default=0)

    @property
    def _ragged_idx(self) -> int:
        return self._ragged


def _plain(part: Tensor) -> Tensor:
    return alias(part) if part._rg or part._autograd_meta is not None or type(part) is not Tensor else part


def make_strided(buffer: Tensor, sizes: Sequence[Sequence[int]]) -> Any:
    """A nested tensor over a flat buffer."""
    sizes = tuple(tuple(s) for s in sizes)
    widest = [max(column) for column in zip(*sizes, strict=True)]
    made = make_dispatch_tensor(StridedNested, Spec.of(buffer.dtype, buffer.device, (len(sizes), *widest)))
    made._held, made._sizes = _plain(buffer), sizes
    return made


def make_jagged(
    values: Tensor, offsets: Tensor, lengths: Tensor | None, ragged: int, size: RaggedSize | None = None
) -> Any:
    """A nested tensor over values packed along dim `ragged - 1`; `size` is given where it is that of another tensor."""
    made = make_dispatch_tensor(Jagged, Spec.of(values.dtype, values.device, (offsets.size(0) - 1, *values.shape)))
    made._held, made._offsets, made._lengths, made._ragged = _plain(values), offsets, lengths, ragged
    made._size = _size_of(offsets if lengths is None else lengths, values.size(ragged - 1)) if size is None else size
    return made


# Tensors over the same offsets, or over the same lengths where there are holes, have the same ragged size.
_SIZES = WeakIdKeyDictionary()


def _size_of(source: Tensor, total: int) -> RaggedSize:
    found = _SIZES.get(source)
    made = RaggedSize(total, None if found is None else found.number)
    if found is None:
        _SIZES[source] = made
    return made


def parts_of(x: Any) -> tuple[Any, ...]:
    """The parts of a nested tensor."""
    return (x._held, x._sizes) if type(x) is StridedNested else (x._held, x._offsets, x._lengths, x._ragged)


def _rebuild(cls: type, *parts: Any) -> Any:
    *held, requires_grad = parts
    made = make_strided(held[0], held[1]) if cls is StridedNested else make_jagged(held[0], held[1], held[2], held[3])
    made._rg = requires_grad
    return made


def like(x: Any, values: Tensor) -> Any:
    """Other packed elements in the structure of `x`, outside of any graph."""
    if type(x) is StridedNested:
        return make_strided(values, x._sizes)
    lengths = None if x._lengths is None else x._lengths.to(values.device)
    return make_jagged(values, x._offsets.to(values.device), lengths, x._ragged, x._size)


def adopt(x: Any, made: Any) -> Any:
    """The end of an in-place operator: `x` becomes what was computed, history included."""
    if x._rg and x._node is None and is_grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if made._spec.dtype is not x._spec.dtype:
        made = made.to(x.dtype)
    x._held.copy_(made._held)
    if made._node is not None:
        x._node, x._rg = made._node, True
    return x


# ***** the maps from which gradients are made *****


def values_of(x: Any, name: str = "ValuesBackward0") -> Tensor:
    """The packed elements as part of the graph."""
    pattern = like(x, x._held)
    return record(name, [x], x._held.detach(), lambda grad: (with_values(pattern, grad),))


def with_values(x: Any, values: Tensor, name: str = "NestedViewFromJaggedBackward0") -> Any:
    """Other packed elements in the structure of `x`; their gradient is that of the result, packed in the same way."""
    made = like(x, values)
    pattern = like(made, made._held)
    return record(name, [values], made, lambda grad: (packed_as(grad, pattern),))


def packed_as(grad: Any, pattern: Any) -> Tensor:
    """The elements of a nested gradient, packed as those of `pattern`; holes have zeros."""
    if grad._held.shape == pattern._held.shape and (
        type(grad) is StridedNested or bool((grad._offsets == pattern._offsets).all())
    ):
        return values_of(grad)
    return packed(items(grad), pattern)


def packed(given: Sequence[Tensor], pattern: Any) -> Tensor:
    """These items, packed as those of `pattern`; holes have zeros."""
    if type(pattern) is StridedNested:
        return rushlight.cat([t.reshape(-1) for t in given])
    total = rushlight.zeros(tuple(pattern._held.shape), dtype=pattern.dtype, device=pattern.device)
    starts, extents = _extents(pattern)
    dim = pattern._ragged - 1
    pieces, place = [], 0
    for item, start, extent in zip(given, starts, extents, strict=True):
        pieces += [total.narrow(dim, place, start - place), item]
        place = start + extent
    pieces.append(total.narrow(dim, place, total.size(dim) - place))
    return rushlight.cat(pieces, dim)


# ***** items *****


def _extents(x: Any) -> tuple[list[int], list[int]]:
    """Where each item of a jagged tensor begins, and its size in the ragged dim."""
    offsets = x._offsets.tolist()
    sizes = [b - a for a, b in pairwise(offsets)] if x._lengths is None else x._lengths.tolist()
    return offsets[:-1], sizes


def item_sizes(x: Any) -> list[tuple[int, ...]]:
    """The shape of every item."""
    if type(x) is StridedNested:
        return list(x._sizes)
    shape, dim = list(x._held.shape), x._ragged - 1
    return [tuple(e if d == dim else s for d, s in enumerate(shape)) for e in _extents(x)[1]]


def items(x: Any, name: str = "UnbindBackwardAutogradNestedTensor0") -> tuple[Tensor, ...]:
    """The items as plain tensors; gradients flow through."""
    values = x._held.detach()
    if type(x) is Jagged:
        found = [values.narrow(x._ragged - 1, start, extent) for start, extent in zip(*_extents(x), strict=True)]
    else:
        found, place = [], 0
        for size in x._sizes:
            found.append(values.narrow(0, place, math.prod(size)).reshape(size))
            place += math.prod(size)
    pattern, shapes = like(x, x._held), [tuple(t.shape) for t in found]

    def rule(*grads: Any) -> tuple[Any]:
        given = [
            rushlight.zeros(s, dtype=pattern.dtype, device=pattern.device) if g is None else g
            for g, s in zip(grads, shapes, strict=True)
        ]
        return (with_values(pattern, packed(given, pattern)),)

    return tuple(record_all(name, [x], found, rule))


def from_items(
    given: Sequence[Tensor],
    template: Any = None,
    ragged: int | None = None,
    name: str = "NestedTensorBackward0",
    device: Any = None,
) -> Any:
    """A nested tensor of these items, of the layout of `template`; a jagged one shares its ragged size where all sizes
    agree.  `device` counts where there are none.
    """
    if type(template) is not Jagged:
        buffer = rushlight.cat([t.reshape(-1) for t in given]) if given else rushlight.empty(0, device=device)
        made = make_strided(buffer, [tuple(t.shape) for t in given])
        return with_values(made, buffer, name)
    ragged = template._ragged if ragged is None else ragged
    values = rushlight.cat(list(given), ragged - 1)
    extents = [t.shape[ragged - 1] for t in given]
    if extents == _extents(template)[1] and template._lengths is None:
        made = make_jagged(values, template._offsets, None, ragged, template._size)
    else:
        made = make_jagged(values, offsets_of(extents, values.device), None, ragged)
    return with_values(made, values, name)


def offsets_of(extents: Sequence[int], device: Any) -> Tensor:
    """Where items of these sizes begin and the last one ends."""
    found = [0]
    for extent in extents:
        found.append(found[-1] + extent)
    return rushlight.tensor(found, dtype=rushlight.int64, device=device)


def strides_of(x: Any) -> tuple[Any, ...]:
    """The strides of a jagged tensor, of which the first is a multiple of the ragged size."""
    inner = contiguous_strides(tuple(x._held.shape))
    rest = math.prod([s for d, s in enumerate(x._held.shape) if d != x._ragged - 1])
    lead = x._size * rest if rest != 1 else x._size
    return (lead, *inner)
