"""The reference interpreter of block kernels, in NumPy: what emitters are compared with.

Programs run one after another, x fastest, and each operation on whole tiles.  Pointwise arithmetic is the primitives'
own references; matrix products of floats are summed in float64 and rounded once, so emitters agree with them to the
accuracy of their dtype.

>>> import numpy as np
>>> from rushlight._codegen.blocks import BlockBuilder, BlockMemory, Pointer, Tile, interpret
>>> from rushlight._types.dtype import FLOAT32
>>> b = BlockBuilder("double", [Tile(Pointer(FLOAT32))])
>>> at = b.offset(b.splat(b.params[0], (4,)), b.arange(0, 4))
>>> x = b.load(at)
>>> b.store(at, b.pointwise("add", x, x))
>>> memory, data = BlockMemory(), np.arange(4, dtype=np.float32)
>>> interpret(b.finish(), (1,), [memory.add(data)], memory)
>>> data
array([0., 2., 4., 6.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import PRIMITIVES
from rushlight._prims.numbers import holder, rounded

from .ir import Kernel, Op, Region, Value
from .memory import BlockFault, BlockMemory, bits_of, numbers_of
from .types import Pointer, Tile

__all__ = ["Program", "interpret"]


def interpret(
    kernel: Kernel,
    grid: Sequence[int],
    arguments: Sequence[Any],
    memory: BlockMemory,
    *,
    undefined: int = 0,
    printed: Callable[[str], Any] = print,
) -> None:
    """Run every program of a grid of one to three numbers; arguments are addresses in `memory`, and numbers.

    `undefined` is the byte that stands where a masked load gives nothing: results that depend on it are no results.
    BlockFault, with the line of the program's source, for accesses outside of memory and for failed assertions.
    """
    sizes = (*grid, 1, 1)[:3]
    given = [_argument(p.type, a) for p, a in zip(kernel.params, arguments, strict=True)]
    for i, a in enumerate(given):
        if int(a) % kernel.divisible.get(i, 1):
            raise ValueError(f"argument {i} of {kernel.name} is {int(a)}, which {kernel.divisible[i]} does not divide")
    with np.errstate(all="ignore"):
        for z in range(sizes[2]):
            for y in range(sizes[1]):
                for x in range(sizes[0]):
                    Program(memory, (x, y, z), sizes, undefined, printed).region(kernel.body, given)


def _argument(type: Tile, given: Any) -> Any:
    if isinstance(type.element, Pointer):
        return np.asarray(int(given), np.int64)
    return rounded(np.asarray(given).astype(holder(type.element)), type.element)


class Program:
    """One program: the values that are known, and its place in the grid."""

    def __init__(
        self, memory: BlockMemory, place: Sequence[int], sizes: Sequence[int], undefined: int, printed: Any
    ) -> None:
        self.memory, self.place, self.sizes, self.undefined, self.printed = memory, place, sizes, undefined, printed
        self.values: dict[Value, Any] = {}

    def region(self, region: Region, given: Sequence[Any]) -> list[Any]:
        """Run the region with these parameters; return the values that it yields."""
        self.keep(region.params, given)
        for op in region.ops[:-1]:
            try:
                results = getattr(self, f"do_{op.kind}")(op, *[self.values[v] for v in op.operands])
            except BlockFault as fault:
                if op.line is None or hasattr(fault, "line"):
                    raise
                located = BlockFault(f"{op.line[0]}:{op.line[1]}: {op.kind}: {fault}")
                located.line = op.line  # type: ignore[attr-defined]
                raise located from None
            self.keep(op.results, results)
        return [self.values[v] for v in region.yielded]

    def keep(self, values: Sequence[Value], arrays: Sequence[Any]) -> None:
        for value, array in zip(values, arrays, strict=True):
            self.values[value] = array
            self.found(value, array)

    def found(self, value: Value, array: Any) -> None:
        """Told of every value; for those who look on."""

    # ***** sources *****

    def do_constant(self, op: Op) -> list[Any]:
        value, dtype = op.attributes["value"], op.attributes["dtype"]
        if dtype.is_integer:
            value = int(value) & ((1 << 8 * dtype.itemsize) - 1)
            return [np.asarray(value, f"uint{8 * dtype.itemsize}").view(holder(dtype))]
        return [rounded(np.asarray(value, holder(dtype)), dtype)]

    def do_program_id(self, op: Op) -> list[Any]:
        return [np.asarray(self.place[op.attributes["axis"]], np.int32)]

    def do_num_programs(self, op: Op) -> list[Any]:
        return [np.asarray(self.sizes[op.attributes["axis"]], np.int32)]

    def do_choose(self, op: Op, index: Any, *xs: Any) -> list[Any]:
        return [xs[int(index)]]

    def do_arange(self, op: Op) -> list[Any]:
        return [np.arange(op.attributes["start"], op.attributes["end"], dtype=np.int32)]

    # ***** shapes *****

    def do_splat(self, op: Op, x: Any) -> list[Any]:
        return [np.broadcast_to(x, op.result.shape)]

    do_broadcast = do_splat

    def do_expand_dims(self, op: Op, x: Any) -> list[Any]:
        return [x.reshape(op.result.shape)]

    do_reshape = do_expand_dims

    def do_permute(self, op: Op, x: Any) -> list[Any]:
        return [x.transpose(op.attributes["order"])]

    def do_join(self, op: Op, x: Any, y: Any) -> list[Any]:
        return [np.stack([x, y], -1)]

    def do_split(self, op: Op, x: Any) -> list[Any]:
        return [x[..., 0], x[..., 1]]

    def do_cat(self, op: Op, x: Any, y: Any) -> list[Any]:
        return [np.concatenate([x, y])]

    def do_gather(self, op: Op, x: Any, index: Any) -> list[Any]:
        axis = op.attributes["axis"]
        size = x.shape[axis]
        inside = (index >= 0) & (index < size)
        found = np.take_along_axis(x, np.where(inside, index, 0).astype(np.int64), axis)
        return [np.where(inside, found, self.junk(op.result))]

    def do_hint(self, op: Op, x: Any) -> list[Any]:
        return [x]

    # ***** arithmetic *****

    def do_pointwise(self, op: Op, *xs: Any) -> list[Any]:
        prim, params = op.attributes["prim"], op.attributes.get("params", {})
        dtype = op.result.dtype
        if prim == "bitcast":
            return [
                numbers_of(bits_of(xs[0], op.operands[0].dtype).reshape(-1).view(np.uint8), dtype).reshape(xs[0].shape)
            ]
        # By zero: undefined, as lanes that are masked later may be
        if prim in ("div_trunc", "rem_trunc") and dtype.is_integer:
            xs = (xs[0], np.where(xs[1] == 0, 1, xs[1]).astype(xs[1].dtype))
        result = np.asarray(PRIMITIVES[prim].reference(*xs, **params))
        return [rounded(result.astype(holder(dtype), copy=False), dtype)]

    def do_multiply_high(self, op: Op, x: Any, y: Any) -> list[Any]:
        bits = 8 * op.result.dtype.itemsize
        wide = (x.astype(object) * y.astype(object)) >> bits
        return [np.asarray(wide, object).astype(holder(op.result.dtype)).reshape(op.result.shape)]

    # ***** memory *****

    def do_offset(self, op: Op, pointer: Any, by: Any) -> list[Any]:
        return [pointer + by.astype(np.int64) * op.result.type.element.to.itemsize]  # type: ignore[union-attr]

    def do_pointer_cast(self, op: Op, x: Any) -> list[Any]:
        return [x.astype(np.int64)]

    def do_address(self, op: Op, x: Any) -> list[Any]:
        return [x.astype(holder(op.result.dtype))]

    def junk(self, value: Value) -> Any:
        """A scalar of what is undefined."""
        element = value.type.element
        if isinstance(element, Pointer):
            return np.int64(self.undefined)
        return numbers_of(np.full(element.itemsize, self.undefined, np.uint8), element)[0]

    def do_load(self, op: Op, pointer: Any, mask: Any = None, other: Any = None) -> list[Any]:
        dtype = op.result.dtype
        if mask is None:
            return [self.memory.load(pointer, dtype)]
        start = self.junk(op.result) if other is None else other
        result = np.array(np.broadcast_to(start, pointer.shape), holder(dtype))
        result[mask] = self.memory.load(pointer[mask], dtype)
        return [result]

    def do_load_tile(self, op: Op, pointer: Any, *numbers: Any) -> list[Any]:
        shape, dtype = op.result.shape, op.result.dtype
        sizes, strides, starts = (list(map(int, numbers[k * len(shape) : (k + 1) * len(shape)])) for k in range(3))
        at, inside = np.int64(pointer), np.True_
        for index, size, stride, start in zip(np.ogrid[tuple(map(slice, shape))], sizes, strides, starts, strict=True):
            at = at + (index + start) * stride * dtype.itemsize
            inside = inside & (index + start < size)
        at, inside = np.broadcast_to(at, shape), np.broadcast_to(inside, shape)
        result = np.zeros(shape, holder(dtype))
        result[inside] = self.memory.load(at[inside], dtype)
        return [result]

    def do_load_windows(self, op: Op, pointer: Any, *numbers: Any) -> list[Any]:
        (rows, channels), dtype, n = op.result.shape, op.result.dtype, len(op.attributes["stride"])
        given = [int(x) for x in numbers]
        sizes, strides, positions, starts, offsets, (channel,) = (
            [given.pop(0) for _ in range(count)] for count in (n + 2, n + 2, n, n + 1, n, 1)
        )
        first = int(np.ravel_multi_index(starts[1:], positions)) + starts[0] * int(np.prod(positions))
        image, place = np.divmod(np.arange(rows) + first, int(np.prod(positions)))
        places = np.unravel_index(place, positions)
        windows = zip(places, op.attributes["stride"], offsets, op.attributes["lo"], strict=True)
        indices = [image, *(p * step + offset - lo for p, step, offset, lo in windows)]
        indices = [*(i[:, None] for i in indices), channel + np.arange(channels)[None, :]]
        at, inside = np.int64(pointer), np.True_
        for index, size, stride in zip(indices, sizes, strides, strict=True):
            at = at + index * stride * dtype.itemsize
            inside = inside & (index >= 0) & (index < size)
        result = np.zeros((rows, channels), holder(dtype))
        result[inside] = self.memory.load(at[inside], dtype)
        return [result]

    def do_store(self, op: Op, pointer: Any, value: Any, mask: Any = None) -> list[Any]:
        if mask is not None:
            pointer, value = pointer[mask], value[mask]
        self.memory.store(pointer, value, op.operands[1].dtype)
        return []

    def do_atomic(self, op: Op, pointer: Any, value: Any, mask: Any = None) -> list[Any]:
        dtype, combine = op.result.dtype, _COMBINE[op.attributes["combine"]]
        result = np.full(op.result.shape, self.junk(op.result))
        for at in np.ndindex(op.result.shape):
            if mask is None or mask[at]:
                old = self.memory.load(pointer[at], dtype)
                result[at] = old
                self.memory.store(pointer[at], rounded(np.asarray(combine(old, value[at])), dtype), dtype)
        return [result]

    def do_atomic_cas(self, op: Op, pointer: Any, expected: Any, value: Any) -> list[Any]:
        dtype = op.result.dtype
        result = np.full(op.result.shape, self.junk(op.result))
        for at in np.ndindex(op.result.shape):
            old = self.memory.load(pointer[at], dtype)
            result[at] = old
            if bits_of(old, dtype) == bits_of(expected[at], dtype):
                self.memory.store(pointer[at], value[at], dtype)
        return [result]

    # ***** over tiles *****

    def do_dot(self, op: Op, a: Any, b: Any, c: Any) -> list[Any]:
        dtype = op.result.dtype
        wide = np.int64 if dtype.is_integer else np.complex128 if dtype.is_complex else np.float64
        total = np.matmul(a.astype(wide), b.astype(wide)) + c.astype(wide)
        return [rounded(total.astype(holder(dtype)), dtype)]

    def combine(self, op: Op, lefts: Sequence[Any], rights: Sequence[Any]) -> list[Any]:
        """The region of a reduction on whole arrays of elements; element by element where it branches."""
        region = op.regions[0]
        if not any(inner.regions for inner in region.ops):
            shape = lefts[0].shape
            return [np.broadcast_to(r, shape) for r in self.region(region, [*lefts, *rights])]
        results = [np.empty_like(x) for x in lefts]
        for at in np.ndindex(lefts[0].shape):
            found = self.region(region, [np.asarray(x[at]) for x in (*lefts, *rights)])
            for result, value in zip(results, found, strict=True):
                result[at] = value
        return results

    def do_reduce(self, op: Op, *xs: Any) -> list[Any]:
        rows = [np.moveaxis(x, op.attributes["axis"], 0) for x in xs]
        while (n := rows[0].shape[0]) > 1:  # neighbours, so that the order stays
            even = n // 2 * 2
            pairs = self.combine(op, [r[0:even:2] for r in rows], [r[1:even:2] for r in rows])
            rows = [np.concatenate([p, r[even:]]) for p, r in zip(pairs, rows, strict=True)]
        return [r[0] for r in rows]

    def do_scan(self, op: Op, *xs: Any) -> list[Any]:
        axis, back = op.attributes["axis"], op.attributes.get("reverse", False)
        rows = [np.moveaxis(x, axis, 0)[:: -1 if back else 1] for x in xs]
        total, kept = [r[0] for r in rows], [[r[0] for r in rows]]
        for i in range(1, rows[0].shape[0]):
            total = self.combine(op, total, [r[i] for r in rows])
            kept.append(total)
        made = [np.stack([k[j] for k in kept])[:: -1 if back else 1] for j in range(len(rows))]
        return [np.moveaxis(m, 0, axis) for m in made]

    def do_histogram(self, op: Op, x: Any, mask: Any = None) -> list[Any]:
        bins = op.attributes["bins"]
        counted = x if mask is None else x[mask]
        counted = counted[(counted >= 0) & (counted < bins)]
        return [np.bincount(counted.astype(np.int64), minlength=bins).astype(np.int32)]

    # ***** control flow *****

    def do_for(self, op: Op, low: Any, high: Any, step: Any, *carried: Any) -> list[Any]:
        values = list(carried)
        for i in range(int(low), int(high), int(step)):
            values = self.region(op.regions[0], [np.asarray(i).astype(low.dtype), *values])
        return values

    def do_while(self, op: Op, *carried: Any) -> list[Any]:
        values = list(carried)
        while True:
            more, *values = self.region(op.regions[0], values)
            if not more:
                return values
            values = self.region(op.regions[1], values)

    def do_if(self, op: Op, condition: Any) -> list[Any]:
        return self.region(op.regions[0 if condition else 1], [])

    # ***** what a program says *****

    def do_assert(self, op: Op, condition: Any) -> list[Any]:
        if not condition.all():
            where = ", ".join(map(str, self.place))
            raise BlockFault(f"{op.attributes.get('message', '')} (program {where})")
        return []

    def do_print(self, op: Op, *xs: Any) -> list[Any]:
        place, prefix = f"pid ({', '.join(map(str, self.place))})", op.attributes.get("prefix", "")
        if not xs:
            self.printed(f"{place} {prefix}")
        for n, (x, value) in enumerate(zip(xs, op.operands, strict=True)):
            as_hex = op.attributes.get("hex") or isinstance(value.type.element, Pointer)
            operand = f" (operand {n})" if len(xs) > 1 else ""
            for at in np.ndindex(x.shape):
                index = f" idx ({', '.join(map(str, at))})" if at else ""
                self.printed(f"{place}{index} {prefix}{operand} {_hexadecimal(x[at], value) if as_hex else x[at]}")
        return []

    def do_barrier(self, op: Op) -> list[Any]:
        return []

    def do_assume(self, op: Op, condition: Any) -> list[Any]:
        if not condition:
            raise BlockFault("what the kernel assumes does not hold")
        return []


def _hexadecimal(x: Any, value: Value) -> str:
    element = value.type.element
    bits = 64 if isinstance(element, Pointer) else 8 * element.itemsize
    return f"{int(x) & ((1 << bits) - 1):#0{bits // 4 + 2}x}"


def _one_of(function: str) -> Callable[[Any, Any], Any]:
    return lambda a, b: getattr(np, function)(a, b)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": _one_of("add"), "max": _one_of("maximum"), "min": _one_of("minimum"), "and": _one_of("bitwise_and"),
    "or": _one_of("bitwise_or"), "xor": _one_of("bitwise_xor"), "xchg": lambda a, b: b,
}  # fmt: skip
