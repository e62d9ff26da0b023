"""Runs every operator in every form on tensors of subclasses, and prints where that differs from plain tensors (or from real PyTorch).

python tools/sweeps/subclasses.py [--oracle] [--only PATTERN]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.ops.wrapped import OPERATORS, Case, cases, told, unlike_plain, unlike_pytorch  # noqa: E402

import rushlight  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", action="store_true", help="compare with real PyTorch")
    parser.add_argument("--only", default="", help="operators whose names match")
    options = parser.parse_args()
    ran, found = Counter[str](), 0
    for key in OPERATORS:
        if re.search(options.only, key):
            for case, wrong in beside_pytorch(key) if options.oracle else beside_plain(key):
                ran[case.form] += wrong is not None
                if wrong:
                    found += 1
                    print(f"{case}{wrong}"[:400])
    print(f"{sum(ran.values())} cases ({dict(ran)}), {found} disagreements")


def beside_plain(key: str) -> list[tuple[Case, str | None]]:
    """Each case of an operator, and where it differs from plain tensors."""
    plain = {case.plain(): None for case in cases(key)}
    told_of = {case: told(rushlight, case) for case in plain}
    return [(case, unlike_plain(rushlight, case, told_of[case.plain()])) for case in cases(key)]


def beside_pytorch(key: str) -> list[tuple[Case, str | None]]:
    """Each case of an operator, and where it differs from PyTorch; None where that is no matter of subclasses."""
    import torch

    op = OPERATORS[key]
    if not op.spaces and not hasattr(torch.Tensor, op.public):
        return []
    return [(case, unlike_pytorch(rushlight, torch, case)) for case in cases(key)]


if __name__ == "__main__":
    main()
