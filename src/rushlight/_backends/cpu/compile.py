"""Programs made callable: kernels are compiled (or loaded), constants laid out, steps run one after another.

program = compile_graph(graph, layouts, target=host())
run = build(program)
storage = run(a_ptr, b_ptr)                      # or, for one kernel: run.kernel(run.ints, a_ptr, b_ptr)
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rushlight._backends.cpu.conv.direct import takes_direct
from rushlight._backends.cpu.externs import extern_call, extern_note
from rushlight._backends.cpu.kernels import OPT, kernel_of, kernels_ahead
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import (
    ExternStep,
    KernelStep,
    Operand,
    Program,
    ReadyStep,
    RectangleStep,
    Step,
)
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.protocol import Step as StepReport
from rushlight._codegen.traffic import traffic
from rushlight._host.device_records import NativeDevice
from rushlight._native import jit
from rushlight._types.layout import numel
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.symbols import SpecializationError, filled, framed

__all__ = [
    "BufferNumbers",
    "Executable",
    "ProgramTemplate",
    "build",
    "compiled_symbolic",
    "kernels_in",
    "literal",
    "step_moved",
    "step_name",
]


class BufferNumbers:
    """Renumbers a program's buffers while library calls are divided into kernels, which pass each other buffers too.

    `now[n]` is the new number of buffer `n`; `end` is the next number.
    """

    __slots__ = ("end", "now")

    def __init__(self, first: int) -> None:
        self.now, self.end = list(range(first)), first

    def words(self, places: Sequence[int]) -> list[int]:
        """The new numbers of some buffers; -1 stays for those without elements."""
        return [p if p < 0 else self.now[p] for p in places]

    def made(self, count: int, results: int) -> None:
        """Count the `count` buffers that a kernel allocates, of which the first `results` are those of a step."""
        self.now += range(self.end, self.end + results)
        self.end += count

    def laid(self, step: Step) -> list[tuple[Launch, list[int], int]]:
        """For each kernel of a step: its launch, the numbers of the buffers that it takes, and how many buffers it
        allocates.
        """
        if isinstance(step, ExternStep):
            launches, given = extern_call(step), self.words([*(x.number for x in step.inputs), *step.words])
        else:
            call, ints = (step.call, step.numbers) if isinstance(step, ReadyStep) else (kernel_of(step), step.ints())
            launches, given = [Launch(call, ints, range(len(step.words)))], self.words(step.words)
        first, found = self.end, []
        for launch in launches:
            count = launch.ints[2] if launch.ints is not None else len(step.sizes)
            found.append((launch, [given[w] if w >= 0 else first - 1 - w for w in launch.words], count))
            self.made(count, count if launch.results is None else launch.results)
        return found


def kernels_in(steps: Iterable[Any]) -> Iterator[KernelStep]:
    """The generated kernels of a program, those of epilogues and prologues included."""
    for step in steps:
        if isinstance(step, KernelStep):
            yield step
        elif isinstance(step, ExternStep):
            yield from (part.step for part in step.parts if isinstance(part, RectangleStep))


class Executable:
    """A compiled program: `executable(*words)` takes the data pointers of all tensor inputs, then all scalar inputs.

    Returns the Storage of the new output, a tuple of them, or None. A program of one kernel can be called directly as
    `kernel(ints, *words)`; `kernel` is None for others. `calls` lists its kernels as (callable, address of its
    constants, numbers of the buffers that it takes, how many it allocates); `laid` has these for each step, and
    `results` the numbers of the results.
    """

    __slots__ = ("_keep", "_run", "calls", "ints", "kernel", "laid", "program", "results")

    def __init__(self, program: Program) -> None:
        self.program = program
        self._keep: list[Any] = []
        self.kernel: Callable[..., Any] | None = None
        self.ints = 0
        first = program.n_inputs + program.n_args
        places = BufferNumbers(first)
        kernels_ahead(kernels_in(program.steps))
        self.laid = [places.laid(step) for step in program.steps]
        self.calls = calls = [self._held(*kernel) for step in self.laid for kernel in step]
        self.results = places.words(program.results)
        if (
            len(calls) == 1
            and not isinstance(program.steps[0], ExternStep)
            and _is_direct(calls[0], first, self.results)
        ):
            call, ints, _, _ = calls[0]
            self.kernel, self.ints = call, ints

            def run(*words: Any) -> Any:
                return call(ints, *words)

            self._run: Callable[..., Any] = run
        else:
            self._run = _closure(calls, self.results)

    def _held(self, launch: Launch, words: list[int], count: int) -> tuple[Callable[..., Any], int, list[int], int]:
        if launch.ints is None:
            return launch.call, 0, words, count
        held = launch.constants()
        self._keep.append(held)
        return launch.call, held.buffer_info()[0], words, count

    @property
    def native_device(self) -> NativeDevice:
        """The functions by which the host's native plans run it."""
        return runtime().device

    def __call__(self, *words: Any) -> Any:
        return self._run(*words)

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """Run step by step.  Returns the result, and the seconds of each step by `clock`."""
        seconds = [0.0] * len(self.laid)
        owners = [k for k, step in enumerate(self.laid) for _ in step]

        def watched(call: Callable[..., Any], owner: int) -> Callable[..., Any]:
            def run(*given: Any) -> Any:
                began = clock()
                made = call(*given)
                seconds[owner] += clock() - began
                return made

            return run

        calls = [(watched(call, owner), *rest) for (call, *rest), owner in zip(self.calls, owners, strict=True)]
        return _closure(calls, self.results)(*words), seconds

    def explain(self, asm: bool = False) -> str:
        """The program as text; with `asm` also the LLVM text and the assembly of each kernel."""
        notes = [
            f"step {k}: {note}"
            for k, step in enumerate(self.program.steps)
            if isinstance(step, ExternStep) and (note := extern_note(step))
        ]
        parts = [self.program.explain(), *notes]
        for symbol, text in self.code() if asm else ():
            parts += [f"LLVM {symbol}", text, f"assembly {symbol}", jit.compile_assembly(text, OPT)]
        return "\n".join(parts)

    @property
    def notes(self) -> list[str]:
        """Notes on what was fused, and why."""
        return self.program.notes

    def steps(self) -> list[StepReport]:
        """Kernels and library calls, in order."""
        return [StepReport(step_name(step), step_moved(step)) for step in self.program.steps]

    def assembly(self) -> list[tuple[str, str]]:
        """The symbol and the assembly of each kernel, compiled anew."""
        return [(name, jit.compile_assembly(text, OPT)) for name, text in self.code()]

    def code(self) -> list[tuple[str, str]]:
        """The symbol and the LLVM text of each kernel."""
        return [(step.symbol, step.llvm()) for step in self.program.steps if isinstance(step, KernelStep)]


