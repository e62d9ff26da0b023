"""Where `explain` listens: while a recorder is set, every program that is built from then on reports its runs.

Nothing of this costs anything while nobody listens: plans made before and after know nothing of it.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from rushlight._base.errors import user_line

__all__ = ["NAMING", "RECORDER", "Recorder", "Run", "Watched"]


class Run:
    """One run of a program: for which operator, from which line, and the seconds of every step."""

    __slots__ = ("exe", "name", "place", "seconds")

    def __init__(self, name: str, place: str, exe: Any, seconds: list[float]) -> None:
        self.name, self.place, self.exe, self.seconds = name, place, exe, seconds


class Recorder:
    """Collects runs."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def run(self, name: str, exe: Any, words: tuple[Any, ...]) -> Any:
        """Run the program step by step with a clock."""
        made, seconds = exe.timed(words, perf_counter)
        self.runs.append(Run(name, user_line(), exe, seconds))
        return made


# The recorder that listens, and the name of the operator for which a plan is being made.
RECORDER: list[Recorder | None] = [None]
NAMING: list[str] = [""]


class Watched:
    """A program that reports its runs; it has no direct kernel, so that every call comes through here."""

    __slots__ = ("exe", "ints", "kernel", "name")

    def __init__(self, exe: Any) -> None:
        self.exe, self.name = exe, NAMING[0]
        self.kernel, self.ints = None, 0

    def __call__(self, *words: Any) -> Any:
        recorder = RECORDER[0]
        return self.exe(*words) if recorder is None else recorder.run(self.name, self.exe, words)
