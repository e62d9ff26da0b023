"""Pointwise groups as the epilogues of matrix products: what is done to a tile of sums before anything is stored.

The group must read the product element by element: then each of its loop variables is a digit of the row, of the column
or of the number in the batch.  Its expressions are emitted in the kernel of the product, with the rounded sums in the
place of what it would load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
from rushlight._schedule.library import Attachment
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__ = ["ProductEpilogue", "epilogue_of"]

_Digit = tuple[Var, int]  # a loop variable, and how far it steps


class ProductEpilogue(Attachment):
    """The stage that became part of a product whose result would lie in `made`; `rows`, `columns` and `batch` are its
    loop variables as digits of these.
    """

    __slots__ = ("batch", "columns", "made", "rows", "stage")

    def __init__(self, stage: Stage, made: Buffer, digits: tuple[list[_Digit], list[_Digit], list[_Digit]]) -> None:
        stored = list(dict.fromkeys(s.buffer for s in stage.stores))
        touched = [b for b, _, _ in facts_of([stage]).accesses if b is not made or b in stored]
        super().__init__(list(dict.fromkeys(touched)), stored)
        self.stage, self.made = stage, made
        self.rows, self.columns, self.batch = digits

    def bound(
        self, shape: Sequence[int], sizes: dict[Buffer, int], words: Sequence[int], argument: Callable[[str, Any], Any]
    ) -> Epilogue:
        """The epilogue for the kernel of a product of this shape; `argument` gives launches what parameters stand for."""

        def declare(arguments: Arguments) -> Callable[[TermBuilder, Term, Place], None]:
            def emit(b: TermBuilder, sums: Term, place: Place) -> None:
                self._emit(b, sums, place, shape, _Joined(b, self._index(sizes, shape), arguments, argument), words)

            return emit

        return Epilogue(declare)

    def _index(self, sizes: dict[Buffer, int], shape: Sequence[int]) -> DType:
        return index_dtype([self.stage], sizes, 2 * numel(shape))

    def _emit(
        self, b: TermBuilder, sums: Term, place: Place, shape: Sequence[int], signature: Signature, words: Sequence[int]
    ) -> None:
        plain, index = Elements(signature, words, {}, [None, None]), signature.index
        rows, columns = (b.convert(t.value, index) for t in (place.rows, place.columns))
        number = signature.size(0)
        for at, size in zip(place.batch, shape[:-2], strict=True):
            here = b.convert(at.value, index)
            number = plain.apply("add", plain.apply("mul", number, signature.size(size)), here)
        places: dict[Var, Value] = {}
        lasts = (shape[-2], shape[-1], numel(shape[:-2]))
        for value, digits, reach in zip(
            (rows, columns, number), (self.rows, self.columns, self.batch), lasts, strict=True
        ):
            places |= {var: _digit(plain, value, var.size, step, reach) for var, step in digits}
        masks: list[Value | None] = [None, None]
        if place.inside is not None:
            ends = place.row_end, place.column_end
            limits = [
                signature.size(n) if end is None else b.convert(end.value, index)
                for n, end in zip(shape[-2:], ends, strict=True)
            ]
            masks = [plain.apply("lt", v, n) for v, n in zip((rows, columns), limits, strict=True)]
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


def epilogue_of(node: Node, result: Buffer, group: Group, kept: bool) -> ProductEpilogue | None:
    """A pointwise `group` as the epilogue of a product whose result would lie row-major in `result`; None where it does
    not read the product element by element.  `kept`: others read the result, so it is stored as well.
    """
    if group.row is not None or group.reductions or len(group.stages) != 1 or group.joins:
        return None
    (stage,), shape = group.stages, node.outputs[0].shape
    if not stage.stores or any(s.combine or s.guard is not None for s in stage.stores):
        return None
    facts = facts_of([stage])
    if any(load.args for load in facts.loads if load.value[0] is result):
        return None
    places = {ix for buffer, ix, _ in facts.accesses if buffer is result}
    weights = mixed_radix(next(iter(places)), numel(shape)) if len(places) == 1 else None
    digits = _digits(weights, shape) if weights is not None else None
    known = frozenset(weights or ())
    if digits is None or any(
        not frozenset(s.ix.vars) <= known or not frozenset(s.value.vars) <= known for s in stage.stores
    ):
        return None
    if kept:
        (ix,) = places
        stage.stores.append(Store(result, ix, group.builder.load(result, ix)))
    return ProductEpilogue(stage, result, digits)


def _digits(weights: dict[Var, int], shape: Sequence[int]) -> tuple[list[_Digit], list[_Digit], list[_Digit]] | None:
    """The variables among the rows, the columns and the batch; None where one goes through parts of two of them."""
    rows: list[_Digit] = []
    columns: list[_Digit] = []
    batch: list[_Digit] = []
    m, n = shape[-2:]
    for var, weight in weights.items():
        reach = weight * var.size
        if reach <= n:
            columns.append((var, weight))
        elif weight % n == 0 and reach <= m * n:
            rows.append((var, weight // n))
        elif weight % (m * n) == 0:
            batch.append((var, weight // (m * n)))
        else:
            return None
    return rows, columns, batch


def _digit(elements: Elements, value: Value, size: int, step: int, reach: int) -> Value:
    """One digit of a number that is below `reach`."""
    if step > 1:
        value = elements.apply("div_trunc", value, elements.signature.size(step))
    return elements.apply("rem_trunc", value, elements.signature.size(size)) if step * size < reach else value
