"""Control flow in linked programs: parts that are executables of their own, called by the host."""

from __future__ import annotations

import ctypes
from typing import Any

from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.registry import host
from rushlight._types.device import CPU
from rushlight._types.layout import contiguous_strides, numel

__all__ = ["conditional_call", "loop_call"]


class _Part:
    """A part over memory that lies as the operands of a step do; compiled when it is first run."""

    __slots__ = ("exe", "picks", "prim_part", "strides")

    def __init__(self, part: Any, operands: list[Any]) -> None:
        self.prim_part, self.picks = part, part.picks
        self.strides = [operands[k].strides for k in part.picks]
        self.exe: Any = None

    def __call__(self, pointers: list[int]) -> list[Any]:
        """The storages of its results."""
        if self.exe is None:
            graph = self.prim_part.graph
            self.exe = host().compile(graph, self.strides, [contiguous_strides(v.shape) for v in graph.outputs], CPU)
        made = self.exe(*[getattr(p, "ptr", p) for p in (pointers[k] for k in self.picks)])
        return list(made) if type(made) is tuple else [made]


def conditional_call(step: ExternStep) -> list[Launch]:
    """One Python function: it reads the condition, and runs one of the parts."""
    first, second = [_Part(part, step.inputs[1:]) for part in step.params["parts"]]

    def run(ints: int, condition: int, *pointers: int) -> Any:
        part = first if ctypes.c_uint8.from_address(getattr(condition, "ptr", condition)).value else second
        made = part(list(pointers))
        return made[0] if len(made) == 1 else tuple(made)

    return [Launch(run, None, range(len(step.inputs)))]


def loop_call(step: ExternStep) -> list[Launch]:
    """One Python function: it runs the second part as long as the first one gives true."""
    count = step.params["count"]
    sizes = [numel(x.shape) * x.dtype.itemsize for x in step.inputs[:count]]
    ahead, body = [_Part(part, step.inputs) for part in step.params["parts"]]

    def run(ints: int, *pointers: int) -> Any:
        words, made = list(pointers), list[Any]()
        while memoryview(ahead(words)[0]).cast("B")[0]:
            made = body(words)
            words[:count] = [storage.ptr for storage in made]
        if not made:  # the body never ran
            made = [runtime().alloc(size) for size in sizes]
            for storage, source, size in zip(made, pointers, sizes, strict=False):
                ctypes.memmove(storage.ptr, getattr(source, "ptr", source), size)
        return made[0] if len(made) == 1 else tuple(made)

    return [Launch(run, None, range(len(step.inputs)))]
