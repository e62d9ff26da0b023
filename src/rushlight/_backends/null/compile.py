"""Compiling without running.

>>> from rushlight._backends.null import compile_graph
>>> from rushlight._graph.core import trace
>>> from rushlight._types.dtype import FLOAT32
>>> graph = trace(lambda x: x * 2.0 + 1.0, [((1000,), FLOAT32)])
>>> compiled = compile_graph(graph, machine="aarch64")
>>> len(compiled.kernels), compiled.results
(1, [((1000,), torch.float32)])
>>> "fadd" in compiled.kernels[0].assembly()
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.program import assemble
from rushlight._backends.cpu.program.steps import ExternStep, KernelStep, Program
from rushlight._backends.cpu.target import cpu_target
from rushlight._backends.protocol import Step
from rushlight._base.lazy import llvm
from rushlight._types.layout import contiguous_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Graph
    from rushlight._prims.record import Aval

__all__ = ["MACHINES", "Compiled", "Machine", "compile_graph"]


class Machine:
    """A machine to compile for: LLVM's triple and processor, and what the generator wants to know."""

    __slots__ = ("arch", "cpu", "flags", "l2_bytes", "l3_bytes", "triple", "vector_bytes")

    def __init__(self, triple: str, cpu: str, vector_bytes: int, flags: Sequence[str] = ()) -> None:
        self.triple, self.cpu, self.vector_bytes, self.flags = triple, cpu, vector_bytes, frozenset(flags)
        self.arch = triple.partition("-")[0]
        self.l2_bytes, self.l3_bytes = 1 << 20, 16 << 20

    def has(self, flag: str) -> bool:
        """Whether the machine has a feature, by its name in /proc/cpuinfo."""
        return flag in self.flags

    def __repr__(self) -> str:
        return f"Machine({self.triple}, {self.cpu}, {8 * self.vector_bytes}-bit vectors)"


MACHINES = {
    "x86-64-v2": Machine("x86_64-unknown-linux-gnu", "x86-64-v2", 16),
    "x86-64-v3": Machine("x86_64-unknown-linux-gnu", "x86-64-v3", 32, ("avx2", "fma")),
    "x86-64-v4": Machine("x86_64-unknown-linux-gnu", "x86-64-v4", 64, ("avx2", "fma", "avx512f")),
    "aarch64": Machine("aarch64-unknown-linux-gnu", "generic", 16, ("asimd",)),
}
_LLVM_MACHINES: dict[Machine, Any] = {}


def _llvm_machine(machine: Machine) -> Any:
    """LLVM's own description; RuntimeError where this LLVM was built without the architecture."""
    found = _LLVM_MACHINES.get(machine)
    if found is None:
        if not _LLVM_MACHINES:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(machine.triple)
        found = _LLVM_MACHINES[machine] = target.create_target_machine(
            cpu=machine.cpu, opt=2, reloc="pic", codemodel="small"
        )
    return found


class Kernel:
    """One kernel of a compiled graph: `text` is its LLVM module."""

    __slots__ = ("loops", "machine", "symbol", "text")

    def __init__(self, step: KernelStep, machine: Machine) -> None:
        self.symbol, self.machine = step.symbol, machine
        self.loops, self.text = step.kernel.text(), step.llvm()

    def module(self) -> Any:
        """The parsed and verified module; RuntimeError with LLVM's words where the text is wrong."""
        module = llvm.parse_assembly(self.text)
        module.triple = self.machine.triple
        module.verify()
        return module

    def assembly(self) -> str:
        """The processor's machine code, as text."""
        return str(_llvm_machine(self.machine).emit_assembly(self.module()))

    def object_code(self) -> bytes:
        """The object file; it is never loaded."""
        return bytes(_llvm_machine(self.machine).emit_object(self.module()))


class Compiled:
    """A compiled graph: its program, the kernels in the order of their steps, and the library calls between them."""

    __slots__ = ("calls", "kernels", "program", "results")

    def __init__(self, program: Program, results: list[Aval], machine: Machine) -> None:
        self.program, self.results = program, results
        parts = [
            part
            for step in program.steps
            for part in ([p.step for p in step.parts] if isinstance(step, ExternStep) and step.parts else [step])
        ]
        self.kernels = [Kernel(step, machine) for step in parts if isinstance(step, KernelStep)]
        self.calls = [step.name for step in program.steps if isinstance(step, ExternStep)]

    def __call__(self, *arguments: Any) -> Any:
        raise RuntimeError("the null backend compiles and does not run; use rushlight._backends.reference or .cpu")

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """RuntimeError: nothing runs."""
        return self(*words), []

    @property
    def notes(self) -> list[str]:
        """Notes on what was fused, and why."""
        return self.program.notes

    def steps(self) -> list[Step]:
        """Kernels and library calls, in order; nothing is moved."""
        return [Step(s.symbol if isinstance(s, KernelStep) else s.name, 0) for s in self.program.steps]  # type: ignore[union-attr]

    def code(self) -> list[tuple[str, str]]:
        """The symbol and the LLVM text of each kernel."""
        return [(kernel.symbol, kernel.text) for kernel in self.kernels]

    def assembly(self) -> list[tuple[str, str]]:
        """The symbol and the assembly of each kernel."""
        return [(kernel.symbol, kernel.assembly()) for kernel in self.kernels]

    def explain(self, asm: bool = False) -> str:
        """The graph, what was fused, and the loop nests, as text; with `asm` the assembly of each kernel, too."""
        return "\n".join([self.program.explain(), *(text for _, text in self.assembly() if asm)])


def compile_graph(
    graph: Graph,
    layouts: Sequence[Sequence[int] | None] | None = None,
    machine: str | Machine = "x86-64-v3",
    out_layouts: Sequence[Sequence[int] | None] | None = None,
    **options: Any,
) -> Compiled:
    """Schedule `graph` and generate its kernels for `machine` (a name in `MACHINES`, or a `Machine`).

    `layouts` gives the strides of each tensor input, None for numbers; without it all are row-major, as are outputs
    without `out_layouts`.  `options` are `aliases` and `overlaps`, see `Backend.compile`.  KeyError for an unknown
    machine, NotImplementedError for a primitive without a lowering.
    """
    found = MACHINES[machine] if isinstance(machine, str) else machine
    if layouts is None:
        layouts = [None if v.weak else contiguous_strides(v.shape) for v in graph.inputs]
    program = assemble.compile_graph(graph, layouts, out_layouts, target=cpu_target(found), **options)
    return Compiled(program, [(v.shape, v.dtype) for v in graph.outputs], found)
