"""`FileCheck`: what a text must hold, in which order."""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

__all__ = ["FileCheck"]


class _Check(NamedTuple):
    """One condition: its kind, the text to find, how often."""

    kind: str
    text: str
    times: int = 1

    def __str__(self) -> str:
        counted = f"-{self.times}" if self.kind == "COUNT" else ""
        return f"CHECK{'-' if self.kind else ''}{self.kind}{counted}: {self.text}"


_MARK = re.compile(r"CHECK(?:-(COUNT(?:-EXACTLY)?-(\d+)|NEXT|SAME|NOT|DAG|SOURCE-HIGHLIGHTED|REGEX))?: *(.*)")


class FileCheck:
    """Conditions on a text, such as the text of a graph: each names what must be found behind what the last one found.

    The methods return the object, so that conditions chain; `run` tries them, and RuntimeError shows the first one that
    does not hold.

    >>> import rushlight as torch
    >>> FileCheck().check("first").check_not("third").check("second").run("first, second, third")
    >>> FileCheck().check("second").check("first").run("first, second")
    Traceback (most recent call last):
        ...
    RuntimeError: Expected to find "first" but did not find it
    Searched string:
    first, second
         ~ <--- HERE
    From CHECK: first
    """

    def __init__(self) -> None:
        self._groups: list[list[_Check]] = []
        self._ran = False

    def __del__(self) -> None:
        if not self._ran:
            shown = "".join(f"\t{check}\n" for group in self._groups for check in group)
            sys.stdout.write(f"You have not run this instance of FileCheck!\nFileCheck checks:\n{shown}")

    # ***** conditions *****

    def _add(self, kind: str, text: str, count: int = 1) -> FileCheck:
        self._ran = False
        made = _Check(kind, text, count)
        if self._groups and kind in ("NOT", "DAG") and self._groups[-1][0].kind == kind:
            self._groups[-1].append(made)
        else:
            self._groups.append([made])
        return self

    def check(self, text: str) -> FileCheck:
        """`text` follows."""
        return self._add("", text)

    def check_not(self, text: str) -> FileCheck:
        """`text` does not stand between what is found before and what is found next."""
        return self._add("NOT", text)

    def check_same(self, text: str) -> FileCheck:
        """`text` follows in the same line."""
        return self._add("SAME", text)

    def check_next(self, text: str) -> FileCheck:
        """`text` follows in the next line."""
        return self._add("NEXT", text)

    def check_count(self, str: str, count: int, exactly: bool = False) -> FileCheck:
        """`str` follows `count` times; with `exactly` not once more.  RuntimeError for 0 times that are not exact."""
        if count == 0 and not exactly:
            self._ran = True
            raise RuntimeError("check_count of 0 says nothing without exactly=True")
        if count:
            self._add("COUNT", str, count)
        return self._add("NOT", str) if exactly else self

    def check_dag(self, text: str) -> FileCheck:
        """`text` follows; neighbouring conditions of this kind may be found in any order."""
        return self._add("DAG", text)

    def check_source_highlighted(self, text: str) -> FileCheck:
        """`text` follows, and the line below marks all of it, and no more, with `~`."""
        return self._add("SOURCE-HIGHLIGHTED", text)

    def check_regex(self, text: str) -> FileCheck:
        """Something follows that the regular expression matches."""
        return self._add("REGEX", text)

    # ***** the search *****

    def run(self, *texts: Any) -> None:
        """Try the conditions on a text or a graph.  `run(conditions, text)` reads further ones of comments: `# CHECK: first`."""
        self._ran = True
        if not 1 <= len(texts) <= 2 or not all(isinstance(t, str) or hasattr(t, "nodes") for t in texts):
            shown = ", ".join(type(t).__name__ for t in texts)
            raise TypeError(f"run takes a text or a graph, and before it a text of conditions; it was given {shown}")
        if len(texts) == 2:
            try:
                self._read(texts[0])
            finally:
                self._ran = True
        if not self._groups:
            raise RuntimeError("No checks have been added to this instance of Filecheck! Check for bad input.")
        self._search(str(texts[-1]))

    def _read(self, text: str) -> None:
        for line in text.splitlines():
            found = re.search(r"# *(CHECK[-:].*)", line)
            if found is None:
                continue
            mark = _MARK.fullmatch(found[1])
            if mark is None:
                raise RuntimeError(f"Could not parse check at:\n{line}\nCheck for bad input.")
            kind, count, wanted = mark[1] or "", mark[2], mark[3].rstrip()
            if count:
                self.check_count(wanted, int(count), "EXACTLY" in kind)
            else:
                self._add(kind, wanted)

    def _search(self, text: str) -> None:
        found, unwanted = (0, 0), []
        for group in self._groups:
            if group[0].kind == "NOT":
                unwanted = group
                continue
            before, found = found, _found(text, group, found)
            _refuse(text, unwanted, before[1], found[0])
            unwanted = []
        _refuse(text, unwanted, found[1], len(text))


