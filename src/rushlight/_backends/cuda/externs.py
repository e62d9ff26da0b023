"""The table of primitives that are library calls on CUDA devices: what builds the steps of each.

    @extern("sort", form=CallForm(strided=True))
    def sort(call: ExternCall) -> list[Step]:
        scratch = call.scratch(8 * rows)
        return [Launch(kernel, (rows,), [call.inputs[0], scratch, call.outputs[0], columns])]

A builder gets operands and results as strided arrays in memory that is there already, and gives the launches that
compute the results.  `takes` says of a node whether the routine computes it; what no routine takes is decomposed, and
where there is no decomposition either, compiling raises NotImplementedError with the primitive's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.cuda.program.steps import Constant, Memory, Operand, Step
from rushlight._schedule.library import CallForm

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__ = ["EXTERNS", "ExternCall", "Routine", "extern", "lower"]


class ExternCall:
    """One call of a primitive: its operands, results and parameters, and memory for the time of the call."""

    __slots__ = ("inputs", "name", "outputs", "params", "taken")

    def __init__(
        self, name: str, inputs: Sequence[Operand], outputs: Sequence[Operand], params: Mapping[str, Any]
    ) -> None:
        self.name, self.inputs, self.outputs, self.params = name, list(inputs), list(outputs), dict(params)
        self.taken: list[Memory] = []

    def scratch(self, nbytes: int, name: str = "scratch") -> Memory:
        """Memory with whatever is in it, until the last step of the call is done."""
        memory = Memory(nbytes, f"{self.name}.{name}{len(self.taken)}")
        self.taken.append(memory)
        return memory

    def constant(self, data: bytes, name: str = "table") -> Memory:
        """Memory that holds these bytes: a table that the kernels read."""
        return Constant(data, f"{self.name}.{name}")


Build = Callable[[ExternCall], Sequence[Step]]


class Routine(NamedTuple):
    """How a primitive is computed: `build` makes the steps, `takes(node)` says for which nodes, `form` how operands and
    results may lie (see `CallForm`).
    """

    build: Build
    takes: Callable[[Node], bool]
    form: CallForm


EXTERNS: dict[str, Routine] = {}


def extern(
    name: str, takes: Callable[[Node], bool] = lambda node: True, form: CallForm = CallForm()
) -> Callable[[Build], Build]:
    """Declare what builds the steps of a primitive."""

    def declare(build: Build) -> Build:
        if name in EXTERNS:
            raise ValueError(f"primitive {name!r} has two routines")
        EXTERNS[name] = Routine(build, takes, form)
        return build

    return declare


def lower(call: ExternCall) -> list[Step]:
    """The steps of a call; NotImplementedError for a primitive without a routine."""
    routine = EXTERNS.get(call.name)
    if routine is None:
        raise NotImplementedError(f"no CUDA routine computes prim.{call.name}")
    return list(routine.build(call))
