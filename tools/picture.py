"""Draws the picture of the front page: what the demo learns, beside what `explain` shows.

    python -m rushlight demo --out OUT && python tools/picture.py OUT docs/pictures/first-look.svg

It is one SVG file with a ground of its own, so that it can be read on light and dark pages.
"""

from __future__ import annotations

import argparse
import html
import re
import textwrap
from pathlib import Path

import rushlight as torch

WIDTH, HEIGHT, LEFT, LINE = 1000, 640, 460, 15.5
MONO = "font-family='ui-monospace,SFMono-Regular,Menlo,Consolas,monospace'"
SANS = "font-family='system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif'"
INK, FAINT, FLAME, PAPER, NIGHT, PALE = "#2b2520", "#8a8178", "#c2571a", "#fffaf2", "#1e1b18", "#efe6d8"


def text(x: float, y: float, words: str, size: float = 12, fill: str = INK, font: str = SANS, more: str = "") -> str:
    return f"<text x='{x:g}' y='{y:g}' font-size='{size:g}' fill='{fill}' {font} xml:space='preserve' {more}>{html.escape(words, quote=False)}</text>"


def curve(losses: list[float], x: float, y: float, width: float, height: float) -> list[str]:
    """The losses as a line over the steps, with axes."""
    top = max(losses[:5])
    mean = [sum(losses[max(0, i - 9) : i + 1]) / len(losses[max(0, i - 9) : i + 1]) for i in range(len(losses))]

    def line(values: list[float], color: str, thick: float) -> str:
        points = " ".join(
            f"{x + width * i / (len(values) - 1):.1f},{y + height * (1 - v / top):.1f}" for i, v in enumerate(values)
        )
        return (
            f"<polyline points='{points}' fill='none' stroke='{color}' stroke-width='{thick}' stroke-linejoin='round'/>"
        )

    made = []
    for mark in range(int(top) + 1):
        at = y + height * (1 - mark / top)
        made += [
            f"<line x1='{x}' x2='{x + width}' y1='{at:.1f}' y2='{at:.1f}' stroke='#e8dfd2'/>",
            text(x - 8, at + 4, str(mark), 11, FAINT, more="text-anchor='end'"),
        ]
    made += [
        line(losses, "#ecc9a8", 1.2),
        line(mean, FLAME, 2.2),
        text(x + width, y + height + 18, f"{len(losses)} steps", 11, FAINT, more="text-anchor='end'"),
    ]
    return [*made, text(x, y + height + 18, f"loss {losses[0]:.2f} → {losses[-1]:.2f}", 11, INK)]


def wrapped(sample: str, columns: int, lines: int) -> list[str]:
    """The first lines of a text whose paragraphs are filled anew; it learns tables too, and writes long runs of spaces."""
    paragraphs = [re.sub(r"(?<=\S)\s+", " ", each) for each in re.split(r"\n{2,}", sample.strip())]
    return [row for each in paragraphs for row in textwrap.wrap(each, columns)][:lines]


def explained() -> list[str]:
    """What `explain` says about a softmax, down to its loops."""
    report = torch.explain(lambda x: torch.softmax(x, -1))(torch.randn(64, 64))
    lines = report.details(code=False).splitlines()
    return [">>> report = explain(lambda x: softmax(x, -1))(x)", *lines[1:]]


def picture(losses: list[float], sample: str) -> str:
    mid = LEFT
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>",
        "<title>A GPT's loss curve and the text that it writes, beside the graph and the loops of a softmax</title>",
        f"<rect width='{WIDTH}' height='{HEIGHT}' rx='12' fill='{PAPER}'/>",
        f"<path d='M{mid} 0H{WIDTH - 12}a12 12 0 0 1 12 12V{HEIGHT - 12}a12 12 0 0 1 -12 12H{mid}z' fill='{NIGHT}'/>",
        text(
            24,
            34,
            f"python -m rushlight demo{f' --steps {len(losses)}' * (len(losses) != 400)}",
            14,
            INK,
            MONO,
            "font-weight='600'",
        ),
        text(24, 54, "trains a GPT on the Python documentation, character by character", 12, FAINT),
        *curve(losses, 48, 76, mid - 80, 230),
        text(24, 356, "and then it writes", 12, FAINT),
        *(text(24, 380 + LINE * i, row, 11.5, INK, MONO) for i, row in enumerate(wrapped(sample, 60, 16))),
    ]
    for i, row in enumerate(explained()):
        title = row in ("graph", "fusion") or row.startswith((">>>", "step"))
        parts.append(
            text(
                mid + 20,
                34 + LINE * i,
                row if len(row) < 71 else row[:69] + "…",
                11.5,
                "#f0a868" if title else PALE,
                MONO,
            )
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demo", type=Path, help="the folder that the demo wrote")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    folder = given.demo / "gpt_chars"
    losses = [float(line) for line in (folder / "losses.txt").read_text().split()]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(picture(losses, (folder / "sample.txt").read_text()), encoding="utf-8")


if __name__ == "__main__":
    main()