def step_name(step: Any) -> str:
    return str(step.symbol) if hasattr(step, "symbol") else str(step.name)


def step_moved(step: Any) -> int:
    """Bytes that a step moves at least."""
    if isinstance(step, KernelStep):
        moved: int = traffic(step.kernel)[0]
        return moved
    return sum(numel(operand.shape) * operand.dtype.itemsize for operand in (*step.inputs, *step.outputs))


def _is_direct(call: tuple[Callable[..., Any], int, list[int], int], first: int, results: Sequence[int]) -> bool:
    """Whether a single kernel takes all words in order and returns exactly the results."""
    return call[2] == list(range(first)) and list(results) == list(range(first, first + call[3]))


def _closure(calls: Sequence[Any], results: Sequence[int]) -> Callable[..., Any]:
    """A function that runs kernels one after another over a list of buffers."""
    alloc = runtime().alloc

    def run(*words: Any) -> Any:
        held = list(words)
        for call, ints, places, count in calls:
            made = call(ints, *[held[p] for p in places])
            if count == 1:
                held.append(made)
            elif count:
                held.extend(made)
        found = [held[p] if p >= 0 else alloc(0) for p in results]
        return found[0] if len(found) == 1 else tuple(found) if found else None

    return run


class ProgramTemplate:
    """A program made with symbolic sizes: kernels that are at hand, and the numbers of their calls as formulas.

    `numbers` are the formulas; `cast` takes their values in this order and gives the program for these sizes. `source`
    is the program with its symbols, until it is packed.
    """

    __slots__ = ("_alike", "_counts", "_results", "_steps", "numbers", "source")

    def __init__(self, program: Program, shape_env: ShapeEnv) -> None:
        self.source: Program | None = program
        self.numbers: list[Any] = []
        self._alike: list[Any] = []
        self._counts = (program.n_inputs, program.n_args)
        self._steps: list[Any] = []
        places = BufferNumbers(program.n_inputs + program.n_args)
        for step in program.steps:
            text = ""
            if isinstance(step, KernelStep):
                compiled_symbolic(step, shape_env)
                text = step.key
            else:
                assert isinstance(step, ExternStep)
                for part in step.parts:
                    compiled_symbolic(part.step, shape_env)
                if not self._follows(step, shape_env):
                    if step.parts:
                        raise SpecializationError(
                            "a library call with an epilogue or prologues, whose constants are no formulas"
                        )
                    self._ask_again(step, places)
                    continue
            for launch, words, count in places.laid(step):
                start = len(self.numbers)
                self.numbers += launch.ints  # type: ignore[arg-type]
                ready = ReadyStep(launch.call, (), words, [0] * count, text)
                self._steps.append((ready, launch.call, start, len(self.numbers)))
        self._results = places.words(program.results)

    def _follows(self, step: ExternStep, shape_env: ShapeEnv) -> bool:
        """Whether a library call consists of kernels whose constants are formulas."""
        if step.name == "conv_windows":
            direct = list[bool]()
            shape_env.tried(lambda: direct.append(takes_direct(step)))  # it gives None: no condition is recorded
            if True not in direct or shape_env.general and not step.parts:
                shape_env.left_out |= True in direct
                return False
            takes_direct(step)
        elif step.name not in _FORMULAS:
            return False
        return bool(shape_env.tried(lambda: all(_is_native(launch) for launch in extern_call(step)) or None))

    def _ask_again(self, step: ExternStep, places: BufferNumbers) -> None:
        """Record a library call that is chosen anew for each set of sizes."""
        operands = []
        for o in (*step.inputs, *step.outputs):
            start, n = len(self.numbers), len(o.shape)
            # Of outputs it only counts whether there is one
            place = places.now[o.number] if 0 <= o.number < len(places.now) else o.number
            operands.append((place, o.dtype, start, start + n, start + 2 * n))
            self.numbers += [*o.shape, *o.strides]
        start = len(self.numbers)
        self.numbers += step.sizes
        self._steps.append((step, None, (operands, start, framed(step.params, self.numbers)), 0))
        places.made(len(step.sizes), len(step.sizes))

    def follow(self, first: Executable) -> None:
        """Name the executable whose kernels native plans call; `constants` gives its constants for other sizes."""
        self._alike = [[_handed(*kernel) for kernel in kernels] for kernels in first.laid]

    def constants_in(self, first: int) -> list[tuple[int, int]] | None:
        """Which of the values are the constants of each kernel, where those of `numbers` are `first` and so on; None
        where a library call is looked up.
        """
        return (
            None
            if any(call is None for _, call, _, _ in self._steps)
            else [(first + start, first + stop) for _, _, start, stop in self._steps]
        )

    def constants(self, values: Sequence[int], first: int) -> list[array[int]] | None:
        """The constants of the program's kernels, from `values[first:]` as values of `numbers`.

        None where a library call needs other kernels at these sizes than in the executable to `follow`.
        """
        found: list[array[int]] = []
        values = values[first:] if first else values
        for (step, call, frame, stop), alike in zip(self._steps, self._alike, strict=True):
            if call is not None:
                found.append(array("q", values[frame:stop]))
                continue
            launches = extern_call(_asked(step, frame, values))
            if len(launches) != len(alike) or any(
                _handed(launch) != known for launch, known in zip(launches, alike, strict=True)
            ):
                return None
            found += [launch.constants() for launch in launches]
        return found

    def cast(self, values: Sequence[Any], first: int = 0) -> Executable:
        """The program for one set of sizes: `values[first:]` are those of `numbers`."""
        steps: list[Any] = []
        values = values[first:] if first else values
        for step, call, frame, stop in self._steps:
            if call is not None:
                ints = values[frame:stop]
                steps.append(ReadyStep(call, ints, step.words, ints[3 : 3 + len(step.sizes)], step.text))
            else:
                steps.append(_asked(step, frame, values))
        return Executable(Program(None, steps, self._results, *self._counts, []))

    def literal(self, values: Sequence[Any], first: int = 0) -> str:
        """The program for one set of sizes, as text."""
        return literal(self.cast(values, first).program)


