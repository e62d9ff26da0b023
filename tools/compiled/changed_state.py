"""Change what a compiled function read, by all means that Python and PyTorch have, and compare every call with eager.

    python tools/compiled/changed_state.py [--rounds 3] [--seed 0] [--only NAME ...] [--minutes 10]

A world is a function and ways to change what it reads.  Two of each are made: one runs eagerly, one compiled.  Both go through the same random
sequence of calls and changes, with the function called in several places (a loop, a generator, after a break, in a module ...), and with changes
made by the compiled program itself.  Results, errors, warnings, what is printed, and the streams of random numbers have to be the same.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.capture.changed.journeys import AS_IT_IS, PLACES, WORLDS, differs  # noqa: E402

import rushlight as torch  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10000
    end, done, found, graphs = time.monotonic() + 60 * options.minutes, 0, 0, 0
    for seed in range(options.seed, options.seed + options.rounds):
        for name in WORLDS:
            if options.only and not any(part in name for part in options.only):
                continue
            for place in PLACES:
                if time.monotonic() > end:
                    break
                try:
                    difference = differs(name, place, seed)
                except Exception:
                    difference = traceback.format_exc()
                done += 1
                graphs += torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
                if difference:
                    found += 1
                    print(f"===== {name} {place.__name__} {seed}: {difference}", flush=True)
            gc.collect()
    print(
        f"{len(WORLDS)} worlds, {done} journeys, {graphs} of them with graphs, {found} differences; run as they are: {sum(AS_IT_IS.values())}"
    )
    for text, count in AS_IT_IS.most_common(20):
        print(f"  {count} {text}"[:200])
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
