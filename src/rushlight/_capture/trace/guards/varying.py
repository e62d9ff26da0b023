"""Sizes that change from call to call: a batch, the length of a text, the position of a token.

The first trace burns sizes in.  Where a call differs in the sizes of a tensor, these dims are symbols from the next
trace on (`_capture.recording.dynamic.sizes`); and so are Python ints that differ, if the program uses their values as
indices or sizes.  A trace with symbols becomes a segment for each set of sizes that its conditions hold for; where they
do not, another trace is made.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rushlight._capture.recording.dynamic.shape_env import NamedSizes
from rushlight._capture.recording.dynamic.sized import holds_sizes
from rushlight._capture.recording.dynamic.sizes import MOST, Sizes, within_rooms
from rushlight._capture.trace.guards.sources import Reads, Source
from rushlight._capture.trace.segments.generated import functions
from rushlight._engine.core.memory import has_memory
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._native.mutable_objects import own_attributes
from rushlight._types.shape_env import LEAST, ConstraintViolationError
from rushlight._types.spec import Spec
from rushlight._types.symbols import SpecializationError

__all__ = ["Changes", "Marked", "NOTHING_VARIES", "SizesRead", "Tracing", "Varying"]

_VARYING_MARKS = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices")
_ERRORS = (KeyError, IndexError, AttributeError, TypeError, ValueError)
_SPEC = re.compile(r"(\{\}|\w+(?:\[\d+\])?)\._spec is (c\d+)")
_NUMBER = re.compile(r"type\(\{\}\) is (?:(?:int|float) and |c\d+ and repr\(\{\}\) == )")
_CONSTANT = re.compile(r"\bc\d+\b")
_SEEN = 4  # calls for new sizes before words are noted
_SYMBOL = re.compile(r"type\(\{\}\) is int and \{\} == (c\d+)")


class Changes:
    """Guarded values that may change from call to call: numbers, and the sizes of tensors."""

    def __init__(self, reads: Reads, space: Mapping[str, Any]) -> None:
        self._reads, self._space = reads, space
        self._differing: Callable[[Sequence[Any]], tuple[list[Any], list[Any]]] | None = None

    def resized(self, state: Sequence[Any]) -> list[tuple[str, int]]:
        """Places and dims of tensors that have other sizes now."""
        found: list[tuple[str, int]] = []
        for place, now, before in self._asked(state)[0]:
            spec = getattr(now, "_spec", before)
            if spec.dtype is before.dtype and spec.ndim == before.ndim and spec.conj is before.conj:
                found += [(place, d) for d, (a, b) in enumerate(zip(before.shape, spec.shape, strict=True)) if a != b]
        return found

    def renumbered(self, state: Sequence[Any], values: Mapping[str, float]) -> list[str]:
        """Those places of `values` where other numbers of the same type are now."""
        found = [(place, now, values[place]) for place, now in self._asked(state)[1] if place in values]
        return [place for place, now, before in found if type(now) is type(before) and repr(now) != repr(before)]

    def _asked(self, state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """(place, tensor, spec that it had) and (place, number) where a condition fails.

        The conditions are asked in their order, up to one that fails and tells neither of sizes nor of a number: what
        stands behind it need not be there, and looking may put it there.
        """
        if self._differing is None:
            self._differing = self._compiled()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of the gradient of a tensor that is a leaf no longer
            return self._differing(state)

    def _compiled(self) -> Callable[[Sequence[Any]], tuple[list[Any], list[Any]]]:
        lines = ["def differing(s):", "  found, numbers = [], []", "  try:"]
        for kind, source, condition in self._reads.entries:
            if kind == "load":
                lines += [f"    {line}" for line in self._reads.lines(entries=[(kind, source, condition)])]
                continue
            spec = _SPEC.search(condition)
            text = condition.replace("{}", source.variable)
            if spec is not None and spec[1] == "{}":
                lines.append(f"    if not ({text}): found.append(({str(source)!r}, {source.variable}, {spec[2]}))")
            elif _NUMBER.match(condition):
                lines.append(f"    if not ({text}): numbers.append(({str(source)!r}, {source.variable}))")
            else:
                lines.append(f"    if not ({text}): return found, numbers")
        lines += ["  except ERRORS: pass", "  return found, numbers"]
        space = {**self._space, "ERRORS": _ERRORS}
        made: Callable[..., Any] = functions("\n".join(lines), space, "sizes of a compiled segment")["differing"]
        return made


class Varying:
    """Values that change from call to call at a place of a program: `numbers`, by their places, and `dims` of tensors.

    `static` dims never vary, however they change.  With `all` every dim varies of tensors that are no parameters.
    `ints` are places of numbers that are symbols.
    """

    __slots__ = ("all", "dims", "ints", "marks", "named", "names", "numbers", "static")

    def __init__(
        self,
        numbers: frozenset[str] = frozenset(),
        dims: Collection[tuple[str, int]] = (),
        static: Collection[tuple[str, int]] = (),
        all: bool = False,
        marks: bool = True,
    ) -> None:
        self.numbers, self.dims, self.static, self.all, self.marks = numbers, dims, static, all, marks
        self.ints: frozenset[str] = frozenset()
        self.named = False  # whether a backend gets a graph with the symbols
        self.names: Sequence[str] = ()  # of the locals that a state begins with, for errors

    def nothing(self) -> bool:
        """Whether numbers and sizes are what they are, so far."""
        return not (self.numbers or self.dims or self.ints or self.all)

    def tracing(self, named: bool = False) -> Tracing:
        """The state for one trace; with `named` symbols have PyTorch's names."""
        return Tracing(self, named or self.named)


