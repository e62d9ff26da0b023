"""`ShapeEnv`: symbolic sizes as PyTorch names and prints them, and the conditions on them that a program asked.

>>> import rushlight as torch
>>> from rushlight._capture.recording.dynamic.shape_env import ShapeEnv
>>> from rushlight._subclasses.fake_tensor import FakeTensorMode
>>> env = ShapeEnv()
>>> x = FakeTensorMode(shape_env=env).from_tensor(torch.ones(4, 6))
>>> x.view(-1), x.shape[0] > 3
(FakeTensor(..., size=(s26*s49,)), True)
>>> print(env.format_guards())
 - s26 > 3

The formulas are those of `rushlight._types.symbols`; a symbol with this name is `s` and two digits of a hash of where
its size comes from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rushlight._capture.recording.dynamic.sizes import MOST, Sizes, looked_up_by_value, symbolic_strides
from rushlight._capture.recording.dynamic.unbacked import UnbackedSizes, asked_by_operators
from rushlight._engine.core.state import STATE, SYMBOLIC
from rushlight._types import shape_env
from rushlight._types.spec import Spec
from rushlight._types.symbols import Integer, Real, Terms, is_symbolic, watch_arithmetic

__all__ = ["Expression", "NamedSizes", "ShapeEnv", "ShapeGuard", "SymNode"]


class Expression(str):
    """The formula of a number as text."""

    free_symbols: frozenset[str]

    def __new__(cls, text: str, symbols: Sequence[str]) -> Expression:
        made = super().__new__(cls, text)
        made.free_symbols = frozenset(symbols)
        return made

    def __repr__(self) -> str:
        return str(self)


class ShapeGuard(NamedTuple):
    """A condition that was asked."""

    expr: str


class SymNode:
    """The node of a symbolic number: `expr`, `hint`, `shape_env`."""

    __slots__ = ("number",)

    def __init__(self, number: Any) -> None:
        self.number = number

    @property
    def shape_env(self) -> Any:
        """The `ShapeEnv` of the number."""
        return self.number.shape_env

    @property
    def hint(self) -> Any:
        """The value with the sizes that the trace was made for; None for one that is unknown."""
        return self.number.value if self.has_hint() else None

    @property
    def expr(self) -> Expression:
        """The formula."""
        env = self.number.shape_env
        return Expression(env.shown(self.number), env.symbols_in(self.number))

    def has_hint(self) -> bool:
        """Whether the value is known."""
        env = self.number.shape_env
        return not any(name in env.unbacked_names for name in env.symbols_in(self.number))

    def require_hint(self, fallback: Any = None) -> Any:
        """See `hint`."""
        return self.number.value

    def is_int(self) -> bool:
        """Whether the number is an integer."""
        return type(self.number) is Integer

    def is_float(self) -> bool:
        """Whether the number is a float."""
        return type(self.number) is Real

    def maybe_as_int(self) -> int | None:
        """The number, where it was decided that it has one value; else None."""
        return self.number.shape_env.decided(self.number)

    def __str__(self) -> str:
        return str(self.expr)


class ShapeEnv(UnbackedSizes):
    """The sizes of one trace.  Equal sizes are one symbol (`duck_shape`); 0 and 1 stay numbers."""

    largest_constant: int | None = 1

    def __init__(
        self, *, duck_shape: bool | None = None, specialize_zero_one: bool = True, assume_static_by_default: bool = False,
        prefer_deferred_runtime_asserts_over_guards: bool = False, allow_scalar_outputs: bool = True,
        allow_dynamic_output_shape_ops: bool = True, should_record_events: bool | None = None, tracked_fakes: Any = None, co_fields: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        watch_arithmetic()
        self.by_value = looked_up_by_value
        self.specs = _Layouts()
        self.duck_shape = True if duck_shape is None else duck_shape
        self.specialize_zero_one, self.assume_static_by_default = specialize_zero_one, assume_static_by_default
        self.sources: list[str] = []  # of each symbol: the expression that gives its size
        self._duck: dict[int, Integer] = {}
        self._used: set[int] = set()
        self._asked: dict[str, None] = {}
        self._texts: dict[str, str] = {}
        self._keys: dict[int, Any] = {}

    # ***** symbols *****

    def create_symbol(self, val: int, source: str, least: int = 2, most: int = MOST, duck: bool | None = None) -> Any:
        """The symbol of a size that comes from `source`; 0 and 1 as they are."""
        if val in (0, 1) and self.specialize_zero_one or not least <= val <= most:
            return val
        duck = self.duck_shape if duck is None else duck
        if duck and val in self._duck:
            return Integer(self, val, self._duck[val].terms)
        number = int(hashlib.sha256(source.encode()).hexdigest(), 16) % 100
        while number in self._used:
            number += 1
        self._used.add(number)
        made = self.symbol(val, most, least, f"s{number}")
        self.sources.append(source)
        if duck:
            self._duck[val] = made
        return made

    def layout(
        self, spec: Spec, source: str, static: Collection[int] = (), ranges: Mapping[int, Any] | None = None, own: Collection[int] = ()
    ) -> Spec:  # fmt: skip
        """The spec of a tensor that comes from `source` with symbols for its sizes, those of `static` dims apart; and
        for strides that are no product of sizes.  Dims of `own` share no symbol with equal sizes.
        """
        shape = []
        for d, size in enumerate(spec.shape):
            least, most = (ranges or {}).get(d, (2, MOST))
            fixed = d in static
            name, duck = f"{source}.size()[{d}]", False if d in own else None
            shape.append(
                size if fixed else self.create_symbol(size, name, max(2, least), min(MOST, int(min(most, MOST))), duck)
            )
        if spec.plain:
            return Spec.of(spec.dtype, spec.device, shape, None, spec.conj)
        strides = symbolic_strides(spec, shape)
        for d, stride in enumerate(strides):
            if (
                type(stride) is int
                and stride > 1
                and len(static) < spec.ndim
                and not self._product_of(stride, d, spec, shape)
            ):
                strides[d] = self.create_symbol(stride, f"{source}.stride()[{d}]")
        return Spec.of(spec.dtype, spec.device, shape, strides, spec.conj)

    def _product_of(self, stride: int, d: int, spec: Spec, shape: Sequence[Any]) -> bool:
        """Whether a stride is that of a dim of fixed size times this size."""
        return any(
            type(shape[e]) is int and shape[e] > 1 and spec.strides[e] * spec.shape[e] == stride
            for e in range(spec.ndim)
            if e != d
        )

    def number(self, terms: Terms) -> Any:
        """The number with a formula."""
        if len(terms) == 1 and not terms[0][0]:
            return terms[0][1]
        return Integer(self, self.value_of(terms), terms)

    @contextmanager
    def read(self) -> Iterator[None]:
        """A context in which operators may meet these sizes: native code reads none."""
        before = STATE.word
        STATE.word = before | SYMBOLIC
        try:
            yield
        finally:
            STATE.word = before

    def create_symintnode(self, sym: Any, *, hint: int | None = None, source: Any = None) -> Any:
        """The number for a symbol: itself."""
        return sym

    @property
    def backed_var_to_val(self) -> dict[str, int]:
        """The sizes that the trace was made for, by the names of their symbols."""
        pairs = zip(self._symbol_names, self.sizes, strict=True)
        return {name: size for name, size in pairs if name not in self.unbacked_names}

    var_to_val = backed_var_to_val

    @property
    def source_to_symbol(self) -> dict[str, str]:
        """Where sizes come from, and their symbols."""
        return dict(zip(self.sources, self.backed_var_to_val, strict=True))

    @property
    def var_to_range(self) -> dict[str, tuple[float, float]]:
        """The least and the greatest size of each symbol, as far as it was decided."""
        return {name: self._range(k) for k, name in enumerate(self._symbol_names)}

    def _range(self, symbol: int) -> tuple[float, float]:
        terms = self.symbols[symbol].terms
        lo, hi = self._ranges.get(terms) or self.bounds(terms)
        return lo, math.inf if hi >= MOST else hi

    def symbols_in(self, number: Any) -> list[str]:
        """The symbols that a number depends on."""
        return self._symbols_of(self.written(number))

    def _symbols_of(self, text: str) -> list[str]:
        """The symbols that a text over names depends on."""
        found: dict[str, None] = {}
        wanted = [text]
        while wanted:
            for name in shape_env.names_in(wanted.pop()):
                if name in self._lines:
                    wanted.append(self._lines[name])
                elif name in self._symbol_names or name in self.unbacked_names:
                    found[name] = None
        return list(found)

    def fact(self, text: str, holds: bool) -> bool:
        """As in the base; GuardOnDataDependentSymNode for floats that have no value, but for their being finite.
        Operators see those that are made of unknown sizes as made of large ones.
        """
        unknown = self.unbacked_names and [name for name in self._symbols_of(text) if name in self.unbacked_names]
        if unknown:
            if text.startswith("(abs("):
                return True
            if not self.by_program and all(name.startswith("u") for name in unknown) and asked_by_operators():
                return holds
            raise shape_env.GuardOnDataDependentSymNode(f"Could not guard on data-dependent expression {text}")
        return super().fact(text, holds)

    def decided(self, number: Any) -> int | None:
        """The value of a number that was decided to have one; else None."""
        if type(number) is not Integer:
            return None
        rest, const, flip = shape_env.apart(number.terms)
        known = self._ranges.get(rest)
        if known is not None and known[0] == known[1]:
            return int((-known[0] if flip else known[0]) + const)
        free = [self._names[a] for atoms, _ in rest for a in atoms]
        values = [self.is_pinned(self._symbol_names.index(n)) if n in self._symbol_names else False for n in free]
        return number.value if values and all(values) else None

    def value_of(self, terms: Terms) -> int:
        """The value of a formula."""
        return sum(c * math.prod([self.values[a] for a in atoms]) for atoms, c in terms)

    def key_of(self, atom: int) -> Any:
        """Operation and operands of an atom; None for symbols."""
        return self._keys.get(atom)

    # ***** text *****

    def said(self, number: Integer | Real) -> str:
        """The formula; nothing is decided by printing it."""
        return self.shown(number)

    def shown(self, number: Integer | Real) -> str:
        """The formula, or the value where it is decided."""
        if type(number) is Real:
            return self._texts.get(number.name, number.name)
        found = self.decided(number)
        return str(found) if found is not None else self._sum(number.terms)  # type: ignore[union-attr]

    def node_of(self, number: Integer | Real) -> Any:
        """The number as programs of PyTorch ask it."""
        return SymNode(number)

    def atom(self, key: Any, value: int, text: str, lo: float, hi: float) -> Integer:
        """As in the base; keeps how the number is printed."""
        made = super().atom(key, value, text, lo, hi)
        name = self.text(made.terms)
        if name not in self._texts:
            self._keys[made.terms[0][0][0]] = key
            operands = [self._sum(k) if type(k) is tuple else str(k) for k in key[1:]]
            if key[0] == "//":
                self._texts[name] = f"({'//'.join(map(_bracketed, operands))})"
            elif key[0] in ("%", "max", "min"):
                word = {"%": "Mod", "max": "Max", "min": "Min"}[key[0]]
                self._texts[name] = f"{word}({', '.join(operands)})"
            else:
                word = {"truncated": "TruncToInt", "round": "RoundToInt"}.get(key[0], key[0])
                self._texts[name] = f"{word}({', '.join(self._texts.get(o, o) for o in operands)})"
        return made

    def real(self, text: str, value: float) -> Real:
        """As in the base; keeps how the number is printed."""
        made = super().real(text, value)
        if made.name not in self._texts:
            for name in shape_env.names_in(text):
                if name in self._texts:
                    text = text.replace(name, self._texts[name])
            self._texts[made.name] = text.replace("as_double(", "ToFloat(")
        return made

    def _sum(self, terms: Terms) -> str:
        """A sum of products as PyTorch prints it: products of many symbols first, a number last."""
        rows = []
        for atoms, c in terms:
            names = [str(self._pinned_or_name(a)) for a in atoms]
            for name in names:
                c *= int(name) if name.isdigit() else 1
            names = sorted(n for n in names if not n.isdigit())
            rows.append((names, c))
        merged: dict[tuple[str, ...], int] = {}
        for names, c in rows:
            merged[tuple(names)] = merged.get(tuple(names), 0) + c
        ordered = sorted(merged.items(), key=lambda row: (-len(row[0]), row[0]))
        text = ""
        for place, (names, c) in enumerate(ordered):
            if not c and len(ordered) > 1:
                continue
            size = abs(c)
            product = _product(list(names), len(ordered) == 1 and size == 1)
            body = "*".join([*([str(size)] if size != 1 or not names else []), *([product] if names else [])])
            sign = ("-" if c < 0 else "") if not place else (" - " if c < 0 else " + ")
            text += sign + body
        return text or "0"

    def _pinned_or_name(self, atom: int) -> Any:
        name = self._names[atom]
        if name in self._symbol_names and self.is_pinned(self._symbol_names.index(name)):
            return self.values[atom]
        return self._texts.get(name, name)

    # ***** conditions *****

    def told_condition(self, difference: Integer, wanted: str, held: bool) -> str:
        """A condition as PyTorch prints it."""
        text = self._condition(difference, wanted)
        return _equation(text if held else _negated(text))

    def sign(self, difference: Integer, wanted: str) -> Any:
        """As in the base; keeps the condition as it was asked, where it says something new."""
        if self.is_unknown(difference.terms):
            return super().sign(difference, wanted)
        rest, _, _ = shape_env.apart(difference.terms)
        before = self._ranges.get(rest), len(self._unequal.get(rest, ()))
        text = self._condition(difference, wanted)
        holds = super().sign(difference, wanted)
        after = self._ranges.get(rest), len(self._unequal.get(rest, ()))
        if after != before and not self._certain(difference, wanted) and not _only_large(text):
            self._asked[_negated(text) if not holds else text] = None
        return holds

    def _certain(self, difference: Integer, wanted: str) -> bool:
        """Whether the bounds of symbols alone answer."""
        lo, hi = self.bounds(difference.terms)
        if wanted == "<":
            return hi < 0 or lo >= 0
        return hi <= 0 or lo > 0 if wanted == "<=" else lo > 0 or hi < 0

    def _condition(self, difference: Integer, wanted: str) -> str:
        left = tuple((atoms, c) for atoms, c in difference.terms if atoms and c > 0)
        right = tuple((atoms, -c) for atoms, c in difference.terms if atoms and c < 0)
        const = difference.terms[0][1] if not difference.terms[0][0] else 0
        if not left:  # numbers stand on the right
            return f"{self._sum(right)} {_MIRRORED[wanted]} {const}"
        if not right:
            return f"{self._sum(left)} {wanted} {-const}"
        constant = (((), const),) if const > 0 else ()
        other = (((), -const),) if const < 0 else ()
        return f"{self._sum((*constant, *left))} {wanted} {self._sum((*other, *right))}"

    @property
    def guards(self) -> list[ShapeGuard]:
        """The conditions that were asked."""
        return [ShapeGuard(_equation(text)) for text in self._asked]

    def get_pruned_guards(self, symints: Any = ()) -> list[ShapeGuard]:
        """See `guards`."""
        return self.guards

    def format_guards(self, verbose: bool = False) -> str:
        """The conditions that were asked, one a line."""
        return "\n".join(f" - {guard.expr}" for guard in self.guards)

    @contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """A context in which no condition is kept."""
        before, self.closed = self.closed, True
        try:
            yield
        finally:
            self.closed = before

    ignore_fresh_unbacked_symbols = suppress_guards

    def evaluate_guards_for_args(self, placeholders: Sequence[Any], args: Sequence[Any]) -> bool:
        """Whether other arguments answer all conditions alike."""
        sizes = self._sizes_of(placeholders, args)
        return sizes is not None and self.compiled(())(*sizes) is not None

    def bind_symbols(self, placeholders: Sequence[Any], args: Sequence[Any]) -> dict[str, int]:
        """The size that each symbol has in other arguments."""
        sizes = self._sizes_of(placeholders, args)
        return {} if sizes is None else dict(zip(self._symbol_names, sizes, strict=True))

    def _sizes_of(self, placeholders: Sequence[Any], args: Sequence[Any]) -> list[int] | None:
        """None where the arguments contradict each other."""
        known: dict[Any, int] = {}
        for fake, real in zip(placeholders, args, strict=True):
            pairs = (
                zip((*fake.shape, *fake.stride()), (*real.shape, *real.stride()), strict=True)
                if hasattr(fake, "shape")
                else [(fake, real)]
            )
            for number, size in pairs:
                if not is_symbolic(number):
                    if type(number) is int and number != size:
                        return None
                elif len(number.terms) == 1 and number.terms[0][1] == 1 and len(number.terms[0][0]) == 1:
                    if known.setdefault(number.terms, size) != size:
                        return None
        found = [known.get(symbol.terms, symbol.value) for symbol in self.symbols]
        bounds = [self._bounds[symbol.terms[0][0][0]] for symbol in self.symbols]
        return found if all(lo <= n <= hi for n, (lo, hi) in zip(found, bounds, strict=True)) else None


class _TraceEnv(ShapeEnv):
    """The sizes of a compiled program: its text is that of their values, which is recorded, unless a backend asks."""

    largest_constant = shape_env.ShapeEnv.largest_constant

    def __init__(self) -> None:
        super().__init__(duck_shape=False)
        self.specs = {}
        self.number_sources: dict[str, str] = {}  # of symbols that are no sizes, by their names

    def said(self, number: Integer | Real) -> Any:
        """The formula for backends, else the value."""
        return self.shown(number) if self.asked_by_backend else number.pin()


class NamedSizes(Sizes):
    """The symbols of a trace whose graph a backend gets: one for each dim, with PyTorch's names."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.env = _TraceEnv()

    def symbol_of(self, size: int, source: str) -> Any:
        """A symbol for this dim alone."""
        return self.env.create_symbol(size, source, shape_env.LEAST)  # type: ignore[attr-defined]

    def add_number(self, value: int, source: str) -> Any:
        """A symbol with the name that PyTorch gives it."""
        if not shape_env.LEAST <= value <= MOST:
            return None
        made = self.symbol_of(value, source)
        self.env.number_sources[self.env.shown(made)] = source  # type: ignore[attr-defined]
        return made


