"""Launches of one kernel that do not depend on each other become one launch: the step of an optimizer over all parameters.

What programs compute stays the same, so do its bits.  What differs between the launches is a table among the parameters
(see `_codegen.blocks.joined`): a launch takes 4 KB of them, so graphs and captures hold a call's addresses by value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step, Word
from rushlight._codegen.blocks import Kernel, kernel_text
from rushlight._codegen.blocks.joined import can_be_joined, joined_kernel

__all__ = ["joined", "most_rows", "rows_from"]

_MOST_WORDS = 480  # of 8 bytes, of the 512 that a launch takes
_LEAST_ROWS = 4  # of a table: few sizes of tables are few kernels
_FAR = 64  # steps that a launch may go ahead of its place


def most_rows(parameters: int, varying: int) -> int:
    """Launches of a kernel that can be one: `varying` of its parameters differ between them."""
    return 1 << ((_MOST_WORDS - parameters + varying) // (1 + varying)).bit_length() - 1


def rows_from(launches: int) -> int:
    """Rows of the table of a launch for so many."""
    return max(_LEAST_ROWS, 1 << (launches - 1).bit_length())


class _Together:
    """Launches of one kernel at one place among the steps."""

    def __init__(self, place: int) -> None:
        self.place, self.launches = place, list[Launch]()


def joined(steps: Sequence[Step]) -> tuple[list[Step], list[str]]:
    """The steps with launches joined, and notes of what was.  A launch goes to the place of an earlier one of its kernel,
    if nothing from there on touches what it touches.
    """
    keys = _keys(steps)
    if len(keys) < 2:
        return list(steps), []
    out: list[_Together | Step] = []
    last: dict[str, _Together] = {}
    read, written = dict[Memory, int](), dict[Memory, int]()
    for number, step in enumerate(steps):
        behind = max((written.get(m, -1) for m in (*step.reads, *step.writes)), default=-1)
        behind = max(behind, max((read.get(m, -1) for m in step.writes), default=-1))
        key, place = keys.get(number), len(out)
        if isinstance(step, Launch) and key is not None:
            found = last.get(key)
            if found is None or found.place <= behind or place - found.place > _FAR:
                found = last[key] = _Together(place)
                out.append(found)
            found.launches.append(step)
            place = found.place
        else:
            out.append(step)
        for m in step.reads:
            read[m] = max(read.get(m, -1), place)
        for m in step.writes:
            written[m] = max(written.get(m, -1), place)
    made, notes = list[Step](), list[str]()
    for one in out:
        if not isinstance(one, _Together):
            made.append(one)
            continue
        fewer = list(_launches(one.launches))
        if len(fewer) < len(one.launches):
            notes.append(f"join: {len(one.launches)} launches of {one.launches[0].name} are {len(fewer)}")
        made += fewer
    return made, notes


def _keys(steps: Sequence[Step]) -> dict[int, str]:
    """For steps that may be joined with others their kernel's text without what divides its arguments."""
    alike: dict[Any, list[int]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, Launch) and all(n == 1 for n in step.grid[1:]):
            kernel = step.kernel
            sketch = kernel.name, len(kernel.params), len(kernel.body.ops), kernel.warps, kernel.stages
            alike.setdefault(sketch, []).append(number)
    found: dict[int, str] = {}
    for numbers in alike.values():
        for number in numbers if len(numbers) > 1 else ():
            kernel = steps[number].kernel  # type: ignore[union-attr]
            if can_be_joined(kernel):
                found[number] = kernel_text(_without_divisors(kernel))
    return found


def _without_divisors(kernel: Kernel, divisible: dict[int, int] | None = None) -> Kernel:
    return Kernel(kernel.name, kernel.body, divisible=divisible, warps=kernel.warps, stages=kernel.stages)


def _launches(launches: Sequence[Launch]) -> Iterator[Launch]:
    """As few launches as parameters allow."""
    if len(launches) == 1:
        yield launches[0]
        return
    varying = [k for k in range(len(launches[0].arguments)) if len({_identity(x.arguments[k]) for x in launches}) > 1]
    most = most_rows(len(launches[0].arguments), len(varying))
    for first in range(0, len(launches), most):
        part = launches[first : first + most]
        yield _one_launch(part, varying) if len(part) > 1 else part[0]


def _one_launch(launches: Sequence[Launch], varying: Sequence[int]) -> Launch:
    """Launches of kernels that are equal but for what divides their arguments, as one."""
    first, rows = launches[0], rows_from(len(launches))
    common = {
        k: divisor
        for k in range(len(first.arguments))
        if (divisor := gcd(*(x.kernel.divisible.get(k, 1) for x in launches))) > 1
    }
    kernel = joined_kernel(_without_divisors(first.kernel, common), varying, rows)
    arguments = [x for k, x in enumerate(first.arguments) if k not in varying]
    programs = 0
    for launch in launches:
        arguments += [programs, *[launch.arguments[k] for k in varying]]
        programs += launch.grid[0]
    for _ in range(rows - len(launches)):
        arguments += [programs, *[0] * len(varying)]
    reads = list(dict.fromkeys(m for x in launches for m in x.reads))
    writes = list(dict.fromkeys(m for x in launches for m in x.writes))
    return Launch(kernel, (programs,), arguments, reads, writes)


class _Place(NamedTuple):
    memory: Memory
    offset: int


def _identity(argument: Any) -> Any:
    """Equal for arguments that are the same in every call."""
    if isinstance(argument, Operand):
        return _Place(argument.memory, argument.offset * argument.dtype.itemsize)
    if isinstance(argument, Memory):
        return _Place(argument, 0)
    return ("word", argument.place) if isinstance(argument, Word) else repr(argument)
