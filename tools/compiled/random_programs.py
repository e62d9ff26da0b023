"""Runs random programs in two ways for as long as one likes, and prints every disagreement, made as short as it can be.

    python tools/compiled/random_programs.py --minutes 10 [--seed 0] [--length 8] [--kinds]            # calls of tensors, beside real PyTorch
    python tools/compiled/random_programs.py --by interpreter --programs 20000 [--tensors]             # Python interpreted, beside CPython
    python tools/compiled/random_programs.py --by compile --programs 20000 [--tensors [--positions]] [--calls 3]     # Python compiled, beside eager
    python tools/compiled/random_programs.py --by gradients --programs 1000                            # gradients of compiled programs, beside eager

The programs of the first form are sequences of calls (`tests/eager_beside.py`); those of the next two have control flow, closures, generators,
exceptions and side effects (`tests/python_programs.py`); those of the last are looked at by hooks, and differentiated up to three times
(`tests/gradient_programs.py`).
"""

from __future__ import annotations

import argparse
import collections
import gc
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=["pytorch", "interpreter", "compile", "gradients"], default="pytorch")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--programs", type=int)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--length", type=int, default=8)
    parser.add_argument("--device", help="where the calls of tensors run here; PyTorch's run on the CPU")
    parser.add_argument("--kinds", action="store_true", help="tensors of subclasses and lazy clones among the values")
    parser.add_argument("--tensors", action="store_true", help="tensors among the values of programs in Python")
    parser.add_argument(
        "--positions", action="store_true", help="ints of programs in Python are indices and sizes of tensors"
    )
    parser.add_argument("--calls", type=int, default=3, help="how often a compiled program is called")
    parser.add_argument("--show", type=int, default=20, help="how many disagreements are made short and printed")
    options = parser.parse_args()
    if options.by == "pytorch":
        beside_pytorch(options)
    elif options.by == "gradients":
        gradients_beside_eager(options)
    else:
        beside_cpython(options)


def gradients_beside_eager(options: argparse.Namespace) -> None:
    """Gradients of compiled programs, in each of the uses."""
    from tests.gradient_programs import USES, Program, disagreement

    import rushlight

    end = time.monotonic() + 60 * (options.minutes or 1e9)
    count = wrong = 0
    while count < (options.programs or 10**9) and time.monotonic() < end:
        rushlight._dynamo.reset()
        program = Program(options.seed + count)
        for use in range(len(USES)):
            if text := disagreement(program, use):
                wrong += 1
                print(text, end="\n\n", flush=True)
        count += 1
    print(f"{count} programs from {options.seed} on, each in {len(USES)} uses: {wrong} disagreements")
    sys.exit(wrong > 0)


def beside_pytorch(options: argparse.Namespace) -> None:
    """Sequences of calls, shrunk by hypothesis."""
    import torch
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st
    from tests.eager_beside import write_and_compare

    import rushlight

    if options.device:
        rushlight.set_default_device(options.device)
    minutes = 5 if options.minutes is None else options.minutes
    end, programs, found, number = time.monotonic() + 60 * minutes, [0], 0, options.seed
    while time.monotonic() < end:

        @seed(number)
        @settings(max_examples=200, deadline=None, database=None, phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
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


def beside_cpython(options: argparse.Namespace) -> None:
    """Programs in Python, run by CPython and by the interpreter or compiled."""
    from tests.python_programs import run, shorten, write

    execute = interpreted if options.by == "interpreter" else compiled
    calls = 1 if options.by == "interpreter" else options.calls
    end = float("inf") if options.minutes is None else time.monotonic() + 60 * options.minutes
    last = options.seed + (options.programs or 10**9)
    ends: collections.Counter[str] = collections.Counter()
    number, found = options.seed, 0
    # Imports all that is needed
    run(write(number, options.length + 4, options.tensors, options.positions), execute, calls)
    gc.collect()
    gc.freeze()  # or each full collection visits the modules again: a third of the time
    while number < last and time.monotonic() < end:
        program = write(number, options.length + 4, options.tensors, options.positions)
        expected = run(program, natively, calls)
        ends[expected[0]["error"][0] if "error" in expected[0] else "returned"] += 1
        # Asked again: some warnings come once in a process, to whichever way comes first.
        if differs(program, expected, run, execute, calls) and differs(program, None, run, execute, calls):
            found += 1
            print(f"===== seed {number}", flush=True)
            if found <= options.show:
                short = shorten(program, lambda p: differs(p, None, run, execute, calls))
                print(short.source().split("n, m, p, q = 5, 6, 7, 8\n")[1].strip())
                show(short, run, execute, calls)
        number += 1
    print(f"{number - options.seed} programs, {found} disagreements; how they end: {dict(ends.most_common())}")


def differs(program: Any, expected: Any, run: Callable[..., Any], execute: Callable[..., Any], calls: int) -> bool:
    """Whether the two ways give different things."""
    if expected is None:
        try:
            expected = run(program, natively, calls)
        except Exception:  # a program that was cut too short
            return False
    try:
        return bool(run(program, execute, calls) != expected)
    except Exception:
        return True


def show(program: Any, run: Callable[..., Any], execute: Callable[..., Any], calls: int) -> None:
    """Print what differs."""
    try:
        pairs = zip(run(program, natively, calls), run(program, execute, calls), strict=True)
    except Exception:
        traceback.print_exc()
        return
    for number, (expected, got) in enumerate(pairs):
        for name in sorted({*expected, *got}):
            if expected.get(name) != got.get(name):
                print(
                    f"  call {number}, {name}:\n    expected {expected.get(name)}\n    got      {got.get(name)}"[:2000]
                )


def natively(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call as it is."""
    return function(*arguments)


def interpreted(function: Any, *arguments: Any) -> Any:
    """Interpret, with all that is called."""
    from rushlight._capture.bytecode import Interpreter
    from rushlight._capture.bytecode.inline import Inlining

    interpreter = Interpreter(Inlining())
    interpreter.push_call(function, arguments, {})
    return interpreter.run()


COMPILED: dict[Any, Any] = {}


def compiled(function: Any, *arguments: Any) -> Any:
    """Call compiled, with all segments that earlier calls made."""
    from rushlight import compile

    if function not in COMPILED:
        COMPILED.clear()
        COMPILED[function] = compile(function)
    return COMPILED[function](*arguments)


if __name__ == "__main__":
    main()
