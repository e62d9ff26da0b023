"""Calls of programs that compute, change inputs and set gradients, and do nothing else: training steps, mostly.

They are calls as `CompiledProgram._whole` makes them, without the questions whose answers are known for a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.recording.replaced import release
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.tensor import Tensor, meta_of

__all__ = ["updating"]


def updating(program: Any) -> Callable[[Sequence[Tensor]], list[Any]] | None:
    """A caller of the program; None for programs that do more than that."""
    if program._direct is None or not program._all_made or program._failed is not None or program._backward is not None:
        return None
    if (
        program.draws
        or program._evaluation
        or program._further
        or program._views
        or program.released
        or program.flags
        or program._dressed
        or program._result_versions
        or program.output_grads
        or program._number_places
    ):
        return None
    direct, whole, count = program._direct, program._whole, program.n_outputs
    versions, grads = program._versions, list(program.grads)
    changed = [change.given.content for change in program._changed]
    replaced = [] if program.changes_nothing_before_checks else program._replaced
    user_code = HOOKS.user_code

    def run(inputs: Sequence[Tensor]) -> list[Any]:
        if HOOKS.lazy_clones and changed:
            made: list[Any] = whole(inputs)
            return made
        if replaced:
            release(inputs, replaced)
        results: list[Any] | None = direct(inputs, ())
        if results is None:
            made = whole(inputs)
            return made
        if versions:
            place = user_code()
            for number, more in versions:
                storage = inputs[number]._storage
                storage.version += more
                storage.changed = place
        for i, j in grads:
            x = inputs[i]
            meta = x._autograd_meta
            if j is not None:
                (meta or meta_of(x)).grad = results[j]
            elif meta is not None:
                meta.grad = None
        del results[count:]
        return results

    return run
