"""PyTorch's module paths that have no file of their own here, and where their names are: the table `alias_pages.txt`.

A line is a path below `torch`, a colon, and one or more sources separated by semicolons.  A source is one of our pages,
followed by the names that the path hands on from it (`ours=theirs` where they differ).  One source without names: the
path is that page itself; no source: a package that is empty in PyTorch too.  A prefix that ends in `.*` moves everything below it.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType
from typing import Any

from rushlight._base.naming import no_name

__all__ = ["FILE", "Sources", "hand_on", "present_place", "sources_of"]

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alias_pages.txt")
PACKAGE = "rushlight"
# name of the path -> (our page, the name there)
Sources = dict[str, tuple[str, str]]


@cache
def _table() -> tuple[dict[str, str | Sources], list[tuple[str, str]]]:
    """Path -> our page, or the source of each name; and the moved prefixes."""
    pages: dict[str, str | Sources] = {}
    moved = []
    with open(FILE, encoding="utf-8") as file:
        for line in file:
            path, colon, sources = line.partition(":")
            if not colon or path.startswith("#"):
                continue
            if path.endswith(".*"):
                moved.append((path[:-2], sources.strip().removesuffix(".*")))
            else:
                pages[path] = _sources(sources)
    return pages, moved


def _sources(text: str) -> str | Sources:
    found: Sources = {}
    for source in filter(str.strip, text.split(";")):
        page, *names = source.split()
        if not names:
            return page
        for name in names:
            ours, _, theirs = name.partition("=")
            found[theirs or ours] = (page, ours)
    return found


def present_place(path: str) -> str:
    """The path below `torch` itself, or the one that it moved to."""
    for older, present in _table()[1]:
        if path == older or path.startswith(f"{older}."):
            return present + path[len(older) :]
    return path


def sources_of(path: str) -> str | Sources | None:
    """Our page that a path stands for, or where its names are; None for a path with a page of its own."""
    return _table()[0].get(path)


def hand_on(module: ModuleType, sources: Sources) -> None:
    """Let a module give names of other pages, which are imported when one of their names is asked for."""

    def __getattr__(name: str) -> Any:
        source = sources.get(name)
        if source is None:
            raise no_name(module.__name__, name)
        page, ours = source
        value = getattr(importlib.import_module(f"{PACKAGE}.{page}" if page != "torch" else PACKAGE), ours)
        vars(module)[name] = value
        return value

    vars(module)["__getattr__"] = __getattr__
    vars(module).setdefault("__all__", [name for name in sources if not name.startswith("_")])
    vars(module)["__dir__"] = lambda: sorted({*vars(module), *sources})
