"""Writes what the pages of the rooms can take from the code: the drawing of the rooms, and each room's table of files.

    python tools/rooms.py             # docs/pictures/rooms.svg and the tables in docs/rooms/*.md
    python tools/rooms.py --check     # says what would change, status 1 if anything would

The order of the rooms is that of `src/rushlight/LAYERS`, what a room holds is said by the table in docs/architecture.md, and what a file holds by the first
sentence of its docstring.
"""

from __future__ import annotations

import argparse
import ast
import html
import re
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, DOCS = ROOT / "src" / "rushlight", ROOT / "docs"
PICTURE = DOCS / "pictures" / "rooms.svg"
BEGIN, END = "<!-- files: written by tools/rooms.py -->", "<!-- files: end -->"
SHORT = 140  # characters of a sentence in a table, at most


def layers() -> list[str]:
    """The rooms, from the ground up."""
    return [line for line in (PACKAGE / "LAYERS").read_text().splitlines() if line and not line.startswith("#")]


def page_of(room: str) -> Path:
    """The page of a room."""
    return DOCS / "rooms" / f"{room.lstrip('_')}.md"


# ***** tables of files *****


def sentence(path: Path) -> str:
    """The first sentence of a module's docstring, on one line."""
    source = path.read_text(encoding="utf-8")
    plain = re.match(r'"""([^"\\]*)"""\n', source)  # to parse whole files takes two seconds
    text = plain[1] if plain else ast.get_docstring(ast.parse(source)) or ""
    first = " ".join(text.split("\n\n")[0].split())
    first = re.split(r"(?<=[^.]\.)\s", first)[0].rstrip(":;.") + "."
    return first if len(first) <= SHORT else first[:SHORT].rsplit(" ", 1)[0].rstrip(",;:") + " ..."


def row(name: str, path: Path) -> str:
    return f"| `{name}` | {sentence(path).replace('|', chr(92) + '|')} |"


def files_in(room: str) -> list[Path]:
    """The modules of a room; of the public packages, what users import."""
    if room != "public":
        return sorted(p for p in (PACKAGE / room).rglob("*.py") if "__pycache__" not in p.parts)
    return sorted(
        p / "__init__.py" if p.is_dir() else p
        for p in PACKAGE.iterdir()
        if not p.name.startswith("_") and (p.suffix == ".py" or (p / "__init__.py").is_file())
    )


def table(room: str) -> list[str]:
    """A room's files with what each holds, a table for each folder."""
    files = files_in(room)
    if room == "public":
        names = [str((p.parent if p.name == "__init__.py" else p).relative_to(PACKAGE)) for p in files]
        rows = [row(name, path) for name, path in zip(names, files, strict=True)]
        return ["| page | what it holds |", "| --- | --- |", *rows]
    lines: list[str] = []
    for folder in sorted({p.parent for p in files}):
        inside = [p for p in files if p.parent == folder and p.name != "__init__.py"]
        if inside:
            lines += ["", f"In `{folder.relative_to(PACKAGE)}/`:", "", "| file | what it holds |", "| --- | --- |"]
            lines += [row(str(p.relative_to(PACKAGE)), p) for p in inside]
    return lines[1:]


