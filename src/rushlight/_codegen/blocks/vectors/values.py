"""Tiles at places: the elements of a tile at an index, computed from what the tile is made of.

An index has an entry for each dim of the tile: a number that all lanes share, a run of neighbours over the lanes, or a
vector of any numbers.  What is equal over the lanes is computed once; addresses that step by one are computed for the
first lane only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rushlight._codegen.scalar import Val
from rushlight._types.dtype import DType

from ..axes import Axes
from ..ir import Op, Region, Value
from ..types import Pointer
from .function import Found, VectorFunction, splat_to
from .memory import Buffer, Memory, element_bytes

__all__ = ["Dim", "Index", "Values"]


class Dim(NamedTuple):
    """A place along a dim: `base`, the same for all lanes; with `run` base, base + 1, ...; or `vector`, any numbers
    (i64).

    The base of a run is a multiple of its length.
    """

    base: str | int
    depth: int = 0
    run: bool = False
    vector: Val | None = None

    @property
    def lanes(self) -> bool:
        return self.run or self.vector is not None

    @property
    def key(self) -> tuple[Any, ...]:
        return self.base, self.run, None if self.vector is None else self.vector.name

    def first(self) -> Dim:
        return Dim(self.base, self.depth)


Index = tuple[Dim, ...]
ZERO = Dim(0)


class Values:
    """Evaluates tiles in the current group of sinks, for chunks of `width` lanes."""

    def __init__(self, fn: VectorFunction, known: Mapping[Value, Axes]) -> None:
        self.fn, self.known, self.memory = fn, known, Memory(fn)
        self.scalars: dict[Value, Found] = {}
        self.buffers: dict[Value, Buffer] = {}
        self.memo: dict[Any, Found] = {}
        self.width = 1
        self.floor = 0  # the outermost scope in which memory may be read
        self.check: Callable[[Op, Val | None, Found, Found | None, int], None] | None = None  # bounds of accesses

    # ***** places *****

    def vector(self, dim: Dim) -> Found:
        """The numbers along a dim as i64."""
        em = self.fn.emitter(self.width)
        if dim.vector is not None:
            return Found(dim.vector, dim.depth)
        if not dim.run:
            return Found(self.fn.one.val(str(dim.base), "i64"), dim.depth)

        def emit() -> Val:
            return em.splat(str(dim.base), "i64") + em.lane_index("i64") if dim.base != 0 else em.lane_index("i64")

        return Found(self.fn.write(dim.depth, emit), dim.depth)

    def linear(self, index: Sequence[Dim], strides: Sequence[int]) -> Dim:
        """The sum of places times strides."""
        fn, base, depth = self.fn, 0, 0
        total: str | int = base
        lanes = [(d, s) for d, s in zip(index, strides, strict=True) if d.lanes and s]
        if not lanes or (len(lanes) == 1 and lanes[0][0].run and lanes[0][1] == 1):
            for dim, stride in zip(index, strides, strict=True):
                if stride:
                    depth = max(depth, dim.depth)
                    total = fn.add(total, fn.times(dim.base, stride, dim.depth), depth)
            return Dim(total, depth, bool(lanes))
        vector: Val | None = None
        for dim, stride in zip(index, strides, strict=True):
            if not stride:
                continue
            place = self.vector(dim)
            depth = max(depth, dim.depth)
            whole = splat_to(fn, place, self.width)
            vector = fn.write(depth, partial(_plus, vector, whole, stride))
        return Dim(0, depth, False, vector)

    # ***** elements *****

    def at(self, value: Value, index: Index) -> Found:
        """The elements of a tile at an index; of width 1 where all lanes are equal."""
        if not value.shape:
            return self.scalars[value]
        key = (value, tuple(d.key for d in index), self.width)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._at(value, index)
        return found

    def _at(self, value: Value, index: Index) -> Found:
        buffer = self.buffers.get(value)
        if buffer is not None:
            return self.stored(buffer, index)
        op = value.op
        assert op is not None, value
        known = self.known.get(value)
        if known is not None and op.kind in ("pointwise", "offset", "load", "broadcast"):
            equal = tuple(
                d.first() if d.run and known.constant[k] % self.width == 0 else d for k, d in enumerate(index)
            )
            if equal != index:
                return self.at(value, equal)
            runs = [k for k, d in enumerate(index) if d.run and known.contiguous[k] % self.width == 0]
            integer = isinstance(value.type.element, DType) and value.dtype.kind in "iu"
            if op.kind == "pointwise" and integer and len(runs) == 1 and not any(d.vector for d in index):
                return self.counted(self.at(value, tuple(d.first() for d in index)))
        rule: Callable[[Op, Value, Index], Found] = getattr(self, f"at_{op.kind}")
        return rule(op, value, index)

    def counted(self, first: Found) -> Found:
        """Neighbours that step by one, from the first."""
        em = self.fn.emitter(self.width)
        wide = splat_to(self.fn, first, self.width)
        return Found(self.fn.write(first.depth, lambda: wide + em.lane_index(wide.type)), first.depth)

    def stored(self, buffer: Buffer, index: Index) -> Found:
        """Elements of a tile in memory."""
        place = self.linear(index, buffer.strides)
        depth, size = max(place.depth, self.floor), element_bytes(buffer.element)
        if place.vector is None:
            width = self.width if place.run else 1
            return Found(
                self.fn.write(
                    depth, lambda: self.memory.read(self.moved(buffer.pointer, place, size), buffer.element, width)
                ),
                depth,
            )
        em, numbers = self.fn.emitter(self.width), place.vector

        def emit() -> Any:
            offsets = numbers * size
            pointers = em.emit(f"getelementptr i8, ptr {buffer.pointer}, {offsets.vt} {offsets}", "ptr")
            return self.memory.gather(pointers, buffer.element, None, None)

        return Found(self.fn.write(depth, emit), depth)

    def moved(self, pointer: str, place: Dim, size: int) -> str:
        """A pointer moved by a number of elements."""
        if place.base == 0:
            return pointer
        return str(self.fn.one.emit(f"getelementptr [{size} x i8], ptr {pointer}, i64 {place.base}", "ptr"))

    # ***** sources and shapes *****

    def at_arange(self, op: Op, value: Value, index: Index) -> Found:
        (dim,), start = index, op.attributes["start"]
        if isinstance(dim.base, int) and not dim.lanes:
            return Found(self.fn.one.const("i32", dim.base + start), 0)
        if dim.run:
            return self.counted(self.at(value, (dim.first(),)))
        place = self.vector(dim)
        return Found(
            self.fn.write(dim.depth, lambda: place.value.to("i32") + start if start else place.value.to("i32")),
            dim.depth,
        )

    def at_splat(self, op: Op, value: Value, index: Index) -> Found:
        return self.scalars[op.operands[0]]

    def at_hint(self, op: Op, value: Value, index: Index) -> Found:
        return self.at(op.operands[0], index)

    def at_expand_dims(self, op: Op, value: Value, index: Index) -> Found:
        axis = op.attributes["axis"]
        return self.at(op.operands[0], (*index[:axis], *index[axis + 1 :]))

    def at_broadcast(self, op: Op, value: Value, index: Index) -> Found:
        old = op.operands[0].shape
        return self.at(op.operands[0], tuple(ZERO if n == 1 else d for d, n in zip(index, old, strict=True)))

    def at_permute(self, op: Op, value: Value, index: Index) -> Found:
        places = dict(zip(op.attributes["order"], index, strict=True))
        return self.at(op.operands[0], tuple(places[d] for d in range(len(index))))

    def at_reshape(self, op: Op, value: Value, index: Index) -> Found:
        return self.at(op.operands[0], self.reshaped(index, value.shape, op.operands[0].shape))

    def reshaped(self, index: Index, shape: Sequence[int], to: Sequence[int]) -> Index:
        """The index of the same element in another shape."""
        if not to:
            return ()
        flat = self.linear(index, strides_of(shape))
        dims: list[Dim] = []
        left = flat
        for k, size in reversed(list(enumerate(to))):
            if size == 1:
                dims.append(ZERO)
                continue
            if all(n == 1 for n in to[:k]):
                dims.append(left)
                left = ZERO
                continue
            left, dim = self.divided(left, size)
            dims.append(dim)
        return tuple(reversed(dims))

    def divided(self, place: Dim, n: int) -> tuple[Dim, Dim]:
        """Quotient and remainder of a place by a number."""
        if place.vector is None and (not place.run or n % self.width == 0):
            quotient, rest = self.fn.divided(place.base, n, place.depth)
            return Dim(quotient, place.depth), Dim(rest, place.depth, place.run)
        numbers = splat_to(self.fn, self.vector(place), self.width)
        em = self.fn.emitter(self.width)

        def emit() -> tuple[Val, Val]:
            if n & (n - 1) == 0:
                return numbers.lshr(n.bit_length() - 1), numbers & (n - 1)
            vt = numbers.vt
            return tuple(em.emit(f"{how} {vt} {numbers}, {em.const('i64', n)}", "i64") for how in ("udiv", "urem"))  # type: ignore[return-value]

        quotients, rests = self.fn.write(place.depth, emit)
        return Dim(0, place.depth, False, quotients), Dim(0, place.depth, False, rests)

    def at_join(self, op: Op, value: Value, index: Index) -> Found:
        last = index[-1]
        if not last.lanes and isinstance(last.base, int):
            return self.at(op.operands[last.base], index[:-1])
        a, b = (self.at(v, index[:-1]) for v in op.operands)
        which = self.vector(last)
        depth = max(a.depth, b.depth, which.depth)
        width = max(a.width, b.width, which.width)
        x, y, z = (splat_to(self.fn, f, width) for f in (a, b, which))
        return Found(self.fn.write(depth, lambda: _select(z.eq(0), x, y)), depth)

    def at_split(self, op: Op, value: Value, index: Index) -> Found:
        return self.at(op.operands[0], (*index, Dim(op.results.index(value))))

    # ***** arithmetic *****

    def combined(self, founds: Sequence[Found], emit: Callable[..., Any]) -> Found:
        """Emit an operation on operands, widened to one width."""
        depth = max((f.depth for f in founds), default=0)
        width = max((f.width for f in founds), default=1)
        values = [splat_to(self.fn, f, width) for f in founds]
        return Found(self.fn.write(depth, lambda: emit(*values)), depth)

    def at_pointwise(self, op: Op, value: Value, index: Index) -> Found:
        return self.pointwise(op, [self.at(v, index) for v in op.operands])

    def pointwise(self, op: Op, founds: Sequence[Found]) -> Found:
        """The primitive of an operation on operands of any width."""
        dtypes = [v.dtype for v in op.operands]
        prim, params = op.attributes["prim"], op.attributes.get("params")
        width = max((f.width for f in founds), default=1)
        em = self.fn.emitter(width)
        return self.combined(founds, lambda *xs: em.op(prim, xs, dtypes, op.result.dtype, params))

    def at_multiply_high(self, op: Op, value: Value, index: Index) -> Found:
        return self.multiply_high(op, [self.at(v, index) for v in op.operands])

    def multiply_high(self, op: Op, founds: Sequence[Found]) -> Found:
        bits, signed = 8 * op.result.dtype.itemsize, op.result.dtype.is_signed

        def emit(x: Val, y: Val) -> Val:
            wide = [v.to(f"i{2 * bits}", signed) for v in (x, y)]
            return (wide[0] * wide[1]).lshr(bits).to(f"i{bits}")

        return self.combined(founds, emit)

    def at_offset(self, op: Op, value: Value, index: Index) -> Found:
        return self.offset(op, [self.at(v, index) for v in op.operands])

    def offset(self, op: Op, founds: Sequence[Found]) -> Found:
        pointer, by = founds
        element = op.result.type.element
        assert isinstance(element, Pointer)
        width, depth = max(pointer.width, by.width), max(pointer.depth, by.depth)
        em, signed = self.fn.emitter(width), op.operands[1].dtype.is_signed
        base = pointer.value if pointer.width in (1, width) else splat_to(self.fn, pointer, width)
        places = by.value if pointer.width == width == 1 or by.width == width else splat_to(self.fn, by, width)

        def emit() -> Val:
            wide = places.to("i64", signed)
            return em.emit(f"getelementptr [{element.to.itemsize} x i8], {base.vt} {base}, {wide.vt} {wide}", "ptr")

        return Found(self.fn.write(depth, emit), depth)

    def at_pointer_cast(self, op: Op, value: Value, index: Index) -> Found:
        return self.pointer_cast(op, [self.at(op.operands[0], index)])

    def pointer_cast(self, op: Op, founds: Sequence[Found]) -> Found:
        if isinstance(op.operands[0].type.element, Pointer):
            return founds[0]
        return self.combined(founds, lambda x: x.em.cast("inttoptr", x, "ptr"))

    def at_address(self, op: Op, value: Value, index: Index) -> Found:
        return self.address(op, [self.at(op.operands[0], index)])

    def address(self, op: Op, founds: Sequence[Found]) -> Found:
        return self.combined(founds, lambda x: x.em.cast("ptrtoint", x, "i64"))

    # ***** loads *****

    def at_load(self, op: Op, value: Value, index: Index) -> Found:
        pointer, *rest = op.operands
        mask, other = ([self.at(v, index) for v in rest] + [None, None])[:2]
        runs = [k for k, d in enumerate(index) if d.run]
        known = self.known.get(pointer)
        near = known is not None and runs and all(known.contiguous[k] % self.width == 0 for k in runs)
        if near and not any(d.vector for d in index) and len(runs) == 1:
            first = self.at(pointer, tuple(d.first() for d in index))
            return self.loaded(op, first, mask, other, self.width)
        found = self.at(pointer, index)
        width = max([found.width, *(f.width for f in (mask, other) if f is not None)])
        if width == 1:
            return self.loaded(op, found, mask, other, 1)
        return self.gathered(op, found, mask, other, width)

    def loaded(self, op: Op, first: Found, mask: Found | None, other: Found | None, width: int) -> Found:
        """A run of `width` neighbours."""
        element = op.result.type.element
        depth = max([self.floor, first.depth, *(f.depth for f in (mask, other) if f is not None)])
        m = None if mask is None else splat_to(self.fn, mask, width)
        o = None if other is None else splat_to(self.fn, other, width)
        if self.check is not None:
            self.check(op, None, first, mask, width)
            depth = self.fn.here
        return Found(self.fn.write(depth, lambda: self.memory.read(str(first.value), element, width, m, o)), depth)

    def gathered(self, op: Op, pointer: Found, mask: Found | None, other: Found | None, width: int) -> Found:
        element = op.result.type.element
        depth = max([self.floor, pointer.depth, *(f.depth for f in (mask, other) if f is not None)])
        p = splat_to(self.fn, pointer, width)
        m = None if mask is None else splat_to(self.fn, mask, width)
        o = None if other is None else splat_to(self.fn, other, width)
        if self.check is not None:
            self.check(op, p, pointer, mask, width)
            depth = self.fn.here
        return Found(self.fn.write(depth, lambda: self.memory.gather(p, element, m, o)), depth)

    # ***** scalars *****

    def scalar(self, op: Op) -> Found:
        """The result of an operation on scalars."""
        founds = [self.scalars[v] for v in op.operands]
        if op.kind == "constant":
            return Found(self.fn.one.number(op.attributes["value"], op.result.dtype), 0)
        if op.kind == "load":
            mask, other = ([*founds[1:], None, None])[:2]
            return self.loaded(op, founds[0], mask, other, 1)
        if op.kind in ("reshape", "hint", "splat", "broadcast", "permute"):
            return founds[0]
        rule: Callable[[Op, Sequence[Found]], Found] = getattr(self, op.kind)
        return rule(op, founds)

    # ***** regions of reductions *****

    def combine(self, region: Region, lefts: Sequence[Any], rights: Sequence[Any], width: int, depth: int) -> list[Any]:
        """Apply a combining region to two lists of values of one width."""
        known = {p: Found(x, depth) for p, x in zip(region.params, (*lefts, *rights), strict=True)}

        def find(value: Value) -> Found:
            found = known.get(value)
            return found if found is not None else self.scalars[value]

        for op in region.ops[:-1]:
            if op.kind == "constant":
                known[op.result] = self.scalar(op)
            elif op.kind in ("pointwise", "multiply_high"):
                known[op.result] = getattr(self, op.kind)(op, [find(v) for v in op.operands])
            elif op.kind in ("reshape", "splat", "broadcast"):
                known[op.result] = find(op.operands[0])
            else:
                raise NotImplementedError(f"{op.kind} in the region of a reduction has no form in vectors")
        return [splat_to(self.fn, find(v), width) for v in region.yielded]


def _plus(total: Val | None, x: Val, stride: int) -> Val:
    return x * stride if total is None else total + x * stride


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The steps of row-major order."""
    result, step = [], 1
    for size in reversed(shape):
        result.append(step)
        step *= size
    return tuple(reversed(result))


def _select(condition: Val, x: Any, y: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(_select(condition, a, b) for a, b in zip(x, y, strict=True))
    if x.type == "ptr":
        return x.em.emit(f"select {condition.vt} {condition}, {x.vt} {x}, {x.vt} {y}", "ptr")
    return condition.em.select(condition, x, y)
