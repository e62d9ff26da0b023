"""Stand-ins for the memory and the history of a recording's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.recording.device import RecordedDevice
from rushlight._capture.recording.errors import RecordingError
from rushlight._engine.autograd.node import Node

__all__ = ["InputBackward", "Memory", "OpenPart"]


class InputBackward(Node):
    """Stands for the history of a tensor that a program is given: gradients end here.

    Its edges lead to the other inputs that are part of this history, so that `autograd.grad` for one of them comes by.
    """

    __slots__ = ("find",)

    from_outside = True

    def __init__(self, find: Callable[[], list[Any]]) -> None:
        super().__init__()
        self.find = find

    @property
    def _edges(self) -> Sequence[Any]:  # found anew: a recording meets its inputs one after the other
        return self.find()

    @_edges.setter
    def _edges(self, edges: Sequence[Any]) -> None: ...

    def apply(self, grads: Any) -> Any:
        """RecordingError: what is behind is no part of the program."""
        raise RecordingError(
            "backward through the history of a tensor from outside cannot be part of a recorded program"
        )


class Memory:
    """A stretch of addresses of a device: that of an input's root storage (`real`), or of one that the program
    allocates.
    """

    __slots__ = ("address", "device", "nbytes", "real")

    def __init__(self, address: int, nbytes: int, device: RecordedDevice, real: Any = None) -> None:
        self.address, self.nbytes, self.device, self.real = address, nbytes, device, real


class OpenPart:
    """A part of control flow that is being recorded: its log, which entries wrote which memory, and the beginnings of
    the memory that it allocates.
    """

    __slots__ = ("log", "own", "writers")

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.writers: dict[int, list[int]] = {}
        self.own: set[int] = set()
