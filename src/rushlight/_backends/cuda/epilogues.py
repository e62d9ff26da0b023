"""Pointwise groups as the epilogues of products and convolutions: what is done to a tile of sums before anything is stored.

The group must read the result element by element: then each of its loop variables is a digit of the index along an axis,
of a product the rows, the columns, the batch, of a convolution the images, the channels, the positions.  Its
expressions are emitted in the kernel, with the rounded sums in the place of what it would load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.gemm.product import Epilogue, Place
from rushlight._codegen.blocks import BlockBuilder, Value
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._codegen.grid.elements import Elements
from rushlight._codegen.grid.signature import Signature
from rushlight._codegen.grid.tiles import index_dtype
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer, Store
from rushlight._schedule.groups import Group, Stage, mixed_radix
from rushlight._schedule.indexing import Var
from rushlight._schedule.inline import Location
from rushlight._schedule.library import Attachment
from rushlight._types.dtype import DType
from rushlight._types.layout import contiguous_strides, numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__ = ["ProductEpilogue", "epilogue_of", "takes_layout"]

_Digit = tuple[Var, int]  # a loop variable, and how far it steps
_Values = dict[str, Value]  # the index along each axis


class _Axis(NamedTuple):
    """Dims of a result that are one: how far a step goes in memory, and how many there are."""

    stride: int
    size: int


class ProductEpilogue(Attachment):
    """The stage that became part of a `node` whose result would lie in `made`; `digits` are its loop variables by axis."""

    __slots__ = ("axes", "digits", "made", "node", "stage")

    def __init__(
        self, node: Node, stage: Stage, made: Buffer, axes: dict[str, _Axis], digits: dict[str, list[_Digit]]
    ) -> None:
        stored = list(dict.fromkeys(s.buffer for s in stage.stores))
        touched = [b for b, _, _ in facts_of([stage]).accesses if b is not made or b in stored]
        super().__init__(list(dict.fromkeys(touched)), stored)
        self.node, self.stage, self.made, self.axes, self.digits = node, stage, made, axes, digits

    def bound(self, sizes: dict[Buffer, int], words: Sequence[int], argument: Callable[[str, Any], Any]) -> Epilogue:
        """The epilogue for the node's kernel; `argument` gives launches what parameters stand for."""
        index = index_dtype([self.stage], sizes, 2 * numel(self.node.outputs[0].shape))

        def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
            def emit(b: TermBuilder, sums: Term, place: Place) -> None:
                self._emit(b, sums, place, _Joined(b, index, arguments, argument), words)

            return emit

        return Epilogue(declare)

    def _emit(self, b: TermBuilder, sums: Term, place: Place, signature: Signature, words: Sequence[int]) -> None:
        plain, index = Elements(signature, words, {}, [None, None]), signature.index
        values = _FORMS[self.node.prim.name].values(plain, place, self.node.outputs[0].shape)
        places: dict[Var, Value] = {}
        for name, axis in self.axes.items():
            for var, step in self.digits[name]:
                places[var] = _digit(plain, values[name], var.size, step, axis.size)
        masks: list[Value | None] = [None, None]
        if place.inside is not None:
            pairs = (place.rows, place.row_end), (place.columns, place.column_end)
            masks = [plain.apply("lt", *(b.convert(t.value, index) for t in pair)) for pair in pairs]
        inside = plain.inner(places, masks)
        result = b.convert(sums.value, self.made.dtype)
        for load in facts_of([self.stage]).loads:
            if load.value[0] is self.made:
                inside.take(load, result)
        for store in self.stage.stores:
            inside.x(store.value)
        for store in self.stage.stores:
            inside.store(store)


class _Joined(Signature):
    """Parameters that are added to those of a product's kernel."""

    def __init__(
        self, b: BlockBuilder, index: DType, arguments: Arguments, argument: Callable[[str, Any], Any]
    ) -> None:
        super().__init__(b, index)
        self.arguments, self.divisible, self.argument_of = arguments.values, arguments.divisible, argument

    def _parameter(self, key: Any, type: Any, name: str, argument: Any) -> Value:
        return super()._parameter(key, type, f"e{name}", self.argument_of(*argument))


def epilogue_of(node: Node, result: Location, group: Group, kept: bool) -> ProductEpilogue | None:
    """A pointwise `group` as the epilogue of a node whose result would lie in `result`; None where it does not read that
    element by element.  `kept`: others read the result, so it is stored as well.
    """
    buffer = result.buffer
    if group.row is not None or group.reductions or len(group.stages) != 1 or group.joins:
        return None
    (stage,), shape = group.stages, node.outputs[0].shape
    if not stage.stores or any(s.combine or s.guard is not None for s in stage.stores):
        return None
    facts = facts_of([stage])
    if any(load.args for load in facts.loads if load.value[0] is buffer):
        return None
    axes = _FORMS[node.prim.name].axes(shape, result.strides)
    places = {ix for at, ix, _ in facts.accesses if at is buffer}
    weights = mixed_radix(next(iter(places)), numel(shape)) if len(places) == 1 else None
    digits = _digits(weights, axes) if weights is not None and axes is not None else None
    known = frozenset(weights or ())
    if digits is None or any(
        not frozenset(s.ix.vars) <= known or not frozenset(s.value.vars) <= known for s in stage.stores
    ):
        return None
    if kept:
        (ix,) = places
        stage.stores.append(Store(buffer, ix, group.builder.load(buffer, ix)))
    assert axes is not None
    return ProductEpilogue(node, stage, buffer, axes, digits)


