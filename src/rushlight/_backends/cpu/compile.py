"""Programs made callable: kernels compiled (or found), constants laid out, steps strung together.

    program = compile_graph(graph, layouts)          # for this machine
    run = build(program)
    storage = run(a_ptr, b_ptr)                      # or, for one kernel: run.kernel(run.ints, a_ptr, b_ptr)
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cpu import jit
from rushlight._backends.cpu.externs import extern_call, extern_note
from rushlight._backends.cpu.kernels import OPT, host, kernel_of
from rushlight._backends.cpu.runtime import runtime
from rushlight._kernels.program import ExternStep, KernelStep, Program, compile_graph, default_target

__all__ = ["Executable", "build", "compile_graph", "host"]

class Executable:
    """A program to call: `executable(*words)`, with the data pointers of all tensor inputs and then all scalar inputs.

    Returns the Storage of the new output, a tuple of them, or None.  For a program of one kernel, `kernel(ints, *words)` does
    the same without the detour; else `kernel` is None.
    """

    __slots__ = ("_calls", "_keep", "_run", "ints", "kernel", "program")

    def __init__(self, program: Program) -> None:
        self.program = program
        self._keep: list[Any] = []
        self.kernel: Callable[..., Any] | None = None
        self.ints = 0
        self._calls = calls = [self._step(step) for step in program.steps]
        if len(calls) == 1 and _is_direct(program):
            call, ints, _ = calls[0]
            self.kernel, self.ints = call, ints

            def run(*words: Any) -> Any:
                return call(ints, *words)

            self._run: Callable[..., Any] = run
        else:
            self._run = _closure(program, calls)

    def _step(self, step: KernelStep | ExternStep) -> tuple[Callable[..., Any], int, Sequence[int]]:
        if isinstance(step, ExternStep):
            call, ints, words = extern_call(step)
        else:
            call, ints, words = kernel_of(step), step.ints(), step.words
        if ints is None:
            return call, 0, words
        held = array("q", ints)
        self._keep.append(held)
        return call, held.buffer_info()[0], words

    def __call__(self, *words: Any) -> Any:
        return self._run(*words)

    def timed(self, words: Sequence[Any], clock: Callable[[], float]) -> tuple[Any, list[float]]:
        """Run step by step: the result, and the seconds of every step by `clock`."""
        seconds = []

        def watched(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*given: Any) -> Any:
                began = clock()
                made = call(*given)
                seconds.append(clock() - began)
                return made

            return run

        return _closure(self.program, [(watched(call), ints, places) for call, ints, places in self._calls])(*words), seconds

    def explain(self, asm: bool = False) -> str:
        """What the program is made of; with `asm` also the LLVM text and the assembly of each kernel."""
        notes = [f"step {k}: {note}" for k, step in enumerate(self.program.steps) if isinstance(step, ExternStep) and (note := extern_note(step))]
        parts = [self.program.explain(), *notes]
        if asm:
            for step in self.program.steps:
                if isinstance(step, KernelStep):
                    text = step.llvm()
                    parts += [f"LLVM {step.symbol}", text, f"assembly {step.symbol}", jit.compile_assembly(text, OPT)]
        return "\n".join(parts)


def _is_direct(program: Program) -> bool:
    """Whether the only step takes all words as they come and returns just the results."""
    step = program.steps[0]
    first = program.n_inputs + program.n_args
    return (
        isinstance(step, KernelStep)
        and step.words == list(range(first))
        and program.results == list(range(first, first + len(step.sizes)))
    )


def _closure(program: Program, calls: Sequence[tuple[Callable[..., Any], int, Sequence[int]]]) -> Callable[..., Any]:
    """Runs the steps one after another over a list of what there is so far."""
    alloc = runtime().alloc
    counts = [len(step.sizes) for step in program.steps]
    steps = [(call, ints, tuple(words), count) for (call, ints, words), count in zip(calls, counts, strict=True)]
    results = program.results

    def run(*words: Any) -> Any:
        held = list(words)
        for call, ints, places, count in steps:
            made = call(ints, *[held[p] for p in places])
            if count == 1:
                held.append(made)
            elif count:
                held.extend(made)
        found = [held[p] if p >= 0 else alloc(0) for p in results]
        return found[0] if len(found) == 1 else tuple(found) if found else None

    return run


def build(program: Program) -> Executable:
    """The program as a callable; compiles the kernels that are not known yet."""
    return Executable(program)


default_target.value = host()