def _asked(step: ExternStep, frame: Any, values: Sequence[Any]) -> ExternStep:
    """A library call for one set of sizes."""
    operands, start, params = frame
    made, n = [Operand(place, dtype, values[a:b], values[b:c]) for place, dtype, a, b, c in operands], len(step.inputs)
    return ExternStep(
        step.name, made[:n], made[n:], list(values[start : start + len(step.sizes)]), filled(params, values)
    )


def _handed(launch: Launch, *_: Any) -> tuple[Any, ...]:
    """The properties of a launch that two plans which differ in constants alone have in common."""
    return launch.call, tuple(launch.words), launch.results, None if launch.ints is None else launch.ints[2]


def compiled_symbolic(step: KernelStep, shape_env: ShapeEnv) -> Callable[..., Any]:
    """The kernel of a step with symbolic sizes.  Writing its text has decided all conditions by then."""
    assert step.key
    shape_env.closed = True
    try:
        return kernel_of(step)
    finally:
        shape_env.closed = False


# Library calls whose constants are arithmetic on sizes, as those of convolutions with few channels are.  Others ask
# somebody (LAPACK how much memory it wants), or choose among so many ways, as other convolutions do, that asking again
# is cheaper than the conditions would be.
_FORMULAS = frozenset(("dot", "sort", "topk", "attention", "attention_grad", "recurrence", "recurrence_grad"))