def with_table(text: str, room: str) -> str:
    """A room's page with its table written anew; ValueError where it has no place for one."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page_of(room)} lacks the lines {BEGIN} and {END}")
    return "\n".join([before + begin, "", *table(room), "", end + after])


# ***** the drawing *****

WIDTH, TOP, HEIGHT, GAP, LEFT, BOX = 1000, 74, 46, 10, 24, 590
INK, FAINT, FLAME, PAPER, EDGE = "#2b2520", "#6f675f", "#c2571a", "#fffaf2", "#d9cbb8"
FAST = "#2f6f8f"
SANS = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
MONO = "font-family='ui-monospace,SFMono-Regular,Menlo,Consolas,monospace'"
# The way of a call: its mark, the room it is in, what happens there. Numbers are every call's, letters those of a call without a plan, in order.
WAY = (
    ("1", "_surface", "the function that you call"),
    ("2", "_host", "find the call's plan, and run it"),
    ("3", "_backends", "kernel, memory, threads"),
    ("a", "_engine", "no plan? then make one"),
    ("b", "_ops", "trace the operator's body"),
    ("c", "_transforms", "differentiate the graph"),
    ("d", "_schedule", "form groups, a kernel each"),
    ("e", "_codegen", "loop nests, LLVM text"),
    ("f", "_native", "compile, or load from disk"),
)


def contents() -> dict[str, str]:
    """What each room holds, from the table of docs/architecture.md."""
    found = {}
    for line in (DOCS / "architecture.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        match = re.match(r"\[?`([\w]+)`", cells[0])
        if match and match[1] in layers() and len(cells) > 1:
            found.setdefault(match[1], cells[1].replace("`", ""))
    return found


def text(x: float, y: float, words: str, size: float, fill: str = INK, font: str = SANS, more: str = "") -> str:
    return f"<text x='{x:g}' y='{y:g}' font-size='{size:g}' fill='{fill}' {font} {more}>{html.escape(words, quote=False)}</text>"


def lines_of(words: str, columns: int, most: int) -> list[str]:
    """The words in at most so many lines."""
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) < columns:
            lines[-1] = f"{lines[-1]} {word}".strip()
        else:
            lines.append(word)
    return lines if len(lines) <= most else [*lines[: most - 1], lines[most - 1].rstrip(",;:") + " ..."]


def drawing() -> str:
    """The rooms as a stack, the ground at the bottom, and beside it the way of a call."""
    rooms, holds = layers()[::-1], contents()
    bottom = TOP + len(rooms) * (HEIGHT + GAP)
    at = {room: TOP + i * (HEIGHT + GAP) for i, room in enumerate(rooms)}
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {bottom + 52}' role='img'>",
        "<title>The rooms of rushlight, the ground at the bottom, and the way of a call through them</title>",
        f"<defs>{''.join(_head(name, color) for name, color in (('down', FAINT), ('slow', FLAME), ('fast', FAST)))}</defs>",
        f"<rect width='{WIDTH}' height='{bottom + 52}' rx='12' fill='{PAPER}'/>",
        text(LEFT, 32, "The rooms", 17, INK, SANS, "font-weight='600'"),
        text(LEFT, 53, "a room imports rooms below it, and nothing else", 12.5, FAINT),
        text(LEFT + BOX + 60, 32, "The way of a call", 17, INK, SANS, "font-weight='600'"),
        text(LEFT + BOX + 60, 53, "1 2 3  every call", 12.5, FAST, SANS, "font-weight='600'"),
        text(LEFT + BOX + 185, 53, "a to f  the first of a kind", 12.5, FLAME, SANS, "font-weight='600'"),
    ]
    for room in rooms:
        y = at[room]
        parts.append(f"<rect x='{LEFT}' y='{y}' width='{BOX}' height='{HEIGHT}' rx='7' fill='#fff' stroke='{EDGE}'/>")
        parts.append(text(LEFT + 14, y + 28, room, 14.5, INK, MONO, "font-weight='600'"))
        lines = lines_of(holds.get(room, ""), 66, 2)
        parts += [
            text(LEFT + 142, y + (28 if len(lines) == 1 else 20) + 16 * i, w, 12, FAINT) for i, w in enumerate(lines)
        ]
    parts.append(
        f"<path d='M{LEFT + BOX + 16} {TOP + 4}V{bottom - GAP - 6}' stroke='{FAINT}' stroke-width='1.5' marker-end='url(#down)'/>"
    )
    parts.append(
        text(0, 0, "imports", 12, FAINT, SANS, f"transform='translate({LEFT + BOX + 31} {TOP + 40}) rotate(90)'")
    )
    parts += _way(at)
    note = "Nothing above _backends knows which device computes; nothing below _native runs machine code."
    return "\n".join([*parts, text(LEFT, bottom + 26, note, 12.5, FAINT), "</svg>", ""])


def _head(name: str, color: str) -> str:
    return (
        f"<marker id='{name}' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto-start-reverse'>"
        f"<path d='M0 0L8 4L0 8z' fill='{color}'/></marker>"
    )


def _way(at: dict[str, float]) -> list[str]:
    """The steps of a call beside the rooms that they are in, joined by arrows."""
    x, right, parts = LEFT + BOX + 70, WIDTH - 70, []
    middle = {mark: at[room] + HEIGHT / 2 for mark, room, _ in WAY}
    for mark, _, words in WAY:
        color = FAST if mark.isdigit() else FLAME
        parts.append(f"<circle cx='{x}' cy='{middle[mark]:g}' r='9' fill='{color}'/>")
        parts.append(text(x, middle[mark] + 4, mark, 11.5, "#fff", SANS, "text-anchor='middle' font-weight='600'"))
        parts.append(text(x + 16, middle[mark] + 4.5, words, 12.5, INK))
    for one, two in pairwise("123"):
        parts.append(_arrow(x - 11, middle[one], middle[two], -22, "fast"))
    for one, two in pairwise("2abcdef2"):
        parts.append(_arrow(right, middle[one], middle[two], 8 + abs(middle[one] - middle[two]) / 6, "slow"))
    return parts


def _arrow(x: float, start: float, end: float, out: float, kind: str) -> str:
    color, inset = (FAST if kind == "fast" else FLAME), 4 if end > start else -4
    curve = f"M{x:g} {start + inset:g}C{x + out:g} {start + inset:g} {x + out:g} {end - inset:g} {x:g} {end - inset:g}"
    return f"<path d='{curve}' fill='none' stroke='{color}' stroke-width='1.4' marker-end='url(#{kind})'/>"


# ***** writing *****


def written() -> dict[Path, str]:
    """What each file should hold."""
    found = {PICTURE: drawing()}
    for room in layers():
        page = page_of(room)
        if files_in(room):
            found[page] = with_table(page.read_text(encoding="utf-8"), room)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; say what would change")
    given = parser.parse_args()
    stale = {p: t for p, t in written().items() if not p.exists() or p.read_text(encoding="utf-8") != t}
    for path, new in stale.items():
        print(f"{'stale' if given.check else 'written'}: {path.relative_to(ROOT)}")
        if not given.check:
            path.write_text(new, encoding="utf-8")
    return 1 if given.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
