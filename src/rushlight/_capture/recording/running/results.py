"""Results of a compiled program: over which memory each is made, and what autograd knows of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight._capture.recording.assemble import Given
from rushlight._types.spec import Spec

__all__ = ["Changed", "Dress", "Made"]


class Dress(NamedTuple):
    """Attributes of a result beside its memory: its class, if it has one of its own, whether it is a leaf that wants
    gradients, whether it retains its gradient, and whether it was made in inference mode.
    """

    kind: type | None = None
    leaf: bool = False
    retains: bool = False
    inference: bool = False


class Made(NamedTuple):
    """How an output is made: the input `number` itself ("same"), a view of its storage ("view"), a tensor without
    elements ("empty"), or one over the memory of a stretch ("storage"); `offset` is in bytes from the input's first
    element, or from the beginning of the memory.
    """

    kind: str
    number: int
    spec: Spec
    offset: int
    stretch: Any = None
    base: tuple[str, int] | None = None  # what it is a view of: an input, or a result
    creation: str = ""  # of a view; "changed": one made without gradients whose memory was changed since
    dress: Dress | None = None


class Changed(NamedTuple):
    """An input of the graph that holds `value` at the end."""

    given: Given
    value: Any
