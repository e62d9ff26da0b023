"""Captured work of a device as `torch.cuda.CUDAGraph` and `torch.accelerator.Graph` show it."""

from __future__ import annotations

from typing import Any

from rushlight._engine.random.random import Generator, generator_of
from rushlight._types.device import Device

__all__ = ["CapturedWork"]


class CapturedWork:
    """Work that is recorded once and replayed; `_graph` is the backend's (see `_backends.cuda.graphs.CapturedGraph`)."""

    _graph: Any

    def _begin(self, pool: Any, mode: str) -> None:
        """Begin the capture; the generator of the current device can be drawn from meanwhile."""
        backend = self._graph.backend
        if self._graph.pool is None:
            self._register(generator_of(Device(backend.type, backend.current_device())))
        self._graph.begin(pool, mode)

    def _register(self, generator: Generator) -> None:
        self._graph.register(generator.device, *generator.state_memory())

    def capture_end(self) -> None:
        """The end of what becomes the graph."""
        self._end()

    def _end(self, failed: bool = False) -> None:
        """`capture_end`; `failed` says that an error of the program ends it."""
        self._graph.end(failed)

    def instantiate(self) -> None:
        """Make a kept graph one that can be launched; `replay` does it where that is needed."""
        self._graph.instantiate()

    def replay(self) -> None:
        """Run the graph in the order of the current stream, on the memory that was captured.

        Random numbers are those that the captured calls would draw now, and generators go on as if these had.
        """
        self._graph.replay()

    def reset(self) -> None:
        """Forget the graph and its claim on memory."""
        self._graph.reset()

    def pool(self) -> Any:
        """The identity of the graph's memory pool, for other graphs to share."""
        return self._graph.pool

    def enable_debug_mode(self) -> None:
        """Keep what is captured, for `debug_dump`."""
        self._graph.keep = True
