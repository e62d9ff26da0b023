"""Wraps docstrings and comments at 120 columns, which the formatter leaves as they are.

    python tools/wrap_text.py src/rushlight/_engine       # files and folders, written in place
    python tools/wrap_text.py --check src/rushlight       # names what would change, status 1 if anything would

Only paragraphs with a longer line are wrapped.  Examples, tables, formulas and whatever is indented further than its paragraph stay.  The program does not
change: every file is parsed before and after, and the words of its docstrings must be the same.  Docstrings of operators and composites
(`_ops`, `_surface/composites`) stay: their first line is the formula that their page shows.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

COLUMNS = 120
KEEP = ("_ops", "_surface/composites")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BULLET = re.compile(r"(?:[-*]|\d+\.) +")
# Lines of a paragraph that are no prose: examples, tables, code, underlined headings.
LAID_OUT = re.compile(r"^\s*(?:>>>|\.\.\. |\||```|[-=~]{3,}$)|\S {3,}\S")


def joined(lines: Iterable[str]) -> str:
    """Lines as one text; two blanks after a sentence, as everywhere in docstrings."""
    text = ""
    for line in (each.strip() for each in lines):
        text += ("" if not text else "  " if text.endswith((".", "!", "?")) else " ") + line
    return text


def wrapped(lines: list[str], indent: str, first: str, last: int = 0) -> list[str]:
    """A paragraph whose first line begins with `first` and whose last one leaves room for `last` more columns."""
    text = joined([lines[0][len(first) :], *lines[1:]])
    bullet = BULLET.match(text)
    hanging = indent + " " * (len(bullet[0]) if bullet else 0)
    made = textwrap.wrap(
        text, COLUMNS, initial_indent=first, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    if last and len(made[-1]) + last > COLUMNS:
        made = textwrap.wrap(
            text,
            COLUMNS - last,
            initial_indent=first,
            subsequent_indent=hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return made


def paragraphs(lines: list[str], indent: str) -> Iterator[tuple[list[str], bool]]:
    """(lines, whether they are prose that may be wrapped): bullets apart, examples up to the next blank line."""
    held: list[str] = []
    example = False
    for number, line in enumerate(lines):
        text = line.strip()
        example = bool(text) and (example or text.startswith(">>>"))
        deeper = number > 0 and line.startswith(indent + " ") and not (held and BULLET.match(held[0].strip()))
        prose = bool(text) and not example and not deeper and not LAID_OUT.search(line)
        if not prose or BULLET.match(text):
            if held:
                yield held, True
            held = []
        if prose:
            held.append(line)
        else:
            yield [line], False
    if held:
        yield held, True


def wrapped_docstring(lines: list[str], column: int) -> list[str]:
    """The lines of a docstring, from its opening quotes to its closing ones."""
    opening = re.match(r"[ \t]*[rRuU]?\"\"\"", lines[0])
    if opening is None or not any(len(line) > COLUMNS for line in lines):
        return lines
    indent, alone = " " * column, len(lines) == 1
    body = [*lines[:-1], lines[-1].removesuffix('"""')]
    if body[-1].strip() == "" and not alone:
        body.pop()
    made: list[str] = []
    for paragraph, prose in paragraphs(body, indent):
        if prose and any(len(line) > COLUMNS for line in paragraph) or (alone and len(lines[0]) > COLUMNS):
            first = opening[0] if not made else indent
            made += wrapped(paragraph, indent, first)
        else:
            made += paragraph
    return [*made, indent + '"""']


def wrapped_comments(lines: list[str], own: set[int]) -> list[str]:
    """Comments that have lines of their own (`own`), each block of equal indentation as paragraphs."""
    made: list[str] = []
    at = 0
    while at < len(lines):
        if at not in own:
            made.append(lines[at])
            at += 1
            continue
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "# "
        block = []
        while (
            at in own
            and lines[at].startswith(indent)
            and not lines[at].startswith(indent + " ")
            and not LAID_OUT.search(lines[at][len(indent) :])
        ):
            block.append(lines[at])
            at += 1
        if not block:
            made.append(lines[at])
            at += 1
        elif any(len(line) > COLUMNS for line in block):
            text = joined(line[len(indent) :] for line in block)
            made += textwrap.wrap(
                text,
                COLUMNS,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        else:
            made += block
    return made


def rewritten(source: str) -> str:
    """A file's text after wrapping."""
    lines = source.splitlines()
    spans = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            assert text.end_lineno is not None
            if lines[text.end_lineno - 1].rstrip().endswith('"""'):
                spans.append((text.lineno - 1, text.end_lineno, text.col_offset))
    for start, stop, column in sorted(spans, reverse=True):
        lines[start:stop] = wrapped_docstring(lines[start:stop], column)
    again = "\n".join(lines) + "\n"
    own = {
        token.start[0] - 1
        for token in tokenize.generate_tokens(io.StringIO(again).readline)
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") and token.string.startswith("# ")
        and not re.match(r"# (?:type|fmt|noqa|\*{3,}|mypy|ruff|long )", token.string)
    }  # fmt: skip
    return "\n".join([*wrapped_comments(lines, own), ""])


def meaning(source: str) -> str:
    """The program of a file, with the words of its docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            value = node.body[0].value  # type: ignore[attr-defined]
            value.value = " ".join(value.value.split())
    return ast.dump(tree)


def files(places: Iterable[Path]) -> Iterator[Path]:
    """The Python files in files and folders, without those whose docstrings are shown line by line."""
    for place in places:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if not any(f"/rushlight/{part}/" in path.as_posix() for part in KEEP):
                yield path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("places", nargs="+", type=Path, help="files and folders")
    parser.add_argument("--check", action="store_true", help="write nothing; say what would change")
    given = parser.parse_args()
    changed = 0
    for path in files(place.resolve() for place in given.places):
        before = path.read_text(encoding="utf-8")
        after = rewritten(before)
        if after != before:
            if meaning(after) != meaning(before):
                raise AssertionError(f"wrapping would change {path}")
            changed += 1
            print(f"{'long lines' if given.check else 'wrapped'}: {path}")
            if not given.check:
                path.write_text(after, encoding="utf-8")
    return 1 if given.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
