"""Graphs of work: what streams are given while a capture goes on is kept, and launched as one.

Memory that is asked for meanwhile comes from a memory pool of the graph, so that the addresses are the graph's own for
as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.attributes import CAPTURE_MODES
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._base.errors import warn_user
from rushlight._base.lazy import require

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._backends.cuda.random.state import RecordedStream
    from rushlight._backends.cuda.streams import CudaStream
    from rushlight._types.device import Device

__all__ = ["CapturedGraph", "next_pool"]

_NUMBERS = count(1)


def next_pool() -> tuple[int, int]:
    """The identity of a memory pool that no graph has yet."""
    return (next(_NUMBERS), 0)


class CapturedGraph:
    """A graph from its capture on."""

    def __init__(self, backend: CudaBackend, keep: bool = False) -> None:
        self.backend, self.driver, self.keep = backend, backend.driver, keep
        self.graph = self.executable = self.nodes = 0
        self.pool: tuple[int, int] | None = None
        self.index = 0
        self._stream: CudaStream | None = None
        self._route: Any = None
        self._number = 0
        self._streams: dict[int, RecordedStream] = {}  # of generators, by the addresses of their states
        self._kept: list[Any] = []  # what replays use

    def register(self, device: Device, address: int, owner: Any) -> None:
        """Let what is captured draw from the generator whose state is at an address, which `owner` keeps."""
        if self.pool is not None:
            raise RuntimeError("a generator is registered with a graph before the capture")
        made: Callable[..., RecordedStream] = require("rushlight._backends.cuda.random.state").RecordedStream
        self._streams.setdefault(address, made(self.backend, device, address, owner))

    def hold(self, value: Any) -> None:
        """Replays use memory that `value` owns."""
        self._kept.append(value)

    def stream_of(self, address: int) -> RecordedStream:
        """The captured part of a generator's stream; RuntimeError for a generator that was not registered."""
        found = self._streams.get(address)
        if found is None:
            raise RuntimeError(
                "Attempt to increase offset for a CUDA generator not in capture mode: let the graph know of the generator "
                "by register_generator_state before the capture"
            )
        return found

    def begin(self, pool: tuple[int, int] | None, mode: str) -> None:
        """Let work of the current stream, and of streams that wait for it, become the graph."""
        if mode not in CAPTURE_MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {mode}"
            )
        if self.pool is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        self.index = self.backend.current_device()
        stream = self.backend.streams.current(self.index)
        if not stream.id:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream. Enter one by torch.cuda.stream.")
        allocator = self.backend.memory.allocators[self.index]
        self.pool = tuple(pool) if pool is not None else next_pool()  # type: ignore[assignment]
        assert self.pool is not None
        self._route = allocator.hold(self.pool)
        self.backend.devices.enter(self.index)
        try:
            self.driver.cuStreamBeginCapture(stream.id, CAPTURE_MODES[mode])
        except BaseException:
            allocator.leave(self.pool)
            self.pool = None
            raise
        self._stream = stream
        number = self._number = self.driver.cuStreamGetCaptureInfo(stream.id)[1]
        self.backend.captures[number] = self
        allocator.route(self._route, lambda s: s.id and self.driver.cuStreamGetCaptureInfo(s.id)[1] == number)

    def end(self, failed: bool = False) -> None:
        """The end of what becomes the graph; CudaError where something in it could not be captured.

        An empty one is warned of, unless the program `failed` meanwhile: its error says why.
        """
        stream = self._stream
        if stream is None:
            raise RuntimeError("capture_end was called without a capture that goes on")
        self._stream = None
        self.backend.captures.pop(self._number, None)
        try:
            self.graph = self.driver.cuStreamEndCapture(stream.id)
        except BaseException:
            self._leave(ended=False)
            raise
        self.backend.memory.allocators[self.index].end_route(self._route)
        self.nodes = self.driver.cuGraphGetNodes(self.graph)
        if not self.nodes and not failed:
            warn_user(
                "The CUDA Graph is empty: what was to be captured went to another device or stream, or there was nothing"
            )
        if not self.keep:
            self.instantiate()
            self.driver.cuGraphDestroy(self.graph)
            self.graph = 0

    def instantiate(self) -> None:
        """Make the graph one that can be launched."""
        if not self.graph:
            raise RuntimeError("there is no captured graph to instantiate")
        if self.executable:
            self.driver.cuGraphExecDestroy(self.executable)
        self.executable = self.driver.cuGraphInstantiate(self.graph)

    def replay(self) -> None:
        """Run it in the order of the current stream."""
        if not self.executable:
            if not self.graph:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            self.instantiate()
        self.backend.devices.enter(self.index)
        into = self.backend.streams.current(self.index).id
        if into and self.driver.cuStreamGetCaptureInfo(into)[0]:
            raise RuntimeError(
                "Cannot prepare for replay during capturing stage: replays set the random numbers' offsets from the host. Capture the calls "
                "themselves, or replay one graph behind the other"
            )
        for stream in self._streams.values():
            stream.begin_replay()
        self.backend.launch.note("CUDA graph")
        self.driver.cuGraphLaunch(self.executable, into)

    def dot(self, path: str) -> None:
        """Write the graph to a file in the language of Graphviz; it must have been kept."""
        if not self.graph:
            raise RuntimeError(
                "the graph was not kept: call enable_debug_mode before the capture, or take keep_graph=True"
            )
        self.driver.cuGraphDebugDotPrint(self.graph, path)

    def reset(self) -> None:
        """Forget the graph; its memory can be used by others when what it returned is gone."""
        executable, graph, self.executable, self.graph = self.executable, self.graph, 0, 0
        if executable or graph:
            self.backend.devices.enter_any()
        if executable:
            self.driver.cuGraphExecDestroy(executable)
        if graph:
            self.driver.cuGraphDestroy(graph)
        self._streams.clear()
        self._kept.clear()
        if self.pool is not None:
            self._leave(ended=True)

    def _leave(self, ended: bool) -> None:
        allocator = self.backend.memory.allocators[self.index]
        if not ended:
            allocator.end_route(self._route)
        assert self.pool is not None
        allocator.leave(self.pool)
        self.pool = None

    def __del__(self) -> None:
        if getattr(self, "pool", None) is not None and not self.backend.devices.forked and self._stream is None:
            with suppress(CudaError):  # of a device that failed
                self.reset()
