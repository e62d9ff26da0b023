"""Sizes of an exported program: a `ShapeEnv` whose symbols are unified where the program shows them to be equal, and
what was said of the dims of inputs held against what the program needs.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight._dynamo.exc import UserError, UserErrorType
from rushlight._interface.sizes import MOST, Integer, Terms, Undecided, apart, asked_by_operator, names_in
from rushlight.export._assertions import is_bound
from rushlight.export._guards import computed, holds
from rushlight.export.dynamic_shapes import Dim, LeafSpec, _DerivedDim, _DimHint, _DimHintType, finite
from rushlight.fx.experimental.symbolic_shapes import ConstraintViolationError, ShapeEnv
from rushlight.utils._pytree import keystr
from rushlight.utils._sympy.numbers import int_oo
from rushlight.utils._sympy.value_ranges import ValueRanges

__all__ = ["DimOfInput", "ExportShapeEnv", "InputSizes"]

_SAMPLES = 48  # sets of sizes on which a condition is tried
_FREE = (_DimHintType.AUTO, _DimHintType.DYNAMIC)


class ExportShapeEnv(ShapeEnv):
    """One symbol for each dim that varies; a symbol that must equal a formula of others is shown as that formula."""

    largest_constant = None  # no kernel is made for these sizes

    def __init__(self) -> None:
        super().__init__(duck_shape=False)
        self.replacements: dict[int, Terms] = {}  # atom -> what it equals
        # Told of conditions on sizes that elements tell.
        self.asserting: Callable[[Undecided], None] | None = None

    # ***** equalities *****

    def sign(self, difference: Integer, wanted: str) -> Any:
        """As in the base; an equality that holds replaces a symbol.

        That sizes differ is no condition where an operator's own code compared them: it does so to find layouts, and two
        sizes that would have to be equal are an error here.
        """
        if wanted == "==" and difference.value and asked_by_operator() and not self.is_unknown(difference.terms):
            return False
        holds = super().sign(difference, wanted)
        if wanted == "==" and holds is True and not self.closed:
            self._replace(difference.terms)
        return holds

    def require(self, difference: Integer, wanted: str, held: bool) -> None:
        """As in the base; see `sign`."""
        if self.asserting is not None and self.is_unknown(difference.terms):
            condition = Undecided(difference, wanted, held)
            if self.known_sign(difference, wanted) is not held and not is_bound(condition):
                self.asserting(condition)  # before it is known: then nothing would be left to check
        super().require(difference, wanted, held)
        if wanted == "==" and held:
            self._replace(difference.terms)

    def equate(self, one: Any, two: Any) -> None:
        """Take two numbers to be equal, though the program did not ask."""
        asked = dict(self._asked)
        if not (one - two == 0):
            raise ConstraintViolationError(f"{one} is not {two}")
        self._asked = asked

    def _replace(self, terms: Terms) -> None:
        """Of the symbols that stand alone in an equation, show that of the greatest size (then name) as the others."""
        terms = self.resolved(terms)
        symbols = {s.terms[0][0][0] for s in self.symbols}
        free = {a for atoms, _ in terms for a in atoms}
        if not free or not free <= symbols:
            return
        multiplied = {a for atoms, _ in terms if len(atoms) > 1 for a in atoms}
        factors = {atoms[0]: c for atoms, c in terms if len(atoms) == 1 and atoms[0] not in multiplied}
        if not factors:
            return
        chosen = max(factors, key=lambda a: (self.values[a], self._names[a]))
        factor = factors[chosen]
        rest = tuple([(atoms, -c) for atoms, c in terms if atoms != (chosen,)])
        if any(c % factor for _, c in rest):
            return
        made = tuple([(atoms, c // factor) for atoms, c in rest])
        self.replacements[chosen] = made
        for atom, held in list(self.replacements.items()):
            self.replacements[atom] = self.resolved(held)

    def resolved(self, terms: Terms) -> Terms:
        """A formula without symbols that were replaced."""
        if not self.replacements or not any(a in self.replacements for atoms, _ in terms for a in atoms):
            return terms
        found: dict[tuple[int, ...], int] = {}
        for atoms, c in terms:
            product: dict[tuple[int, ...], int] = {(): c}
            for atom in atoms:
                parts = self.replacements.get(atom, (((atom,), 1),))
                product = _times(product, parts)
            for key, value in product.items():
                found[key] = found.get(key, 0) + value
        return tuple(sorted((k, v) for k, v in found.items() if v)) or (((), 0),)

    def limit(self, terms: Terms, low: float, high: float) -> None:
        """Keep bounds that were said of a size, where it is shown as one symbol."""
        terms = self.resolved(terms)
        for number, symbol in enumerate(self.symbols):
            if symbol.terms == terms:
                self.narrow(number, low, high)

    def _sum(self, terms: Terms) -> str:
        return super()._sum(self.resolved(terms))

    def symbols_in(self, number: Any) -> list[str]:
        """The symbols that a number depends on, as it is shown."""
        found: dict[str, None] = {}
        for name in super().symbols_in(number):
            atom = self._names.index(name)
            for atoms, _ in self.replacements.get(atom, (((atom,), 1),)):
                found.update(dict.fromkeys(self._names[a] for a in atoms))
        return list(found)

    # ***** ranges *****

    def bounds_of(self, terms: Terms) -> ValueRanges:
        """Bounds of a formula as it is shown: those of its symbols, and what was asked of it."""
        terms = self.resolved(terms)
        low, high = self.bounds(terms)
        for other, (lo, hi) in self._ranges.items():
            rest, const, flip = _apart(self.resolved(other))
            mine, offset, turned = _apart(terms)
            if rest and rest == mine:
                lo, hi = (const - hi, const - lo) if flip else (lo - const, hi - const)
                lo, hi = (offset - hi, offset - lo) if turned else (lo + offset, hi + offset)
                low, high = max(low, lo), min(high, hi if hi < MOST // 2 else high)
        for atom, held in self.replacements.items():  # bounds of a symbol that is shown as this formula
            rest, const, _ = _apart(held)
            mine, offset, _ = _apart(terms)
            if rest == mine:
                lo, hi = self._bounds[atom]
                low = max(low, lo - const + offset)
                high = min(high, hi - const + offset) if hi < MOST else high
        return ValueRanges(-int_oo if low <= -(1 << 62) else int(low), int_oo if high >= MOST else int(high))


def _apart(terms: Terms) -> tuple[Terms, int, bool]:
    """As `apart`; no formula for a constant."""
    if not any(atoms for atoms, _ in terms):
        return (), sum(c for _, c in terms), False
    return apart(terms)


def _times(product: dict[tuple[int, ...], int], parts: Terms) -> dict[tuple[int, ...], int]:
    made: dict[tuple[int, ...], int] = {}
    for atoms, c in product.items():
        for others, d in parts:
            key = tuple(sorted(atoms + others))
            made[key] = made.get(key, 0) + c * d
    return made


# ***** what was said of inputs *****


@dataclass
class DimOfInput:
    """A dim of an input that may vary: what was said of it, its number, where it comes from, and its size."""

    spec: Any
    number: Any
    source: str
    size: int
    place: str

    @property
    def name(self) -> str:
        """As messages call it."""
        return self.spec.__name__ if isinstance(self.spec, Dim) else self.source


@dataclass
class InputSizes:
    """All dims of inputs that may vary, and the roots of dims that are computed of others."""

    env: ExportShapeEnv
    dims: list[DimOfInput] = field(default_factory=list)
    roots: dict[str, Any] = field(default_factory=dict)

    # ***** before the trace *****

    def chosen(self, leaf: LeafSpec) -> tuple[list[int], list[int], dict[int, Any]]:
        """Of a tensor: the dims that stay numbers, those with a symbol, and their bounds."""
        shape = leaf.value.shape
        own = [d for d in range(len(shape)) if _varies(leaf.dims.get(d))]
        for d, spec in leaf.dims.items():
            if type(spec) is int and spec != shape[d]:
                raise ConstraintViolationError(
                    f"Static shape constraint of {spec} does not match input size of {shape[d]}, for {leaf.source}.size()[{d}]"
                )
        ranges = {}
        for d in own:
            if isinstance(leaf.dims[d], _DimHint):  # held against what the program needs, once that is known
                ranges[d] = 0, math.inf
                continue
            low, high = finite_range(leaf.dims[d])
            if not low <= shape[d] <= high:
                raise ConstraintViolationError(
                    f"{shape[d]} not in range [{int(low)}, {int_oo if high == math.inf else int(high)}]"
                )
            ranges[d] = low, high
        return [d for d in range(len(shape)) if d not in own], own, ranges

    def note(self, leaf: LeafSpec, fake: Any) -> None:
        """Keep the symbols of an input, or of a number."""
        for d, spec in sorted(leaf.dims.items()):
            if not _varies(spec):
                self._note_static(leaf, d, spec)
                continue
            if d < 0:
                self.dims.append(DimOfInput(spec, fake, leaf.source, leaf.value, _place(leaf)))
            else:
                source = f"{leaf.source}.size()[{d}]"
                made = DimOfInput(spec, fake.shape[d], source, leaf.value.shape[d], f"{_place(leaf)}.shape[{d}]")
                self.dims.append(made)

    def _note_static(self, leaf: LeafSpec, d: int, spec: Any) -> None:
        """Keep a `Dim.STATIC` with bounds."""
        if isinstance(spec, _DimHint) and (spec.min is not None or spec.max is not None):
            size = leaf.value if d < 0 else leaf.value.shape[d]
            place = _place(leaf) if d < 0 else f"{_place(leaf)}.shape[{d}]"
            self.dims.append(DimOfInput(spec, size, leaf.source, size, place))

    def equate(self) -> None:
        """Let dims of one name have one size, and computed dims that of their formula."""
        for each in self.dims:
            if isinstance(each.spec, Dim) and not isinstance(each.spec, _DerivedDim):
                if each.spec.__name__ in self.roots:
                    self._same(self.roots[each.spec.__name__], each.number, each)
                else:
                    self.roots[each.spec.__name__] = each.number
        for each in self.dims:
            if not isinstance(each.spec, _DerivedDim):
                continue
            spec = each.spec
            size, rest = divmod(each.size - spec.offset, spec.factor)
            if rest:
                raise UserError(
                    UserErrorType.INVALID_INPUT,
                    f"Expected shape[{each.source.rpartition('[')[2][:-1]}] = {each.size} of input Tensor to be of the form {spec.__name__}, "
                    f"where {spec.root.__name__} is an integer",
                )
            root = self.roots.get(spec.root.__name__)
            if root is None:
                low, high = finite_range(spec.root)
                root = self.env.create_symbol(size, spec.root.__name__, max(2, int(low)), min(MOST, high))
                self.roots[spec.root.__name__] = root
            self._same(root * spec.factor + spec.offset, each.number, each)

    def _same(self, one: Any, two: Any, each: DimOfInput) -> None:
        if int_value(one) != int_value(two):
            raise UserError(
                UserErrorType.CONSTRAINT_VIOLATION,
                f"Constraints violated ({each.name})! {each.source} = {int_value(two)} is not equal to {each.name} = {int_value(one)}",
            )
        if isinstance(one, Integer) or isinstance(two, Integer):
            self.env.equate(one, two)

    # ***** after it *****

    def checked(self) -> None:
        """UserError where the program does not hold for all sizes that were promised."""
        lines: list[str] = []
        fixes: dict[str, str] = {}
        names: dict[str, None] = {}
        for each in self.dims:
            self._specialized(each, lines, fixes, names)
        if not lines:
            self._equal(lines, fixes, names)
        if not lines:
            self._narrowed(lines, fixes, names)
        if not lines:
            self._hinted()
            return
        text = f'Constraints violated ({", ".join(names)})! For more information, run with TORCH_LOGS="+dynamic".\n'
        text += "\n".join(f"  - {line}" for line in lines)
        if fixes:
            text += "\nSuggested fixes:\n" + "\n".join(f"  {name} = {fix}" for name, fix in fixes.items())
        raise UserError(UserErrorType.CONSTRAINT_VIOLATION, text + "\n")

    def _specialized(self, each: DimOfInput, lines: list[str], fixes: dict[str, str], names: dict[str, None]) -> None:
        if _type(each.spec) in (_DimHintType.AUTO, _DimHintType.STATIC):
            return
        value = each.number if type(each.number) is int else self._constant(each.number)
        if value is None:
            return
        if _type(each.spec) is _DimHintType.DYNAMIC and each.size in (0, 1) and type(each.number) is int:
            return
        lines.append(
            f"You marked {each.name} as dynamic but your code specialized it to be a constant ({value}). If you're using mark_dynamic, "
            "either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO."
        )
        names[each.name] = None
        if isinstance(each.spec, Dim) and not isinstance(each.spec, _DerivedDim):
            fixes[each.name] = str(value)

    def _constant(self, number: Any) -> int | None:
        """The one value that a number may have; None where it may vary."""
        terms = self.env.resolved(number.terms)
        if not any(atoms for atoms, _ in terms):
            return int(terms[0][1])
        decided = self.env.decided(Integer(self.env, number.value, terms))
        return decided if decided is not None else self.env.decided(number)

    def _equal(self, lines: list[str], fixes: dict[str, str], names: dict[str, None]) -> None:
        """Dims of different names that must be equal, or be computed of each other."""
        named = {
            d.name: d for d in reversed(self.dims) if isinstance(d.spec, Dim) and not isinstance(d.spec, _DerivedDim)
        }
        shown: dict[str, str] = {}
        for name, each in reversed(named.items()):
            text = str(self.env.shown(each.number))
            free = self.env.symbols_in(each.number)
            other = next((n for n in shown if set(self.env.symbols_in(named[n].number)) & set(free)), None)
            shown[name] = text
            if other is None:
                continue
            first, second = (each, named[other])
            if text == shown[other]:
                lines.append(
                    f"The values of {name} = {first.source} and {other} = {second.source} must always be equal."
                )
                fixes[name] = other
            else:
                if len(text) < len(shown[other]):
                    first, second = second, first
                formula = str(self.env.shown(first.number)).replace(str(self.env.shown(second.number)), second.name)
                lines.append(
                    f"The values of {first.name} = {first.source} must always be related to the values of {second.name} = "
                    f"{second.source} by {first.name} = {formula}."
                )
                name = first.name
                fixes[name] = formula
            names[name] = None

    def _narrowed(self, lines: list[str], fixes: dict[str, str], names: dict[str, None]) -> None:
        """Dims with names whose bounds are wider than those that the program needs."""
        seen: set[str] = set()
        for each in self.dims:
            spec = each.spec
            if not isinstance(spec, Dim) or isinstance(spec, _DerivedDim) or spec.__name__ in seen:
                continue
            seen.add(spec.__name__)
            found = self.env.bounds_of(each.number.terms)
            low, high = finite_range(spec)
            if found.lower > max(2, low) or finite(found.upper) < high:
                self._say_narrowed(each, found, lines, fixes)
                names[each.name] = None
        for condition in self.failing():
            free = self._named_in(condition)
            if free:
                for each in free:
                    lines.append(
                        f"Not all values of {each.name} = {each.source} in the specified range{_said_range(each.spec)} satisfy the generated "
                        f"guard {self.with_sources(condition)}."
                    )
                    names[each.name] = None

    def _say_narrowed(self, each: DimOfInput, found: ValueRanges, lines: list[str], fixes: dict[str, str]) -> None:
        upper = "IntInfinity()" if found.upper == int_oo else str(found.upper)
        lines.append(
            f"Not all values of {each.name} = {each.source} in the specified range{_said_range(each.spec)} satisfy the generated guard "
            f"{found.lower} <= {each.source} and {each.source} <= {upper}"
        )
        low, _high = finite_range(each.spec)
        bounds = [f"min={found.lower}"] if found.lower > max(2, low) or low > 2 else []
        bounds += [f"max={found.upper}"] if found.upper != int_oo else []
        fixes[each.name] = f"Dim({', '.join([repr(each.name), *bounds])})"

    def _hinted(self) -> None:
        """ValueError where dims that are to vary are 0 or 1, or where bounds of hints do not hold."""
        conflicts = []
        for each in self.dims:
            if _type(each.spec) is _DimHintType.DYNAMIC and type(each.number) is int:
                conflicts.append(
                    f"- Received user-specified dim hint Dim.DYNAMIC(min={each.spec.min}, max={each.spec.max}), but export 0/1 specialized "
                    f"due to hint of {each.size} for dimension {each.place}."
                )
                continue
            if not isinstance(each.spec, _DimHint):
                continue
            found = self.env.bounds_of(each.number.terms) if isinstance(each.number, Integer) else each.number
            lower, upper = (found.lower, found.upper) if isinstance(each.number, Integer) else (found, found)
            low, high = finite_range(each.spec)
            if high < lower or upper < low:
                conflicts.append(
                    f"- Received user-specified min/max range of [{each.spec.min}, {each.spec.max}], conflicting with the inferred "
                    f"min/max range of [{lower}, {upper}], for {each.place}."
                )
            elif isinstance(each.number, Integer):
                self.env.limit(each.number.terms, low, high)
        if conflicts:
            raise ValueError(
                "Found the following conflicts between user-specified ranges and inferred ranges from model tracing:\n"
                + "\n".join(conflicts)
            )

    def failing(self) -> list[str]:
        """Conditions that do not hold for all sizes that were promised; tried on sizes from the whole range."""
        conditions = [c for c in self.env.conditions() if self._named_in(c) and self._is_known(c)]
        if not conditions:
            return []
        wrong: dict[str, None] = {}
        for sizes in self._samples():
            try:
                values = self._values(sizes)
            except ArithmeticError:
                continue
            for condition in conditions:
                if condition not in wrong and not holds(condition, values):
                    wrong[condition] = None
        return [c for c in wrong if not self._is_bound(c)]

    def _is_bound(self, condition: str) -> bool:
        """Whether a condition is a bound of one symbol, not of what was computed of it: those are told apart."""
        return len(names := set(names_in(condition))) == 1 and names.isdisjoint(self.env._lines)

    def _samples(self) -> Iterable[dict[str, int]]:
        """Sizes of the symbols that were not replaced, within the bounds of the dims that they stand for."""
        free = [s for s in self.env.symbols if s.terms[0][0][0] not in self.env.replacements]
        free = [s for s in free if self.env.text(s.terms) not in self.env.unbacked_names]
        drawn = random.Random(0)
        ranges = [self.env.bounds_of(s.terms) for s in free]
        for n in range(_SAMPLES):
            yield {
                self.env.text(s.terms): min(int(finite_or(r.upper, 1 << 20)), r.lower + n)
                if n < 12
                else drawn.randint(r.lower, int(min(finite_or(r.upper, 4096), r.lower + 4096)))
                for s, r in zip(free, ranges, strict=True)
            }

    def _values(self, sizes: dict[str, int]) -> dict[str, Any]:
        """The values of all names in conditions, of those of the symbols."""
        values: dict[str, Any] = dict(sizes)
        for atom, terms in self.env.replacements.items():
            values[self.env._names[atom]] = sum(
                c * math.prod(values.get(self.env._names[a], self.env.values[a]) for a in atoms) for atoms, c in terms
            )
        for name, text in self.env._lines.items():
            if self._is_known(text):
                values[name] = computed(text, values)
        return values

    def _is_known(self, formula: str) -> bool:
        """Whether sizes of inputs tell a formula: none that only elements tell stands in it."""
        return self._free_in(formula).isdisjoint(self.env.unbacked_names)

    def _free_in(self, formula: str) -> set[str]:
        """The symbols that a formula depends on."""
        free: set[str] = set()
        wanted = [formula]
        while wanted:
            for name in names_in(wanted.pop()):
                if name in self.env._lines:
                    wanted.append(self.env._lines[name])
                else:
                    free.add(name)
        return free

    def _named_in(self, condition: str) -> list[DimOfInput]:
        """The dims with names that a condition depends on."""
        free = self._free_in(condition)
        return [
            d
            for d in self.dims
            if isinstance(d.spec, Dim) and not isinstance(d.spec, _DerivedDim) and self._own(d) in free
        ]

    def _own(self, each: DimOfInput) -> str:
        return self.env.text(each.number.terms) if isinstance(each.number, Integer) else ""

    def with_sources(self, condition: str) -> str:
        """A condition in terms of the inputs."""
        sources = {name: source for source, name in self.env.source_to_symbol.items()}

        def shown(match: re.Match[str]) -> str:
            name = match.group(0)
            if name in self.env._lines:
                return f"({re.sub(_NAME, shown, self.env._lines[name])})"
            return sources.get(name, name)

        return re.sub(_NAME, shown, condition).replace("==", " == ").replace("<=", " <= ").replace("!=", " != ")

    # ***** what is kept *****

    def ranges(self) -> dict[Any, ValueRanges]:
        """The range of each size of an input that varies, by the size as it is shown."""
        found: dict[Any, ValueRanges] = {}
        for each in self.dims:
            if not isinstance(each.number, Integer) or self._constant(each.number) is not None:
                continue
            low = finite_range(each.spec)[0] if isinstance(each.spec, Dim) else 2
            known = self.env.bounds_of(each.number.terms)
            lower = min(known.lower, int(low)) if known.lower <= 2 and low < 2 else known.lower
            key = each.number.node.expr
            found[key] = ValueRanges(lower, known.upper)
        for number in self.roots.values():
            if isinstance(number, Integer) and number.node.expr not in found and self._constant(number) is None:
                found[number.node.expr] = self.env.bounds_of(number.terms)
        for name in self.env.unbacked_names:
            if name in self.env._symbol_names:  # a number with a fraction has no bounds
                symbol = self.env.symbols[self.env._symbol_names.index(name)]
                found.setdefault(symbol.node.expr, self.env.bounds_of(symbol.terms))
        return found


_NAME = re.compile(r"[A-Za-z_]\w*")


def int_value(number: Any) -> int:
    """The value that a number has in this trace."""
    return number.value if isinstance(number, Integer) else number


def _place(leaf: LeafSpec) -> str:
    return f"inputs{keystr(leaf.path)}"


def _varies(spec: Any) -> bool:
    return isinstance(spec, Dim) or isinstance(spec, _DimHint) and spec.type in _FREE


def _type(spec: Any) -> Any:
    return spec.type if isinstance(spec, _DimHint) else None


def finite_or(bound: Any, other: int) -> Any:
    """A bound, or another number where there is none."""
    return other if bound >= int_oo else bound


def finite_range(spec: Any) -> tuple[Any, Any]:
    """Least and greatest size of a dim as it was said."""
    low = 0 if spec.min is None else spec.min
    return low, math.inf if spec.max is None or spec.max >= int_oo else spec.max


def _said_range(spec: Any) -> str:
    low, high = finite_range(spec)
    words = [f"{low} <= "] if low > 2 else []
    words = [*words, spec.__name__, *([f" <= {high}"] if high != math.inf else [])]
    return f" {''.join(words)}" if len(words) > 1 else ""


Sizer = Callable[[Sequence[Any]], Any]