def _is_native(launch: Launch) -> bool:
    """Whether a launch is a kernel, which is called without Python."""
    handle = getattr(launch.call, "__self__", None)
    return launch.ints is not None and handle is not None and runtime().kernel_address(handle) is not None


_SLOT = re.compile(r"\bs(\d+)\b")


def literal(program: Program) -> str:
    """Text of the steps of a program, with this call's numbers in their places: equal texts compute the same in the same
    way.
    """
    places = BufferNumbers(program.n_inputs + program.n_args)
    parts = [f"{program.n_inputs} {program.n_args}"]
    for step in program.steps:
        text = step.key if isinstance(step, KernelStep) else step.text if isinstance(step, ReadyStep) else ""
        for launch, words, _ in places.laid(step):
            if not _is_native(launch):
                assert isinstance(step, ExternStep)
                parts.append(f"{step.name} {step.params} {step.inputs} {step.outputs} {list(step.sizes)}")
                continue
            ints = list(launch.ints or ())
            if text:
                parts.append(f"{ints[:8]} {words}\n{with_numbers(text, ints[8:])}")
            else:
                parts.append(f"{launch.call.__name__} {ints} {words}")
    return "\n".join([*parts, str(places.words(program.results))])


def with_numbers(text: str, values: Sequence[Any]) -> str:
    """The text of a kernel with the values of its slots in their places."""
    return _SLOT.sub(lambda m: f"s({values[int(m[1])]})", text)


def build(program: Program) -> Executable:
    """The program as a callable; compiles the kernels that are not known yet."""
    return Executable(program)
