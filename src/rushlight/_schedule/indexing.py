"""Integer index expressions: sums of coefficients times atoms, simplified by the ranges of loop variables.

An `Ix` is `const + sum(coefficient * atom)`. Atoms are loop variables, floor divisions and remainders of other
expressions by constants, and indices read from data. Constants are plain integers here; code generation decides which
of them become run-time slots of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Data", "Div", "Ix", "Mod", "Var", "const", "delinearize", "linearize"]


class Var:
    """A loop variable that runs over `0 <= v < size`."""

    __slots__ = ("hi", "lo", "name", "order", "size", "vars")

    _count = 0

    def __init__(self, size: int, name: str = "i") -> None:
        Var._count += 1
        self.size, self.name, self.order = size, name, Var._count
        self.lo, self.hi = 0, max(size - 1, 0)
        self.vars = frozenset((self,))

    def __repr__(self) -> str:
        return f"{self.name}{self.order}"

    @property
    def ix(self) -> Ix:
        return Ix(((self, 1),), 0)


class Div:
    """`floor(ix / by)`; `ix` is never negative."""

    __slots__ = ("by", "hash", "hi", "ix", "lo", "order", "vars")

    def __init__(self, ix: Ix, by: int) -> None:
        self.ix, self.by, self.vars = ix, by, ix.vars
        self.lo, self.hi = ix.lo // by, ix.hi // by
        self.order = 1_000_000_000 + max((a.order for a, _ in ix.terms), default=0) % 1_000_000_000
        self.hash = hash((ix, by, "div"))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Div and self.by == other.by and self.ix == other.ix)

    def __repr__(self) -> str:
        return f"({self.ix} // {self.by})"


class Mod:
    """`ix mod by`; `ix` is never negative."""

    __slots__ = ("by", "hash", "hi", "ix", "lo", "order", "vars")

    def __init__(self, ix: Ix, by: int) -> None:
        self.ix, self.by, self.vars = ix, by, ix.vars
        self.lo, self.hi = 0, min(by - 1, ix.hi)
        self.order = 2_000_000_000 + max((a.order for a, _ in ix.terms), default=0) % 1_000_000_000
        self.hash = hash((ix, by, "mod"))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Mod and self.by == other.by and self.ix == other.ix)

    def __repr__(self) -> str:
        return f"({self.ix} % {self.by})"


class Data:
    """An index read from data: `value` (an int64 expression), checked to be below `size`.

    `wraps`: a negative index counts from the end. `dim` and `code` select the dim and the exception of the error.
    Where `guard` does not hold, the index is neither read nor checked.
    """

    __slots__ = ("code", "dim", "guard", "hash", "hi", "lo", "order", "size", "value", "vars", "wraps")

    def __init__(
        self, value: Any, size: int, dim: int = 0, code: int = 0, guard: Any = None, wraps: bool = True
    ) -> None:
        self.value, self.size, self.dim, self.code, self.guard, self.wraps = value, size, dim, code, guard, wraps
        self.vars = value.vars if guard is None else value.vars | guard.vars
        self.lo, self.hi = 0, max(size - 1, 0)
        self.order = 3_000_000_000 + value.order
        self.hash = hash((id(value), size, id(guard)))

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is Data and self._fields() == other._fields())

    def _fields(self) -> tuple[Any, ...]:
        return (id(self.value), self.size, self.dim, self.code, id(self.guard), self.wraps)

    def __repr__(self) -> str:
        return f"[{self.value!r} of {self.size}]"


Atom = Any  # Var | Div | Mod | Data
_EMPTY: frozenset[Var] = frozenset()


class Ix:
    """An index expression.  Build it by arithmetic on `Var.ix` and `const(n)`."""

    __slots__ = ("_hash", "_range", "_vars", "const", "terms")

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int) -> None:
        self.terms, self.const = terms, const
        self._hash: int | None = None
        self._range: tuple[int, int] | None = None
        self._vars: frozenset[Var] | None = None

    # ***** facts *****

    @property
    def vars(self) -> frozenset[Var]:
        """All loop variables that it depends on, through data too."""
        if self._vars is None:
            self._vars = _EMPTY.union(*(a.vars for a, _ in self.terms)) if self.terms else _EMPTY
        return self._vars

    def _bounds(self) -> tuple[int, int]:
        lo = hi = self.const
        for a, c in self.terms:
            if c > 0:
                lo += c * a.lo
                hi += c * a.hi
            else:
                lo += c * a.hi
                hi += c * a.lo
        self._range = (lo, hi)
        return self._range

    @property
    def lo(self) -> int:
        return (self._range or self._bounds())[0]

    @property
    def hi(self) -> int:
        return (self._range or self._bounds())[1]

    def coefficient(self, var: Var) -> int | None:
        """The coefficient of `var`, 0 where it does not occur; None where it occurs in a division or in data."""
        coefficient = 0
        for a, c in self.terms:
            if a is var:
                coefficient = c
            elif type(a) is not Var and var in a.vars:
                return None
        return coefficient

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.terms, self.const))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Ix) and self.const == other.const and self.terms == other.terms)

    def __repr__(self) -> str:
        parts = [f"{a!r}" if c == 1 else f"{c}*{a!r}" for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    # ***** arithmetic *****

    def __add__(self, other: Ix | int) -> Ix:
        if isinstance(other, int):
            return self if other == 0 else Ix(self.terms, self.const + other)
        if not other.terms:
            return self if other.const == 0 else Ix(self.terms, self.const + other.const)
        if not self.terms:
            return other if self.const == 0 else Ix(other.terms, self.const + other.const)
        merged = dict(self.terms)
        for a, c in other.terms:
            total = merged.get(a, 0) + c
            if total:
                merged[a] = total
            else:
                merged.pop(a, None)
        return _normal(merged, self.const + other.const)

    def __sub__(self, other: Ix | int) -> Ix:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, by: int) -> Ix:
        if by == 1:
            return self
        if by == 0:
            return ZERO
        return Ix(tuple([(a, c * by) for a, c in self.terms]), self.const * by)

    def floordiv(self, by: int) -> Ix:
        """Floor division by a positive constant.  The expression must never be negative."""
        if by == 1:
            return self
        if 0 <= self.lo and self.hi < by:
            return ZERO
        whole, rest = _part(self, by)
        if 0 <= rest.lo and rest.hi < by:
            return whole
        if len(rest.terms) == 1 and rest.const == 0:
            a, c = rest.terms[0]
            if type(a) is Div and c == 1:
                return whole + a.ix.floordiv(a.by * by)
            if type(a) is Mod and c == 1 and a.by % by == 0:
                return whole + Ix(((Div(a.ix, by), 1),), 0).mod(a.by // by)
            if by % c == 0 and c > 1:
                return whole + Ix(((a, 1),), 0).floordiv(by // c)
        return whole + Ix(((Div(rest, by), 1),), 0)

    def mod(self, by: int) -> Ix:
        """The remainder by a positive constant.  The expression must never be negative."""
        if by == 1:
            return ZERO
        if 0 <= self.lo and self.hi < by:
            return self
        _, rest = _part(self, by)
        if 0 <= rest.lo and rest.hi < by:
            return rest
        if len(rest.terms) == 1 and rest.const == 0:
            a, c = rest.terms[0]
            if type(a) is Mod and c == 1 and a.by % by == 0:
                return a.ix.mod(by)
            if by % c == 0 and c > 1:
                return Ix(((a, 1),), 0).mod(by // c) * c
        return Ix(((Mod(rest, by), 1),), 0)

    def rebuild(self, replace: Callable[[Atom], Ix | None]) -> Ix:
        """The expression with atoms replaced: `replace(atom)` gives an expression, or None to keep the atom's form.

        Divisions and remainders are rebuilt, which simplifies them again.
        """
        total = Ix((), self.const)
        for a, c in self.terms:
            new = replace(a)
            if new is None:
                if type(a) is Div:
                    new = a.ix.rebuild(replace).floordiv(a.by)
                elif type(a) is Mod:
                    new = a.ix.rebuild(replace).mod(a.by)
                else:
                    new = Ix(((a, 1),), 0)
            total = total + new * c
        return total


def _order(term: tuple[Atom, int]) -> int:
    return term[0].order


def _normal(terms: dict[Atom, int], const: int) -> Ix:
    """Sorted terms; `c * by * (x // by) + c * (x % by)` becomes `c * x`."""
    if len(terms) > 1:
        for a, c in terms.items():
            if type(a) is not Mod:
                continue
            twin = a.ix.floordiv(a.by)
            if len(twin.terms) != 1 or twin.const or twin.terms[0][1] != 1:
                continue
            if terms.get(twin.terms[0][0]) == c * a.by:
                rest = {t: e for t, e in terms.items() if t is not a and t != twin.terms[0][0]}
                for t, e in a.ix.terms:
                    rest[t] = rest.get(t, 0) + e * c
                return _normal({t: e for t, e in rest.items() if e}, const + a.ix.const * c)
    return Ix(tuple(sorted(terms.items(), key=_order)), const)


def _part(ix: Ix, by: int) -> tuple[Ix, Ix]:
    """Split `ix` into `by * whole + rest`, where `whole` takes all terms that `by` divides."""
    whole: list[tuple[Atom, int]] = []
    rest: list[tuple[Atom, int]] = []
    for a, c in ix.terms:
        (rest if c % by else whole).append((a, c))
    const_whole = 0 if 0 <= ix.const < by else ix.const // by  # of symbols a plain 0: equal constants stay equal keys
    least = ix.const - const_whole * by + sum(c * (a.lo if c > 0 else a.hi) for a, c in rest)
    if least < 0:  # what is divided must not be negative
        const_whole -= -(least // by)
    return (Ix(tuple((a, c // by) for a, c in whole), const_whole), Ix(tuple(rest), ix.const - const_whole * by))


def const(n: int) -> Ix:
    """The constant expression `n`."""
    return Ix((), n)


ZERO = Ix((), 0)


def linearize(index: Sequence[Ix], shape: Sequence[int]) -> Ix:
    """The row-major offset of `index` in `shape`."""
    total, step = ZERO, 1
    for ix, size in zip(reversed(index), reversed(shape), strict=True):
        if size != 1:
            total = total + ix * step
        step *= size
    return total


def delinearize(offset: Ix, shape: Sequence[int]) -> list[Ix]:
    """The index in `shape` of a row-major offset."""
    result: list[Ix] = []
    outermost = next((d for d, size in enumerate(shape) if size != 1), 0)
    for dim in range(len(shape) - 1, -1, -1):
        size = shape[dim]
        if size == 1:
            result.append(ZERO)
        elif dim == outermost:
            result.append(offset)
        else:
            result.append(offset.mod(size))
            offset = offset.floordiv(size)
    result.reverse()
    return result
