"""Symbolic sizes, and a record of all decisions that depend on them.

>>> from rushlight._types.shape_env import ShapeEnv
>>> shape_env = ShapeEnv([12, 7])                     # two sizes, called n0 and n1
>>> n, m = shape_env.symbols
>>> pieces = -(-n * m // 64) if n > 8 else 1   # ordinary code, which computes with 12 and 7
>>> again = shape_env.compiled([pieces])           # the same for other sizes; None where a decision would differ
>>> again(100, 9), again(5, 9)
((15,), None)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight._types.symbols import (
    Integer,
    Real,
    SpecializationError,
    Terms,
    as_double,
    double_bits,
    hint,
    single,
    truncated,
)

__all__ = [
    "FOLLOWS",
    "LEAST",
    "ConstraintViolationError",
    "GuardOnDataDependentSymNode",
    "ShapeEnv",
    "Undecided",
    "apart",
    "chosen_by",
    "is_unknown",
    "names_in",
    "require_between",
    "require_equal",
]

LEAST = 3  # lower bound of symbols: smaller sizes are constants of kernels
FOLLOWS = 1 << 20  # in a layout without its sizes: the stride is that of another dim times its size
_INF = math.inf


class ConstraintViolationError(RuntimeError):
    """A size is not what was said of it."""


class GuardOnDataDependentSymNode(RuntimeError):
    """A condition depends on a size that is only known when the program runs."""


class Undecided:
    """A condition on sizes that are unknown: `difference` is negative ("<"), not positive ("<=") or zero ("=="), or not
    so.
    """

    __slots__ = ("difference", "held", "wanted")

    def __init__(self, difference: Integer, wanted: str, held: bool = True) -> None:
        self.difference, self.wanted, self.held = difference, wanted, held

    def __bool__(self) -> bool:
        env: Any = self.difference.shape_env
        sizes = ", ".join(sorted(n for n in env.symbols_in(self.difference) if n in env.unbacked_names)) or "none"
        raise GuardOnDataDependentSymNode(
            f"Could not guard on data-dependent expression {self} (unhinted: {self}).  (Size-like symbols: {sizes})\n\n"
            "The size is known when the program runs. torch._check(...) says what holds of it; torch.cond chooses then."
        )

    def __invert__(self) -> Undecided:
        return Undecided(self.difference, self.wanted, not self.held)

    def __str__(self) -> str:
        env: Any = self.difference.shape_env
        return str(env.told_condition(self.difference, self.wanted, self.held))

    __repr__ = __str__

    def require(self) -> None:
        """Take it to be true from now on."""
        env: Any = self.difference.shape_env
        env.require(self.difference, self.wanted, self.held)


class ShapeEnv:
    """Symbolic sizes, and the decisions that have used them."""

    largest_constant: int | None = 2  # numbers from -1 to this are constants of kernels; None: no number is
    watch: Callable[..., None] | None = None  # who is told of arithmetic (`symbols.watch_arithmetic`)
    asked_by_backend = False  # whether text is for a backend, which names symbols
    followed = False  # whether a program that knows nothing of symbols meets the numbers
    settled: Callable[[Terms], None] | None = None  # who is told of a sum that must have one value from now on

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes: tuple[int, ...] = tuple(sizes)
        self.closed = False
        self.pinned = 0  # number of reads of a symbolic number as a plain one
        self.general = False  # whether values with many formulas are looked up for each size, though they have formulas
        self.left_out = False  # whether there was such a value
        self._names = [f"n{k}" for k in range(len(sizes))]  # names of atoms: symbols, quotients, remainders
        self.values = list(sizes)
        self._bounds: list[tuple[float, float]] = [(LEAST, _INF)] * len(sizes)
        self._lines: dict[str, str] = {}  # name -> text, in order of definition
        self._known: dict[Any, Any] = {}
        self._ranges: dict[Terms, list[float]] = {}
        self._unequal: dict[Terms, set[int]] = {}
        self._facts: dict[str, None] = {}
        self.specs: dict[Any, Any] = {}  # layouts with these sizes, each once
        self.by_value: Callable[[], bool] | None = None  # whether the code that hashes a number wants that of its value
        self._symbol_names = list(self._names)
        self.symbols = [Integer(self, size, (((k,), 1),)) for k, size in enumerate(sizes)]

    def is_constant(self, number: int) -> bool:
        """Whether kernels have a number as a constant."""
        return self.largest_constant is not None and -1 <= number <= self.largest_constant

    # ***** making numbers *****

    def symbol(self, size: int, most: float = _INF, least: float = LEAST, name: str | None = None) -> Integer:
        """A further symbolic size, of which it is known that it is at least `least` and at most `most`."""
        at, name = len(self._names), f"n{len(self.sizes)}" if name is None else name
        self._names.append(name)
        self._symbol_names.append(name)
        self.values.append(size)
        self._bounds.append((least, most))
        self.sizes = (*self.sizes, size)
        self.symbols.append(Integer(self, size, (((at,), 1),)))
        return self.symbols[-1]

    def atom(self, key: Any, value: int, text: str, lo: float, hi: float) -> Integer:
        """An integer that is no sum of products: a quotient, a remainder."""
        known = self._known.get(key)
        if known is None:
            at = len(self._names)
            name = f"a{at}"
            self._names.append(name)
            self.values.append(value)
            self._bounds.append((lo, hi))
            self._lines[name] = text
            known = self._known[key] = Integer(self, value, (((at,), 1),))
        return known

    def real(self, text: str, value: float) -> Real:
        """A float with this formula over existing names."""
        known = self._known.get(text)
        if known is None:
            if value != value:
                raise SpecializationError("a number that is none")
            name = f"f{len(self._lines)}"
            self._lines[name] = text
            known = self._known[text] = Real(self, value, name)
        return known

    def text(self, terms: Terms) -> str:
        """A sum of products as Python text."""
        parts = []
        for atoms, c in terms:
            names = [self._names[a] for a in atoms]
            parts.append("*".join(names if c == 1 and names else [str(c), *names]))
        return "+".join(parts) or "0"

    def said(self, number: Integer | Real) -> Any:
        """A symbolic number for printing: its value, recorded as a guard."""
        return number.pin()

    def is_read_as_text(self) -> bool:
        """Whether the code that prints a number, in a list or the like, is the program's: it sees the value."""
        return self.followed and not self.asked_by_backend and self.by_value is not None and self.by_value()

    def shown(self, number: Integer | Real) -> str:
        """A symbolic number for debuggers."""
        return f"<{self.written(number)}>"

    def node_of(self, number: Integer | Real) -> Any:
        """AttributeError: the numbers of a recording tell nothing of themselves."""
        raise AttributeError(f"'{type(number).__name__}' object has no attribute 'node'")

    def bounds(self, terms: Terms) -> tuple[float, float]:
        """Certain bounds of a sum of products."""
        known = self._known.get(("bounds", terms))
        if known is None:
            lo = hi = 0.0
            for atoms, c in terms:
                a: float = c
                b: float = c
                for atom in atoms:
                    x, y = self._bounds[atom]
                    ends = [_times(p, q) for p in (a, b) for q in (x, y)]
                    a, b = min(ends), max(ends)
                lo, hi = lo + a, hi + b
            known = self._known["bounds", terms] = (lo, hi)
        return known

    # ***** what was decided *****

    def sign(self, difference: Integer, wanted: str) -> bool:
        """Whether `difference < 0`, `<= 0` or `== 0`; records it."""
        value, terms = difference.value, difference.terms
        holds = value < 0 if wanted == "<" else value <= 0 if wanted == "<=" else value == 0
        if self.closed:
            return holds
        rest, const, flip = apart(terms)
        known = self._ranges.get(rest)
        if known is None:
            known = [*self.bounds(rest)]
        lo, hi = known
        # rest * (-1 where flipped) + const  <  0
        at = const if flip else -const  # the zero of the difference
        if wanted == "==":
            if holds:
                lo = hi = at
            elif lo <= at <= hi:
                if at == lo:
                    lo = at + 1
                elif at == hi:
                    hi = at - 1
                else:
                    self._unequal.setdefault(rest, set()).add(at)
        elif (wanted == "<") == holds:  # difference < 0 where it holds, and "not <= 0" is difference > 0
            strict_below = holds
            if strict_below != flip:
                hi = min(hi, at - 1)
            else:
                lo = max(lo, at + 1)
        else:
            below = holds  # difference <= 0, or not < 0: difference >= 0
            if below != flip:
                hi = min(hi, at)
            else:
                lo = max(lo, at)
        if [lo, hi] != known:
            self._ranges[rest] = [lo, hi]
            if lo == hi and self.settled is not None:
                self.settled(rest)
        return holds

    def is_unknown(self, terms: Terms) -> bool:
        """Whether a sum depends on sizes without a value: here each has one."""
        return False

    def check_known(self, number: Integer) -> None:
        """An error where a number that is read has no value: here each has one."""

    def is_pinned(self, number: int) -> bool:
        """Whether a symbol must have the value that it has."""
        ((atoms, _),) = self.symbols[number].terms
        return any(lo == hi and len(terms) == 1 and terms[0][0] == atoms for terms, (lo, hi) in self._ranges.items())

    def narrow(self, number: int, least: float, most: float) -> None:
        """A symbol is known to be in this range."""
        ((atoms, _),) = self.symbols[number].terms
        lo, hi = self._bounds[atoms[0]]
        self._bounds[atoms[0]] = max(lo, least), min(hi, most)
        for key in [key for key in self._known if type(key) is tuple and key[0] == "bounds"]:
            del self._known[key]

    def range_of(self, number: int) -> tuple[float, float]:
        """The range in which all decisions on a symbol alone are as they were."""
        terms = self.symbols[number].terms
        least, most = self.bounds(terms)
        lo, hi = self._ranges.get(terms, (least, most))
        return max(lo, least), min(hi, most)

    def pin_all(self) -> None:
        """Require that all sizes are what they are: for what depends on them in ways that nothing records."""
        for symbol in self.symbols:
            symbol.pin()

    def fact(self, text: str, holds: bool) -> bool:
        """Record whether something holds."""
        if not self.closed:
            self._facts[text if holds else f"not {text}"] = None
        return holds

    def tried(self, attempt: Callable[[], Any]) -> Any:
        """`attempt()`, or None (and nothing is recorded) if it reads a symbolic number as a plain one, or returns None."""
        before = (dict(self._ranges), {k: set(v) for k, v in self._unequal.items()}, dict(self._facts), self.pinned)
        try:
            result = attempt()
        except SpecializationError:
            result = None
        if result is None or self.pinned != before[3]:
            self._ranges, self._unequal, self._facts, self.pinned = before
            return None
        return result

    def conditions(self) -> list[str]:
        """The conditions for the same decisions, as Python text."""
        conditions = []
        for terms, (lo, hi) in self._ranges.items():
            text = self.text(terms)
            least, most = self.bounds(terms)
            if lo == hi:
                conditions.append(f"{text}=={int(lo)}")
            elif lo > least and hi < most:
                conditions.append(f"{int(lo)}<={text}<={int(hi)}")
            elif lo > least:
                conditions.append(f"{text}>={int(lo)}")
            elif hi < most:
                conditions.append(f"{text}<={int(hi)}")
        for terms, others in self._unequal.items():
            lo, hi = self._ranges.get(terms) or self.bounds(terms)
            left = sorted(n for n in others if lo <= n <= hi)
            if left:
                text = self.text(terms)
                conditions.append(f"{text}!={left[0]}" if len(left) == 1 else f"({text}) not in {tuple(left)}")
        return [*conditions, *self._facts]

    # ***** the same for other sizes *****

    def compiled(self, results: Iterable[Any], guarded: bool = True) -> Callable[..., tuple[Any, ...] | None]:
        """A function from sizes to the numbers that `results` would be; it returns None where a decision would differ.

        `results` holds integers and floats, plain or symbolic, and pairs ("bits", number) for the bits of a double.
        Without `guarded` no condition is checked; such a function takes symbolic sizes as well.
        """
        texts = [self.written(r) for r in results]
        guards = self.conditions() if guarded else []
        lines, defined = [f"def again({', '.join(self._symbol_names)}):", "  try:"], set[str]()
        for condition in guards:
            lines += self._needed(condition, defined)
            lines.append(f"    if not ({condition}): return None")
        for text in texts:
            lines += self._needed(text, defined)
        lines.append(f"    return ({', '.join(texts)}{',' if texts else ''})")
        # Conditions are checked in another order than they were recorded: one may divide by what an earlier one
        # excluded.
        lines += ["  except ArithmeticError:", "    return None" if guarded else "    raise"]
        scope: dict[str, Any] = {
            "bits": double_bits, "single": single, "as_double": as_double, "truncated": truncated, "sqrt": math.sqrt
        }  # fmt: skip
        exec("\n".join(lines), scope)  # noqa: S102 - text made above, of names and numbers alone
        return scope["again"]

    def written(self, value: Any) -> str:
        """A number as Python text."""
        kind = type(value)
        if kind is Integer:
            return self.text(value.terms)
        if kind is Real:
            return value.name
        if kind is tuple:
            return f"bits({self.written(value[1])})"
        if kind is float and not math.isfinite(value):
            raise SpecializationError("a constant that is not finite")
        return repr(value)

    def _needed(self, text: str, defined: set[str]) -> list[str]:
        """The lines that define the names of a text that are not defined yet."""
        lines: list[str] = []
        for name in names_in(text):
            if name in self._lines and name not in defined:
                lines += self._needed(self._lines[name], defined)
                defined.add(name)
                lines.append(f"    {name} = {self._lines[name]}")
        return lines


