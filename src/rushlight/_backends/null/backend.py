"""The null backend as an instance of the protocol: it compiles for a machine of any kind, and has neither memory nor a
way to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rushlight._backends.cpu.target import cpu_target
from rushlight._backends.null.compile import MACHINES, Compiled, Machine, compile_graph
from rushlight._backends.protocol import Backend
from rushlight._graph.core import Graph
from rushlight._types.device import Device

__all__ = ["NullBackend"]


class NullBackend(Backend):
    """Compiles for `machine`, a name in `MACHINES` or a `Machine`; what it compiles raises RuntimeError when it is
    called.

    >>> from rushlight._backends.null import NullBackend
    >>> from rushlight._graph.core import trace
    >>> from rushlight._types.device import CPU
    >>> from rushlight._types.dtype import FLOAT32
    >>> graph = trace(lambda x: x * 2.0, [((8,), FLOAT32)])
    >>> len(NullBackend("aarch64").compile(graph, [(1,)], [(1,)], CPU).steps())
    1
    """

    type = "null"
    accelerator = False

    def __init__(self, machine: str | Machine = "x86-64-v3") -> None:
        self.machine = MACHINES[machine] if isinstance(machine, str) else machine

    @property
    def target(self) -> Any:
        """The machine, as graphs are scheduled for it."""
        return cpu_target(self.machine)

    def properties(self, device: Device) -> Mapping[str, Any]:
        """LLVM's names of the machine."""
        return {"name": self.machine.cpu, "triple": self.machine.triple, "vector_bytes": self.machine.vector_bytes}

    def compile(
        self,
        graph: Graph,
        in_layouts: Sequence[tuple[int, ...] | None],
        out_layouts: Sequence[tuple[int, ...]],
        device: Device,
        aliases: Mapping[int, int] | None = None,
        overlaps: Mapping[int, Sequence[int]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Compiled:
        """See `Backend.compile`."""
        return compile_graph(graph, in_layouts, self.machine, out_layouts, aliases=aliases, overlaps=overlaps)

    def steps(self, graph: Graph, in_layouts: Sequence[Any], out_layouts: Sequence[Any]) -> int:
        """Kernels and library calls after fusion."""
        return len(compile_graph(graph, in_layouts, self.machine, out_layouts).program.steps)