def takes_layout(node: Node, strides: Sequence[int]) -> bool:
    """Whether the result of a node has an axis for each of its dims where it lies so."""
    return _FORMS[node.prim.name].axes(node.outputs[0].shape, strides) is not None


def _digits(weights: dict[Var, int], axes: dict[str, _Axis]) -> dict[str, list[_Digit]] | None:
    """The variables by axis; None where one goes through parts of two of them."""
    found: dict[str, list[_Digit]] = {name: [] for name in axes}
    for var, weight in weights.items():
        for name, (stride, size) in axes.items():
            if stride <= weight and weight % stride == 0 and weight * var.size <= stride * size:
                found[name].append((var, weight // stride))
                break
        else:
            return None
    return found


def _digit(elements: Elements, value: Value, size: int, step: int, reach: int) -> Value:
    """One digit of a number that is below `reach`."""
    if step > 1:
        value = elements.apply("div_trunc", value, elements.signature.size(step))
    return elements.apply("rem_trunc", value, elements.signature.size(size)) if step * size < reach else value


# ***** the axes of results *****


class _Form(NamedTuple):
    """`axes(shape, strides)`: those of a result, None where it does not lie along them.  `values(elements, place, shape)`:
    the index along each of a tile's elements.
    """

    axes: Callable[[Sequence[int], Sequence[int]], dict[str, _Axis] | None]
    values: Callable[[Elements, Place, Sequence[int]], _Values]


def _matrix_axes(shape: Sequence[int], strides: Sequence[int]) -> dict[str, _Axis] | None:
    if tuple(strides) != contiguous_strides(tuple(shape)):
        return None
    *batch, rows, columns = shape
    return {
        "columns": _Axis(1, columns), "rows": _Axis(columns, rows), "batch": _Axis(rows * columns, numel(tuple(batch)))
    }  # fmt: skip


def _matrix_values(plain: Elements, place: Place, shape: Sequence[int]) -> _Values:
    signature = plain.signature
    rows, columns, *batch = (
        signature.b.convert(t.value, signature.index) for t in (place.rows, place.columns, *place.batch)
    )
    number = signature.size(0)
    for at, size in zip(batch, shape[:-2], strict=True):
        number = plain.apply("add", plain.apply("mul", number, signature.size(size)), at)
    return {"rows": rows, "columns": columns, "batch": number}


def _image_axes(shape: Sequence[int], strides: Sequence[int]) -> dict[str, _Axis] | None:
    """Of a result [N, G, O, *positions] whose elements lie side by side, channels first or last."""
    joined = [_joined(shape[a:b], strides[a:b]) for a, b in ((0, 1), (1, 3), (3, len(shape)))]
    step = 1
    for axis in sorted((x for x in joined if x is not None and x.size > 1), key=lambda x: x.stride):
        if axis.stride != step:
            return None
        step *= axis.size
    images, channels, positions = joined
    if images is None or channels is None or positions is None:
        return None
    return {"images": images, "channels": channels, "positions": positions}


def _joined(shape: Sequence[int], strides: Sequence[int]) -> _Axis | None:
    """Dims as one; None where their steps do not allow it."""
    found = _Axis(1, 1)
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and found.size > 1 and stride != found.stride * found.size:
            return None
        if size > 1:
            found = _Axis(found.stride if found.size > 1 else stride, found.size * size)
    return found


def _image_values(plain: Elements, place: Place, shape: Sequence[int]) -> _Values:
    """Rows are the positions of all images, columns the channels of a group."""
    signature = plain.signature
    rows, columns, group = (
        signature.b.convert(t.value, signature.index) for t in (place.rows, place.columns, *place.batch)
    )
    outs, *size = shape[2:]
    positions = numel(tuple(size))
    image = plain.apply("div_trunc", rows, signature.size(positions))
    position = plain.apply("rem_trunc", rows, signature.size(positions))
    channel = plain.apply("add", plain.apply("mul", group, signature.size(outs)), columns)
    return {"images": image, "channels": channel, "positions": position}


_MATRIX = _Form(_matrix_axes, _matrix_values)
_FORMS = {"dot": _MATRIX, "grouped_dot": _MATRIX, "conv_windows": _Form(_image_axes, _image_values)}
