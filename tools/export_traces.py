"""Write what PyTorch exports for `tests/export/table.py` into `tests/export/traces/`: run it where PyTorch is installed."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "export"


def main() -> None:
    """Write a file for each program."""
    sys.path.insert(0, str(FOLDER))
    import torch
    from said import text_of
    from table import PROGRAMS

    for name in sys.argv[1:] or PROGRAMS:
        (FOLDER / "traces" / f"{name}.txt").write_text(text_of(torch, PROGRAMS[name]))
        (FOLDER / "traces_decomposed" / f"{name}.txt").write_text(text_of(torch, PROGRAMS[name], True))


if __name__ == "__main__":
    main()
