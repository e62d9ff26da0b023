"""Programs whose launches are captured once and replayed as one CUDA graph: the pass `launch_graph`.

A graph has the addresses and the numbers of one call in it.  A call that was made twice with equal ones is captured; from
then on it is one launch.  Results lie in memory of the graph, so it is replayed only when nobody holds those of its last
replay, and on the stream of that; where they are held another graph is captured, a few in all, and any other call goes
step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from rushlight._backends.cuda.program.executable import CudaExecutable
from rushlight._backends.cuda.program.steps import Call
from rushlight._backends.protocol import Block, Step

if TYPE_CHECKING:
    from rushlight._backends.cuda.graphs import CapturedGraph

__all__ = ["ReplayedExecutable", "can_be_replayed"]

_GRAPHS = 8  # of a program
_SEEN = 256  # calls that are remembered


def can_be_replayed(executable: CudaExecutable) -> bool:
    """Whether a graph holds all steps: calls of the host's functions are none of its nodes."""
    return len(executable.program.steps) > 1 and not any(isinstance(s, Call) for s in executable.program.steps)


class _Recorded:
    """A captured call: its graph, its results, and who holds those of the last replay."""

    __slots__ = ("graph", "held", "made", "stream")

    def __init__(self, graph: CapturedGraph, made: Sequence[Any]) -> None:
        self.graph, self.made = graph, list(made)
        self.held: list[Any] = []
        self.stream = -1

    def is_free(self, stream: int) -> bool:
        """Whether it can be replayed on a stream: nobody holds its results, and other streams do not run it."""
        return self.stream in (-1, stream) and all(token() is None for token in self.held)


class ReplayedExecutable:
    """An executable that replays what it can; see `Executable`."""

    def __init__(self, plain: CudaExecutable) -> None:
        self.plain, self.backend, self.device = plain, plain.backend, plain.device
        self.seen: set[tuple[Any, ...]] = set()
        self.graphs: dict[tuple[Any, ...], list[_Recorded]] = {}
        self.count = 0

    def __call__(self, *words: Any) -> Any:
        if self._capturing():
            return self.plain(*words)
        stream, known = self.backend.enter(self.device), self.graphs.get(words, ())
        recorded = next((each for each in known if each.is_free(stream)), None)
        if recorded is None:
            if words not in self.seen or self.count >= _GRAPHS:
                if len(self.seen) >= _SEEN:
                    self.seen.clear()
                self.seen.add(words)
                return self.plain(*words)
            recorded = self._captured(words)
            self.graphs.setdefault(words, []).append(recorded)
            self.count += 1
        recorded.stream = stream
        recorded.graph.replay()
        return self._results(recorded)

    def _capturing(self) -> bool:
        backend = self.backend
        return bool(backend.is_capturing(backend.current_stream(self.device)))

    def _captured(self, words: tuple[Any, ...]) -> _Recorded:
        """The graph of a call; nothing runs."""
        backend, device = self.backend, self.device
        before, current = backend.current_stream(device), backend.current_device()
        graph = backend.graph()
        backend.set_device(device.index or 0)
        backend.set_stream(backend.stream(device))
        try:
            graph.begin(None, "thread_local")
            try:
                made = self.plain(*words)
            finally:
                graph.end()
        finally:
            backend.set_stream(before)
            backend.set_device(current)
        return _Recorded(graph, made if isinstance(made, tuple) else () if made is None else (made,))

    def _results(self, recorded: _Recorded) -> Any:
        """Storages over the results of a replay."""
        found, recorded.held = [], []
        for storage in recorded.made:
            token = Block(storage.ptr, storage.nbytes, self.device)
            recorded.held.append(ref(token))
            found.append(self.backend.shown(storage.ptr, storage.nbytes, token))
        return found[0] if len(found) == 1 else tuple(found) if found else None

    # ***** reports *****

    @property
    def notes(self) -> list[str]:
        """What was fused, and that calls are replayed."""
        return [*self.plain.notes, f"launch_graph: {self.count} calls are replayed as one launch"]

    def steps(self) -> list[Step]:
        """As of the program."""
        return self.plain.steps()

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """Step by step, without a graph."""
        return self.plain.timed(words, clock)

    def code(self) -> list[tuple[str, str]]:
        """As of the program."""
        return self.plain.code()

    def assembly(self) -> list[tuple[str, str]]:
        """As of the program."""
        return self.plain.assembly()

    def explain(self, asm: bool = False) -> str:
        """As of the program, and what is replayed."""
        return f"{self.plain.explain(asm)}\n{self.notes[-1]}"
