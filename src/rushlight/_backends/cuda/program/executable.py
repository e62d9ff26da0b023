"""Programs made callable on a device: kernels are compiled (or loaded), arguments laid out, steps given to a stream.

A call allocates the outputs and one stretch for all temporaries, fills in addresses and numbers, and launches step after
step on the thread's current stream.  Nothing waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.kernels import DeviceKernel, empty_words, word_of
from rushlight._backends.cuda.native.programs import laid_out
from rushlight._backends.cuda.program.assemble import Program
from rushlight._backends.cuda.program.planning import lifetimes, placed
from rushlight._backends.cuda.program.steps import Call, Constant, Launch, Memory, Operand, Word
from rushlight._backends.protocol import Step
from rushlight._base.lazy import require
from rushlight._codegen.blocks import Kernel, Pointer, kernel_text
from rushlight._codegen.grid.signature import relaxed
from rushlight._graph.listing import graph_lines

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._types.device import Device

__all__ = ["CudaExecutable"]


class CudaExecutable:
    """One program on one device; see `Executable`.  With `as_graph` its launches are one CUDA graph, where it has several
    and native code launches them.
    """

    def __init__(self, program: Program, backend: CudaBackend, device: Device, as_graph: bool = False) -> None:
        self.program, self.backend, self.device, self.as_graph = program, backend, device, as_graph
        self.kernels = backend.kernels(device)
        held = [*program.inputs, *program.results]
        constants = [m for m in touched(program) if isinstance(m, Constant)]
        lives = lifetimes(program.steps, [*held, *constants])
        offsets, self.arena_bytes = placed([(*life, m.nbytes) for m, life in lives.items()])
        self.sizes = [m.nbytes for m in program.results]
        # Addresses of a call: inputs, numbers, results, then the arena and the constants.
        first = len(program.inputs) + program.numbers
        places: dict[Memory, tuple[int, int]] = {m: (k, 0) for k, m in enumerate(program.inputs)}
        places |= {m: (first + k, 0) for k, m in enumerate(program.results)}
        arena = first + len(program.results)
        places |= {m: (arena, offset) for m, offset in zip(lives, offsets, strict=True)}
        self._constants = [self._uploaded(m) for m in constants]
        places |= {m: (arena + 1 + k, 0) for k, m in enumerate(constants)}
        self.constant_addresses = [s.ptr for s in self._constants]
        self.prepared = [Prepared(step, places, self) for step in program.steps]
        self.name = " + ".join(dict.fromkeys(step.name for step in program.steps))
        self.plans = backend.plans[device.index or 0]
        self.native = laid_out(self)
        self.run = self._run if self.native is None else self.native.call

    # ***** what native plans ask *****

    @property
    def native_device(self) -> Any:
        """The device of the host's native plans; None where calls need Python."""
        return None if self.native is None else self.plans.native

    @property
    def native_rows(self) -> list[tuple[int, int, Sequence[int], int]]:
        """One step: all launches, with the results and the temporaries as what it makes."""
        assert self.native is not None
        native = self.native
        return [(native.address, native.constants, range(native.n_inputs), len(native.made))]

    @property
    def native_inputs(self) -> int:
        """How many words a call takes."""
        return len(self.program.inputs) + self.program.numbers

    @property
    def native_results(self) -> Sequence[int]:
        """The numbers of the results among these words and what is made."""
        return range(self.native_inputs, self.native_inputs + len(self.sizes))

    # ***** calls *****

    def _uploaded(self, constant: Constant) -> Any:
        storage = self.backend.allocate(constant.nbytes, self.device)
        data = ctypes.create_string_buffer(constant.data, constant.nbytes)
        self.backend.copy_in(storage.ptr, ctypes.addressof(data), constant.nbytes)
        return storage

    def __call__(self, *words: Any) -> Any:
        return self.run(*words)

    def _run(self, *words: Any) -> Any:
        self.backend.enter(self.device)
        made, table, arena = self.laid_out(words)
        self.start(table)
        del arena  # in the order of the stream: what is allocated there next runs behind these steps
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def start(self, table: Sequence[Any], first: int = 0) -> None:
        """Give the steps from one on to the current stream."""
        stream, launch = self.backend.enter(self.device), self.backend.launch
        launch.note(self.name)
        for step in self.prepared[first:]:
            step.run(stream, table)
        if launch.blocking:
            self.backend.driver.cuStreamSynchronize(stream)

    def laid_out(self, words: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        """The fresh outputs, all that steps take addresses and numbers from, and the temporaries."""
        allocate, device = self.backend.allocate, self.device
        made = [allocate(n, device) for n in self.sizes]
        table, arena = [*words, *[s.ptr for s in made]], None
        if self.arena_bytes:
            arena = allocate(self.arena_bytes, device)
        table.append(0 if arena is None else arena.ptr)
        table += self.constant_addresses
        return made, table, arena

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """Run step by step, each to its end.  Returns the result, and the seconds of every step by `clock`."""
        stream, seconds = self.backend.enter(self.device), list[float]()
        made, table, _arena = self.laid_out(words)
        for step in self.prepared:
            self.backend.synchronize(self.device)
            began = clock()
            step.run(stream, table)
            self.backend.synchronize(self.device)
            seconds.append(clock() - began)
        return made[0] if len(made) == 1 else tuple(made) if made else None, seconds

    # ***** reports *****

    def step_times(self, words: Sequence[Any], seconds: float = 0.2) -> list[Any]:
        """The `StepTime` of each step when it is called with `words` for about so many seconds."""
        found: list[Any] = require("rushlight._backends.cuda.reports.roof").step_times(self, words, seconds)
        return found

    def copy_rate(self) -> float:
        """Bytes in a second that a copy within the device reads and writes."""
        return float(require("rushlight._backends.cuda.reports.roof").copy_rate(self.backend, self.device))

    @property
    def notes(self) -> list[str]:
        """Fusions with their reasons, and whether a graph launches the program."""
        graph = None if self.native is None else self.native.graph
        if graph is None:
            return self.program.notes
        return [*self.program.notes, f"launch_graph: {len(graph.nodes)} kernels are launched as one graph"]

    def steps(self) -> list[Step]:
        """Kernels and library calls, in order."""
        return [Step(s.name, sum(m.nbytes for m in {*s.reads, *s.writes})) for s in self.program.steps]

    def _launches(self) -> list[Launch]:
        return [step for step in self.program.steps if isinstance(step, Launch)]

    def code(self) -> list[tuple[str, str]]:
        """The name and the text of each block kernel."""
        return [(step.name, kernel_text(step.kernel)) for step in self._launches()]

    def assembly(self) -> list[tuple[str, str]]:
        """The name of each kernel; its registers, occupancy, PTX, and machine code where NVIDIA's tools are installed."""
        return [(step.name, self.kernels.report(step.kernel)) for step in self._launches()]

    def explain(self, asm: bool = False) -> str:
        """The graph, what was fused, and the steps with their block kernels; with `asm` their assembly, too."""
        parts = ["graph", *(f"  {line}" for line in graph_lines(self.program.graph))]
        parts += ["fusion", *(f"  {note}" for note in self.notes)]
        for k, (step, (_, moved)) in enumerate(zip(self.program.steps, self.steps(), strict=True)):
            if isinstance(step, Call):
                parts.append(f"step {k}: call {step.name}, about {moved} bytes")
                continue
            parts.append(f"step {k}: {step.name}  grid {step.grid}, about {moved} bytes")
            parts += [f"  {line}" for line in kernel_text(step.kernel).splitlines()]
            if asm:
                parts += [f"  {line}" for line in self.kernels.report(step.kernel).splitlines()]
        parts.append(f"temporaries: {self.arena_bytes} bytes")
        return "\n".join(parts)


class Prepared:
    """A step with its arguments laid out: constants are in place, and addresses and numbers are filled in by each call."""

    __slots__ = (
        "address_slots",
        "array",
        "call",
        "grid",
        "kernel",
        "kernels",
        "number_slots",
        "other",
        "source",
        "words",
    )

    def __init__(self, step: Launch | Call, places: dict[Memory, tuple[int, int]], executable: CudaExecutable) -> None:
        self.address_slots: list[tuple[int, int, int, int]] = []
        self.number_slots: list[tuple[int, int, Any]] = []
        self.other: DeviceKernel | None = None
        self.kernels = executable.kernels
        self.call = step.function if isinstance(step, Call) else None
        self.grid = step.grid if isinstance(step, Launch) else (1, 1, 1)
        self.source: Kernel | None = step.kernel if isinstance(step, Launch) else None
        self.kernel = self.kernels.get(step.kernel) if isinstance(step, Launch) else None
        self.words: Any = empty_words(len(step.arguments)) if isinstance(step, Launch) else list(step.arguments)
        self.array: Any = type(self.words)
        for slot, argument in enumerate(step.arguments):
            element = step.kernel.params[slot].type.element if isinstance(step, Launch) else None
            if isinstance(argument, Operand | Memory):
                memory = argument.memory if isinstance(argument, Operand) else argument
                more = argument.offset * argument.dtype.itemsize if isinstance(argument, Operand) else 0
                number, offset = places[memory]
                by = step.kernel.divisible.get(slot, 1) if isinstance(step, Launch) else 1
                self.address_slots.append((slot, number, offset + more, by))
            elif isinstance(argument, Word):
                self.number_slots.append((slot, argument.place, element))
            else:
                self.words[slot] = argument if element is None else word_of(argument, element)

    def run(self, stream: int, table: Sequence[Any]) -> None:
        """Give the step to a stream."""
        words, aligned = self.fresh(), True  # other threads may give the same step to a stream meanwhile
        for slot, number, offset, by in self.address_slots:
            at = words[slot] = table[number] + offset
            if at % by:
                aligned = False
        for slot, place, element in self.number_slots:
            words[slot] = table[place] if element is None else word_of(table[place], element)
        if self.call is not None:
            self.calling(stream, words)
        elif aligned:
            assert self.kernel is not None
            self.kernel.launch(stream, self.grid, words)
        else:
            self.unaligned().launch(stream, self.grid, words)

    def calling(self, stream: int, words: Sequence[Any]) -> None:
        """The call of a step that is none of our kernels; one of a library is an activity by itself for who watches."""
        call, watch = self.call, self.kernels.backend.launch.watch
        assert call is not None
        library = getattr(call, "native", None)
        if watch is None or library is None or not library.works:
            call(stream, *words)
        else:
            watch.around(library.name, stream, lambda: call(stream, *words))

    def fresh(self) -> Any:
        """Room for the arguments of one call, constants in place."""
        return list(self.words) if self.call is not None else self.array.from_buffer_copy(self.words)

    def unaligned(self) -> DeviceKernel:
        """The kernel for addresses that are aligned to their elements alone."""
        if self.other is None:
            kernel = self.source
            assert kernel is not None
            pointers = [k for k, p in enumerate(kernel.params) if isinstance(p.type.element, Pointer)]
            self.other = self.kernels.get(relaxed(kernel, pointers))
        return self.other


def touched(program: Program) -> list[Memory]:
    """All memories of a program's steps, each once."""
    return list(dict.fromkeys(m for step in program.steps for m in (*step.reads, *step.writes)))
