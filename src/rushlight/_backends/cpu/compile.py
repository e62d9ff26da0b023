"""Programs made callable: kernels compiled (or found), constants laid out, steps strung together.

    program = compile_graph(graph, layouts)          # for this machine
    run = build(program)
    storage = run(a_ptr, b_ptr)                      # or, for one kernel: run.kernel(run.ints, a_ptr, b_ptr)
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.cpu import jit
from rushlight._backends.cpu.externs import extern_call, extern_note
from rushlight._backends.cpu.kernels import OPT, host, kernel_of
from rushlight._backends.cpu.runtime import runtime
from rushlight._kernels.program import (
    ExternStep,
    KernelStep,
    Operand,
    Program,
    ReadyStep,
    compile_graph,
    default_target,
)
from rushlight._types.symbols import Unfollowed, filled, framed
from rushlight._types.trail import Trail

__all__ = ["Executable", "Mould", "build", "compile_graph", "host", "literal"]

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

    def _step(self, step: KernelStep | ExternStep | ReadyStep) -> tuple[Callable[..., Any], int, Sequence[int]]:
        if isinstance(step, ReadyStep):
            call, ints, words = step.call, step.numbers, step.words
        elif isinstance(step, ExternStep):
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
        not isinstance(step, ExternStep)
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


class Mould:
    """A program made with symbolic sizes: kernels that are at hand, and the numbers of their calls as formulas.

    `numbers` are the formulas; `cast` takes their values in this order and gives the program for these sizes.
    """

    __slots__ = ("_counts", "_results", "_steps", "numbers")

    def __init__(self, program: Program, trail: Trail) -> None:
        self.numbers: list[Any] = []
        self._counts, self._results = (program.n_inputs, program.n_args), program.results
        self._steps: list[Any] = []
        for step in program.steps:
            if isinstance(step, KernelStep):
                ints = step.ints()
                start = len(self.numbers)
                self.numbers += ints
                self._steps.append((step, _compiled(step, trail), start, len(self.numbers)))
                continue
            assert isinstance(step, ExternStep)
            for part in step.parts:
                _compiled(part.step, trail)
            found = trail.tried(lambda: _followed(step)) if step.name in _FORMULAS else None  # noqa: B023
            if found is not None:
                start = len(self.numbers)
                self.numbers += found[1]
                self._steps.append((ReadyStep(found[0], (), found[2], step.sizes, ""), found[0], start, len(self.numbers)))
            elif step.parts:
                raise Unfollowed("a product of several calls, with an epilogue or prologues")
            else:
                operands = []
                for o in (*step.inputs, *step.outputs):
                    start, n = len(self.numbers), len(o.shape)
                    operands.append((o.place, o.dtype, start, start + n, start + 2 * n))
                    self.numbers += [*o.shape, *o.strides]
                start = len(self.numbers)
                self.numbers += step.sizes
                self._steps.append((step, None, (operands, start, framed(step.params, self.numbers)), 0))

    @property
    def ready(self) -> bool:
        """Whether all steps are kernels that are at hand."""
        return all(call is not None for _, call, _, _ in self._steps)

    def constants(self, values: Sequence[int], first: int) -> list[array[int]]:
        """What the steps of a program that is `ready` are called with: `values[first:]` are those of `numbers`."""
        return [array("q", values[first + start : first + stop]) for _, _, start, stop in self._steps]

    def cast(self, values: Sequence[Any], first: int = 0) -> Executable:
        """The program for one set of sizes: `values[first:]` are those of `numbers`."""
        steps: list[Any] = []
        values = values[first:] if first else values
        for step, call, frame, stop in self._steps:
            if call is not None:
                ints = values[frame:stop]
                text = step.key if isinstance(step, KernelStep) else ""
                steps.append(ReadyStep(call, ints, step.words, ints[3 : 3 + len(step.sizes)], text))
            else:
                operands, start, params = frame
                made, n = [Operand(place, dtype, values[a:b], values[b:c]) for place, dtype, a, b, c in operands], len(step.inputs)
                sizes = list(values[start : start + len(step.sizes)])
                steps.append(ExternStep(step.name, made[:n], made[n:], sizes, filled(params, values)))
        return Executable(Program(None, steps, self._results, *self._counts, []))  # type: ignore[arg-type]


def _compiled(step: KernelStep, trail: Trail) -> Callable[..., Any]:
    """The kernel of a step that was made with symbolic sizes: what its text says is decided by then."""
    assert step.key
    trail.closed = True
    try:
        return kernel_of(step)
    finally:
        trail.closed = False


# Library calls whose constants are arithmetic on sizes.  Others ask somebody (LAPACK how much memory it wants), or choose among so many ways, as
# convolutions do, that asking again is cheaper than the conditions would be.
_FORMULAS = frozenset(("dot", "sort", "topk", "attention", "attention_grad"))


def _followed(step: ExternStep) -> tuple[Any, list[Any], Sequence[int]] | None:
    """The kernel of a library call, its constants (sizes may be symbolic) and words; None where it is more than one kernel."""
    call, ints, words = extern_call(step)
    handle = getattr(call, "__self__", None)
    if ints is None or handle is None or runtime().kernel_address(handle) is None:
        return None
    return call, list(ints), words


_SLOT = re.compile(r"\bs(\d+)\b")


def literal(program: Program) -> str:
    """What the steps of a program do, with the numbers of this call in their places: equal texts compute the same in the same way."""
    parts = [f"{program.n_inputs} {program.n_args} {program.results}"]
    for step in program.steps:
        if isinstance(step, ExternStep):
            found = _followed(step)
            if found is None:
                parts.append(f"{step.name} {step.params} {step.inputs} {step.outputs} {list(step.sizes)}")
                continue
            step = ReadyStep(found[0], found[1], found[2], step.sizes, "")  # type: ignore[arg-type]
        text, ints = (step.key, step.ints()) if isinstance(step, KernelStep) else (step.text, list(step.numbers))
        sizes, words = list(step.sizes), list(step.words)
        if text:
            parts.append(f"{ints[:8]} {words} {sizes}\n" + _SLOT.sub(lambda m: f"s({ints[8 + int(m[1])]})", text))  # noqa: B023
        else:
            parts.append(f"{step.call.__name__} {ints} {words} {sizes}")  # type: ignore[union-attr]
    return "\n".join(parts)


def build(program: Program) -> Executable:
    """The program as a callable; compiles the kernels that are not known yet."""
    return Executable(program)


default_target.value = host()
