"""Puts what `cuda.py` measured on a card into docs/performance.md: `python bench/cuda_page.py cuda.json` prints it, with `--write` it
is put into the page.

A run without a card (`--dry`, or on the emulated driver) has no times, and is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page import PAGE, put

BEGIN, END = "<!-- cuda: begin -->", "<!-- cuda: end -->"
# Sections with a row for each framework, and the figure by which they are compared.
COMPARED = {"rows": "ms", "models": "ms", "triton": "ms", "host": "us", "start": "s"}
TITLES = {
    "rows": "Operators",
    "models": "Models",
    "triton": "Kernels of the Triton language",
    "host": "What a call costs the host",
    "start": "From the start of a process to its first training step",
}


def figure(values: dict[str, Any], key: str) -> str:
    """A figure with its unit; `failed` for a row that ended with an error."""
    return f"{values[key]:.4g} {key}" if key in values else "failed" if "failed" in values else ""


def rate(values: dict[str, Any]) -> str:
    """What a row moves or computes in a second."""
    return next((f"{values[k]:.4g} {k}" for k in ("GB/s", "TFLOP/s", "a second") if k in values), "")


def compared(sections: dict[str, Any], name: str, key: str) -> list[str]:
    """A table of one section: theirs, ours, the ratio."""
    ours, theirs = (sections.get(f"{name} {label}", {}) for label in ("rushlight", "torch"))
    lines = [f"### {TITLES[name]}", "", "| row | PyTorch | rushlight | times PyTorch's speed | rushlight's rate |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for row, values in ours.items():
        other = theirs.get(row, {})
        ratio = f"{other[key] / values[key]:.2f}" if key in values and key in other else ""
        lines.append(f"| {row} | {figure(other, key)} | {figure(values, key)} | {ratio} | {rate(values)} |")
    return [*lines, ""] if ours else []


def checked(sections: dict[str, Any]) -> str:
    """A sentence on the kernels that were compared with NumPy."""
    rows = {**sections.get("units", {}), **sections.get("flagships", {})}
    wrong = [name for name, values in rows.items() if not values.get("right")]
    said = f"{len(rows) - len(wrong)} of {len(rows)} kernels agree with NumPy"
    return f"{said}; not: {', '.join(wrong)}." if wrong else f"{said}."


def page_of(data: dict[str, Any]) -> list[str]:
    """The page's lines for one run; ValueError for a run without times."""
    machine, sections = data["machine"], data["sections"]
    if "emulated" in machine["card"] or not any("ms" in v for v in sections.get("rows rushlight", {}).values()):
        raise ValueError(f"this run has no times of a card: it ran on {machine['card']}")
    versions = ", ".join(f"{k} {machine[k]}" for k in ("torch", "triton", "python") if machine.get(k))
    lines = ["", f"{machine['card']}, {machine['date']}; {versions}. {checked(sections)}", ""]
    for name, key in COMPARED.items():
        lines += compared(sections, name, key)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="cuda.json of a run on a card")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    given = parser.parse_args()
    try:
        lines = page_of(json.loads(given.file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise SystemExit(f"{given.file}: {error}") from None
    print("\n".join(lines))
    if given.write:
        put(PAGE, BEGIN, END, lines)


if __name__ == "__main__":
    main()