def is_unknown(number: Any) -> bool:
    """Whether a number is an integer without a value."""
    return type(number) is Integer and number.shape_env.is_unknown(number.terms)


def require_between(number: Any, low: float, high: float) -> bool:
    """Take an integer without a value to be between these from now on; False, and nothing, for other numbers."""
    if not is_unknown(number):
        return False
    if low > -_INF:
        Undecided(int(low) - number, "<=").require()
    if high < _INF:
        Undecided(number - int(high), "<=").require()
    return True


def require_equal(number: Any, other: Any) -> bool:
    """Take two integers, one of them without a value, to be equal from now on; False, and nothing, for other numbers."""
    difference = number - other
    if not is_unknown(difference):
        return False
    Undecided(difference, "==").require()
    return True


def chosen_by(operation: Callable[..., Any], condition: Undecided, one: Any, other: Any) -> Integer:
    """An integer that is `one` where a condition is true and else `other`, as `operation` makes it of the three."""
    env, difference = condition.difference.shape_env, condition.difference
    parts = [n.terms if type(n) is Integer else n for n in (one, other)]
    sign = condition.wanted if condition.held else {"<": ">=", "<=": ">", "==": "!="}[condition.wanted]
    text = f"({env.written(one)} if {env.text(difference.terms)} {sign} 0 else {env.written(other)})"
    bounds = [(n, n) if type(n) is int else env.bounds(n.terms) for n in (one, other)]
    key = ("ite", difference.terms, sign, *parts)
    made = env.atom(key, hint(one), text, min(b[0] for b in bounds), max(b[1] for b in bounds))
    if env.watch is not None:
        env.watch(operation, (condition, one, other), made)
    return made


def apart(terms: Terms) -> tuple[Terms, int, bool]:
    """A sum without its constant, the constant, and whether the sum was negated for its first factor to be positive."""
    const = 0
    if terms and not terms[0][0]:
        const, terms = terms[0][1], terms[1:]
    flip = terms[0][1] < 0
    return tuple([(atoms, -c) for atoms, c in terms]) if flip else terms, const, flip


def _times(a: float, b: float) -> float:
    return 0.0 if not a or not b else a * b


# a name, captured, or a number with its exponent, not captured
_NAME_OR_NUMBER = re.compile(r"([A-Za-z]\w*)|[0-9](?:[0-9A-Za-z.]|(?<=[eE])[+-])*")


def names_in(text: str) -> list[str]:
    """The names of atoms in a text."""
    return [name for name in _NAME_OR_NUMBER.findall(text) if name]
