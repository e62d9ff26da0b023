"""Tensors that captured work reads from outside: whether they live when it is replayed (`check_input_liveness`)."""

from __future__ import annotations

import traceback
import weakref
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.utils._python_dispatch import TorchDispatchMode
from rushlight.utils._pytree import tree_leaves

__all__ = ["Inputs"]

_SHOWN = 5
_PACKAGE = rushlight.__path__[0]


def _line() -> str:
    """The innermost line of the program, as text."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_PACKAGE)]
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}: {frames[-1].line}" if frames else "?"


def _address(tensor: Any) -> int:
    return int(tensor._storage.ptr)


class _Input:
    """A storage that was there before the capture."""

    def __init__(self, tensor: Any) -> None:
        self.address, self.shape, self.read_at, self.freed_at = _address(tensor), tuple(tensor.shape), _line(), ""
        self.storage = weakref.ref(tensor._storage, self._note)

    def _note(self, storage: Any) -> None:
        self.freed_at = _line()

    @property
    def lives(self) -> bool:
        """Whether its memory is what it was."""
        storage = self.storage()
        return storage is not None and storage.ptr == self.address


class _Watch(TorchDispatchMode):
    """Notes operands of operators that no captured operator made."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.inputs.note(tree_leaves((args, kwargs or {})), tree_leaves(made))
        return made


class Inputs:
    """The inputs of a graph."""

    def __init__(self) -> None:
        self._found: dict[int, _Input] = {}
        self._made: set[int] = set()
        self._watch: Any = None

    def begin(self) -> None:
        """Note what operators read from now on."""
        self._watch = _Watch(self)
        self._watch.__enter__()

    def end(self) -> None:
        """The capture is over."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None, None, None)

    def note(self, operands: list[Any], results: list[Any]) -> None:
        """An operator was called: results over the memory of inputs stay inputs."""
        given = [x for x in operands if isinstance(x, Tensor) and (x.is_cuda or x.is_pinned()) and x.numel()]
        if not any(x.is_cuda for x in given):
            return
        for x in given:
            address = _address(x)
            if address not in self._made and address not in self._found:
                self._found[address] = _Input(x)
        for x in results:
            if isinstance(x, Tensor) and x.is_cuda and _address(x) not in self._found:
                self._made.add(_address(x))

    def check(self) -> None:
        """RuntimeError where one of them is gone."""
        dead = [x for x in self._found.values() if not x.lives]
        if not dead:
            return
        parts = [f"CUDA graph replay detected {len(dead)} dead tensor(s)."]
        for number, x in enumerate(dead[:_SHOWN], 1):
            parts.append(f"Dead tensor #{number} (data_ptr={x.address:#x}, shape {x.shape}), first read at {x.read_at}")
            parts.append(f"  and freed at {x.freed_at}" if x.freed_at else "  and moved since")
        if len(dead) > _SHOWN:
            parts.append(f"... and {len(dead) - _SHOWN} more")
        raise RuntimeError("\n".join(parts))