NOTHING_VARIES = Varying(marks=False)


class Marked:
    """Dims that users marked as dynamic: what was said of their sizes, and what the trace found."""

    def __init__(self, sizes: Sizes, names: Sequence[str]) -> None:
        self._sizes, self._names = sizes, names
        self._places: dict[int, tuple[str, int]] = {}
        self._settled: dict[int, str] = {}  # by symbol: where the program burnt it in
        self._wrong = ""
        self.ranges: dict[int, tuple[float, float]] = {}
        self.stack: Callable[[], str] = str  # the user's lines that run now

    def add(self, number: int, x: Tensor, place: str, d: int) -> None:
        """Note a dim of a tensor, if it is marked."""
        if d not in own_attributes(x).get("_dynamo_dynamic_indices", ()):
            return
        self._places.setdefault(number, (place, d))
        self._sizes.env.settled = self._note
        size = x._spec.shape[d]
        for each in own_attributes(x).get("_dynamo_dynamic_range", ()):
            if each.dim != d or each.min is None and each.max is None:
                continue
            least, most = each.min or 0, MOST if each.max is None else each.max
            if not least <= size <= most:
                self._wrong = f"{size} not in range [{least}, {most if each.max is not None else 'int_oo'}]"
            before = self.ranges.get(number, (LEAST, MOST))
            self.ranges[number] = max(least, before[0]), min(most, before[1])
            self._sizes.env.narrow(number, *self.ranges[number])

    def _note(self, terms: Any) -> None:
        """A sum has one value from now on: remember where, if it is a marked size and the program decided so."""
        if len(terms) > 1:
            return
        number = next(
            (k for k in self._places if [terms[0][0]] == [t[0] for t in self._sizes.env.symbols[k].terms]), None
        )
        if number is not None and number not in self._settled and _decided_by_program():
            self._settled[number] = self.stack()

    def check(self) -> None:
        """ConstraintViolationError where the trace holds for fewer sizes than was said."""
        if self._wrong:
            raise ConstraintViolationError(self._wrong)
        texts, places = [], []
        for number, (place, d) in self._places.items():
            name = f"{_named(place, self._names)}.size()[{d}]"
            lo, hi = self._sizes.env.range_of(number)
            least, most = self.ranges.get(number, (lo, hi))
            if number in self._settled:
                places.append(name)
                texts.append(_BURNT.format(name=name, size=self._sizes.values[number], stack=self._settled[number]))
            elif lo > max(least, LEAST) or hi < most:
                places.append(name)
                texts.append(
                    _NARROWER.format(name=name, said=_between(name, least, most), found=_between(name, lo, hi))
                )
        if texts:
            head = f'Constraints violated ({", ".join(places)})! For more information, run with TORCH_LOGS="+dynamic".'
            raise ConstraintViolationError("\n".join([head, *texts]))


_BURNT = (
    "  - You marked {name} as dynamic but your code specialized it to be a constant ({size}). If you're using mark_dynamic, either remove it or use "
    "maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.\n\nUser stack:\n{stack}"
)
_NARROWER = "  - Not all values of {name} = {name} in the specified range {said} satisfy the generated guard {found}"


def _between(name: str, lo: float, hi: float) -> str:
    above, below = f"{int(lo)} <= {name}", f"{name} <= {int(hi)}"
    return below if lo <= LEAST else above if hi >= MOST else f"{above} and {below}"


def _named(place: str, names: Sequence[str]) -> str:
    """A place as users know it: a local, or what lies in one."""
    found = re.match(r"s\[(\d+)\]", place)
    if found is None or int(found[1]) >= len(names):
        return place
    return f"L[{names[int(found[1])]!r}]{place[found.end() :]}"


