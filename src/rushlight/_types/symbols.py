"""Symbolic numbers: integers and floats with their formulas in the sizes of a call.

A symbolic integer is not a Python int: code that reads it as one (`range`, `struct.pack`, an index, `float`) requires
this value, which is recorded on its `shape_env` (see `shape_env`).  Arithmetic on symbols is symbolic too; comparisons
use the current values and are recorded.  So code that knows nothing of symbols is traced completely.

As keys of tables symbolic integers stand for their formulas, not for their values: two 12s with different formulas are
two keys.  `Integer.__hash__` records for numbers in tables of small numbers whether they are equal to those.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight._types.shape_env import ShapeEnv

__all__ = [
    "Hole", "Integer", "Real", "Terms", "SpecializationError", "as_double", "as_index", "double_bits", "env_of", "extreme", "filled", "filler", "finite", "framed", "hint", "is_symbolic", "key_of", "pinned", "settled",
    "single", "told", "truncated", "watch_arithmetic",
]  # fmt: skip

_INF = math.inf
Terms = tuple[tuple[tuple[int, ...], int], ...]  # of a sum of products: the atoms of each, and its factor


class SpecializationError(Exception):
    """An operation on a symbolic number that cannot be recorded."""


def is_symbolic(value: Any) -> bool:
    """Whether a number has a formula."""
    return type(value) is Integer or type(value) is Real


def env_of(numbers: Iterable[Any]) -> Any:
    """The `ShapeEnv` of the first symbolic number among some; None where there is none."""
    for number in numbers:
        if type(number) is Integer:
            return number.shape_env
    return None


def hint(value: Any) -> Any:
    """The value that a symbolic number has now; nothing is recorded, so nothing may depend on it but what holds for
    every value.
    """
    return value.value if is_symbolic(value) else value


def as_index(value: Any) -> Any:
    """`operator.index(value)`, keeping a formula; small numbers, which tables have as keys, are plain ones."""
    if type(value) is Integer and not value.shape_env.is_constant(value.value):
        return value
    return operator.index(value)


def pinned(value: Any) -> Any:
    """The plain number; records that a symbolic one has this value."""
    return value.pin() if is_symbolic(value) else value


def settled(value: Any) -> Any:
    """As `pinned`, for a number that decides the course of the computation: formulas then hold for one value, but a
    `tried` attempt does not fail."""
    if is_symbolic(value):
        before, plain = value.shape_env.pinned, value.pin()
        value.shape_env.pinned = before
        return plain
    return value


def key_of(value: Any) -> Any:
    """A key that distinguishes numbers: type and all digits of plain ones (0.0 is not -0.0), the formula of symbolic
    ones."""
    return value if is_symbolic(value) else repr(value)


def as_double(value: Any) -> Any:
    """`float(value)`, keeping a formula."""
    return value.real_number() if is_symbolic(value) else float(value)


def truncated(value: Any) -> Any:
    """`int(value)`, keeping a formula."""
    return value.truncated() if is_symbolic(value) else int(value)


def single(value: Any, code: str = "f") -> Any:
    """A number rounded to float32 (or float16, code "e"); OverflowError beyond its range."""
    return value.single(code) if is_symbolic(value) else struct.unpack(code, struct.pack(code, value))[0]


def finite(value: Any) -> bool:
    """`math.isfinite(value)`, keeping a formula."""
    return value.finite() if is_symbolic(value) else math.isfinite(value)


def double_bits(value: float) -> int:
    """The bits of a double as an integer."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


class _Ordered:
    """Comparisons by `_order(other, "<" or "<=", whether the sides are exchanged)`."""

    __slots__ = ()

    def _order(self, other: Any, wanted: str, swap: bool) -> Any:
        raise NotImplementedError

    def __lt__(self, other: Any) -> Any:
        return self._order(other, "<", False)

    def __le__(self, other: Any) -> Any:
        return self._order(other, "<=", False)

    def __gt__(self, other: Any) -> Any:
        return self._order(other, "<", True)

    def __ge__(self, other: Any) -> Any:
        return self._order(other, "<=", True)


