"""Copies of matrices between row-major and column-major memory."""

from __future__ import annotations

from rushlight._backends.cuda.arguments import Arguments, Array, as_reals, merged
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

__all__ = ["column_major", "copy_launch"]

_BLOCK = 1024


def column_major(memory: Memory, dtype: DType, batch: int, rows: int, columns: int) -> Operand:
    """Matrices in memory, columns one after the other."""
    return Operand(memory, dtype, (batch, rows, columns), (rows * columns, 1, rows))


def copy_launch(source: Operand, target: Operand, lower: bool = False) -> Launch:
    """target = source, for equal shapes and any strides; `lower`: with zeros above the diagonals."""
    source, target = merged(2, source, target)
    across = len(source.shape) - 1
    name = f"copy_{'lower' if lower else 'matrices'}_{source.dtype.abbr}"
    if source.dtype.is_complex:
        source, target = as_reals(source), as_reals(target)
    arguments = Arguments()
    x, to = Array(arguments, source, "source"), Array(arguments, target, "target")
    sizes = [arguments.integer(n, f"size{d}") for d, n in enumerate(source.shape)]
    count = arguments.integer(numel(source.shape), "count")
    b = arguments.builder(name)
    place = b.program(0) * _BLOCK + b.index(_BLOCK)
    inside, indices, left = place < arguments.term(b, count), [], place
    for size in reversed(sizes[1:]):
        n = arguments.term(b, size)
        indices.append(left % n)
        left = left // n
    indices = [left, *reversed(indices)]
    value = x.pointer(b, *indices).load(inside, 0.0)
    if lower:
        value = b.where(indices[across - 1] >= indices[across], value, 0.0)
    to.pointer(b, *indices).store(value, inside)
    return Launch(arguments.finish(b), (-(-numel(source.shape) // _BLOCK),), arguments.values)