def _decided_by_program() -> bool:
    """Whether the program itself compares a size, or needs its value: not an operator that cannot do without the
    number.
    """
    frame, needed = sys._getframe(2), False
    while frame is not None and frame.f_code.co_filename.endswith(_SYMBOLS):
        needed = needed or frame.f_code.co_name == "pin"
        frame = frame.f_back
    return frame is not None and not (needed and within_rooms(frame.f_code.co_filename))


_SYMBOLS = (os.path.join("_types", "symbols.py"), os.path.join("_types", "shape_env.py"))


class Tracing:
    """The symbolic sizes of one trace, and from where each call reads them."""

    def __init__(self, varying: Varying, named: bool) -> None:
        self.varying, self.sizes = varying, NamedSizes() if named else Sizes()
        self.sizes.env.followed = True
        self.text: Callable[[Source], str] = str  # a source as backends know it
        self.read_number: Callable[[Any], None] = lambda number: None  # who is told of numbers from outside
        self.places: dict[
            int, tuple[Source, str]
        ] = {}  # of each symbol's size: where it is read, and by which expression
        self.dims: dict[int, list[tuple[str, int]]] = {}  # all dims that have it; -1 stands for a number itself
        self.marked = Marked(self.sizes, varying.names)

    def layout(self, x: Tensor, place: str, source: Source) -> Spec:
        """The spec of a tensor from outside, with symbols for the dims that vary."""
        spec = x._spec
        if source.is_constant or isinstance(x, DispatchType) or not has_memory(spec) or spec.released:
            return spec
        dims = [d for d in range(spec.ndim) if self.varies(x, place, d)]
        if not dims:
            return spec
        layout = self.sizes.layout(spec, dims, self.text(source))
        for d, size in enumerate(layout.shape):
            if type(size) is not int:
                number = self.number_of(size)
                self.dims.setdefault(number, []).append((place, d))
                self.places.setdefault(number, (source, f"{{}}._spec.shape[{d}]"))
                if self.varying.marks:
                    self.marked.add(number, x, place, d)
        return layout

    def integer(self, value: int, place: str, source: Source) -> Any:
        """The symbol for a number from outside, shared with no size; None where it is none.  Negative ones are the
        negative of a symbol.
        """
        if place not in self.varying.ints or (self.varying.named and (value < 0 or "__dict__" in place)):
            return None  # backends get no attributes as symbols, as in PyTorch
        size = self.sizes.add_number(abs(value), self.text(source))
        if size is None:
            return None
        number = self.number_of(size)
        self.dims[number] = [(place, -1)]
        self.places[number] = (source, "{}" if value > 0 else "-{}")
        self.read_number(size)
        return size if value > 0 else -size

    def number_of(self, size: Any) -> int:
        """Which symbol a size is."""
        return next(k for k, symbol in enumerate(self.sizes.env.symbols) if symbol.terms == size.terms)

    def varies(self, x: Tensor, place: str, d: int) -> bool:
        """Whether a dim of a tensor is a symbol."""
        varying = self.varying
        held = own_attributes(x) if varying.marks else {}
        if (place, d) in varying.static or d in held.get("_dynamo_static_indices", ()):
            return False
        if (place, d) in varying.dims:
            return True
        if any(d in held.get(name, ()) for name in _VARYING_MARKS):
            return True
        return varying.all and "__dict__" not in place and (type(x) is Tensor or not (x.is_leaf and x.requires_grad))

    def read(self, reads: Reads, space: Mapping[str, Any]) -> SizesRead | None:
        """The sizes that calls read; None where there are no symbols, or those alone that elements tell."""
        env = self.sizes.env
        unknown = len(getattr(env, "unbacked_names", ()))
        if len(env.symbols) == unknown:
            return None
        if unknown:
            raise SpecializationError("sizes that only elements tell beside symbolic ones")
        self.marked.check()
        found = SizesRead(env, reads, list(self.places.values()), space)
        fixed = [k for k in self.dims if env.is_pinned(k)]
        found.ranges = self.marked.ranges
        found.pinned, found.all_pinned = [place for k in fixed for place in self.dims[k]], len(fixed) == len(self.dims)
        return found


SizesNow = tuple[tuple[int, ...], dict[str, Spec], tuple[Any, ...]]


