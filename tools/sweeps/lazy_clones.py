"""Runs every operator's in-place form, `out=` form and function on lazy clones, with all samples, and prints where one is seen through the other.

python tools/sweeps/lazy_clones.py [--only PATTERN]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.ops.test_lazy_clones import IN_PLACE, KINDS, OUT, check_in_place, check_out, check_reading  # noqa: E402
from tests.ops.wrapped import OPERATORS  # noqa: E402

from rushlight._ops.samples import samples_of  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="operators whose names match")
    options = parser.parse_args()
    ran = Counter[str]()
    for key in sorted({*IN_PLACE, *OUT}):
        if re.search(options.only, key):
            for number in range(len(samples_of(OPERATORS[key]))):
                if key in IN_PLACE:
                    for kind in KINDS:
                        attempt(ran, "in place", check_in_place, key, number, kind)
                if key in OUT:
                    attempt(ran, "out", check_out, key, number)
                if OPERATORS[key].spaces:
                    attempt(ran, "reading", check_reading, key, number)
    print(dict(ran))


def attempt(ran: Counter[str], form: str, check: Callable[..., Any], *case: Any) -> None:
    """Run one check and count it."""
    ran[form] += 1
    try:
        check(*case)
    except Exception as error:
        ran["wrong"] += 1
        print(form, *case, f"{type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    main()
