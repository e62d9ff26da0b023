"""`rushlight.explain(f)(*args)`: runs `f` and tells what ran, from the operators to the loops, and on request to the
assembly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import numpy as np
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import clear_plans
from rushlight._engine.dispatch.watch import Recorder, Run

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Report", "explain"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem }
pre { background: #f6f6f4; padding: .8rem; overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace } summary { cursor: pointer }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b } pre { background: #262626 } }
"""


class Report:
    """Report of what ran.  `str(report)` is a table of the kernels, and the graphs and loop nests; `result` is what the
    function returned.

    `table()` is one line a kernel; `llvm` and `assembly` are the code of the kernels.  `operators` are the names in the
    order of their runs; `kernels` the names of the kernels, library calls included.
    """

    def __init__(self, result: Any, runs: list[Run]) -> None:
        self.result, self.runs = result, runs

    @property
    def operators(self) -> list[str]:
        """The operators that ran a kernel, in order; those of backward by the names of their nodes."""
        return [run.name for run in self.runs]

    @property
    def kernels(self) -> list[str]:
        """The kernels that ran, in order; library routines by their names."""
        return [step.name for run in self.runs for step in run.exe.steps()]

    @property
    def seconds(self) -> float:
        """Time in kernels."""
        return sum(sum(run.seconds) for run in self.runs)

    def table(self) -> str:
        """Every kernel that ran: operator, time, bytes moved, and how that compares with copying memory."""
        rows = [f"{'':4s} {'operator':28s} {'kernel':26s} {'time':>9s} {'moved':>10s} {'GB/s':>7s} {'of copying':>10s}"]
        limits = [_limit(run.exe) if any(s.moved for s in run.exe.steps()) else 1.0 for run in self.runs]
        for number, (run, limit) in enumerate(zip(self.runs, limits, strict=True), 1):
            for step, seconds in zip(run.exe.steps(), run.seconds, strict=True):
                moved = step.moved
                rate = moved / max(seconds, 1e-9)
                share = f"{rate / 1e9:7.1f} {rate / limit:10.0%}" if moved else ""
                size = f"{moved / 1024:8.1f} K" if moved else ""
                rows.append(
                    f"{number:3d}. {run.name:28s} {step.name:26s} {seconds * 1e6:6.1f} us {size:>10s} {share}".rstrip()
                )
        rows.append(
            f"{len(self.runs)} programs, {len(self.kernels)} kernels, {self.seconds * 1e6:.1f} us in kernels; a copy of a large array moves "
            f"{' or '.join(dict.fromkeys(f'{x / 1e9:.1f}' for x in limits if x > 1.0)) or '?'} GB/s (small ones stay in the caches and exceed it)"
        )
        return "\n".join(rows)

    @property
    def llvm(self) -> str:
        """The LLVM text of every kernel, as it goes to the compiler."""
        return "\n".join(f"; ***** {name} *****\n{text}" for name, text in self._code().items())

    @property
    def assembly(self) -> str:
        """The assembly of every kernel, compiled anew."""
        texts = {name: text for run in self.runs for name, text in run.exe.assembly()}
        return "\n".join(f"# ***** {name} *****\n{text}" for name, text in texts.items())

    def _code(self) -> dict[str, str]:
        return {name: text for run in self.runs for name, text in run.exe.code()}

    def details(self, code: bool = False) -> str:
        """Every different program: its graph, what was fused, loop nests, and with `code` the LLVM text and the
        assembly of each kernel.
        """
        parts, seen = [], set()
        for number, run in enumerate(self.runs, 1):
            identity = tuple(step.name for step in run.exe.steps()), str(run.exe.explain())
            if identity not in seen:
                seen.add(identity)
                parts.append(f"***** {number}. {run.name}, at {run.place} *****\n{run.exe.explain(asm=code)}")
        return "\n\n".join(parts)

    def html(self, path: str | Path) -> Path:
        """Write everything, the code of the kernels too, as one page that loads nothing; gives its path.  A kernel for a GPU
        shows its PTX, and where NVIDIA's tools are installed registers, occupancy and machine code.
        """
        from html import escape  # pages are rare, and a start is not to wait for this
        from pathlib import Path

        body, seen = [f"<h1>What ran</h1><pre>{escape(self.table())}</pre>"], set()
        for number, run in enumerate(self.runs, 1):
            text, code = run.exe.explain(), [*run.exe.code(), *run.exe.assembly()]
            if (*(name for name, _ in code), text) in seen:
                continue
            seen.add((*(name for name, _ in code), text))
            body.append(f"<h2>{number}. {escape(run.name)}</h2><p>{escape(run.place)}</p><pre>{escape(text)}</pre>")
            body += [f"<details><summary>{escape(n)}</summary><pre>{escape(t)}</pre></details>" for n, t in code]
        written = Path(path)
        head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>What ran</title><style>{_STYLE}</style>"
        written.write_text(f"{head}<body>{''.join(body)}</body></html>\n", encoding="utf-8")
        return written

    def __str__(self) -> str:
        return f"{self.table()}\n\n{self.details()}"

    __repr__ = table


_COPY_RATE: list[float] = []


def _limit(executable: Any) -> float:
    """How fast the device of a program copies."""
    measured = getattr(executable, "copy_rate", copy_rate)
    return float(measured())


def copy_rate() -> float:
    """Bytes in a second that a copy of an array larger than the caches moves, reading and writing; measured once."""
    if not _COPY_RATE:
        from time import perf_counter

        source = np.ones(1 << 22)
        target = np.ones(1 << 22)
        times = []
        for _ in range(3):
            began = perf_counter()
            np.copyto(target, source)
            times.append(perf_counter() - began)
        _COPY_RATE.append(2 * source.nbytes / min(times))
    return _COPY_RATE[0]


def explain(function: Callable[..., Any], *, operators: bool = True) -> Callable[..., Report]:
    """A function that runs `function` on its arguments and returns a `Report` of what ran, without `operators` of launches of
    kernels in the Triton language alone.

    The function runs once, with plans made anew for it (kernels come from the cache if they are there).  What backward
    ran is in the report where the function calls it, and so are launches of kernels in the Triton language, of which it is not
    known what they move.  Kernels are timed one by one in that single run.

    Random number generation and the multi-tensor optimizer kernels run outside of graphs and are not listed.

        >>> import rushlight as torch
        >>> report = torch.explain(lambda x: (x.exp() + 1).sum())(torch.ones(4))
        >>> print(report)  # doctest: +SKIP
        >>> report.operators
        ['exp', 'add', 'sum']
        >>> "define" in report.llvm, ".globl" in report.assembly
        (True, True)
        >>> report.result.item() > 14
        True
    """

    def run(*args: Any, **kwargs: Any) -> Report:
        before, recorder = (HOOKS.recorder, HOOKS.launch_recorder), Recorder()
        HOOKS.launch_recorder = recorder
        if operators:
            clear_plans()
            HOOKS.recorder = recorder
        try:
            result = function(*args, **kwargs)
        finally:
            HOOKS.recorder, HOOKS.launch_recorder = before
            if operators:
                clear_plans()
        return Report(result, recorder.runs)

    return run