class SizesRead:
    """From where the sizes of a segment are read: for each symbol a source and an expression of it.

    `pinned` lists places and dims whose sizes the trace needs to be what they are.  `wanted` are the variables that the
    segment needs.
    """

    __slots__ = (
        "_calls", "_now", "_places", "_reads", "_rest", "_space", "_varying", "all_pinned", "ask", "env", "guard", "pinned", "ranges", "wanted",
    )  # fmt: skip

    def __init__(self, env: Any, reads: Reads, places: Sequence[tuple[Source, str]], space: Mapping[str, Any]) -> None:
        self.env, self._reads, self._places, self._space = env, reads, places, space
        self.pinned: list[tuple[str, int]] = []
        self.all_pinned = False
        self.ranges: dict[int, tuple[float, float]] = {}  # that users gave to symbols
        self.wanted: Sequence[str] = ()
        self._now: Callable[[Sequence[Any]], SizesNow | None] | None = None
        # Conditions that tell of no size, asked of native code; and a function for the others.
        self._rest: Any = None
        self.guard: Callable[[Reads], Any] = lambda reads: None  # makes a `Guard` of conditions
        self.ask: Callable[[Any, Any], Any] = lambda table, state: None  # asks native code
        self._varying: Callable[[Sequence[Any]], Any] | None = None
        self._calls = 0

    def now(self, state: Sequence[Any]) -> SizesNow | None:
        """The sizes that a state has, the specs that it has in the places of symbolic ones, by their names, and the
        values of the wanted variables; None where a size is too small or large for a symbol, or another condition
        fails.
        """
        found = self._noted(state)
        if found is None:
            if self._now is None:
                self._now = self._compiled(False)
            found = self._now(state)
            if found is not None:
                self._note(state)
        if found is None or min(found[0]) < LEAST or max(found[0]) > MOST:
            return None
        return found if all(lo <= found[0][k] <= hi for k, (lo, hi) in self.ranges.items()) else None

    def _noted(self, state: Sequence[Any]) -> SizesNow | None:
        """`now`, where native code answers for all conditions that tell of no size."""
        table: Any = None if self._rest is None else self._rest.table[0]
        given = None if table is None else self.ask(table, state)
        if given is None or self._varying is None or (table[2] is not None and not table[2](state)):
            return None
        found = self._varying(state)
        return None if found is None else (*found, given)

    def _note(self, state: Sequence[Any]) -> None:
        """Note the words behind these conditions, which hold, once such calls are known to be many."""
        self._calls += 1
        if self._calls < _SEEN:
            return
        if self._rest is None:
            entries = [entry for k, entry in enumerate(self._reads.entries) if not self._tells_of_sizes(k)]
            self._rest = self.guard(self._reads.over(entries))
            self._varying = self._compiled(True)
        self._rest.passed(state)

    def _tells_of_sizes(self, number: int) -> bool:
        """Whether an entry is a condition with sizes in it."""
        kind, _, condition = self._reads.entries[number]
        return kind == "check" and any(holds_sizes(self._space[name]) for name in _CONSTANT.findall(condition))

    def _compiled(self, varying: bool) -> Callable[[Sequence[Any]], Any]:
        """All conditions, sizes, specs and wanted values; with `varying` the conditions with sizes, sizes and specs."""
        entries, specs = [], {}
        for kind, source, condition in self._reads.entries:
            for variable, name in _SPEC.findall(condition) if kind == "check" else ():
                if holds_sizes(self._space[name]):
                    specs[name] = f"{source.variable if variable == '{}' else variable}._spec"
            entries.append((kind, source, _SYMBOL.sub(self._kind, _SPEC.sub(self._dims, condition))))
        sizes = "".join(text.replace("{}", self._reads.variable(source)) + ", " for source, text in self._places)
        found = ", ".join(f"{name!r}: {text}" for name, text in specs.items())
        if varying:
            numbers = [k for k in range(len(entries)) if self._tells_of_sizes(k)]
            given = [self._reads.variable(source) for source, _ in self._places]
            lines, wanted = self._reads.over(entries).lines_for(numbers, "return None", given), ""
        else:
            lines = self._reads.lines("return None", entries)
            wanted = f", ({''.join(f'{name}, ' for name in self.wanted)})"
        lines = [
            "  try:",
            *[f"    {x}" for x in lines],
            f"    return ({sizes}), {{{found}}}{wanted}",
            "  except ERRORS: return None",
        ]
        space = {**self._space, "ERRORS": _ERRORS}
        text = "\n".join(["def now(s):", *lines])
        made: Callable[..., Any] = functions(text, space, "sizes of a compiled segment")["now"]
        return made

    def _dims(self, match: re.Match[str]) -> str:
        """Of a condition for a symbolic spec what holds whatever the sizes are."""
        spec = self._space[match[2]]
        return f"{match[1]}._spec.ndim == {spec.ndim}" if holds_sizes(spec) else match[0]

    def _kind(self, match: re.Match[str]) -> str:
        """Of a condition for a symbolic number what holds whatever it is."""
        return "type({}) is int" if holds_sizes(self._space[match[1]]) else match[0]
