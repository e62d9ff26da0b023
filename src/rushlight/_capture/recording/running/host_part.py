"""The part of a GPU's program that the host computes: counters of steps, and other tensors of the CPU beside those of the
device.

Kernels never read memory of the host, and the host reads none of theirs: elements of the host reach kernels as numbers
(see `evaluation`).  So this part runs behind the launches, while the device works.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.running.host_numbers import HostNumber
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import own
from rushlight._engine.core.tensor import Tensor
from rushlight._graph.core import Graph, live_nodes
from rushlight._types.device import CPU

__all__ = ["HostPart", "without_host"]


def without_host(recording: Any, graph: Graph, given: Any, standing: Sequence[Tensor]) -> Graph:
    """The graph of a device; RecordingError where it reads memory of the host."""
    for value in graph.inputs:
        found = given.get(value)
        if found is not None and found.kind == "input" and recording.is_beside(standing[found.content]._ptr):
            raise RecordingError(f"a kernel on {recording.host} reads a tensor of the host")
    return graph


class HostPart:
    """An executable of the host: `results` are stretches that become outputs, `changed` the inputs that are written.

    A call takes the program's inputs, and its `numbers`, and gives the storages of the results.
    """

    def __init__(self, build: Any, assembler: Any, results: Sequence[Any], changed: Sequence[Any]) -> None:
        given = assembler.given
        outputs = [*[s.value for s in results], *[c.value for c in changed]]
        nodes = live_nodes(assembler.builder.nodes, outputs)
        used = {v for node in nodes for v in node.inputs if v.node is None}.union(v for v in outputs if v.node is None)
        used.update(v for v, each in given.items() if any(each is c.given for c in changed))
        inputs = sorted((v for v in assembler.builder.inputs if v in used), key=lambda v: given[v].kind == "number")
        self.numbers: list[HostNumber] = [given[v].content for v in inputs if given[v].kind == "number"]
        self._words: list[tuple[int, int]] = []  # (number of an input, bytes from its first element)
        for value in inputs:
            if given[value].kind not in ("input", "number"):
                raise RecordingError("the host draws random numbers, or holds tables, in a program of another device")
            if given[value].kind == "input":
                step = given[value].layout.offset - build._own(given[value].content).offset
                self._words.append((given[value].content, step * given[value].dtype.itemsize))
        known = {id(given[v]): n for n, v in enumerate(inputs)}
        count = len(results)
        aliases = {count + k: known[id(c.given)] for k, c in enumerate(changed)}
        self._written = [c.given.content for c in changed]
        self._count, self._device = count, build.recording.host
        self.graph = without_device(build, Graph(inputs, nodes, outputs), given)
        strides = [*[s.layout.strides for s in results], *[c.given.layout.strides for c in changed]]
        layouts = [None if given[v].kind == "number" else given[v].layout.strides for v in inputs]
        self._arguments = self.graph, layouts, strides, CPU, aliases
        self._exe: Any = None

    @property
    def inputs(self) -> set[int]:
        """The numbers of the inputs that it reads or writes."""
        return {number for number, _ in self._words}

    def __call__(self, inputs: Sequence[Tensor], numbers: Sequence[Any]) -> Sequence[Any]:
        """The storages of the results; inputs are written."""
        backend = backend_of(self._device)
        if self._written and backend.is_capturing(backend.current_stream(self._device)):
            raise RuntimeError(
                "a graph captures a compiled function that changes tensors of the host, which no replay would change: "
                "optimizers count on the device with capturable=True"
            )
        if self._exe is None:
            self._exe = backend_of(CPU).compile(*self._arguments)
        if HOOKS.lazy_clones:
            for number in self._written:
                own(inputs[number])
        made = self._exe(*[inputs[number]._ptr + step for number, step in self._words], *numbers)
        return made if type(made) is tuple else () if not self._count else (made,)


def without_device(build: Any, graph: Graph, given: Any) -> Graph:
    """The graph of the host; RecordingError where it reads memory of the device."""
    for value in graph.inputs:
        found = given[value]
        if found.kind == "input" and not build.recording.is_beside(build.standing[found.content]._ptr):
            raise RecordingError(f"the host reads a tensor on {build.recording.host}")
    return graph
