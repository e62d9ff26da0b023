"""Runs of instructions that the twin prints as one loop over warps and registers.

Instructions go together that have as many registers, and of which none uses what another made by another register.  In a
run nothing is loaded after a store, nor stored after a load: each thread would see memory in the midst of what the program
does in two steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..form import Body, Instruction, Value

__all__ = ["Step", "plan"]

_LOOPED = frozenset(
    {
        "index",
        "pointwise",
        "multiply_high",
        "load",
        "store",
        "atomic",
        "atomic_cas",
        "shared_load",
        "shared_store",
        "shared_add",
    }
    | {"shuffle", "shuffle_index", "assert", "copy_async", "print"}
)
_EFFECTS = {
    "load": "load", "store": "store", "atomic": "store", "atomic_cas": "store", "shared_load": "shared load", "shared_store": "shared store",
    "shared_add": "shared store", "copy_async": "shared store",
}  # fmt: skip
_ANYWHERE = frozenset({"number", "argument", "program_id", "num_programs", "pointwise", "multiply_high"})


class Step:
    """Instructions that are printed together: a loop with `count` registers, or one of the block, with steps of its bodies."""

    __slots__ = ("bodies", "count", "instructions")

    def __init__(self, instructions: list[Instruction], count: int = 0, bodies: Sequence[list[Step]] = ()) -> None:
        self.instructions, self.count, self.bodies = instructions, count, list(bodies)


def _count(instruction: Instruction) -> int:
    """Registers of a looped instruction; 0 for one of the whole block."""
    values = [*instruction.results, *instruction.operands]
    if instruction.kind not in _LOOPED or (values and all(v.uniform for v in values)):
        return 0
    return max(v.count for v in values)


class _Planner:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.open: Step | None = None
        self.made: set[Value] = set()
        self.effects: set[str] = set()

    def close(self) -> None:
        if self.open is not None:
            self.steps.append(self.open)
        self.open, self.made, self.effects = None, set(), set()

    def add(self, instruction: Instruction) -> None:
        count = _count(instruction)
        if not count:
            self.whole(instruction)
            return
        effect = _EFFECTS.get(instruction.kind)
        clash = effect is not None and any(_clash(effect, other) for other in self.effects)
        if self.open is not None and (self.open.count != count or clash):
            self.close()
        if self.open is None:
            self.open = Step([], count)
        self.open.instructions.append(instruction)
        self.made.update(instruction.results)
        if effect is not None:
            self.effects.add(effect)

    def whole(self, instruction: Instruction) -> None:
        """An instruction of the whole block: before the open run where it may stand there, else after it."""
        movable = instruction.kind in _ANYWHERE or instruction.kind == "pick"
        if not movable or any(v in self.made for v in instruction.operands):
            self.close()
        self.steps.append(Step([instruction], 0, [plan(body) for body in instruction.bodies]))


def _clash(a: str, b: str) -> bool:
    """Whether two effects may not be in one run: those on one memory, of which one is a store."""
    return a.startswith("shared") == b.startswith("shared") and ("store" in a or "store" in b)


def plan(body: Body) -> list[Step]:
    """The steps of a body, in order."""
    planner = _Planner()
    for instruction in body.instructions:
        planner.add(instruction)
    planner.close()
    return planner.steps
