"""Patterns of module names, and what a package holds as a tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["Directory", "GlobGroup"]


class GlobGroup:
    """Names that match one of several patterns, and none of others: `*` is within a part, `**` any number of parts.

    >>> GlobGroup("torch.**", exclude="torch.nn").matches("torch.fx.node")
    True
    """

    def __init__(
        self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), separator: str = "."
    ) -> None:
        self.separator = separator
        self.include = [self._compiled(p) for p in ([include] if isinstance(include, str) else include)]
        self.exclude = [self._compiled(p) for p in ([exclude] if isinstance(exclude, str) else exclude)]
        self._text = f"GlobGroup(include={include!r}, exclude={exclude!r})"

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def matches(self, candidate: str) -> bool:
        """Whether a name is one of the group."""
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self.include) and not any(p.fullmatch(name) for p in self.exclude)

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        separator = re.escape(self.separator)
        parts = []
        for part in pattern.split(self.separator):
            if part == "**":
                parts.append(f"(?:{separator}[^{separator}]+)*")
            elif "**" in part:
                raise ValueError("** can only appear as an entire path segment")
            else:
                parts.append(separator + f"[^{separator}]*".join(re.escape(p) for p in part.split("*")))
        return re.compile("".join(parts))


class Directory:
    """A tree of files, as `PackageImporter.file_structure` gives it; `str` draws it."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def _add(self, path: str) -> None:
        head, slash, rest = path.partition("/")
        child = self.children.setdefault(head, Directory(head, bool(slash)))
        if slash:
            child._add(rest)

    def has_file(self, filename: str) -> bool:
        """Whether there is a file at a path."""
        held: Any = self
        for part in filename.split("/"):
            held = held.children.get(part)
            if held is None:
                return False
        return True

    def __str__(self) -> str:
        lines: list[str] = []
        self._draw(lines, "")
        return "\n".join(lines) + "\n"

    def _draw(self, lines: list[str], pad: str) -> None:
        if not lines:
            lines.append(f"─── {self.name}")
            pad = "    "
        ordered = sorted(self.children.values(), key=lambda c: (not c.is_dir, c.name))
        for at, child in enumerate(ordered):
            last = at + 1 == len(ordered)
            lines.append(f"{pad}{'└' if last else '├'}── {child.name}")
            child._draw(lines, pad + ("    " if last else "│   "))
