"""Writes block kernels as arithmetic: tiles with operators, which broadcast as NumPy's arrays do.

>>> from rushlight._codegen.blocks import Pointer, Tile, kernel_text
>>> from rushlight._codegen.blocks.expressions import TermBuilder
>>> from rushlight._types.dtype import FLOAT32, INT32
>>> b = TermBuilder("halve", [Tile(Pointer(FLOAT32)), Tile(INT32)], ["x", "n"])
>>> x, n = b.terms
>>> at = b.program(0) * 64 + b.index(64)
>>> (x + at).store((x + at).load(at < n, 0.0) * 0.5, at < n)
>>> kernel_text(b.finish()).count("store")
1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rushlight._types.dtype import BOOL, INT32, DType

from .builder import BlockBuilder
from .ir import Value
from .types import Pointer

__all__ = ["Term", "TermBuilder"]

Number = int | float | bool


class Term:
    """A value of a block kernel under construction.

    Arithmetic is the primitives': operands have one dtype (Python numbers take the other operand's), `//` and `%` cut
    toward zero, narrow floats are converted before.  Shapes broadcast, dims counted from the last.
    """

    __slots__ = ("b", "value")

    def __init__(self, b: TermBuilder, value: Value) -> None:
        self.b, self.value = b, value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def is_pointer(self) -> bool:
        return isinstance(self.value.type.element, Pointer)

    # ***** shapes *****

    def spread(self, shape: Sequence[int]) -> Term:
        """Broadcast to a shape."""
        shape, value, b = tuple(shape), self.value, self.b
        if value.shape == shape:
            return self
        if not value.shape:
            return Term(b, b.splat(value, shape))
        while len(value.shape) < len(shape):
            value = b.expand_dims(value, 0)
        return Term(b, b.broadcast(value, shape))

    def __getitem__(self, places: Any) -> Term:
        """`x[:, None]`: dims of size 1 more."""
        value = self.value
        for axis, place in enumerate(places if isinstance(places, tuple) else (places,)):
            if place is None:
                value = self.b.expand_dims(value, axis)
            elif place != slice(None):
                raise TypeError(f"a tile is indexed by ':' and None, not {place!r}")
        return Term(self.b, value)

    def reshape(self, *shape: int) -> Term:
        return Term(self.b, self.b.reshape(self.value, shape))

    def permute(self, *order: int) -> Term:
        return Term(self.b, self.b.permute(self.value, order))

    # ***** arithmetic *****

    def _with(self, prim: str, other: Any, swapped: bool = False) -> Term:
        mine, yours = self.b.together(self, other)
        pair = (yours, mine) if swapped else (mine, yours)
        return self.b.apply(prim, *pair)

    def __add__(self, other: Any) -> Term:
        if self.is_pointer:
            by = other if isinstance(other, Term) else self.b.number(other, INT32)
            shape = _joined(self.shape, by.shape)
            return Term(self.b, self.b.offset(self.spread(shape).value, by.spread(shape).value))
        return self._with("add", other)

    def __radd__(self, other: Any) -> Term:
        return self._with("add", other, True)

    def __sub__(self, other: Any) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self._with("sub", other, True)

    def __mul__(self, other: Any) -> Term:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Term:
        return self._with("mul", other, True)

    def __truediv__(self, other: Any) -> Term:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Term:
        return self._with("div", other, True)

    def __floordiv__(self, other: Any) -> Term:
        return self if other == 1 and type(other) is int else self._with("div_trunc", other)

    def __mod__(self, other: Any) -> Term:
        return self._with("rem_trunc", other)

    def __lshift__(self, other: Any) -> Term:
        return self._with("shift_left", other)

    def __rshift__(self, other: Any) -> Term:
        return self._with("shift_right", other)

    def __and__(self, other: Any) -> Term:
        return self._with("bitwise_and", other)

    def __or__(self, other: Any) -> Term:
        return self._with("bitwise_or", other)

    def __xor__(self, other: Any) -> Term:
        return self._with("bitwise_xor", other)

    def __invert__(self) -> Term:
        return (
            self ^ True
            if self.dtype is BOOL
            else self ^ (-1 if self.dtype.is_signed else 2 ** (8 * self.dtype.itemsize) - 1)
        )

    def __neg__(self) -> Term:
        return self.b.apply("neg", self)

    def __lt__(self, other: Any) -> Term:
        return self._with("lt", other)

    def __le__(self, other: Any) -> Term:
        return self._with("le", other)

    def __gt__(self, other: Any) -> Term:
        return self._with("lt", other, True)

    def __ge__(self, other: Any) -> Term:
        return self._with("le", other, True)

    def equals(self, other: Any) -> Term:
        return self._with("eq", other)

    def differs(self, other: Any) -> Term:
        return self._with("ne", other)

    def least(self, other: Any) -> Term:
        return self._with("minimum", other)

    def greatest(self, other: Any) -> Term:
        return self._with("maximum", other)

    def to(self, dtype: DType) -> Term:
        """Converted."""
        return Term(self.b, self.b.convert(self.value, dtype))

    def bits(self, dtype: DType) -> Term:
        """The same bits as another dtype."""
        return self if self.dtype is dtype else self.b.apply("bitcast", self, dtype=dtype)

    # ***** memory *****

    def load(self, mask: Term | None = None, other: Any = None, **hints: Any) -> Term:
        """Load through the pointers; `other` where the mask is false."""
        b, element = self.b, self.value.type.element
        if mask is None:
            return Term(b, b.load(self.value, **hints))
        assert isinstance(element, Pointer)
        shape = _joined(self.shape, mask.shape)
        pointers, given = self.spread(shape), mask.spread(shape).value
        if other is None:
            return Term(b, b.load(pointers.value, given, **hints))
        otherwise = other if isinstance(other, Term) else b.number(other, element.to)
        return Term(b, b.load(pointers.value, given, otherwise.spread(shape).value, **hints))

    def store(self, value: Any, mask: Term | None = None, **hints: Any) -> None:
        """Write; values are converted to what the pointers point to, and spread."""
        b, element = self.b, self.value.type.element
        assert isinstance(element, Pointer)
        value = value if isinstance(value, Term) else b.number(value, element.to)
        value = value.to(element.to)
        shape = (
            _joined(self.shape, value.shape) if mask is None else _joined(_joined(self.shape, value.shape), mask.shape)
        )
        b.store(
            self.spread(shape).value,
            value.spread(shape).value,
            None if mask is None else mask.spread(shape).value,
            **hints,
        )


def _joined(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape to which two broadcast."""
    n = max(len(a), len(b))
    pairs = zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b), strict=True)
    return tuple(max(x, y) for x, y in pairs)


