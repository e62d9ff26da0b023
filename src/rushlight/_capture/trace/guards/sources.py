"""Where values come from, and what must hold for a trace to be used again.

A `Source` is an expression over the state that a segment is given: `s[0].__dict__['weight']`.  `Reads` collects, in the
order in which the trace read them, loads of sources and conditions on what was loaded; `text` writes both as Python,
each source loaded once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any

from rushlight._capture.bytecode.operations import in_python

__all__ = ["Constants", "Reads", "Source", "VARIABLE", "parts"]

VARIABLE = re.compile(r"\bv\d+\b")
_IDENTITY = re.compile(r"(type\(\{\}\)|\{\}) is c\d+")  # one object is another, or of a class, and no more is asked


class Constants:
    """Objects that generated code refers to by name."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.space: dict[str, Any] = {}

    def name(self, value: Any) -> str:
        """The name of an object; the same object has one name."""
        found = self.names.get(id(value))
        if found is None:
            found = self.names[id(value)] = f"c{len(self.names)}"
            self.space[found] = value
        return found


class Source:
    """A way to a value: `pattern` with the variable of `base` in the place of `{}`; without a base an expression by
    itself.
    """

    __slots__ = ("base", "depth", "pattern", "variable")

    def __init__(self, pattern: str, base: Source | None = None) -> None:
        self.pattern, self.base = pattern, base
        self.depth: int = 0 if base is None else base.depth + 1
        self.variable = ""

    def __str__(self) -> str:
        return self.pattern if self.base is None else self.pattern.replace("{}", str(self.base))

    @property
    def is_constant(self) -> bool:
        """Whether it is one object, whatever the state."""
        return self.base is None and self.pattern[0] == "c"


class Reads:
    """Loads and conditions, in order."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.entries: list[
            tuple[str, Source, str]
        ] = []  # "load" or "check", the source, the condition with {} for its variable
        self.known: dict[tuple[int, str], Source] = {}
        self.checked: set[tuple[int, str]] = set()
        self.loaded: set[int] = set()
        self.needed: dict[str, Source] = {}  # by their variables: what a segment uses besides conditions
        # Whether all is written: what runs once more, as a checkpointed part whose backward is made later, read it before.
        self.closed = False
        self.heard: Callable[[Source, str], None] | None = None  # told of every condition, whether it is new or not

    def source(self, pattern: str, base: Source | None = None) -> Source:
        """The source with this pattern; equal ones are one."""
        key = (id(base), pattern)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = Source(pattern, base)
        return found

    def constant(self, value: Any) -> Source:
        """The source of an object that is the same at every call."""
        return self.source(self.constants.name(value))

    def check(self, source: Source, condition: str) -> None:
        """Require a condition of what a source gives."""
        if self.heard is not None:
            self.heard(source, condition)
        self.require(source, condition)

    def require(self, source: Source, condition: str) -> None:
        """As `check`; nobody is told."""
        if source.is_constant and self._is_certain(source, condition):
            return
        key = (id(source), condition)
        if key not in self.checked and not self.closed:
            self.checked.add(key)
            self.load(source)
            self.entries.append(("check", source, condition))

    def _is_certain(self, source: Source, condition: str) -> bool:
        """Whether a constant meets a condition at every call: what it is, and its class unless that can be assigned."""
        if _IDENTITY.fullmatch(condition) is None:
            return False
        return condition.startswith("{}") or not in_python(type(self.constants.space.get(source.pattern)))

    def is_required(self, source: Source, value: Any) -> bool:
        """Whether a source is required to give this object."""
        name = self.constants.names.get(id(value))
        return (id(source), f"{{}} is {name}") in self.checked

    def load(self, source: Source) -> None:
        """Have the value of a source in a variable."""
        if id(source) in self.loaded or self.closed:
            return
        if source.base is not None:
            self.load(source.base)
        self.loaded.add(id(source))
        if source.base is None and (source.is_constant or source.pattern.startswith("s[")):
            source.variable = source.pattern
            return
        source.variable = f"v{len(self.loaded)}"
        self.entries.append(("load", source, ""))

    def variable(self, source: Source) -> str:
        """The variable that has the value of a source."""
        self.load(source)
        return source.variable

    def need(self, source: Source) -> str:
        """Have the value of a source in a variable that is used besides conditions."""
        self.needed[self.variable(source)] = source
        return source.variable

    def lines_for(self, numbers: Iterable[int], miss: str, given: Iterable[str] = ()) -> list[str]:
        """Statements for some of the conditions, by their numbers, with the loads that they need, and those of variables."""
        wanted, variables = set(numbers), set(given)
        for _, source, condition in [self.entries[number] for number in wanted]:
            variables.add(source.variable)
            variables.update(VARIABLE.findall(condition))
        for number in reversed(range(len(self.entries))):
            kind, source, _ = self.entries[number]
            if kind == "load" and source.variable in variables:
                wanted.add(number)
                if source.base is not None:
                    variables.add(source.base.variable)
                variables.update(VARIABLE.findall(source.pattern))
        return self.lines(miss, [self.entries[number] for number in sorted(wanted)])

    def over(self, entries: list[tuple[str, Source, str]]) -> Reads:
        """The same with other entries."""
        made = Reads(self.constants)
        made.entries, made.known, made.loaded, made.needed, made.closed = (
            entries,
            self.known,
            self.loaded,
            self.needed,
            True,
        )
        return made

    def lines(self, miss: str = "return MISS", entries: Iterable[tuple[str, Source, str]] | None = None) -> list[str]:
        """The loads and conditions as statements; consecutive conditions share an `if`."""
        lines: list[str] = []
        pending: list[str] = []

        def flush() -> None:
            if pending:
                lines.append(f"if not ({' and '.join(pending)}): {miss}")
                pending.clear()

        for kind, source, condition in self.entries if entries is None else entries:
            if kind == "check":
                text = condition.replace("{}", source.variable)
                pending.append(f"({text})" if " or " in text else text)
                continue
            flush()
            assert source.base is not None or not source.is_constant
            base = "" if source.base is None else source.base.variable
            lines.append(f"{source.variable} = {source.pattern.replace('{}', base)}")
        flush()
        return lines

    def told(self, number: int, part: int) -> str:
        """One of the conditions (or that there is a value, part -1) in terms of sources."""
        _, source, condition = self.entries[number]
        return f"{source} is there" if part < 0 else parts(condition)[part].replace("{}", str(source))


def parts(condition: str) -> list[str]:
    """The conditions that are joined in one.

    >>> parts("type({}) is int and {} == 3")
    ['type({}) is int', '{} == 3']
    """
    tree = ast.parse(condition.replace("{}", "__X__"), mode="eval").body
    if not isinstance(tree, ast.BoolOp) or not isinstance(tree.op, ast.And):
        return [condition]
    return [ast.unparse(each).replace("__X__", "{}") for each in tree.values]
