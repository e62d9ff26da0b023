"""Builds kernels of the block IR.

>>> from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile, kernel_text
>>> from rushlight._types.dtype import FLOAT32, INT32
>>> b = BlockBuilder("double", [Tile(Pointer(FLOAT32)), Tile(INT32)], ["x", "n"])
>>> x, n = b.params
>>> at = b.pointwise("add", b.arange(0, 128), b.splat(b.pointwise("mul", b.program_id(0), b.constant(128, INT32)), (128,)))
>>> inside = b.pointwise("lt", at, b.splat(n, (128,)))
>>> pointers = b.offset(b.splat(x, (128,)), at)
>>> value = b.load(pointers, inside)
>>> b.store(pointers, b.pointwise("add", value, value), inside)
>>> print(kernel_text(b.finish()))
kernel double(%x: *f32, %n: i32) warps 4
  %0 = arange {end=128, start=0} : i32[128]
  %1 = program_id {axis=0} : i32
  %2 = constant {dtype=i32, value=128} : i32
  %3 = mul %1, %2 : i32
  %4 = splat %3 {shape=(128,)} : i32[128]
  %5 = add %0, %4 : i32[128]
  %6 = splat %n {shape=(128,)} : i32[128]
  %7 = lt %5, %6 : b8[128]
  %8 = splat %x {shape=(128,)} : *f32[128]
  %9 = offset %8, %5 : *f32[128]
  %10 = load %9, %7 : f32[128]
  %11 = add %10, %10 : f32[128]
  store %9, %11, %7
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._types.dtype import DType

from .ir import Kernel, Line, Op, Region, Value
from .ops import OPS
from .types import Tile

__all__ = ["BlockBuilder"]


class BlockBuilder:
    """Appends operations to the region that is open; each gives its results.

    `line` is put on every operation: a front end sets it to the line of the user's source that it is at.
    """

    def __init__(self, name: str, params: Sequence[Tile], names: Sequence[str] = (), line: Line | None = None) -> None:
        self.name, self.line, self.begin = name, line, line
        given = [Value(t, None, n) for t, n in zip(params, names or [""] * len(params), strict=True)]
        self.regions = [Region(given)]

    @property
    def params(self) -> list[Value]:
        """The arguments of the kernel."""
        return self.regions[0].params

    def emit(self, kind: str, *operands: Value, regions: Sequence[Region] = (), **attributes: Any) -> Op:
        """Any operation of `OPS`; BlockError for what does not fit."""
        types = OPS[kind].infer([v.type for v in operands], attributes, regions)
        op = Op(kind, operands, types, attributes, regions, self.line)
        self.regions[-1].ops.append(op)
        return op

    def value(self, kind: str, *operands: Value, **attributes: Any) -> Value:
        """The only result of an operation."""
        return self.emit(kind, *operands, **attributes).result

    @contextmanager
    def region(self, params: Sequence[Tile] = ()) -> Iterator[Region]:
        """A region that is open within the `with`; end it by `emit("yield", ...)`."""
        made = Region([Value(t) for t in params])
        self.regions.append(made)
        try:
            yield made
        finally:
            self.regions.pop()

    def combining(self, types: Sequence[Tile], combine: Callable[..., Any]) -> Region:
        """The region of `reduce` and `scan`: `combine(builder, lefts, rights)` gives the values."""
        scalars = [Tile(t.element) for t in types]
        with self.region([*scalars, *scalars]) as made:
            n = len(scalars)
            self.emit("yield", *combine(self, made.params[:n], made.params[n:]))
        return made

    def finish(self, **options: Any) -> Kernel:
        """The kernel; `options` are those of `Kernel`."""
        self.emit("yield")
        return Kernel(self.name, self.regions[0], line=self.begin, **options)

    # ***** the operations that most kernels use *****

    def constant(self, value: float, dtype: DType, shape: Sequence[int] = ()) -> Value:
        """A number, at each place of a shape."""
        made = self.value("constant", value=value, dtype=dtype)
        return self.splat(made, shape) if shape else made

    def program_id(self, axis: int = 0) -> Value:
        return self.value("program_id", axis=axis)

    def num_programs(self, axis: int = 0) -> Value:
        return self.value("num_programs", axis=axis)

    def choose(self, index: Value, xs: Sequence[Value]) -> Value:
        """One of some scalars."""
        return self.value("choose", index, *xs)

    def arange(self, start: int, end: int) -> Value:
        return self.value("arange", start=start, end=end)

    def splat(self, x: Value, shape: Sequence[int]) -> Value:
        return self.value("splat", x, shape=tuple(shape))

    def expand_dims(self, x: Value, axis: int) -> Value:
        return self.value("expand_dims", x, axis=axis)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        """`x` itself where it has the shape."""
        return x if x.shape == tuple(shape) else self.value("broadcast", x, shape=tuple(shape))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.shape == tuple(shape) else self.value("reshape", x, shape=tuple(shape))

    def permute(self, x: Value, order: Sequence[int]) -> Value:
        return self.value("permute", x, order=tuple(order))

    def pointwise(self, prim: str, *xs: Value, **params: Any) -> Value:
        """A pointwise primitive by its name."""
        return self.value("pointwise", *xs, prim=prim, **({"params": params} if params else {}))

    def convert(self, x: Value, dtype: DType) -> Value:
        """`x` itself where it has the dtype."""
        return x if x.dtype is dtype else self.pointwise("convert", x, dtype=dtype)

    def offset(self, pointer: Value, by: Value) -> Value:
        return self.value("offset", pointer, by)

    def load(self, pointer: Value, mask: Value | None = None, other: Value | None = None, **hints: Any) -> Value:
        given = [v for v in (mask, other) if v is not None]
        return self.value("load", pointer, *given, **hints)

    def load_tile(
        self, pointer: Value, sizes: Sequence[Value], strides: Sequence[Value], starts: Sequence[Value], shape: Sequence[int]
    ) -> Value:  # fmt: skip
        """A tile of an array; see `OPS["load_tile"]`."""
        return self.value("load_tile", pointer, *sizes, *strides, *starts, shape=tuple(shape))

    def load_windows(
        self, pointer: Value, numbers: Sequence[Value], stride: Sequence[int], lo: Sequence[int], shape: Sequence[int]
    ) -> Value:  # fmt: skip
        """A tile of an array's windows; see `OPS["load_windows"]`."""
        return self.value("load_windows", pointer, *numbers, stride=tuple(stride), lo=tuple(lo), shape=tuple(shape))

    def store(self, pointer: Value, value: Value, mask: Value | None = None, **hints: Any) -> None:
        self.emit("store", pointer, value, *([] if mask is None else [mask]), **hints)

    def dot(self, a: Value, b: Value, c: Value, precision: str = "ieee") -> Value:
        return self.value("dot", a, b, c, precision=precision)

    def reduce(
        self, xs: Sequence[Value], axis: int, combine: Callable[..., Any], order: Sequence[int] | None = None
    ) -> list[Value]:
        """`combine` as in `combining`, `order` as in the operation."""
        region = self.combining([x.type for x in xs], combine)
        given = {} if order is None else {"order": tuple(order)}
        return self.emit("reduce", *xs, regions=[region], axis=axis, **given).results

    def scan(self, xs: Sequence[Value], axis: int, combine: Callable[..., Any], reverse: bool = False) -> list[Value]:
        region = self.combining([x.type for x in xs], combine)
        return self.emit("scan", *xs, regions=[region], axis=axis, reverse=reverse).results

    def for_(
        self, low: Value, high: Value, step: Value, carried: Sequence[Value], body: Callable[..., Sequence[Value]]
    ) -> list[Value]:
        """A loop: `body(index, *values)` gives the values of the next turn."""
        with self.region([low.type, *(v.type for v in carried)]) as region:
            self.emit("yield", *body(*region.params))
        return self.emit("for", low, high, step, *carried, regions=[region]).results

    def if_(
        self, condition: Value, then: Callable[[], Sequence[Value]], otherwise: Callable[[], Sequence[Value]]
    ) -> list[Value]:
        """Both functions give values of the same types."""
        regions = []
        for branch in (then, otherwise):
            with self.region() as region:
                self.emit("yield", *branch())
            regions.append(region)
        return self.emit("if", condition, regions=regions).results
