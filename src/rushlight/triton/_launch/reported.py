"""Launches among what `explain` tells of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._interface.blocks import Kernel, kernel_text
from rushlight._interface.devices import backend_of

__all__ = ["ReportedLaunch"]


class Step(NamedTuple):
    """The kernel, and the bytes that it moves."""

    name: str
    moved: int = 0


class ReportedLaunch:
    """A launch as a program of one step, which is timed by itself.

    How many bytes a user's kernel moves is not known.
    """

    def __init__(self, kernel: Kernel, ready: Any, grid: Sequence[int], device: Any) -> None:
        self.kernel, self.ready, self.grid, self.device = kernel, ready, tuple(grid), device

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[None, list[float]]:
        """Launch it with the arguments `words`, and wait."""
        backend = backend_of(self.device)
        backend.synchronize(self.device)
        began = clock()
        self.ready.launch(self.grid, *words)
        backend.synchronize(self.device)
        return None, [clock() - began]

    def steps(self) -> list[Step]:
        return [Step(self.kernel.name)]

    def code(self) -> list[tuple[str, str]]:
        """The block IR."""
        return [(self.kernel.name, kernel_text(self.kernel))]

    def assembly(self) -> list[tuple[str, str]]:
        return [(self.kernel.name, self.ready.report())]

    def explain(self, asm: bool = False) -> str:
        """The grid and the block IR, with `asm` the device's code, too."""
        text = kernel_text(self.kernel) + ("\n" + self.ready.report() if asm else "")
        lines = [f"  {line}" for line in text.splitlines()]
        return "\n".join([f"a user's kernel: {self.kernel.name}  grid {self.grid}", *lines])
