"""Graphs of kernels, as `torch.cuda.graphs`: work that is recorded once and then launched as one.

g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    y = model(x)
x.copy_(batch)
g.replay()  # y holds the model's answer for the batch
"""

from __future__ import annotations

import gc
from typing import Any

import rushlight as torch
from rushlight._interface.base import import_whole
from rushlight._interface.devices import CapturedWork
from rushlight.cuda.access import OnGpu, gpus, on_gpu, why_no_gpu
from rushlight.cuda.graphed import make_graphed_callables
from rushlight.cuda.streams import Stream, StreamContext, current_stream

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing() -> bool:
    """Whether the work of the current stream becomes a graph."""
    return why_no_gpu() is None and current_stream().is_capturing()


@on_gpu
def graph_pool_handle() -> Any:
    """The identity of a memory pool that several graphs may share."""
    return gpus().next_pool()


class CUDAGraph(OnGpu, CapturedWork):
    """A graph of kernels; `keep_graph` keeps what was captured, so that it can be looked at and instantiated again."""

    _inputs: Any

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph, self._inputs = gpus().graph(keep_graph), None

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Let further work of the current stream become the graph.

        The mode says which calls are errors meanwhile: those that wait or allocate in any thread ("global"), in this
        one ("thread_local"), none ("relaxed").  With `check_input_liveness` a replay raises RuntimeError where a tensor that
        was there before the capture, and that it read, is gone.
        """
        self._forget_inputs()
        self._begin(pool, capture_error_mode)
        if check_input_liveness:
            self._inputs = import_whole("rushlight.cuda._liveness").Inputs()
            self._inputs.begin()

    def _forget_inputs(self) -> None:
        if self._inputs is not None:
            self._inputs.end()
        self._inputs = None

    def _end(self, failed: bool = False) -> None:
        if self._inputs is not None:
            self._inputs.end()
        super()._end(failed)

    def replay(self) -> None:
        """Run the graph in the order of the current stream, on the memory that was captured.

        Random numbers are those that the captured calls would draw now, and generators go on as if these had.
        """
        if self._inputs is not None:
            self._inputs.check()
        super().replay()

    def reset(self) -> None:
        """Forget the graph and its claim on memory."""
        self._forget_inputs()
        super().reset()

    def register_generator_state(self, generator: Any) -> None:
        """Let the graph draw from a generator beside the device's default one; before the capture."""
        self._register(generator)

    def debug_dump(self, debug_path: str) -> None:
        """Write the kept graph to a file in the language of Graphviz."""
        self._graph.dot(debug_path)

    def raw_cuda_graph(self) -> int:
        """The driver's handle of the kept graph."""
        if not self._graph.graph:
            raise RuntimeError(
                "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true"
            )
        return int(self._graph.graph)

    def raw_cuda_graph_exec(self) -> int:
        """The driver's handle of the graph that is launched."""
        if not self._graph.executable:
            raise RuntimeError("You cannot access the raw cudaGraphExec_t instance until instantiate() has been called")
        return int(self._graph.executable)

    def get_graph_data(self) -> dict[str, Any]:
        """How many nodes the graph has, and its memory pool."""
        return {"nodes": self._graph.nodes, "pool": self._graph.pool}


class graph:
    """A context whose work on a stream, by default one of its own, becomes a graph.

    Everything inside must be work of the device: reading a number of a tensor, or copying to pageable memory, raises.
    """

    default_capture_stream: Any = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations:
            raise NotImplementedError("enable_annotations: kernels of captured graphs have no annotations")
        self.check_input_liveness = check_input_liveness
        if graph.default_capture_stream is None and stream is None:
            graph.default_capture_stream = Stream()
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.capture_stream = graph.default_capture_stream if stream is None else stream
        self.stream_ctx = StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode, self.check_input_liveness)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, *args: Any) -> None:
        try:
            self.cuda_graph._end(failed=args[0] is not None)
        finally:
            self.stream_ctx.__exit__(*args)
