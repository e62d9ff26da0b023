"""What it costs to find out that a compiled function still holds: one native call, the conditions in Python, and whole calls beside eager ones.

    python bench/guards.py [--torch]

A row is a model of so many parameters, each in a module of its own.  With `--torch`, PyTorch's calls are measured in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

SIZES = (1, 10, 100, 300)


def model(t: Any, count: int) -> Any:
    """A model of `count` parameters that does little with each."""

    class Shift(t.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.by = t.nn.Parameter(t.ones(4))

        def forward(self, x: Any) -> Any:
            return x + self.by

    return t.nn.Sequential(*[Shift() for _ in range(count)])


def best(call: Callable[[], Any], seconds: float = 0.3) -> float:
    """Nanoseconds of a call, in the best of many rounds."""
    started = time.perf_counter()
    call()
    rounds = max(1, int(0.003 / max(time.perf_counter() - started, 1e-7)))
    fastest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        for _ in range(rounds):
            call()
        fastest = min(fastest, (time.perf_counter() - begun) / rounds)
    return fastest * 1e9


def measured(count: int, against_torch: bool) -> dict[str, float]:
    """One row."""
    import rushlight
    from rushlight._capture.trace import compile_function
    from rushlight._host.runtime import runtime

    rushlight.set_num_threads(1)
    found: dict[str, float] = {"parameters": count}
    module, x = model(rushlight, count), rushlight.ones(4)
    with rushlight.no_grad():
        made = compile_function(module)
        compiled = made.caller
        for _ in range(4):
            compiled(x)
        (segment,) = made.entry.segments
        guard, state, ask = segment.guard, (module, (x,), {}), runtime().guarded
        if guard.table[0] is None:
            raise SystemExit(f"no native guard: {guard.reason}")
        assert ask(guard.table[0], state) is not None
        checks = [number for number, (kind, _, _) in enumerate(guard.reads.entries) if kind == "check"]
        in_python = guard._rest(tuple(checks))
        assert in_python(state)
        found["words"] = len(guard.table[0][0]) // 8
        found["guard"] = best(lambda: ask(guard.table[0], state))
        found["in Python"] = best(lambda: in_python(state))
        found["compiled"] = best(lambda: compiled(x))
        found["eager"] = best(lambda: module(x))
    if against_torch:
        import torch

        torch.set_num_threads(1)
        theirs, y = model(torch, count), torch.ones(4)
        with torch.no_grad():
            whole = torch.compile(theirs)
            for _ in range(4):
                whole(y)
            found["torch compiled"], found["torch eager"] = best(lambda: whole(y)), best(lambda: theirs(y))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--torch", action="store_true", help="measure PyTorch too")
    chosen = parser.parse_args()
    for number, count in enumerate(SIZES):
        row = measured(count, chosen.torch)
        if not number:
            print("  ".join(f"{name:>14}" for name in row))
        print("  ".join(f"{value:14,.0f}" for value in row.values()), flush=True)
    print("words of the table; times in ns")


if __name__ == "__main__":
    main()