def _found(text: str, group: list[_Check], before: tuple[int, int]) -> tuple[int, int]:
    """(start, end) of what a group finds behind what was found before."""
    check, at = group[0], before[1]
    if check.kind == "DAG":
        starts = [_find(text, each, at) for each in group]
        return min(starts), max(s + len(c.text) for s, c in zip(starts, group, strict=True))
    if check.kind == "REGEX":
        matched = re.compile(check.text).search(text, at)
        if matched is None:
            raise RuntimeError(
                f'Expected to find regex "{check.text}" but did not find it\n{_searched(text, at, check)}'
            )
        return matched.span()
    if check.kind == "SOURCE-HIGHLIGHTED":
        return _highlighted(text, check, at)
    first = start = _find(text, check, at)
    for _ in range(check.times - 1):
        start = _find(text, check, start + len(check.text))
    lines = text.count("\n", at, start)
    if check.kind == "NEXT" and lines == 0:
        raise RuntimeError(f'Expected to find "\\n" but did not find it\n{_searched(text, at, check)}')
    if check.kind == "SAME" and lines or check.kind == "NEXT" and lines > 1:
        raise RuntimeError(f'Expected to not find "\\n" but found it\n{_marked(text, at, start - at)}From {check}\n')
    return first, start + len(check.text)


def _highlighted(text: str, check: _Check, at: int) -> tuple[int, int]:
    start = _find(text, check, at)
    while True:
        end = start + len(check.text)
        column, below = start - (text.rfind("\n", 0, start) + 1), text.find("\n", end)
        marks = text[below + 1 :].partition("\n")[0] if below >= 0 else ""
        width = len(check.text)
        if marks[column : column + width] == "~" * width:
            if marks[:column].endswith("~") or marks[column + width :].startswith("~"):
                raise RuntimeError(
                    f'Expected to not find "~" but found it\n{_marked(text, start, width)}From {check}\n'
                )
            return start, below + 1 + column + width
        start = text.find(check.text, end)
        if start < 0:
            raise RuntimeError(f'Expected to find "{check.text}"highlighted but it is not.\n{_marked(text, at, 1)}')


def _find(text: str, check: _Check, at: int) -> int:
    start = text.find(check.text, at)
    if start < 0:
        raise RuntimeError(f'Expected to find "{check.text}" but did not find it\n{_searched(text, at, check)}')
    return start


def _refuse(text: str, unwanted: list[_Check], start: int, end: int) -> None:
    for check in unwanted:
        at = text.find(check.text, start, end)
        if at >= 0:
            shown = _marked(text, at, len(check.text))
            raise RuntimeError(f'Expected to not find "{check.text}" but found it\n{shown}From {check}\n')


def _searched(text: str, at: int, check: _Check) -> str:
    return f"Searched string:\n{_marked(text, max(at - 1, 0), 1)}From {check}\n"


def _marked(text: str, at: int, width: int) -> str:
    """A few lines of a text, with a part marked."""
    start = text.rfind("\n", 0, at) + 1
    stop = text.find("\n", at)
    stop = len(text) if stop < 0 else stop
    before, after = text[:start].splitlines()[-3:], text[stop + 1 :].splitlines()[:3]
    width = max(1, min(width, stop - at))
    marks = " " * (at - start) + "~" * width + " <--- HERE"
    return "\n".join([*before, text[start:stop], marks, *after]) + "\n"
