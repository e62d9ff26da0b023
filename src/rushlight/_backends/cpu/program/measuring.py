"""Time of each step of a linked program beside what this machine could do at best.

    times = measured(executable, lambda: compiled(x))       # calls run as they always do; each wave reads a counter
    print(table_of(times))

The least time of a step is that of its arithmetic at the speed of a product's inner kernel, or that of its memory at
the speed of copying, whichever is longer.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cpu.program.peak import Peak, peak_of_machine
from rushlight._backends.cpu.program.steps import KernelStep
from rushlight._backends.cpu.runtime.program_native import LINKED
from rushlight._codegen.traffic import traffic

if TYPE_CHECKING:
    from rushlight._backends.cpu.program.linked import LinkedExecutable

__all__ = ["StepTime", "clocked", "measured", "measured_alone", "operations_of", "table_of"]

CALLS = 20  # at most


class StepTime(NamedTuple):
    """`seconds` of a call that a step took, and the `least` that it could take; `cluster` is its number in `explain`,
    `primitives` are what it computes.
    """

    cluster: int
    name: str
    primitives: str
    seconds: float
    least: float
    moved: int
    operations: int


def measured(
    executable: LinkedExecutable,
    call: Callable[[], Any],
    seconds: float = 0.5,
    peak: Peak | None = None,
    own: bool = False,
) -> list[StepTime]:
    """The time of every step while `call()`, which runs the program, is called for about so many seconds.

    Steps of one wave run side by side: its time is divided by what they take at least. `own` counts only the time in
    which the calling thread ran: for one thread on a machine that others use too. RuntimeError for a program that is
    not native as a whole.
    """
    if not executable.native:
        raise RuntimeError("a program with routines in Python is not measured natively")
    peak = peak or peak_of_machine()
    waves = _wave_seconds(executable, call, seconds, own)
    steps = [_described(executable, number, peak) for number in range(len(executable.reports))]
    spent = [0.0] * len(steps)
    for wave, took in zip(executable.waves, waves, strict=True):
        weights = [steps[x.step].least + 1e-9 for x in wave]
        for x, weight in zip(wave, weights, strict=True):
            spent[x.step] += took * weight / sum(weights)
    return [step._replace(seconds=took) for step, took in zip(steps, spent, strict=True)]


def measured_alone(executable: LinkedExecutable, words: Sequence[Any], seconds: float = 0.2) -> list[StepTime]:
    """The time of every step of a program that is called with `words`, also where it is not native as a whole."""
    if executable.native:
        return measured(executable, lambda: executable(*words), seconds)
    executable(*words)
    _, took = executable.timed(words, time.perf_counter)
    peak = peak_of_machine()
    return [_described(executable, k, peak)._replace(seconds=s) for k, s in enumerate(took)]


def clocked(executable: LinkedExecutable, call: Callable[[], Any]) -> tuple[Any, list[tuple[str, int, int]]]:
    """`call()`, which runs the program, and for each step its name, its nanoseconds and its operations.

    Steps of one wave share its time by the bytes that they move. What other threads run meanwhile counts too.
    """
    count = len(executable.waves)
    if executable.clock is None:  # never freed while the program lives: another thread may still write to it
        executable.clock = array("q", [time.CLOCK_MONOTONIC] + [0] * count)
    times, words = executable.clock, executable.head
    times[1:] = array("q", bytes(times.itemsize * count))
    words[LINKED.times.place] = times.buffer_info()[0]
    try:
        result = call()
    finally:
        words[LINKED.times.place] = 0
    spent = [0] * len(executable.reports)
    for wave, took in zip(executable.waves, times[1:], strict=True):
        whole = sum(x.moved + 1 for x in wave)
        for x in wave:
            spent[x.step] += took * (x.moved + 1) // whole
    return result, [
        (report.name, took, operations_of(step)[0])
        for report, took, (_, step) in zip(executable.reports, spent, executable.described, strict=True)
    ]


def _wave_seconds(executable: LinkedExecutable, call: Callable[[], Any], seconds: float, own: bool) -> list[float]:
    """Seconds that each wave takes in a call: the least of several; `own`: of this thread alone."""
    count = len(executable.waves)
    clock = time.CLOCK_THREAD_CPUTIME_ID if own else time.CLOCK_MONOTONIC
    times, words = array("q", [clock] + [0] * count), executable.head
    least: list[int] = []
    call()
    words[LINKED.times.place] = times.buffer_info()[0]
    try:
        end = time.perf_counter() + seconds
        for _ in range(CALLS):
            times[1:] = array("q", bytes(times.itemsize * count))
            call()
            least = [min(a, b) for a, b in zip(least or times[1:], times[1:], strict=True)]
            if time.perf_counter() > end:
                break
    finally:
        words[LINKED.times.place] = 0
    return [1e-9 * n for n in least]


def _described(executable: LinkedExecutable, number: int, peak: Peak) -> StepTime:
    """A step without the time that it takes."""
    cluster, step = executable.described[number]
    names = [node.prim.name for node in executable.linked.clusters[cluster].unit.graph.nodes]
    report = executable.reports[number]
    operations, dtype = operations_of(step)
    least = peak.seconds(operations, report.moved, dtype)
    return StepTime(cluster, report.name, " ".join(names) or "copy", 0.0, least, report.moved, operations)


def operations_of(step: Any) -> tuple[int, str]:
    """Floating point operations of a step, and the dtype at whose speed they could be done."""
    if isinstance(step, KernelStep):
        return traffic(step.kernel)[1], "float32"
    inputs, outputs = [o.shape for o in step.inputs], [o.shape for o in step.outputs]
    dtype = step.inputs[0].dtype.name if step.inputs else "float32"
    if step.name == "dot":
        return 2 * prod(outputs[0]) * inputs[0][-1], dtype
    if step.name == "conv_windows":
        return 2 * prod(outputs[0]) * prod(inputs[1][2:]), dtype
    if step.name in ("attention", "attention_grad"):
        q, k, v = inputs[step.name == "attention_grad" :][:3]
        pairs = prod(q[:-1]) * k[-2] // (2 if step.params.get("causal") else 1)
        products = q[-1] + v[-1] if step.name == "attention" else 3 * q[-1] + 2 * v[-1]
        return 2 * pairs * products, dtype
    return 0, dtype


def table_of(times: Iterable[StepTime], most: int = 0) -> str:
    """The steps that take longest first, alike ones in one line: seconds, part of the whole, times the least."""
    rows: dict[tuple[str, str, int, int], list[StepTime]] = {}
    for step in times:
        rows.setdefault((step.name, step.primitives, step.moved, step.operations), []).append(step)
    found = sorted(rows.values(), key=lambda alike: -sum(s.seconds for s in alike))
    whole = sum(s.seconds for alike in found for s in alike) or 1.0
    least = sum(s.least for alike in found for s in alike)
    lines = [f"{1e6 * whole:.0f} us in all, {whole / least if least else 0:.2f} times the machine's limit"]
    for alike in found[: most or len(found)]:
        first, took = alike[0], sum(s.seconds for s in alike)
        limit = sum(s.least for s in alike)
        lines.append(
            f"{1e6 * took:9.1f} us {100 * took / whole:5.1f} %  {took / limit if limit else 0:6.2f} x limit  "
            f"{len(alike):3} of {first.moved} bytes, {first.operations} operations: {first.name}: {first.primitives[:120]}"
        )
    return "\n".join(lines)
