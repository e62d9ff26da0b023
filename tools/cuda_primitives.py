"""Writes the table of docs/cuda-primitives.md: how each primitive is computed on CUDA devices."""

from __future__ import annotations

import pathlib

from rushlight._backends.cuda.reports.coverage import table

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "cuda-primitives.md"
BEGIN, END = "<!-- primitives: written by tools/cuda_primitives.py -->", "<!-- primitives: end -->"


def written(text: str) -> str:
    """The page with its table as it should be."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
