"""Every micro and models row of a benchmark suite written for the torch API, compiled too, several targets in turn.

    python bench/whole.py SUITE --only models/ --jax JAX_ENV/bin/python
    python bench/whole.py SUITE --only micro/ --targets rushlight:eager,rushlight:compile --min-time 0.1

SUITE is a folder with the modules `compare`, `suite`, `harness` and `work_*`: `compare` runs targets in turn, and this file is its worker.  Where
a row of the suite is measured eagerly only, its step is compiled as a whole here; rows that compile a part by themselves stay as they are.
What follows `--` goes to `compare` as it is.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

TARGETS = "rushlight:eager,rushlight:compile,torch:eager,torch:compile,jax:jit"
SUITE = "WHOLE_SUITE"  # where the worker finds the suite


def compiled_step(step: Any, compile: Any, harness: Any) -> Any:
    """A row's step with the function that is timed compiled."""
    if isinstance(step, tuple):
        return step[0], compile(step[1])
    if isinstance(step, harness.Step):
        step.fn = compile(step.fn)
        return step
    return compile(step)


def open_rows(harness: Any) -> None:
    """Let rows that are measured eagerly only be compiled as a whole."""
    for work in harness.REGISTRY.values():
        if work.modes is None or "compile" in work.modes or not work.name.startswith(("micro/", "models/")):
            continue
        work.modes = (*work.modes, "compile")

        def build(ctx: Any, plain: Any = work.build) -> Any:
            step = plain(ctx)
            return compiled_step(step, ctx.torch.compile, harness) if ctx.mode == "compile" else step

        work.build = build


def worker() -> None:
    """Serve rows to `compare`."""
    sys.path.insert(0, os.environ[SUITE])
    suite, harness = importlib.import_module("suite"), importlib.import_module("harness")

    def make_ctx(args: Any) -> Any:
        made = suite.make_ctx(args)
        open_rows(harness)
        return made

    harness.main(make_ctx, ["eager", "compile"], "torch")


def main() -> None:
    """Run `compare` with this file as the worker of everything that speaks the torch API."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", help="the folder of the suite")
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--only", default="micro/|models/")
    parser.add_argument("--jax", default="", help="an interpreter that has JAX; without one there are no rows of it")
    parser.add_argument("--min-time", default="0.2")
    parser.add_argument("--rounds", default="1")
    parser.add_argument("--json", default="")
    given, more = parser.parse_known_args()
    folder = os.path.abspath(given.suite)
    os.environ[SUITE] = folder
    sys.path.insert(0, folder)
    compare: Any = importlib.import_module("compare")
    here = os.path.abspath(__file__)
    compare.SCRIPTS.update(torch=here, rushlight=here)
    names = [t for t in given.targets.split(",") if given.jax or not t.startswith("jax")]
    targets = [f"{t.replace(':', ' ')}={given.jax if t.startswith('jax') else sys.executable}:{t}" for t in names]
    options = ["--only", given.only, "--min-time", given.min_time, "--rounds", given.rounds, "--md"]
    options += ["--json", given.json] if given.json else []
    sys.argv = [compare.__file__, *options, *[word for word in more if word != "--"], *targets]
    compare.main()


if __name__ == "__main__":
    worker() if "--module" in sys.argv else main()
