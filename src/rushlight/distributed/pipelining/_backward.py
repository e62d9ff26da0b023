"""Backward of one micro-batch through one stage, whole or in two halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import run_in_halves

__all__ = ["stage_backward", "stage_backward_input"]

Grads = tuple[Tensor | None, ...]


def _roots(outputs: Sequence[Tensor], grads: Sequence[Tensor | None] | None) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs that have a history and a gradient, and these; a scalar without a given one gets 1."""
    found: list[Tensor] = []
    given: list[Tensor] = []
    for k, output in enumerate(outputs):
        if not output.requires_grad:
            continue
        grad = rushlight.ones_like(output) if grads is None else grads[k]
        if grad is not None:
            found.append(output)
            given.append(grad)
    return found, given


def stage_backward(
    stage_output: Sequence[Tensor], output_grads: Sequence[Tensor | None] | None, input_values: Sequence[Tensor]
) -> Grads:
    """The gradients of a stage's inputs, None for those that want none; adds to `.grad` of its parameters."""
    outputs, grads = _roots(stage_output, output_grads)
    if outputs:
        rushlight.autograd.backward(outputs, grads)
    return _taken(input_values)


def _taken(inputs: Sequence[Tensor]) -> Grads:
    found = []
    for x in inputs:
        found.append(x.grad if x.requires_grad and x.is_leaf else None)
        if x.requires_grad and x.is_leaf:
            x.grad = None
    return tuple(found)


def stage_backward_input(
    stage_output: Sequence[Tensor], output_grads: Sequence[Tensor | None] | None, input_values: Sequence[Tensor]
) -> tuple[Grads, Callable[[], None]]:
    """The gradients of a stage's inputs, and a function that later adds to `.grad` of its parameters.

    Operators on the way to the inputs compute what goes on towards them alone; an `autograd.Function` or a compiled
    part, whose backward cannot be divided, computes all at once, and the function adds what it kept.
    """
    outputs, grads = _roots(stage_output, output_grads)
    wanted = [x for x in input_values if x.requires_grad]
    if not outputs:
        return (None,) * len(input_values), lambda: None
    found, second = run_in_halves(outputs, grads, wanted)
    results = iter(found)
    return tuple(next(results) if x.requires_grad else None for x in input_values), second
