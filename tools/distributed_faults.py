"""Faults in jobs of two ranks, again and again: named in time, resumed, and with the losses of one process, to the bit.

    python tools/distributed_faults.py [TIMES] [FAULT ...]

The jobs are those of `tests/distributed/programs/fault_jobs.py`. Printed for each fault: how often it struck, how often the right
rank was named and how late at worst, whether the losses were those of one process, and what was left behind.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.distributed.programs.fault_jobs import FAULTS, run_job

MOST = 25  # faults in one job


def main(times: int = 3, *names: str) -> int:
    """Every fault so many times; the exit status is 1 if one was not named, or a job ended otherwise than it should."""
    wrong = 0
    print(f"{'fault':16}{'struck':>8}{'named':>8}{'in time':>9}{'slowest':>10}{'equal':>8}{'seconds':>9}  left")
    for fault in names or FAULTS:
        jobs = [run_job(fault, min(MOST, times - first)) for first in range(0, times, MOST)]
        struck, named, late = (sum(counts) for counts in zip(*((j.struck, j.named, len(j.late)) for j in jobs)))
        left = [what for job in jobs for what in job.left]
        print(
            f"{fault:16}{struck:8}{named:8}{named - late:9}{max(j.slowest for j in jobs):8.2f} s"
            f"{'yes' if all(j.equal for j in jobs) else 'NO':>8}{sum(j.seconds for j in jobs):9.0f}"
            f"  {left or 'nothing'}{' HUNG' if any(j.hung for j in jobs) else ''}",
            flush=True,
        )
        for job in jobs:
            if not job.good or job.struck == 0:
                wrong += 1
                print(job.said[-4000:], flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:]))
