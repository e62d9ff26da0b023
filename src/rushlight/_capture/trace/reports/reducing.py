"""Programs that show a failure of the compiler, made as short as they can be in a few seconds.

Statements are left out, many at once and then one by one, compound statements give way to what is in them, and
expressions to their parts, as long as the compiler fails in the same way.  Programs are only traced, never run.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["alike", "reduced"]

SECONDS = 5.0
_CHUNKS = (16, 8, 4, 2, 1)
_BODIES = ("body", "orelse", "finalbody")

Fails = Callable[[types.FunctionType], bool]


def alike(one: BaseException, other: BaseException) -> bool:
    """Whether two failures are the same but for numbers and addresses."""
    return type(one) is type(other) and _words(one) == _words(other)


def _words(error: BaseException) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+", "0", str(error))


def reduced(function: types.FunctionType, fails: Fails, seconds: float = SECONDS) -> types.FunctionType | None:
    """A shorter function for which `fails` is true, with its text as `__doc__`; None where there is none, or no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    first = tree.body[0] if tree.body else None
    if not isinstance(first, ast.FunctionDef) or first.name != function.__name__:
        return None
    first.decorator_list, first.returns = [], None
    search = _Search(function, fails, time.monotonic() + seconds)
    if not search.holds(tree):  # it depends on more than its text
        return None
    return search.made(search.shortest(tree))


class _Search:
    """Looks for a shorter tree."""

    def __init__(self, function: types.FunctionType, fails: Fails, end: float) -> None:
        self.function, self.fails, self.end = function, fails, end

    def made(self, tree: ast.Module) -> types.FunctionType | None:
        """The function of a tree, with the globals and the closure of the one that was given."""
        old = self.function
        cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
        text = ast.unparse(tree)
        around = "def around({}):\n{}".format(", ".join(cells), textwrap.indent(text, "    ")) if cells else text
        try:
            code = compile(around, "<reduced>", "exec")
        except (SyntaxError, ValueError):
            return None
        found = _code_of(code, old.__name__)
        if found is None or not set(found.co_freevars) <= cells.keys():
            return None
        closure = tuple([cells[name] for name in found.co_freevars])
        new = types.FunctionType(found, old.__globals__, old.__name__, old.__defaults__, closure)
        new.__kwdefaults__, new.__qualname__, new.__doc__ = old.__kwdefaults__, old.__qualname__, text
        return new

    def holds(self, tree: ast.Module) -> bool:
        """Whether the function of a tree fails in the same way."""
        if time.monotonic() > self.end:
            return False
        new = self.made(tree)
        return new is not None and self.fails(new)

    def shortest(self, tree: ast.Module) -> ast.Module:
        """The tree after all changes that keep the failure."""
        for changes in (_without_statements, _opened, _with_parts, _without_statements):
            again = True
            while again and time.monotonic() < self.end:
                again = False
                for changed in changes(tree):
                    if self.holds(changed):
                        tree, again = changed, True
                        break
                    if time.monotonic() > self.end:
                        break
        return tree


def _code_of(code: types.CodeType, name: str) -> types.CodeType | None:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found = each if each.co_name == name else _code_of(each, name)
            if found is not None:
                return found
    return None


def _lists(tree: ast.Module) -> Iterator[tuple[int, str, list[ast.stmt]]]:
    """The lists of statements of the function: the number of their node, and their field."""
    for number, node in enumerate(ast.walk(tree)):
        if number:
            for field in _BODIES:
                held = getattr(node, field, None)
                if isinstance(held, list) and held:
                    yield number, field, held


def _changed(tree: ast.Module, number: int, field: str, new: list[ast.stmt]) -> ast.Module:
    """A copy with another list of statements in one place."""
    held = getattr(node := list(ast.walk(tree))[number], field)
    setattr(node, field, new if new or field != "body" else [ast.Pass()])
    made = copy.deepcopy(tree)
    setattr(node, field, held)
    return made


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    for chunk in _CHUNKS:
        for number, field, held in list(_lists(tree)):
            for start in range(len(held) - chunk, -1, -1):
                if not all(isinstance(x, ast.Pass) for x in held):
                    yield _changed(tree, number, field, held[:start] + held[start + chunk :])


def _opened(tree: ast.Module) -> Iterator[ast.Module]:
    for number, field, held in list(_lists(tree)):
        for place, statement in enumerate(held):
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                continue
            for inner in _BODIES:
                new = getattr(statement, inner, None)
                if new:
                    yield _changed(tree, number, field, held[:place] + new + held[place + 1 :])


def _with_parts(tree: ast.Module) -> Iterator[ast.Module]:
    """Expressions in whose place one of their parts stands."""
    for number, node in enumerate(list(ast.walk(tree))):
        for field, value in list(ast.iter_fields(node)):
            for place, each in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(each, ast.expr) or isinstance(each, (ast.Name, ast.Constant)) or number == 0:
                    continue
                for part in _parts(each):
                    yield _replaced(tree, node, field, place, part)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.keyword):
            yield child.value


def _replaced(tree: ast.Module, node: ast.AST, field: str, place: int | None, part: Any) -> ast.Module:
    held = getattr(node, field)
    if place is None:
        setattr(node, field, part)
    else:
        setattr(node, field, [*held[:place], part, *held[place + 1 :]])
    made = copy.deepcopy(tree)
    setattr(node, field, held)
    return made
