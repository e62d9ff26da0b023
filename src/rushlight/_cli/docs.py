"""`python -m rushlight docs`: a page for every operator, written from the operator table, and the index that is kept
with the sources.
"""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["COMMAND", "main"]

COMMAND = "python -m rushlight docs --index"


def main(arguments: list[str]) -> int:
    """Write pages, or the index; 1 where a check of the index finds a difference."""
    from rushlight._surface.reference import pages

    kept = pages.ROOT / "docs" / "operators-index.md"
    parser = argparse.ArgumentParser(prog="python -m rushlight docs", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write every page into this folder")
    parser.add_argument(
        "--index", action="store_true", help="write docs/operators-index.md: one line for each operator"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if that index is not up to date"
    )
    try:
        given = parser.parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    if (given.check or given.index) and not kept.parent.is_dir():
        print(f"there is no folder {kept.parent}: the index belongs to the sources, and this is an installed package")
        return 2
    if given.check:
        same = kept.is_file() and kept.read_text(encoding="utf-8") == pages.index()
        print(f"{kept} is up to date" if same else f"{kept} is not what the operator table says today. Run: {COMMAND}")
        return int(not same)
    if given.index:
        kept.write_text(pages.index(), encoding="utf-8")
        print(f"written: {kept}")
    if given.out is not None or not given.index:
        folder = given.out or Path("operator-pages")
        print(f"{pages.write(folder)} pages in {folder}")
    return 0