class TermBuilder(BlockBuilder):
    """A `BlockBuilder` of terms."""

    @property
    def terms(self) -> list[Term]:
        """The arguments of the kernel."""
        return [Term(self, v) for v in self.params]

    def together(self, *xs: Any) -> list[Term]:
        """Terms and Python numbers as terms of one shape; numbers take the dtype of the first term."""
        dtype = next(x.dtype for x in xs if isinstance(x, Term))
        terms = [x if isinstance(x, Term) else self.number(x, dtype) for x in xs]
        shape: tuple[int, ...] = ()
        for x in terms:
            shape = _joined(shape, x.shape)
        return [x.spread(shape) for x in terms]

    def apply(self, prim: str, *xs: Term, **params: Any) -> Term:
        """A pointwise primitive of terms of one shape."""
        return Term(self, self.pointwise(prim, *(x.value for x in xs), **params))

    def approximate(self, prim: str, x: Term) -> Term:
        """The same of float32 by an instruction of few bits, where there is one; see `OPS["pointwise"]`."""
        return Term(self, self.value("pointwise", x.value, prim=prim, approximate=True))

    def number(self, value: Number, dtype: DType, shape: Sequence[int] = ()) -> Term:
        """A constant."""
        if dtype is BOOL:
            value = bool(value)
        elif dtype.kind in "iu":
            value = int(value)
        else:
            value = float(value)
        wide = dtype.wide if dtype.kind == "f" else dtype
        made = Term(self, self.constant(value, wide, shape))
        return made if wide is dtype else made.to(dtype)

    def index(self, size: int, dtype: DType = INT32) -> Term:
        """0, 1, ..., size - 1."""
        return Term(self, self.arange(0, size)).to(dtype)

    def program(self, axis: int = 0) -> Term:
        """Which program this is."""
        return Term(self, self.program_id(axis))

    def where(self, condition: Term, a: Any, b: Any) -> Term:
        """a where the condition holds, else b."""
        first, second = self.together(a, b)
        shape = _joined(condition.shape, first.shape)
        return self.apply("select", condition.spread(shape), first.spread(shape), second.spread(shape))

    def loop(
        self, low: Any, high: Any, step: Any, carried: Sequence[Term], body: Callable[..., Sequence[Term]]
    ) -> list[Term]:
        """For each index from low to before high: `body(index, *values)` gives the values of the next turn."""
        first, last, by = self._bounds(low, high, step)

        def turn(*given: Value) -> list[Value]:
            return [x.value for x in body(*(Term(self, v) for v in given))]

        return [Term(self, v) for v in self.for_(first, last, by, [x.value for x in carried], turn)]

    def _bounds(self, *bounds: Any) -> list[Value]:
        given = [x for x in bounds if isinstance(x, Term)]
        dtype = given[0].dtype if given else INT32
        return [(x if isinstance(x, Term) else self.number(x, dtype)).value for x in bounds]

    def repeat(
        self, carried: Sequence[Term], more: Callable[..., Term], body: Callable[..., Sequence[Term]]
    ) -> list[Term]:
        """`values = body(*values)` while the scalar `more(*values)` holds."""
        types = [x.value.type for x in carried]
        with self.region(types) as before:
            condition = more(*(Term(self, v) for v in before.params))
            self.emit("yield", condition.value, *before.params)
        with self.region(types) as after:
            self.emit("yield", *(x.value for x in body(*(Term(self, v) for v in after.params))))
        found = self.emit("while", *(x.value for x in carried), regions=[before, after]).results
        return [Term(self, v) for v in found]

    def when(self, condition: Term, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None) -> None:
        """Do something where a scalar condition holds, and something else where it does not."""

        def branch(act: Callable[[], None]) -> list[Value]:
            act()
            return []

        self.if_(condition.value, partial(branch, then), partial(branch, otherwise))

    def matrix_product(self, a: Term, b: Term, c: Term, precision: str = "ieee") -> Term:
        """a b + c, in c's dtype."""
        return Term(self, self.dot(a.value, b.value, c.value, precision))

    def tile(
        self, pointer: Term, sizes: Sequence[Term], strides: Sequence[Term], starts: Sequence[Term], shape: Sequence[int]
    ) -> Term:  # fmt: skip
        """A tile of an array of such sizes and strides, from `starts` on; 0 outside of the array."""
        bounds, steps, begin = ([x.value for x in xs] for xs in (sizes, strides, starts))
        return Term(self, self.load_tile(pointer.value, bounds, steps, begin, shape))

    def windows(
        self, pointer: Term, numbers: Sequence[Term], stride: Sequence[int], lo: Sequence[int], shape: Sequence[int]
    ) -> Term:  # fmt: skip
        """A tile of windows; `numbers` are all operands of `load_windows` behind the pointer."""
        return Term(self, self.load_windows(pointer.value, [x.value for x in numbers], stride, lo, shape))

    def combine(self, prim: str, x: Term, axis: int) -> Term:
        """Reduced along an axis by a pointwise primitive."""
        region = lambda b, left, right: [b.pointwise(prim, left[0], right[0])]
        return Term(self, self.reduce([x.value], axis, region)[0])

    def total(self, x: Term, axis: int) -> Term:
        """The sum along an axis."""
        return self.combine("bitwise_or" if x.dtype is BOOL else "add", x, axis)

    def largest(self, x: Term, axis: int) -> Term:
        """The greatest along an axis; NaN where one is NaN."""
        return self.combine("maximum", x, axis)

    def prefixes(self, x: Term, axis: int) -> Term:
        """Sums of the elements up to each, itself included."""
        region = lambda b, left, right: [b.pointwise("add", left[0], right[0])]
        return Term(self, self.scan([x.value], axis, region)[0])

    def taken(self, x: Term, index: Term, axis: int) -> Term:
        """Elements of a tile at indices along an axis."""
        return Term(self, self.value("gather", x.value, index.value, axis=axis))

    def paired(self, a: Term, b: Term) -> Term:
        """Two tiles side by side in a new last dim."""
        return Term(self, self.value("join", a.value, b.value))

    def halves(self, x: Term) -> tuple[Term, Term]:
        """The two parts of a last dim of size 2."""
        first, second = self.emit("split", x.value).results
        return Term(self, first), Term(self, second)
