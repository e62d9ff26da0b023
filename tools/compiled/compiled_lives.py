"""Compiled functions that are made and dropped, and one that is compiled again and again: whether memory and objects stay as they were.

python tools/compiled/compiled_lives.py [closures] [recompilations]
"""

from __future__ import annotations

import gc
import resource
import sys
from collections import Counter
from typing import Any

import rushlight as torch
from rushlight._capture.trace import CompileSettings, compile_function, reset
from rushlight._engine.dispatch.kept.plan_store import flush


def closure(k: int) -> None:
    """A closure that is compiled, called as often as it takes to note its words, and dropped."""
    by = torch.full((2,), float(k % 7))
    compiled = compile_function(lambda x: x * by + k % 5)
    x = torch.ones(2)
    for _ in range(3):
        assert compiled(x)[0].item() == k % 7 + k % 5


def counted() -> tuple[Counter[str], int]:
    """Living objects by their types, and the most memory so far in KB."""
    flush()  # records that wait to be written
    gc.collect()
    return Counter(type(x).__name__ for x in gc.get_objects()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def report(name: str, before: tuple[Counter[str], int], times: int) -> None:
    """What there is more of than before."""
    after = counted()
    more = {kind: count for kind, count in (after[0] - before[0]).items() if count > times // 100}
    print(f"{name}: {times} times, {after[1] - before[1]} KB more, objects: {more or 'none'}", flush=True)


def main() -> int:
    """Run both, after a while in which caches fill."""
    closures, recompilations = [int(x) for x in (*sys.argv[1:], *("10000", "1000")[len(sys.argv) - 1 :])]
    for k in range(1500):
        closure(k)
    before = counted()
    for k in range(closures):
        closure(k)
    report("closures", before, closures)
    compiled = compile_function(lambda x, k: x * k, CompileSettings(recompile_limit=1 << 30))

    def again(first: int, last: int) -> None:
        x: Any = torch.ones(2)
        for k in range(first, last):
            if k % 8 == 0:
                reset()
            for _ in range(3):
                assert compiled(x, k)[0].item() == k

    again(0, 200)
    before = counted()
    again(200, 200 + recompilations)
    report("recompilations", before, recompilations)
    return 0


if __name__ == "__main__":
    sys.exit(main())
