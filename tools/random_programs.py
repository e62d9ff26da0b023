"""Runs random programs beside real PyTorch for as long as one likes, and prints every disagreement, shrunk, as a script.

python tools/random_programs.py --minutes 10 [--seed 0] [--length 8] [--kinds]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import torch  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tests.eager_beside import write_and_compare  # noqa: E402

import rushlight  # noqa: E402

PHASES = (Phase.generate, Phase.shrink)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--length", type=int, default=8)
    parser.add_argument("--kinds", action="store_true", help="tensors of subclasses and lazy clones among the values")
    options = parser.parse_args()
    end, programs, found, number = time.monotonic() + 60 * options.minutes, [0], 0, options.seed
    while time.monotonic() < end:

        @seed(number)
        @settings(max_examples=200, deadline=None, database=None, phases=PHASES, report_multiple_bugs=False,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(st.data())
        def check(data: st.DataObject) -> None:
            programs[0] += 1
            write_and_compare(lambda s: data.draw(s), rushlight, torch, options.length, options.kinds)

        try:
            check()
        except AssertionError as error:
            found += 1
            print(f"===== seed {number}\n{error}", flush=True)
        except Exception:
            print(f"===== seed {number}", flush=True)
            traceback.print_exc()
        number += 1
    print(f"{programs[0]} programs (shrinking included), {found} disagreements")


if __name__ == "__main__":
    main()
