"""A compiled program run by itself, on memory of its own: for the time of its kernels."""

from __future__ import annotations

from typing import Any

from rushlight._capture.recording.running.compiled import CompiledProgram
from rushlight._engine.core.creation import full
from rushlight._types.device import Device
from rushlight._types.spec import Spec

__all__ = ["step_times", "trial_words"]


def step_times(program: CompiledProgram, seconds: float = 0.2) -> list[Any]:
    """The `StepTime` of every kernel and routine of a program; empty where nothing runs.

    >>> import rushlight as torch
    >>> from rushlight._capture.recording import Recording
    >>> given = torch.ones(1000)
    >>> with Recording() as rec:
    ...     y = rec.stand_in(given).exp() + 1
    >>> [(step.primitives, step.moved) for step in step_times(rec.finish([y]))]
    [('exp convert broadcast add', 8000)]
    """
    executable = program.compile()
    if executable is None or not hasattr(executable, "step_times"):
        return []
    words, held = trial_words(program)
    found: list[Any] = executable.step_times(words, seconds)
    assert held is not None  # the memory that the program reads and writes
    return found


def trial_words(program: CompiledProgram) -> tuple[list[Any], list[Any]]:
    """Arguments for the executable of a program, and what keeps their memory: halves, and zeros for integers, which are
    indices that every dim has.
    """
    words: list[Any] = []
    held: list[Any] = []
    for (kind, number, _), spec in zip(program._sources, program._in_specs, strict=True):
        if spec is None:
            words.append(1)
            continue
        if kind == "constant":
            words.append(program._held[number]._ptr)
            continue
        x = _filled(spec, program.device)
        held.append(x)
        words.append(x.ptr)
    return words, held


def _filled(spec: Spec, device: Device) -> Any:
    """A storage that a tensor of this spec fits into."""
    count = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) if spec.numel else 1
    rational = spec.dtype.is_floating_point or spec.dtype.is_complex
    return full((count,), 0.5 if rational else 0, Spec.of(spec.dtype, device, (count,)))._storage
