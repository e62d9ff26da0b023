"""The words by which a product finds its epilogue and its prologues (see `epilogue_native.py` for their order)."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cpu.epilogue.epilogue_native import E_HEAD, MOST_WORDS
from rushlight._backends.cpu.gemm.blas_native import A_WORD, AFTER
from rushlight._backends.cpu.kernels import kernel_address
from rushlight._backends.cpu.program.steps import RectangleStep

__all__ = ["epilogue_words", "with_epilogue", "with_prologues"]

FIRST_SLOT = 8  # of a kernel's constants


def with_epilogue(ints: list[int], sizes: Sequence[int], after: RectangleStep | None) -> list[int]:
    """The constants of a product whose call makes outputs of `sizes` bytes, with those of its epilogue behind them."""
    if after is None:
        return ints
    made = [*ints[:2], len(sizes), *sizes]
    made += [0] * (8 - len(made)) + ints[8:]
    made[AFTER], made[A_WORD] = len(made), len(sizes)
    return [*made, *epilogue_words(len(sizes), 2, after)]


def with_prologues(ints: list[int], first: int, outputs: int, prologues: Sequence[RectangleStep | None]) -> list[int]:
    """The constants of a call that packs operands, with those of prologues behind them; `ints[first + k]` says where those of operand k begin.

    The call makes one buffer, what it packs into, where the product has its `outputs`.
    """
    made = list(ints)
    for k, before in enumerate(prologues):
        if before is not None:
            made[first + k] = len(made)
            made += epilogue_words(1, len(prologues), before, 1 - outputs)
    return made


def epilogue_words(outputs: int, operands: int, after: RectangleStep, shift: int = 0) -> list[int]:
    """The words of an epilogue of a call that makes some outputs and takes some operands of its own; its arrays are found `shift` words further."""
    kernel, epilogue = after.step.kernel, after.part
    slots = epilogue.slot_values()
    assert FIRST_SLOT + len(slots) <= MOST_WORDS
    numbers = sum(2 if d.kind == "c" else 1 for d in kernel.args)
    first = (
        outputs + operands + len(after.words) - numbers
    )  # outputs come first; after the operands arrays that are there, and at last numbers
    head = [
        kernel_address(after.step), FIRST_SLOT + len(slots), len(after.arrays), numbers, first,
        *(FIRST_SLOT + slot for slot in epilogue.slots), len(epilogue.batch),
    ]  # fmt: skip
    assert len(head) == E_HEAD
    arrays = []
    for word, array in zip(after.arrays, epilogue.arrays, strict=True):
        arrays += [
            word + shift,
            *(array.buffer.dtype.itemsize * step for step in (array.start, array.row, array.column, *array.batch)),
        ]
    return [*head, *arrays, *epilogue.batch, *[0] * FIRST_SLOT, *slots]
