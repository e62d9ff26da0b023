"""Expressions of a schedule as operations on tiles.

A value has the least shape that holds it: a scalar where it is the same for a whole tile, [R, 1] where it depends on
rows alone.  Every value is computed once in each scope, and what a loop does not change can be had before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rushlight._codegen.blocks import Value
from rushlight._codegen.grid.signature import Signature, part_of
from rushlight._prims.elementwise.requirements import REQUIREMENTS
from rushlight._schedule.expressions import Expr, Store
from rushlight._schedule.indexing import Data, Div, Ix, Var
from rushlight._schedule.inline import RUNTIME_ERROR
from rushlight._types.dtype import BOOL, INT64, DType

__all__ = ["Elements", "combined_store", "digits"]

Shape = tuple[int, ...]


class Elements:
    """Emits expressions in one scope.

    `places` gives the value of each loop variable, `masks` for each axis of the tile which of its places exist (None:
    all), `results` the values of reductions by (item, part).  `outer` is the scope around this one.
    """

    def __init__(
        self,
        signature: Signature,
        words: Sequence[int],
        places: Mapping[Var, Value],
        masks: Sequence[Value | None],
        results: dict[Any, Value] | None = None,
        outer: Elements | None = None,
    ) -> None:
        self.signature, self.b, self.words = signature, signature.b, words
        self.places, self.masks, self.outer = dict(places), list(masks), outer
        self.results: dict[Any, Value] = {} if results is None else results
        self._known: dict[Any, Value] = {}

    def inner(self, places: Mapping[Var, Value], masks: Sequence[Value | None]) -> Elements:
        """The scope of a loop within this one."""
        return Elements(self.signature, self.words, {**self.places, **places}, masks, self.results, self)

    # ***** shapes *****

    def expanded(self, x: Value, shape: Shape) -> Value:
        """A value at every place of a shape."""
        if x.shape == shape:
            return x
        if x.dtype.kind == "c":
            parts = [self.expanded(self.b.pointwise(name, x), shape) for name in ("real", "imag")]
            return self.b.pointwise("complex", *parts)
        return self.b.splat(x, shape) if not x.shape else self.b.broadcast(x, shape)

    def together(self, *xs: Value) -> list[Value]:
        """Values in one shape, the least that holds all."""
        shape: Shape = ()
        for x in xs:
            shape = meet(shape, x.shape)
        return [self.expanded(x, shape) for x in xs]

    def apply(self, prim: str, *xs: Value, **params: Any) -> Value:
        """A pointwise primitive on values of any shapes."""
        return self.b.pointwise(prim, *self.together(*xs), **params)

    def mask(self, shape: Shape, guard: Value | None = None) -> Value | None:
        """Which places of a value exist, and fulfil a condition; None where all do."""
        found = guard
        for axis, mask in enumerate(self.masks):
            if mask is not None and len(shape) > axis and shape[axis] > 1:
                found = mask if found is None else self.apply("bitwise_and", found, mask)
        return None if found is None else self.expanded(found, meet(found.shape, shape))

    # ***** memo *****

    def _find(self, key: Any) -> Value | None:
        scope: Elements | None = self
        while scope is not None:
            found = scope._known.get(key)
            if found is not None:
                return found
            scope = scope.outer
        return None

    def _once(self, key: Any, make: Callable[[], Value]) -> Value:
        found = self._find(key)
        if found is None:
            found = self._known[key] = make()
        return found

    def take(self, key: Expr, value: Value) -> None:
        """Let an expression be a value that is there already."""
        self._known[key] = value

    def before_loop(self, roots: Iterable[Expr | Ix], loops: Iterable[Var]) -> None:
        """Compute here what `roots` need and a loop over `loops` within this scope does not change."""
        inside, seen, todo = frozenset(loops), set[Any](), list(roots)
        while todo:
            part = todo.pop()
            if part in seen:
                continue
            seen.add(part)
            if isinstance(part, Ix):
                self._index_before_loop(part, inside, todo)
            elif inside.isdisjoint(part.vars) and all(self.known(v) for v in part.vars):
                if part.kind not in ("const", "ref"):
                    self.x(part)
            else:
                todo.extend(part.args)
                ix = {"load": lambda p: p.value[1], "ix": lambda p: p.value, "inrange": lambda p: p.value[0]}.get(
                    part.kind
                )
                if ix is not None:
                    todo.append(ix(part))

    def known(self, v: Any) -> bool:
        """Whether a variable or the result of a reduction has a value."""
        return v in self.places if type(v) is Var else (v, 0) in self.results

    def _index_before_loop(self, ix: Ix, inside: frozenset[Any], todo: list[Any]) -> None:
        kept = tuple((a, c) for a, c in ix.terms if inside.isdisjoint(_variables(a)))
        if kept and all(self.known(v) for a, _ in kept for v in _variables(a)):
            self._partial(Ix(kept, 0))
        for a, _ in ix.terms:
            if not inside.isdisjoint(_variables(a)) and type(a) is not Var:
                todo.append(a.value if type(a) is Data else a.ix)

    # ***** indices *****

    def ix(self, ix: Ix) -> Value:
        """An index expression as integers of the kernel's index dtype."""
        return self._once(ix, lambda: self._sum(ix))

    def _sum(self, ix: Ix) -> Value:
        if not ix.terms:
            return self.signature.size(ix.const)
        groups: dict[Any, list[Any]] = {}
        for a, c in ix.terms:
            groups.setdefault((self._level(a), self.atom(a).shape), []).append((a, c))
        total: Value | None = None
        for _, terms in sorted(groups.items(), key=lambda g: (sum(s > 1 for s in g[0][1]), g[0][0])):
            part = self._partial(Ix(tuple(terms), 0))
            total = part if total is None else self.apply("add", total, part)
        assert total is not None
        return self.apply("add", total, self.signature.size(ix.const)) if ix.const else total

    def _level(self, atom: Any) -> int:
        """How many scopes lie around the outermost one that knows all variables of an atom."""
        level, scope, variables = 0, self, _variables(atom)
        depth = 0
        while scope.outer is not None:
            depth += 1
            scope = scope.outer
        scope = self
        while scope.outer is not None:
            if any(type(v) is Var and v not in scope.outer.places for v in variables):
                level = depth
                break
            depth -= 1
            scope = scope.outer
        return level

    def _partial(self, ix: Ix) -> Value:
        """A sum of terms without a constant."""
        return self._once(ix, lambda: self._terms(ix))

    def _terms(self, ix: Ix) -> Value:
        total: Value | None = None
        for a, c in sorted(ix.terms, key=lambda t: t[1] < 0):
            term = self.atom(a)
            if abs(c) != 1:
                term = self.apply("mul", term, self.signature.size(abs(c)))
            if total is None:
                total = term if c > 0 else self.b.pointwise("neg", term)
            else:
                total = self.apply("add" if c > 0 else "sub", total, term)
        assert total is not None
        return total

    def atom(self, a: Any) -> Value:
        """A variable, a quotient, a remainder, or an index from data."""
        if type(a) is Var:
            return self.places[a]
        if type(a) is Data:
            return self._once(a, lambda: self._data(a))
        prim = "div_trunc" if type(a) is Div else "rem_trunc"
        return self._once(a, lambda: self.apply(prim, self.ix(a.ix), self.signature.size(a.by)))

    def _data(self, a: Data) -> Value:
        """An index read from data: counted from the end where it is negative, and checked where it is used."""
        value, size = self.x(a.value), self.signature.size(a.size, INT64)
        value = self.b.convert(value, INT64)
        zero = self.signature.constant(0, INT64)
        if a.wraps:
            moved = self.apply("add", value, size)
            value = self.apply("select", self.apply("lt", value, zero), moved, value)
        holds = self.apply("bitwise_and", self.apply("le", zero, value), self.apply("lt", value, size))
        where = self.mask(holds.shape, self.x(a.guard) if a.guard is not None else None)
        kind = "index" if a.code != RUNTIME_ERROR else "index of gather or scatter"
        self._require(holds, where, f"{kind} out of bounds in dim {a.dim}")
        return self.b.convert(self.apply("select", holds, value, zero), self.signature.index)

    def _require(self, holds: Value, where: Value | None, message: str) -> None:
        """Stop the kernel with a message if a condition does not hold at a place that counts."""
        if where is not None:
            elsewhere = self.apply("bitwise_xor", where, self.signature.constant(True, BOOL))
            holds = self.apply("bitwise_or", holds, elsewhere)
        self.b.emit("assert", holds, message=message)

    # ***** expressions *****

    def x(self, e: Expr) -> Value:
        """An expression; complex ones are tiles of a complex dtype."""
        if e.kind == "ref":
            return self.results[e.value]
        return self._once(e, lambda: self._expression(e))

    def _expression(self, e: Expr) -> Value:
        if e.kind == "const":
            return self.signature.number(e.value, e.dtype)
        if e.kind == "arg":
            return self._argument(e)
        if e.kind == "load":
            return self._load(e)
        if e.kind == "ix":
            return self.b.convert(self.ix(e.value), e.dtype)
        if e.kind == "inrange":
            return self._in_range(*e.value)
        prim, params = e.value
        given = dict(params) | ({"dtype": e.dtype} if prim in ("convert", "bitcast") else {})
        args = []
        for a in e.args:  # a comprehension would add a Python frame to each step of a long chain
            args.append(self.x(a))
        if prim == "require":
            x, holds = self.together(*args)
            self._require(holds, self.mask(holds.shape), REQUIREMENTS[given["requirement"]].text)
            return x
        return self.apply(prim, *args, **given)

    def _argument(self, e: Expr) -> Value:
        word = self.words[e.value]
        if e.dtype.kind != "c":
            return self.signature.argument(word, e.dtype)
        part = part_of(e.dtype)
        return self.b.pointwise("complex", *[self.signature.argument(word + k, part) for k in (0, 1)])

    def _in_range(self, ix: Ix, lo: int, hi: int) -> Value:
        value, found = self.ix(ix), None
        if ix.lo < lo:
            found = self.apply("le", self.signature.size(lo), value)
        if ix.hi >= hi:
            below = self.apply("lt", value, self.signature.size(hi))
            found = below if found is None else self.apply("bitwise_and", found, below)
        return self.signature.constant(True, BOOL) if found is None else found

    # ***** memory *****

    def _load(self, e: Expr) -> Value:
        buffer, ix = e.value
        self.signature.read[buffer] = None
        at = self.ix(ix)
        guard = self.x(e.args[0]) if e.args else None
        shape = at.shape if guard is None else meet(at.shape, guard.shape)
        return self.read(
            self.signature.pointer(buffer), self.expanded(at, shape), self.mask(shape, guard), buffer.dtype
        )

    def read(self, pointer: Value, at: Value, mask: Value | None, dtype: DType) -> Value:
        """The elements of memory at some places."""
        if mask is not None:
            at, mask = self.together(at, mask)
        if dtype.kind != "c":
            return self._read(pointer, at, mask, dtype)
        two, one, part = self.signature.size(2), self.signature.size(1), part_of(dtype)
        first = self.apply("mul", at, two)
        parts = [self._read(pointer, p, mask, part) for p in (first, self.apply("add", first, one))]
        return self.b.pointwise("complex", *parts)

    def _read(self, pointer: Value, at: Value, mask: Value | None, dtype: DType) -> Value:
        where = self.b.offset(self.expanded_pointer(pointer, at.shape), at)
        if mask is None:
            return self.b.load(where)
        return self.b.load(where, mask, self.expanded(self.signature.constant(0, dtype), at.shape))

    def expanded_pointer(self, pointer: Value, shape: Shape) -> Value:
        return self.b.splat(pointer, shape) if shape else pointer

    def write(self, pointer: Value, at: Value, value: Value, mask: Value | None, shape: Shape) -> None:
        """Write elements at some places."""
        at, value = self.expanded(at, shape), self.expanded(value, shape)
        mask = None if mask is None else self.expanded(mask, shape)
        if value.dtype.kind != "c":
            self.b.store(self.b.offset(self.expanded_pointer(pointer, shape), at), value, mask)
            return
        first = self.apply("mul", at, self.signature.size(2))
        for k, name in enumerate(("real", "imag")):
            place = self.apply("add", first, self.signature.size(1)) if k else first
            where = self.b.offset(self.expanded_pointer(pointer, shape), place)
            self.b.store(where, self.b.pointwise(name, value), mask)

    def store(self, s: Store) -> None:
        """A store of the schedule; with `combine` it reads what is there first."""
        self.signature.written[s.buffer] = None
        at, value = self.ix(s.ix), self.x(s.value)
        guard = self.x(s.guard) if s.guard is not None else None
        shape = meet(at.shape, value.shape)
        shape = shape if guard is None else meet(shape, guard.shape)
        mask, pointer = self.mask(shape, guard), self.signature.pointer(s.buffer)
        if s.combine is not None:
            self.signature.read[s.buffer] = None
            old = self.read(pointer, self.expanded(at, shape), mask, s.buffer.dtype)
            value = combined_store(self, s.combine, old, value, s.buffer.dtype)
        self.write(
            pointer, at, value if value.dtype is s.buffer.dtype else self.b.convert(value, s.buffer.dtype), mask, shape
        )


def combined_store(elements: Elements, combine: str, old: Value, value: Value, dtype: DType) -> Value:
    """The value that a combining store leaves in memory; narrow dtypes are rounded at every step."""
    value = elements.b.convert(value, dtype)
    return elements.apply(combine, old, value)


def meet(a: Shape, b: Shape) -> Shape:
    """The least shape to which two shapes of one tile broadcast."""
    if not a or not b:
        return a or b
    return tuple(max(m, n) for m, n in zip(a, b, strict=True))


def digits(elements_of: Elements, value: Value, loops: Sequence[Var]) -> dict[Var, Value]:
    """The values of loop variables, the last one fastest, of which `value` numbers all combinations."""
    found: dict[Var, Value] = {}
    for k in range(len(loops) - 1, 0, -1):
        size = elements_of.signature.size(loops[k].size)
        found[loops[k]] = elements_of.apply("rem_trunc", value, size)
        value = elements_of.apply("div_trunc", value, size)
    if loops:
        found[loops[0]] = value
    return found


def _variables(atom: Any) -> frozenset[Any]:
    return frozenset((atom,)) if type(atom) is Var else atom.vars
