"""Errors for names that a page lacks: PyTorch has the name and rushlight lacks it yet, or it is misspelled."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

__all__ = ["absent_module", "absent_name", "is_pytorchs", "missing", "no_name"]

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch_names.txt")


@cache
def _pages() -> dict[str, frozenset[str]]:
    """The names of PyTorch's public modules, by module below `torch`; see tools/tables/pytorch_names.py."""
    pages: dict[str, frozenset[str]] = {}
    with open(_FILE, encoding="utf-8") as file:
        for line in file:
            page, *names = line.split()
            if page != "#":
                pages[_below(page)] = frozenset(names)
    return pages


def _below(name: str) -> str:
    return name.partition(".")[2]


def is_pytorchs(name: str) -> bool | None:
    """Whether PyTorch has a name, a module or a name of a module, without the leading `torch.`; None for private names,
    few of which are known."""
    page, _, last = name.rpartition(".")
    pages = _pages()
    if name in pages or last in pages.get(page, ()):
        return True
    return None if any(part.startswith("_") for part in name.split(".")) else False


def missing(name: str, asked: str | None = None) -> str | None:
    """The message for a name, without the leading `torch.`, that PyTorch has, or may have, and rushlight lacks; None
    for any other."""
    known = is_pytorchs(name)
    return (
        None
        if known is False
        else f"rushlight has no {name!r}{' yet' if known else ''} (asked for as {asked or f'torch.{name}'!r})"
    )


def absent_module(asked: str, name: str) -> str:
    """The message for an import of a missing module, `name` without the leading `torch.`."""
    return missing(name, asked) or f"No module named {asked!r}, neither in rushlight nor in PyTorch{_suggestion(asked)}"


def absent_name(page: str, name: str) -> str:
    """The message for a missing name of a page, a module by its full name."""
    full = ".".join(filter(None, (_below(page), name)))
    return (
        not name.startswith("__")
        and missing(full)
        or f"module {page!r} has no attribute {name!r}{_suggestion(f'{page}.{name}')}"
    )


def _suggestion(full: str) -> str:
    """The name that was probably meant, among those of the page; an empty text if there is none."""
    page, _, name = full.rpartition(".")
    known = [each for each in dir(sys.modules.get(page)) if each.startswith("_") == name.startswith("_")]
    same = [each for each in known if each.casefold() == name.casefold()]
    if not same:
        from difflib import get_close_matches

        same = get_close_matches(name, known, 1, 0.7)
    return f". Did you mean: {same[0]!r}?" if same else ""


class _NoName(AttributeError):
    """Its text is built when it is read: most of these errors answer `hasattr`."""

    page: str

    def __str__(self) -> str:
        return absent_name(self.page, str(self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return AttributeError, (str(self),)


# The class's name in tracebacks
_NoName.__module__, _NoName.__name__, _NoName.__qualname__ = "builtins", "AttributeError", "AttributeError"


def no_name(page: str, name: str) -> AttributeError:
    """The error of a page, a module by its full name, that has no such attribute."""
    error = _NoName(f"module {page!r} has no attribute {name!r}", name=name)
    error.page = page
    return error
