"""The table of docs/conformance.md, from the results of runs over PyTorch's operator database.

    python tools/tables/conformance_table.py fast.json full.json

A result file holds, for every operator, how many checks of each kind passed; see docs/conformance.md for what the checks are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FAMILIES = ("nn.functional", "linalg", "fft", "signal", "special", "masked", "sparse")
VARIANTS = ("method", "inplace", "out", "operator", "alias", "views")


def family(name: str) -> str:
    """The name space that an operator counts in."""
    return next((f for f in FAMILIES if name.startswith(f + ".")), "torch")


def counted(op: dict[str, dict[str, dict[str, int]]], kinds: tuple[str, ...]) -> tuple[int, int]:
    """(passed, all that were made) of some kinds of checks."""
    held = [op["checks"].get(kind, {}) for kind in kinds]
    return sum(h.get("pass", 0) for h in held), sum(sum(h.values()) - h.get("skip", 0) for h in held)


def row(title: str, ops: list[dict[str, object]]) -> str:
    """One line: operators that pass whole, samples, variants, errors."""
    cells = [title]
    whole = sum(op["status"] == "full" or op["status"] == "pass" for op in ops)
    cells.append(f"{whole} of {len(ops)}")
    samples = [op["samples"] for op in ops]
    passed, total = sum(s.get("pass", 0) for s in samples), sum(sum(s.values()) for s in samples)  # type: ignore[attr-defined]
    cells.append(f"{passed} of {total} ({100 * passed / max(total, 1):.2f} %)")
    for kinds in (VARIANTS, ("error",)):
        pairs = [counted(op, kinds) for op in ops]  # type: ignore[arg-type]
        cells.append(f"{sum(p for p, _ in pairs)} of {sum(t for _, t in pairs)}")
    return "| " + " | ".join(cells) + " |"


def table(path: str) -> list[str]:
    """The rows of one run."""
    ops = json.loads(Path(path).read_text(encoding="utf-8"))["ops"]
    lines = ["| family | operators whole | samples | variants | errors |", "| --- | --- | --- | --- | --- |"]
    for title in ("torch", *FAMILIES):
        chosen = [op for name, op in ops.items() if family(name) == title]
        if chosen:
            lines.append(row(title, chosen))
    lines.append(row("**all**", list(ops.values())))
    return lines


if __name__ == "__main__":
    for result in sys.argv[1:]:
        print("\n".join(table(result)), end="\n\n")