class _Layouts(dict[Any, Any]):
    """Layouts by the numbers in them as objects: each size keeps the tensor that it comes from."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_identities(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_identities(key), value)


def _identities(key: Any) -> Any:
    return tuple([tuple([id(n) if type(n) is Integer else -n for n in k]) if type(k) is tuple else k for k in key])


_MIRRORED = {"<": ">", "<=": ">=", "==": "=="}
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!="}


def _only_large(text: str) -> bool:
    """Whether a condition only says that something is no larger than memory."""
    right = text.rpartition(" ")[2]
    return right.isdigit() and int(right) >= 1 << 30


def _negated(text: str) -> str:
    left, sign, right = _split(text)
    return f"{left} {_OPPOSITE[sign]} {right}"


def _split(text: str) -> tuple[str, str, str]:
    for sign in ("<=", ">=", "==", "!=", "<", ">"):
        left, found, right = text.partition(f" {sign} ")
        if found:
            return left, sign, right
    raise AssertionError(text)


def _equation(text: str) -> str:
    """A condition as PyTorch prints it."""
    left, sign, right = _split(text)
    return f"{'Eq' if sign == '==' else 'Ne'}({left}, {right})" if sign in ("==", "!=") else text


def _bracketed(text: str) -> str:
    return f"({text})" if not text.replace("_", "").isalnum() and not text.startswith("Mod(") else text


def _product(names: list[str], alone: bool) -> str:
    """Symbols, and quotients in brackets; equal ones as powers."""
    parts = []
    for name in dict.fromkeys(names):
        count = names.count(name)
        part = f"({name})" if name.startswith("(") and not (alone and len(names) == 1) else name
        parts.append(part if count == 1 else f"{part}**{count}")
    return "*".join(parts)
