"""Facts about the integers, masks and addresses of tiles, dim by dim: runs that step by one, runs that are equal,
and numbers that divide them.  Emitters turn accesses to neighbours into vector accesses by it.

>>> from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile
>>> from rushlight._codegen.blocks.axes import axes_of
>>> from rushlight._types.dtype import FLOAT32
>>> b = BlockBuilder("k", [Tile(Pointer(FLOAT32))])
>>> start = b.pointwise("mul", b.program_id(), b.constant(64, b.program_id().dtype))
>>> at = b.pointwise("add", b.splat(start, (64,)), b.arange(0, 64))
>>> pointer = b.offset(b.splat(b.params[0], (64,)), at)
>>> known = axes_of(b.finish(divisible={0: 16}))
>>> known[at], known[pointer]
(Axes(contiguous=(64,), multiple=(64,), constant=(1,)), Axes(contiguous=(64,), multiple=(16,), constant=(1,)))

Sums and products of integers are taken not to overflow, and quotients and remainders are taken of numbers that are not
negative, as Triton takes them: only then are places of `x % n` neighbours where those of `x` are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import NamedTuple

from .ir import Kernel, Op, Region, Value
from .types import Pointer, Tile

__all__ = ["Axes", "axes_of", "is_uniform"]

_MOST = 1 << 40  # what divides 0, and the largest power that is counted


class Axes(NamedTuple):
    """For each dim of a tile (a scalar counts as one dim of size 1).

    `contiguous`: runs of so many neighbours step by one (of pointers: by an element); runs begin at multiples of their
    length.  `multiple`: divides the first of every run (of pointers: in bytes).  `constant`: runs of so many are equal.
    """

    contiguous: tuple[int, ...]
    multiple: tuple[int, ...]
    constant: tuple[int, ...]

    @property
    def divisor(self) -> int:
        """A divisor of every element."""
        return max((m for c, m in zip(self.contiguous, self.multiple, strict=True) if c == 1), default=1)

    def meet(self, other: Axes) -> Axes:
        """Facts that hold for both."""
        runs = tuple(map(gcd, self.contiguous, other.contiguous))
        multiple = tuple(gcd(self.begins(d, run), other.begins(d, run)) for d, run in enumerate(runs))
        return Axes(runs, multiple, tuple(map(gcd, self.constant, other.constant)))

    def begins(self, dim: int, run: int) -> int:
        """A divisor of the first element of every run of `run` elements along a dim."""
        contiguous, multiple = self.contiguous[dim], self.multiple[dim]
        return multiple if contiguous <= run else gcd(multiple, run)


def is_uniform(value: Value, known: Mapping[Value, Axes]) -> bool:
    """Whether all elements of a tile are known to be equal."""
    return not value.shape or all(c % n == 0 for c, n in zip(known[value].constant, value.shape, strict=True))


def axes_of(kernel: Kernel) -> dict[Value, Axes]:
    """Facts about every value of a kernel."""
    found = _Analysis()
    for i, param in enumerate(kernel.params):
        found.known[param] = _scalar(kernel.divisible.get(i, 1))
    found.region(kernel.body)
    return found.known


def _scalar(multiple: int) -> Axes:
    return Axes((1,), (_power(multiple),), (1,))


def _power(number: int) -> int:
    """The largest power of two that divides a number."""
    return min(number & -number, _MOST) if number else _MOST


def _nothing(type: Tile) -> Axes:
    ones = (1,) * max(len(type.shape), 1)
    return Axes(ones, ones, ones)


class _Analysis:
    def __init__(self) -> None:
        self.known: dict[Value, Axes] = {}
        self.numbers: dict[Value, int] = {}  # values that are one known integer everywhere

    def region(self, region: Region) -> None:
        for op in region.ops:
            rule = _RULES.get(op.kind)
            if op.kind in ("for", "while"):
                self.loop(op)
            elif op.kind == "if":
                self.branches(op)
            elif rule is not None:
                self.known[op.result] = rule(self, op, [self.known[v] for v in op.operands])
            else:
                for inner in op.regions:  # of reductions: elements of tiles
                    self.known.update((p, _nothing(p.type)) for p in inner.params)
                    self.region(inner)
                self.known.update((v, _nothing(v.type)) for v in op.results)

    def loop(self, op: Op) -> None:
        """Record facts that hold before and after every iteration: a fixed point, weakened from the initial facts."""
        count = 3 if op.kind == "for" else 0
        carried = [self.known[v] for v in op.operands[count:]]
        first, last = op.regions[0], op.regions[-1]
        if op.kind == "for":
            low, _, step = (self.known[v].divisor for v in op.operands[:3])
            self.known[first.params[0]] = _scalar(gcd(low, step))
        while True:
            self.known.update(zip(first.params[count // 3 :], carried, strict=True))
            self.region(first)
            given = [self.known[v] for v in first.yielded]
            if op.kind == "while":
                given = given[1:]
                self.known.update(zip(op.results, given, strict=True))
                self.known.update(zip(last.params, given, strict=True))
                self.region(last)
                given = [self.known[v] for v in last.yielded]
            after = [a.meet(b) for a, b in zip(carried, given, strict=True)]
            if op.kind == "for":
                self.known.update(zip(op.results, after, strict=True))
            if after == carried:
                return
            carried = after

    def branches(self, op: Op) -> None:
        for region in op.regions:
            self.region(region)
        for result, a, b in zip(op.results, *(r.yielded for r in op.regions), strict=True):
            self.known[result] = self.known[a].meet(self.known[b])
            if self.numbers.get(a) is not None and self.numbers.get(a) == self.numbers.get(b):
                self.numbers[result] = self.numbers[a]


Rule = Callable[[_Analysis, Op, Sequence[Axes]], Axes]


def _constant(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    value = op.attributes["value"]
    if value != int(value) if value == value and abs(value) != float("inf") else True:
        return _nothing(op.result.type)
    an.numbers[op.result] = int(value)
    return _scalar(int(value))


def _arange(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    (size,) = op.result.shape
    run = _power(size)
    return Axes((size,), (gcd(_power(op.attributes["start"]), run if run < size else _MOST),), (1,))


def _splat(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    shape = op.result.shape or (1,)
    if (number := an.numbers.get(op.operands[0])) is not None:
        an.numbers[op.result] = number
    return Axes((1,) * len(shape), xs[0].multiple * len(shape), shape)


def _expand_dims(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    (x,), axis, n = xs, op.attributes["axis"], len(op.operands[0].shape)
    if (number := an.numbers.get(op.operands[0])) is not None:
        an.numbers[op.result] = number
    parts = [
        (*of[:axis], more, *of[axis:]) for of, more in zip(x, (1, x.divisor, 1), strict=True) if isinstance(of, tuple)
    ]
    return Axes(*parts) if n else x


def _broadcast(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    (x,), old, new = xs, op.operands[0].shape, op.result.shape
    if (number := an.numbers.get(op.operands[0])) is not None:
        an.numbers[op.result] = number
    grown = [a != b for a, b in zip(old, new, strict=True)]
    return Axes(
        tuple(1 if g else c for c, g in zip(x.contiguous, grown, strict=True)),
        tuple(x.divisor if g else m for m, g in zip(x.multiple, grown, strict=True)),
        tuple(size if g else c for c, g, size in zip(x.constant, grown, new, strict=True)),
    )


def _permute(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    order = op.attributes["order"]
    return Axes(*(tuple(of[d] for d in order) for of in xs[0]))


def _reshape(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    """Runs along the last dim are runs of neighbours in memory order."""
    (x,), old, new = xs, op.operands[0].shape or (1,), op.result.shape or (1,)
    ones, last = (1,) * (len(new) - 1), len(old) - 1
    if all(c % n == 0 for c, n in zip(x.constant, old, strict=True)):
        return Axes((1,) * len(new), (x.divisor,) * len(new), new)
    run, equal = gcd(x.contiguous[last], new[-1]), gcd(x.constant[last], new[-1])
    outer = (x.divisor,) * (len(new) - 1)
    return Axes((*ones, run), (*outer, x.begins(last, run) if run > 1 else x.divisor), (*ones, equal))


def _sum(x: Axes, y: Axes, width: int = 1, minus: bool = False) -> Axes:
    """x + y * width, where x counts in units of 1 and y in elements of `width`."""
    runs = []
    for cx, cy, ex, ey in zip(x.contiguous, y.contiguous, x.constant, y.constant, strict=True):
        runs.append(max(gcd(cx, ey), 1 if minus else gcd(ex, cy)))
    multiple = tuple(gcd(_at(x, d, run, width), width * _at(y, d, run, 1)) for d, run in enumerate(runs))
    return Axes(tuple(runs), multiple, tuple(map(gcd, x.constant, y.constant)))


def _at(x: Axes, dim: int, run: int, width: int) -> int:
    contiguous, multiple = x.contiguous[dim], x.multiple[dim]
    return multiple if contiguous <= run else gcd(multiple, run * width)


def _offset(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    element = op.result.type.element
    assert isinstance(element, Pointer)
    return _sum(xs[0], xs[1], element.to.itemsize)


def _product(an: _Analysis, op: Op, x: Axes, y: Axes) -> Axes:
    for number, other in zip(op.operands, (y, x), strict=True):
        if an.numbers.get(number) == 1:
            return other
    multiple = min(x.divisor * y.divisor, _MOST)
    ones = (1,) * len(x.constant)
    return Axes(ones, (multiple,) * len(ones), tuple(map(gcd, x.constant, y.constant)))


def _quotient(an: _Analysis, op: Op, x: Axes, y: Axes) -> Axes:
    n = an.numbers.get(op.operands[1])
    if n == 1:
        return x
    equal = []
    for d, both in enumerate(map(gcd, x.constant, y.constant)):
        run = gcd(gcd(x.contiguous[d], x.multiple[d]), gcd(y.divisor, y.constant[d]))
        equal.append(max(both, run))
    multiple = max(x.divisor // n, 1) if n and n > 0 and x.divisor % n == 0 else 1
    ones = (1,) * len(equal)
    return Axes(ones, (multiple,) * len(ones), tuple(equal))


def _remainder(an: _Analysis, op: Op, x: Axes, y: Axes) -> Axes:
    runs = tuple(
        gcd(gcd(x.contiguous[d], x.begins(d, x.contiguous[d])), gcd(y.divisor, y.constant[d]))
        for d in range(len(x.constant))
    )
    multiple = tuple(gcd(x.begins(d, run), y.divisor) for d, run in enumerate(runs))
    return Axes(runs, multiple, tuple(map(gcd, x.constant, y.constant)))


def _comparison(an: _Analysis, op: Op, x: Axes, y: Axes) -> Axes:
    """A run of neighbours that begins at a multiple of what divides the bound lies on one side of it."""
    equal = []
    for d, both in enumerate(map(gcd, x.constant, y.constant)):
        for run, bound in ((x, y), (y, x)):
            side = gcd(gcd(run.contiguous[d], run.multiple[d]), gcd(bound.divisor, bound.constant[d]))
            fits = op.attributes["prim"] == "lt" and run is x or op.attributes["prim"] == "le" and run is y
            both = max(both, side if fits else 1)
        equal.append(both)
    ones = (1,) * len(equal)
    return Axes(ones, ones, tuple(equal))


def _select(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    condition, x, y = xs
    both = x.meet(y)
    runs = tuple(map(gcd, both.contiguous, condition.constant))
    multiple = tuple(both.begins(d, run) for d, run in enumerate(runs))
    return Axes(runs, multiple, tuple(map(gcd, both.constant, condition.constant)))


def _shift(an: _Analysis, op: Op, x: Axes, y: Axes) -> Axes:
    n, left = an.numbers.get(op.operands[1]), op.attributes["prim"] == "shift_left"
    equal = tuple(map(gcd, x.constant, y.constant))
    ones = (1,) * len(equal)
    if n is None or not 0 <= n < 32:
        return Axes(ones, ones, equal)
    if left:
        return Axes(ones, (min(x.divisor << n, _MOST),) * len(ones), equal)
    runs = tuple(max(e, gcd(gcd(c, m), 1 << n)) for e, c, m in zip(equal, x.contiguous, x.multiple, strict=True))
    return Axes(ones, (max(x.divisor >> n, 1),) * len(ones), runs)


def _pointwise(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    prim = op.attributes["prim"]
    numbers = [an.numbers.get(v) for v in op.operands]
    if prim == "convert" and op.result.type.element.kind in "iu" and op.operands[0].dtype.kind in "iu":  # type: ignore[union-attr]
        if numbers[0] is not None:
            an.numbers[op.result] = numbers[0]
        return xs[0]
    if op.operands[0].dtype.kind in "iu" and (rule := _POINTWISE.get(prim)) is not None:
        return rule(an, op, *xs)
    if prim == "select":
        return _select(an, op, xs)
    equal = tuple(gcd(*each) for each in zip(*(x.constant for x in xs), strict=True))
    multiple = gcd(*(x.divisor for x in xs)) if prim in ("maximum", "minimum") else 1
    ones = (1,) * len(equal)
    return Axes(ones, (multiple,) * len(ones), equal)


def _hint(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    (x,) = xs
    told = {k: v if isinstance(v, (tuple, list)) else (v,) for k, v in op.attributes.items()}
    n = len(x.constant)
    contiguous = tuple(map(max, x.contiguous, told.get("contiguous", (1,) * n)))
    constant = tuple(map(max, x.constant, told.get("constant", (1,) * n)))
    return Axes(contiguous, tuple(map(max, x.multiple, map(_power, told.get("multiple", (1,) * n)))), constant)


def _load(an: _Analysis, op: Op, xs: Sequence[Axes]) -> Axes:
    """Equal addresses hold equal numbers."""
    equal = tuple(gcd(*each) for each in zip(*(x.constant for x in xs), strict=True))
    ones = (1,) * len(equal)
    return Axes(ones, ones, equal)


_POINTWISE: dict[str, Callable[..., Axes]] = {
    "add": lambda an, op, x, y: _sum(x, y), "sub": lambda an, op, x, y: _sum(x, y, minus=True), "mul": _product,
    "div_trunc": _quotient, "rem_trunc": _remainder, "lt": _comparison, "le": _comparison, "shift_left": _shift,
    "shift_right": _shift,
}  # fmt: skip
_RULES: dict[str, Rule] = {
    "constant": _constant, "arange": _arange, "splat": _splat, "expand_dims": _expand_dims, "broadcast": _broadcast,
    "permute": _permute, "reshape": _reshape, "pointwise": _pointwise, "offset": _offset, "hint": _hint, "load": _load,
    "pointer_cast": lambda an, op, xs: _recast(op, xs[0]), "address": lambda an, op, xs: _recast(op, xs[0]),
    "choose": lambda an, op, xs: _scalar(gcd(*(x.divisor for x in xs[1:]))), "program_id": lambda an, op, xs: _scalar(1), "num_programs": lambda an, op, xs: _scalar(1),
}  # fmt: skip


def _recast(op: Op, x: Axes) -> Axes:
    """Steps in units of another size are no runs."""
    if x.contiguous == (1,) * len(x.contiguous) or _size(op.operands[0]) == _size(op.result):
        return x
    ones = (1,) * len(x.contiguous)
    multiple = tuple(
        gcd(m, _size(op.operands[0])) if c > 1 else m for c, m in zip(x.contiguous, x.multiple, strict=True)
    )
    return Axes(ones, multiple, x.constant)


def _size(value: Value) -> int:
    element = value.type.element
    return element.to.itemsize if isinstance(element, Pointer) else 1
