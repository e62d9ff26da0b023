"""Conditions asked one after another by their shapes, without a function compiled for all of them.

A segment has thousands of conditions, of a few dozen shapes: `type({}) is c12` and `type({}) is c40` differ in a
constant.  CPython takes 0.1 s to compile a function that asks for all conditions of a model of 200 layers, and most of
them are asked twice: native code answers from then on.  So a function is compiled for each shape, and kept for all
segments.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rushlight._capture.trace.guards.sources import Reads, parts
from rushlight._capture.trace.segments.generated import functions

__all__ = ["Conditions"]

ERRORS = (KeyError, IndexError, AttributeError, TypeError, ValueError)
_ASKED_BY_SHAPE = 8  # times; a function for all of them is worth its compilation after that
_MOST_SHAPES = 4096
_FEW_OPERANDS = 8  # operands that have a parameter each
# A literal of a text, `{}`, a name of the segment or its state, a whole number that is no part of another one.
_TOKEN = re.compile(
    r"((?=[bBrRuU'\"{cvs\d])(?:(?:\b[bBrRuU]{1,2})?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|\{\}"
    r"|(?<![\w.])(?:s\[\d+\]|(?:[cv]\d+|s)(?!\w)|(?<!e[+-])\d+(?![\w.]))))"
)
_LITERAL = re.compile(r"\d|.*['\"]\Z", re.DOTALL)
_CALL_OF = re.compile(r"(?:\w+\()*:(?:\.\w+)*\)*")  # what is around an operand that functions are called with
_WHOLE = re.compile(r"(?:0|[1-9][0-9]*)\Z")

Form = tuple[Callable[..., Any], tuple[str, ...]]  # a function of a value and operands, and the names of these
_SHAPES: dict[tuple[str, bool], Callable[..., Any]] = {}


def shape_of(text: str) -> tuple[str, tuple[str, ...]]:
    """The shape of an expression, and its operands: names and literals.

    >>> shape_of("type({}) is c12 and {} == 3")
    ('type(x) is p0 and x == p1', ('c12', '3'))

    Lists of many like elements are written as one, since CPython takes as long for each element as for a condition.

    >>> shape_of("len({id(v1), id(v2), id(v3), id(v4), id(v5), id(v6), id(v7), id(v8), id(v9)}) == 9")[0]
    'len({*[id(q) for q in p[0:9]],}) == p[9]'
    """
    pieces = _TOKEN.split(text)  # what is between tokens, and each token
    operands = [token for token in pieces[1::2] if token != "{}"]
    if len(operands) > _FEW_OPERANDS:
        return _shape_of_many(pieces), tuple(operands)
    number = 0
    for place in range(1, len(pieces), 2):
        if pieces[place] == "{}":
            pieces[place] = "x"
        else:
            pieces[place] = f"p{number}"
            number += 1
    return "".join(pieces), tuple(operands)


def _shape_of_many(pieces: Sequence[str]) -> str:
    """The shape of an expression of many operands, which are `p`, in pieces as `shape_of` has them."""
    found, place, number = [pieces[0]], 1, 0
    while place < len(pieces):
        if pieces[place] == "{}":
            found += "x", pieces[place + 1]
            place += 2
            continue
        between, last = pieces[place + 1], place  # the operands from `place` to `last` may be elements of one list
        while last + 2 < len(pieces) and pieces[last + 1] == between and pieces[last + 2] != "{}":
            last += 2
        count = (last - place) // 2 + 1
        after, comma, before = between.partition(", ")
        plain = _CALL_OF.fullmatch(f"{before}:{after}") is not None and before.count("(") == after.count(")")
        ahead, behind = found[-1].removesuffix(before), pieces[last + 1].removeprefix(after)
        whole = ahead + before == found[-1] and after + behind == pieces[last + 1]
        if (
            count > 2
            and comma
            and plain
            and whole
            and ahead.endswith(("(", "{", ", "))
            and behind.startswith((")", "}", ","))
        ):
            one = f"*[{before}q{after} for q in p[{number}:{number + count}]]"
            found[-1:] = ahead, one if behind[0] == "," else f"{one},", behind  # a tuple of one element needs a comma
            place, number = last + 2, number + count
        else:
            found += f"p[{number}]", between
            place, number = place + 2, number + 1
    return "".join(found)


class Conditions:
    """The conditions of a segment as a function of its state: the values of the variables `wanted`, or None where a
    condition does not hold.  `space` has the constants by name.
    """

    def __init__(self, reads: Reads, wanted: Sequence[str], space: Mapping[str, Any]) -> None:
        self._reads, self._wanted, self._space = reads, tuple(wanted), space
        self._asked, self._most = 0, _ASKED_BY_SHAPE
        self._forms: list[Form] | None = None
        self._literals: dict[str, Any] = {}
        self._function: Callable[[Sequence[Any]], tuple[Any, ...] | None] | None = None
        self._answer: tuple[Sequence[Any], tuple[Any, ...]] | None = None  # of the question that comes next

    def __call__(self, state: Sequence[Any]) -> tuple[Any, ...] | None:
        """Ask."""
        if self._answer is not None:
            known, self._answer = self._answer, None
            if known[0] is state:
                return known[1]
        if self._function is not None:
            return self._function(state)
        self._asked += 1
        if self._asked > self._most:
            return self.function(state)
        failed, values = self._followed(state)
        return tuple([values[name] for name in self._wanted]) if failed is None else None

    def _followed(self, state: Sequence[Any]) -> tuple[int | None, dict[str, Any]]:
        """The number of the first entry that does not hold, or whose value is not there, and the values by their names."""
        values = {**self._space, "s": state, **{f"s[{k}]": x for k, x in enumerate(state)}}
        forms, number = self.formed(), 0
        values |= self._literals
        try:
            for number, (kind, source, _) in enumerate(self._reads.entries):
                function, operands = forms[number]
                base = source if kind == "check" else source.base
                x = None if base is None else values[base.variable]
                found = function(x, *[values[name] for name in operands])
                if kind == "load":
                    values[source.variable] = found
                elif not found:
                    return number, values
        except ERRORS:
            return number, values
        return None, values

    @contextlib.contextmanager
    def answered(self, state: Sequence[Any], values: tuple[Any, ...]) -> Iterator[None]:
        """A time in which they are asked once more of a state, whose answer is known."""
        self._answer = state, values
        try:
            yield
        finally:
            self._answer = None

    def first_failing(self, state: Sequence[Any]) -> tuple[int, int, Any] | None:
        """The first failing condition: the number of an entry, that of one of its conditions (-1: there is no value),
        and the value that it asks of; None where all hold.
        """
        number, values = self._followed(state)
        if number is None:
            return None
        kind, source, condition = self._reads.entries[number]
        value = values.get(source.variable)
        for part, text in enumerate(parts(condition) if kind == "check" else ()):
            shape, operands = shape_of(text)
            asked = _asked_for({shape: len(operands)}, self._space)[shape]
            try:
                held = asked(value, *[values[x] if x in values else ast.literal_eval(x) for x in operands])
            except ERRORS:
                held = False
            if not held:
                return number, part, value
        return number, -1, None

    def like(self, other: Conditions) -> None:
        """Take over how another segment of the same trace asks: only constants differ.  As there may be many of those,
        no function is compiled for all conditions.
        """
        self._forms, self._literals, self._most = other.formed(), other._literals, sys.maxsize

    def formed(self) -> list[Form]:
        """How each entry is asked.  Whatever is wrong with their texts is an error here, not when they are asked."""
        if self._forms is not None:
            return self._forms
        known: dict[str, tuple[str, tuple[str, ...]]] = {}
        texts = [source.pattern if kind == "load" else condition for kind, source, condition in self._reads.entries]
        for text in texts:
            if text not in known:
                known[text] = shape_of(text)
                for token in known[text][1]:  # literals are found by their texts
                    if token not in self._literals and _LITERAL.match(token):
                        self._literals[token] = int(token) if _WHOLE.match(token) else ast.literal_eval(token)
        asked = _asked_for({shape: len(operands) for shape, operands in known.values()}, self._space)
        forms = {text: (asked[shape], operands) for text, (shape, operands) in known.items()}
        self._forms = [forms[text] for text in texts]
        return self._forms

    @property
    def function(self) -> Callable[[Sequence[Any]], tuple[Any, ...] | None]:
        """All conditions as one function."""
        if self._function is None:
            space = {**self._space, "ERRORS": ERRORS}
            self._function = functions("\n".join(self.lines()), space, "conditions")["checked"]
            self._forms, self._literals = None, {}
        return self._function

    def lines(self) -> list[str]:
        """The text of that function."""
        checks = [f"        {line}" for line in self._reads.lines("return None")] or ["        pass"]
        result = "".join(f"{name}, " for name in self._wanted)
        return ["def checked(s):", "    try:", *checks, "    except ERRORS: return None", f"    return ({result})"]


def _asked_for(shapes: Mapping[str, int], space: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """A function for each shape with so many operands; those that nobody has asked for yet are compiled as one text."""
    bare = "__builtins__" in space  # a segment that was kept has these builtins alone
    if len(_SHAPES) > _MOST_SHAPES:
        _SHAPES.clear()
    missing = [shape for shape in shapes if (shape, bare) not in _SHAPES]
    if missing:
        named = {n: ", ".join(["x", *(f"p{k}" for k in range(n))]) for n in range(_FEW_OPERANDS + 1)}
        parameters = [named.get(shapes[shape], "x, *p") for shape in missing]
        lines = [f"  lambda {names}: ({shape})," for names, shape in zip(parameters, missing, strict=True)]
        given: dict[str, Any] = {"__builtins__": space["__builtins__"] if bare else builtins}
        made = functions("\n".join(["shapes = (", *lines, ")"]), given, "shapes of conditions")["shapes"]
        _SHAPES.update([((shape, bare), each) for shape, each in zip(missing, made, strict=True)])
    return {shape: _SHAPES[shape, bare] for shape in shapes}
