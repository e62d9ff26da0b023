"""The states of the global random generators, as values that can be kept in a file."""

from __future__ import annotations

import random
from typing import Any

import rushlight
from rushlight._interface.base import trace_marks

__all__ = ["get_random", "set_random"]


def get_random() -> dict[str, Any]:
    """Where Python's, NumPy's and rushlight's generators stand."""
    import numpy.random

    kind, words, *rest = numpy.random.get_state()
    return {
        "python": random.getstate(),
        "torch": rushlight.get_rng_state(),
        "numpy": (kind, rushlight.tensor(words.astype("int64")), *rest),  # type: ignore[attr-defined]
    }


@trace_marks.changes_later_calls
def set_random(state: dict[str, Any]) -> None:
    """Let the generators go on from there."""
    import numpy.random

    kind, words, *rest = state["numpy"]
    python = state["python"]
    random.setstate((python[0], tuple(python[1]), python[2]))
    rushlight.set_rng_state(state["torch"])
    numpy.random.set_state((kind, words.numpy().astype("uint32"), *rest))