class Integer(_Ordered):
    """An integer with its formula: a sum of products of atoms."""

    __slots__ = ("_hash", "terms", "shape_env", "value")

    def __init__(self, shape_env: ShapeEnv, value: int, terms: Terms) -> None:
        self.shape_env, self.value, self.terms = shape_env, value, terms
        self._hash: int | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    # ***** read as a plain number *****

    def pin(self) -> int:
        """The value; recorded."""
        self.shape_env.check_known(self)
        if not self.shape_env.closed:
            self.shape_env.pinned += 1
            self.shape_env.sign(self - self.value, "==")
        return self.value

    def __int__(self) -> int:
        return self.pin()

    __index__ = __trunc__ = __ceil__ = __floor__ = __int__

    def __float__(self) -> float:
        return float(self.pin())

    def __str__(self) -> str:
        return str(self.shape_env.said(self))

    def __format__(self, how: str) -> str:
        return format(self.shape_env.said(self), how)

    def __repr__(self) -> str:
        return repr(self.pin()) if self.shape_env.is_read_as_text() else self.shape_env.shown(self)

    @property
    def node(self) -> Any:
        """The node of this number, as its `ShapeEnv` shows it to programs."""
        return self.shape_env.node_of(self)

    def __reduce__(self) -> Any:
        raise SpecializationError("a symbolic number is copied")

    def __hash__(self) -> int:
        if self.shape_env.by_value is not None and self.shape_env.by_value():
            return hash(self.pin())
        if self._hash is None:
            constant, most = self.shape_env.is_constant(self.value), self.shape_env.largest_constant
            if not constant and most is not None:
                self._order(most if self.value > 0 else -1, "<", self.value > 0)
            self._hash = hash(self.pin()) if constant else hash(self.terms)
        return self._hash

    def truncated(self) -> Integer:
        """The same."""
        return self

    def real_number(self) -> Real:
        """The same as a float."""
        if abs(self.value) > 1 << 53:
            raise SpecializationError("an integer beyond what floats hold")
        return self.shape_env.real(f"as_double({self.shape_env.text(self.terms)})", float(self.value))

    def single(self, code: str) -> Any:
        """Rounded as a narrower float."""
        return self.real_number().single(code)

    def finite(self) -> bool:
        """Always."""
        return True

    def bit_length(self) -> int:
        """The bit length of the value; recorded as the range of values with that length."""
        bits = self.value.bit_length()
        if self.value < 0:
            return self.pin().bit_length()
        self._order(1 << bits >> 1, "<=", True)
        self._order(1 << bits, "<", False)
        return bits

    # ***** arithmetic *****

    def _check(self, other: Integer) -> None:
        """SpecializationError for a number of another trace."""
        if other.shape_env is not self.shape_env:
            raise SpecializationError("sizes of two traces meet")

    def _made(self, value: int, terms: dict[tuple[int, ...], int]) -> Any:
        kept = tuple(sorted([t for t in terms.items() if t[1]]))
        if not kept or (len(kept) == 1 and not kept[0][0]):
            return value
        return Integer(self.shape_env, value, kept)

    def __add__(self, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool:
            if not other:
                return self
            first, c = self.terms[0]  # the constant, if there is one: `()` comes before all atoms
            rest = self.terms if first else self.terms[1:]
            const = other if first else other + c
            return Integer(self.shape_env, self.value + other, (((), int(const)), *rest) if const else rest)
        if kind is Integer:
            self._check(other)
            terms = dict(self.terms)
            for atoms, c in other.terms:
                terms[atoms] = terms.get(atoms, 0) + c
            return self._made(self.value + other.value, terms)
        return self.real_number() + other if kind is float or kind is Real else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Integer:
        return Integer(self.shape_env, -self.value, tuple([(atoms, -c) for atoms, c in self.terms]))

    def __pos__(self) -> Integer:
        return self

    def __abs__(self) -> Any:
        if self.shape_env.is_unknown(self.terms) and self.shape_env.bounds(self.terms)[0] < 0:
            return self.shape_env.atom(("abs", self.terms), abs(self.value), f"abs({self._text()})", 0, _INF)
        return -self if self < 0 else self

    def __sub__(self, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool:
            return self + -other
        if kind is Integer:
            self._check(other)
            terms = dict(self.terms)
            for atoms, c in other.terms:
                terms[atoms] = terms.get(atoms, 0) - c
            return self._made(self.value - other.value, terms)
        return self.real_number() - other if kind is float or kind is Real else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return (
            -self + other
            if type(other) is int
            else other - self.real_number()
            if type(other) is float
            else NotImplemented
        )

    def __mul__(self, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool:
            if other == 1:
                return self
            if other == 0:
                return 0
            return Integer(self.shape_env, self.value * other, tuple([(atoms, c * other) for atoms, c in self.terms]))
        if kind is Integer:
            self._check(other)
            terms: dict[tuple[int, ...], int] = {}
            for a, c in self.terms:
                for b, d in other.terms:
                    atoms = tuple(sorted(a + b)) if a and b else a or b
                    terms[atoms] = terms.get(atoms, 0) + c * d
            return self._made(self.value * other.value, terms)
        return self.real_number() * other if kind is float or kind is Real else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self.real_number() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.real_number()

    def __divmod__(self, by: Any) -> tuple[Any, Any]:
        return self // by, self % by

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __floordiv__(self, by: Any) -> Any:
        kind = type(by)
        if kind is float or kind is Real:
            return self.real_number() // by
        if kind is not int and kind is not Integer:
            return NotImplemented
        exact = self._exactly(by)
        if exact is not None:
            return exact
        terms = by.terms if kind is Integer else by
        value = self.value // (by.value if kind is Integer else by)
        lo, hi = self.shape_env.bounds(self.terms)
        if kind is int and by > 0:
            lo, hi = (lo if lo == -_INF else lo // by), (hi if hi == _INF else hi // by)
            if lo == hi:
                return int(lo)
        else:
            lo, hi = (0 if kind is Integer and lo >= 0 and self.shape_env.bounds(terms)[0] > 0 else -_INF), _INF
        return self.shape_env.atom(("//", self.terms, terms), value, f"({self._text()})//({_text_of(by)})", lo, hi)

    def __rfloordiv__(self, other: Any) -> Any:
        if type(other) is not int:
            return other // self.real_number()
        lo = 0 if other >= 0 and self.shape_env.bounds(self.terms)[0] > 0 else -_INF
        return self.shape_env.atom(
            ("//", other, self.terms), other // self.value, f"({other})//({self._text()})", lo, _INF
        )

    def _exactly(self, by: Any) -> Any:
        """The quotient, if it is a formula for all sizes; else None."""
        if type(by) is int:
            if by == 1:
                return self
            if by and all(c % by == 0 for _, c in self.terms):
                return Integer(self.shape_env, self.value // by, tuple([(atoms, c // by) for atoms, c in self.terms]))
            return None
        if by.value == 0 or self.shape_env.bounds(by.terms)[0] <= 0:
            return None
        return self.quotient(by)

    def quotient(self, by: Integer) -> Any:
        """The formula which times `by` is this one; None where there is none."""
        if by.terms == self.terms:
            return 1
        if len(by.terms) != 1:
            return None
        (divisor, factor), *_ = by.terms
        terms: dict[tuple[int, ...], int] = {}
        for atoms, c in self.terms:
            rest = list(atoms)
            for atom in divisor:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if c % factor:
                return None
            terms[tuple(rest)] = c // factor
        return self._made(self.value // by.value, terms)

    def __mod__(self, by: Any) -> Any:
        kind = type(by)
        if kind is float or kind is Real:
            return self.real_number() % by
        if kind is not int and kind is not Integer:
            return NotImplemented
        if self._exactly(by) is not None:
            return 0
        if kind is int and by > 0:  # divisible terms leave no remainder
            rest = tuple([(atoms, c % by) for atoms, c in self.terms if c % by])
            if len(rest) == 1 and not rest[0][0]:
                return rest[0][1]
            lo, hi = self.shape_env.bounds(rest)
            small = Integer(self.shape_env, sum(c * self._product(atoms) for atoms, c in rest), rest)
            if 0 <= lo and hi < by:
                return small
            return self.shape_env.atom(("%", rest, by), self.value % by, f"({small._text()})%{by}", 0, by - 1)
        terms = by.terms if kind is Integer else by
        divisor = by.value if kind is Integer else by
        lo = 0 if kind is Integer and self.shape_env.bounds(terms)[0] > 0 else -_INF
        return self.shape_env.atom(
            ("%", self.terms, terms), self.value % divisor, f"({self._text()})%({_text_of(by)})", lo, _INF
        )

    def __rmod__(self, other: Any) -> Any:
        if type(other) is not int:
            return NotImplemented
        lo = 0 if self.shape_env.bounds(self.terms)[0] > 0 else -_INF
        return self.shape_env.atom(
            ("%", other, self.terms), other % self.value, f"({other})%({self._text()})", lo, _INF
        )

    def _product(self, atoms: tuple[int, ...]) -> int:
        value = 1
        for a in atoms:
            value *= self.shape_env.values[a]
        return value

    def _text(self) -> str:
        return self.shape_env.text(self.terms)

    def __pow__(self, by: Any, modulus: Any = None) -> Any:
        if type(by) is int and by >= 0 and modulus is None:
            product: Any = 1
            for _ in range(by):
                product = product * self
            return product
        return self.real_number() ** by if modulus is None else NotImplemented

    def __lshift__(self, by: int) -> Any:
        return self * (1 << by)

    def __rshift__(self, by: int) -> Any:
        return self // (1 << by)

    def __and__(self, other: Any) -> Any:
        step = -other if type(other) is int and other < 0 else 0
        # The multiple of a power of two below
        return self // step * step if step and not step & (step - 1) else self.pin() & other

    __rand__ = __and__

    def __or__(self, other: Any) -> int:
        return self.pin() | other

    __ror__ = __or__

    # ***** decisions *****

    def __bool__(self) -> bool:
        return not self.shape_env.sign(self, "==")

    def _order(self, other: Any, wanted: str, swap: bool) -> Any:
        """`self < other` (or <=), exchanged with `swap`."""
        kind = type(other)
        if kind is int or kind is Integer or kind is bool:
            gap = other - self if swap else self - other
            if type(gap) is int:
                return gap < 0 if wanted == "<" else gap <= 0
            return self.shape_env.sign(gap, wanted)
        if kind is float:
            if other == _INF or other == -_INF:
                return (other == _INF) != swap
            if other == int(other):
                return self._order(int(other), wanted, swap)
        return self.real_number()._order(other, wanted, swap) if kind is float or kind is Real else NotImplemented

    def __eq__(self, other: object) -> Any:
        kind = type(other)
        if kind is Integer:
            if self.shape_env is not other.shape_env:  # type: ignore[attr-defined]
                return False  # formulas of two traces have nothing in common
            if self.terms == other.terms:  # type: ignore[attr-defined]
                return True
        elif kind is float and other == int(other):  # type: ignore[call-overload]
            other = int(other)  # type: ignore[call-overload]
        elif kind is not int and kind is not bool:
            return self.real_number() == other if kind is Real or kind is float else NotImplemented
        gap = self - other
        return gap == 0 if type(gap) is int else self.shape_env.sign(gap, "==")

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return not equal if equal is True or equal is False else equal if equal is NotImplemented else ~equal


def _text_of(value: Any) -> str:
    return value.shape_env.written(value) if is_symbolic(value) else repr(value)


class Real(_Ordered):
    """A float with its formula: a name for a step of the computation."""

    __slots__ = ("name", "shape_env", "value")

    def __init__(self, shape_env: ShapeEnv, value: float, name: str) -> None:
        self.shape_env, self.value, self.name = shape_env, value, name

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def pin(self) -> float:
        """The value; recorded."""
        self.shape_env.pinned += 1
        self.shape_env.fact(f"{self.name} == {self.value!r}", True)
        if not self.value or not math.isfinite(self.value):
            raise SpecializationError("a zero, whose sign matters, or an infinity")
        return self.value

    __float__ = pin

    def __int__(self) -> int:
        return int(self.truncated())

    __trunc__ = __int__

    def __str__(self) -> str:
        return str(self.shape_env.said(self))

    def __format__(self, how: str) -> str:
        return format(self.shape_env.said(self), how)

    def __repr__(self) -> str:
        return repr(self.pin()) if self.shape_env.is_read_as_text() else self.shape_env.shown(self)

    @property
    def node(self) -> Any:
        """The node of this number, as its `ShapeEnv` shows it to programs."""
        return self.shape_env.node_of(self)

    def __hash__(self) -> int:
        if not self.value:
            raise SpecializationError("a zero as a key")
        return hash(self.name)

    def __reduce__(self) -> Any:
        raise SpecializationError("a symbolic number is copied")

    def truncated(self) -> Any:
        """Rounded towards zero, as an integer."""
        value = int(self.value)
        lo = 0 if self >= 0 else -_INF
        return self.shape_env.atom(("truncated", self.name), value, f"truncated({self.name})", lo, _INF)

    def real_number(self) -> Real:
        """The same."""
        return self

    def single(self, code: str) -> Real:
        """Rounded as a narrower float."""
        return self.shape_env.real(f"single({self.name}, {code!r})", single(self.value, code))

    def finite(self) -> bool:
        """Whether it is finite."""
        return self.shape_env.fact(
            f"(abs({self.name}) < {1.7976931348623157e308!r})", abs(self.value) < 1.7976931348623157e308
        )

    def square_root(self) -> Real:
        """The square root; ValueError of a negative number."""
        return self.shape_env.real(f"sqrt({self.name})", math.sqrt(self.value))

    def is_integer(self) -> bool:
        """Whether it is a whole number."""
        return self.shape_env.fact(f"({self.name} == truncated({self.name}))", self.value.is_integer())

    def _with(self, other: Any, sign: str, compute: Callable[[Any, Any], float], swap: bool = False) -> Any:
        kind = type(other)
        if kind is Integer:
            other = other.real_number()
        elif kind is int or kind is bool:
            other = float(other)
        elif kind is not float and kind is not Real:
            return NotImplemented
        value = other.value if type(other) is Real else other
        if type(other) is float and not math.isfinite(other):
            raise SpecializationError("an infinity")
        a, b = (value, self.value) if swap else (self.value, value)
        left, right = (_text_of(other), self.name) if swap else (self.name, _text_of(other))
        return self.shape_env.real(f"({left}){sign}({right})", compute(a, b))

    def __add__(self, other: Any) -> Any:
        return self._with(other, "+", operator.add)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, "+", operator.add, True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "-", operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, "-", operator.sub, True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, "*", operator.mul)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, "*", operator.mul, True)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, "/", operator.truediv)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, "/", operator.truediv, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, "//", operator.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, "//", operator.floordiv, True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, "%", operator.mod)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, "%", operator.mod, True)

    def __pow__(self, other: Any) -> Any:
        return self._with(other, "**", operator.pow)

    def __neg__(self) -> Real:
        return self.shape_env.real(f"-({self.name})", -self.value)

    def __abs__(self) -> Any:
        return self.shape_env.real(f"abs({self.name})", abs(self.value))

    def __round__(self, digits: int | None = None) -> Any:
        if digits is not None:
            raise SpecializationError("rounding to digits")
        return self.shape_env.atom(("round", self.name), round(self.value), f"round({self.name})", -_INF, _INF)

    def _order(self, other: Any, wanted: str, swap: bool) -> Any:
        kind = type(other)
        if kind is Integer:
            other = other.real_number()
        elif kind is float and (other in (_INF, -_INF)):
            return (other == _INF) != swap
        elif kind is not float and kind is not int and kind is not Real:
            return NotImplemented
        value = other.value if type(other) is Real else other
        if type(other) is Real and other.name == self.name:
            return wanted == "<="
        a, b = (value, self.value) if swap else (self.value, value)
        left, right = (_text_of(other), self.name) if swap else (self.name, _text_of(other))
        return self.shape_env.fact(f"({left} {wanted} {right})", a < b if wanted == "<" else a <= b)

    def __bool__(self) -> bool:
        return not self._order(0.0, "<=", False) or not self._order(0.0, "<=", True)

    def __eq__(self, other: object) -> Any:
        kind = type(other)
        if kind is Real:
            if self.name == other.name:  # type: ignore[attr-defined]
                return True
            return self.shape_env.fact(f"({self.name} == {other.name})", self.value == other.value)  # type: ignore[attr-defined]
        if kind is Integer:
            return self == other.real_number()  # type: ignore[attr-defined]
        if kind is not int and kind is not float and kind is not bool:
            return NotImplemented
        if kind is float and not math.isfinite(other):  # type: ignore[arg-type]
            return False
        return self.shape_env.fact(f"({self.name} == {other!r})", self.value == other)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal


# ***** arithmetic that is told of *****

_OPERATIONS = "add sub mul truediv floordiv mod pow neg abs".split()


def watch_arithmetic() -> None:
    """From now on arithmetic tells the `watch` of a `ShapeEnv`, where it has one, of the numbers that it makes:
    `watch(operation, operands, made)`.
    """
    if hasattr(Integer.__add__, "told"):
        return
    for kind in (Integer, Real):
        for name in _OPERATIONS:
            operation = getattr(operator, name)
            for method, swapped in ((f"__{name}__", False), (f"__r{name}__", True)):
                plain = getattr(kind, method, None)
                if plain is not None:
                    setattr(kind, method, _told(plain, operation, swapped))


def told(operation: Callable[..., Any], operands: tuple[Any, ...], made: Any) -> Any:
    """`made`, which an operation gave of symbolic operands; who watches is told."""
    watch = next(n.shape_env for n in operands if is_symbolic(n)).watch
    if watch is not None and is_symbolic(made) and all(made is not each for each in operands):
        watch(operation, operands, made)
    return made


def _told(method: Callable[..., Any], operation: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def told(self: Any, *others: Any) -> Any:
        env = self.shape_env
        watch, env.watch = env.watch, None  # an operation is made of others, which nobody wrote
        try:
            made = method(self, *others)
        finally:
            env.watch = watch
        if watch is not None and is_symbolic(made) and made is not self and all(made is not other for other in others):
            watch(operation, (*others, self) if swapped else (self, *others), made)
        return made

    told.told = True  # type: ignore[attr-defined]
    return told


# ***** numbers inside of other things *****


def extreme(word: str, a: Any, b: Any) -> Any:
    """The larger ("max") or the smaller ("min") of two integers, one of which at least is symbolic; nothing is decided."""
    env = env_of((a, b))
    (lo, hi), (least, most) = [(n, n) if type(n) is int else n.shape_env.bounds(n.terms) for n in (a, b)]
    if lo >= most or hi <= least:
        return a if (lo >= most) is (word == "max") else b
    pick = max if word == "max" else min
    key = (word, *[n.terms if type(n) is Integer else n for n in (a, b)])
    value = pick(hint(a), hint(b))
    return env.atom(key, value, f"{word}({_text_of(a)}, {_text_of(b)})", pick(lo, least), pick(hi, most))


class Hole:
    """A placeholder for a number in the result of `framed`."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def framed(value: Any, numbers: list[Any]) -> Any:
    """`value` with symbolic numbers in its tuples, lists and dicts replaced by holes; the numbers are appended to
    `numbers`."""
    if is_symbolic(value):
        numbers.append(value)
        return Hole(len(numbers) - 1)
    if type(value) in (tuple, list):
        return type(value)([framed(v, numbers) for v in value])
    if type(value) is dict:
        return {k: framed(v, numbers) for k, v in value.items()}
    return value


def filler(frame: Any) -> Callable[[Sequence[Any]], Any] | None:
    """`filled(frame, values)` as a function of the values, whose result shares what has no holes with the frame; None
    for a frame without.

    >>> fill = filler([1, (Hole(0), 2), [3]])
    >>> fill([7])
    [1, (7, 2), [3]]
    """
    kind = type(frame)
    if kind is Hole:
        return operator.itemgetter(frame.place)
    if kind not in (tuple, list, dict):
        return None
    items = frame.items() if kind is dict else enumerate(frame)
    holes = [(at, fill) for at, part in items if (fill := filler(part)) is not None]
    if not holes:
        return None

    def fill_all(values: Sequence[Any]) -> Any:
        made = dict(frame) if kind is dict else list(frame)
        for at, fill in holes:
            made[at] = fill(values)
        return tuple(made) if kind is tuple else made

    return fill_all


def filled(frame: Any, values: Sequence[Any]) -> Any:
    """A framed value with these numbers in its holes."""
    kind = type(frame)
    if kind is Hole:
        return values[frame.place]
    if kind in (tuple, list):
        return kind([filled(v, values) for v in frame])
    return {k: filled(v, values) for k, v in frame.items()} if kind is dict else frame
