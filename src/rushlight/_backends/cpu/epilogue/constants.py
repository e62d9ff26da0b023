"""The constants by which a product finds its epilogue and prologues (see `epilogue_native.py` for their order)."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cpu.epilogue.epilogue_native import E_HEAD, MOST_WORDS
from rushlight._backends.cpu.gemm.blas_native import A_INDEX, AFTER
from rushlight._backends.cpu.kernels import kernel_address
from rushlight._backends.cpu.program.steps import RectangleStep

__all__ = ["KeptRectangle", "RectangleFacts", "epilogue_words", "rectangle_facts", "with_epilogue", "with_prologues"]

FIRST_SLOT = 8  # of a kernel's constants


def with_epilogue(ints: list[int], sizes: Sequence[int], after: RectangleStep | None) -> list[int]:
    """The constants of a product whose call allocates outputs of `sizes` bytes, followed by those of its epilogue."""
    if after is None:
        return ints
    made = [*ints[:2], len(sizes), *sizes]
    made += [0] * (8 - len(made)) + ints[8:]
    made[AFTER], made[A_INDEX] = len(made), len(sizes)
    return [*made, *epilogue_words(len(sizes), 2, after)]


def with_prologues(ints: list[int], first: int, outputs: int, prologues: Sequence[RectangleStep | None]) -> list[int]:
    """The constants of a call that packs operands, followed by those of prologues. `ints[first + k]` is the start of
    those of operand k.

    The call allocates one buffer, into which it packs, in place of the product's `outputs`.
    """
    made = list(ints)
    for k, before in enumerate(prologues):
        if before is not None:
            made[first + k] = len(made)
            made += epilogue_words(1, len(prologues), before, 1 - outputs)
    return made


def epilogue_words(outputs: int, operands: int, after: RectangleStep | KeptRectangle, shift: int = 0) -> list[int]:
    """The words of an epilogue of a call with these numbers of outputs and operands.  Words of its arrays are `shift`
    words later.
    """
    facts = after.facts if isinstance(after, KeptRectangle) else rectangle_facts(after)
    # The words of a call are its outputs, its operands, the other arrays, the numbers.
    first = outputs + operands + len(after.words) - facts.numbers
    head = [
        facts.address, FIRST_SLOT + len(facts.slot_values), len(after.arrays), facts.numbers, first,
        *(FIRST_SLOT + slot for slot in facts.slots), len(facts.batch),
    ]  # fmt: skip
    assert len(head) == E_HEAD
    arrays = []
    for word, steps in zip(after.arrays, facts.steps, strict=True):
        arrays += [word + shift, *steps]
    return [*head, *arrays, *facts.batch, *[0] * FIRST_SLOT, *facts.slot_values]


class RectangleFacts:
    """Facts of a kernel over a rectangle: its address, how many numbers it takes, its slots for rows, columns and
    pitch, the values of all slots, the sizes of the batch, and for each array the bytes to its start and from one
    row, column and matrix to the next.
    """

    __slots__ = ("address", "batch", "numbers", "slot_values", "slots", "steps")

    def __init__(
        self,
        address: int,
        numbers: int,
        slots: Sequence[int],
        slot_values: Sequence[int],
        batch: Sequence[int],
        steps: Sequence[Sequence[int]],
    ) -> None:
        assert FIRST_SLOT + len(slot_values) <= MOST_WORDS
        self.address, self.numbers, self.slots, self.slot_values = address, numbers, slots, slot_values
        self.batch, self.steps = batch, steps


def rectangle_facts(after: RectangleStep, address: int | None = None) -> RectangleFacts:
    """The facts of an epilogue or prologue.  Without an `address` its kernel is compiled."""
    kernel, part = after.step.kernel, after.part
    steps = [
        [array.buffer.dtype.itemsize * step for step in (array.start, array.row, array.column, *array.batch)]
        for array in part.arrays
    ]
    numbers = sum(2 if d.kind == "c" else 1 for d in kernel.args)
    address = kernel_address(after.step) if address is None else address
    return RectangleFacts(address, numbers, part.slots, part.slot_values(), part.batch, steps)


class KeptRectangle:
    """A `RectangleStep` whose kernel was found on disk (see `program.records`): its facts stand for kernel and part."""

    __slots__ = ("arrays", "facts", "transposed", "words")

    def __init__(self, facts: RectangleFacts, transposed: bool, arrays: Sequence[int], words: Sequence[int]) -> None:
        self.facts, self.transposed, self.arrays, self.words = facts, transposed, arrays, words

    @property
    def part(self) -> KeptRectangle:
        """The object that says whether rows and columns are exchanged: itself."""
        return self
