"""Long rows: radix sort by 4 bits at a time, from the lowest, which keeps the order of equals.

Every pass counts the digits of blocks, sums the counts up, and moves each element to its place; results do not depend
on the order in which programs run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Array, Batch
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step
from rushlight._backends.cuda.sort.keys import key_dtype, key_of
from rushlight._codegen.blocks.expressions import Term
from rushlight._types.dtype import INT32, INT64, DType
from rushlight._types.layout import numel

__all__ = ["radix_steps"]

_BITS = 4
_DIGITS = 1 << _BITS
_BLOCK = 512
_SUMMED = 1024


class _Rows(NamedTuple):
    """Keys and indices of all rows, dense."""

    keys: Memory
    order: Memory


def radix_steps(
    call: ExternCall, x: Operand, values: Operand, indices: Operand, first: int, descending: bool
) -> list[Step]:
    """Sorts rows (the last dim), and writes the elements from rank `first` on, as many as the results have."""
    rows, length = numel(x.shape[:-1]), x.shape[-1]
    dtype = key_dtype(x.dtype)
    blocks = -(-length // _BLOCK)
    here, there = (
        _Rows(call.scratch(rows * length * dtype.itemsize, "keys"), call.scratch(4 * rows * length, "order"))
        for _ in range(2)
    )
    counts = call.scratch(4 * rows * _DIGITS * blocks, "counts")
    steps: list[Step] = [_keys_launch(x, here, dtype, descending)]
    for shift in range(0, 8 * x.dtype.itemsize if x.dtype.kind != "b" else _BITS, _BITS):
        steps += [
            _count_launch(here, counts, dtype, rows, length, shift),
            _sum_launch(counts, rows, _DIGITS * blocks),
            _move_launch(here, there, counts, dtype, rows, length, shift),
        ]
        here, there = there, here
    return [*steps, _write_launch(x, values, indices, here.order, first)]


def _place(arguments: Arguments, rows: int, length: int, step: int) -> tuple[int | tuple[int], int]:
    """The parameter of a row's length, and how many programs there are."""
    return arguments.integer(length, "length"), rows * -(-length // step)


def _keys_launch(x: Operand, rows: _Rows, dtype: DType, descending: bool) -> Launch:
    """Keys, and the indices in order."""
    arguments = Arguments()
    source, batch = Array(arguments, x, "x"), Batch(arguments, x.shape[:-1])
    keys, order = arguments.pointer(rows.keys, "keys", dtype), arguments.pointer(rows.order, "order", INT32)
    n_length, programs = _place(arguments, numel(x.shape[:-1]), x.shape[-1], _SUMMED)
    b = arguments.builder(f"sort_keys_{x.dtype.abbr}")
    length = arguments.term(b, n_length)
    blocks = (length + (_SUMMED - 1)) // _SUMMED
    row, places = b.program(0) // blocks, b.program(0) % blocks * _SUMMED + b.index(_SUMMED)
    inside = places < length
    value = source.pointer(b, *batch.split(b, row), places).load(inside, 0)
    at = row.to(INT64) * length.to(INT64) + places.to(INT64)
    key = key_of(b, value, descending)
    if descending and x.dtype.itemsize < 4:  # the digits above are those of ~0: they need no pass
        key = key & ((1 << (8 * x.dtype.itemsize)) - 1)
    (arguments.term(b, keys) + at).store(key, inside)
    (arguments.term(b, order) + at).store(places, inside)
    return Launch(arguments.finish(b), (programs,), arguments.values)


def _count_launch(rows: _Rows, counts: Memory, dtype: DType, n: int, length: int, shift: int) -> Launch:
    """How often each digit occurs in a block: [rows, digits, blocks]."""
    arguments = Arguments()
    keys, to = arguments.pointer(rows.keys, "keys", dtype), arguments.pointer(counts, "counts", INT32)
    n_length, programs = _place(arguments, n, length, _BLOCK)
    n_shift = arguments.number(shift, dtype, "shift")
    b = arguments.builder(f"sort_count_{dtype.abbr}")
    many = arguments.term(b, n_length)
    blocks = (many + (_BLOCK - 1)) // _BLOCK
    row, block = b.program(0) // blocks, b.program(0) % blocks
    places = block * _BLOCK + b.index(_BLOCK)
    inside = places < many
    key = (arguments.term(b, keys) + (row.to(INT64) * many.to(INT64) + places.to(INT64))).load(inside, 0)
    digit = ((key >> arguments.term(b, n_shift)) & (_DIGITS - 1)).to(INT32)
    found = Term(b, b.value("histogram", digit.value, inside.value, bins=_DIGITS))
    at = (row.to(INT64) * _DIGITS + b.index(_DIGITS).to(INT64)) * blocks.to(INT64) + block.to(INT64)
    (arguments.term(b, to) + at).store(found)
    return Launch(arguments.finish(b), (programs,), arguments.values)


def _sum_launch(counts: Memory, rows: int, length: int) -> Launch:
    """The counts before each, row by row, in place."""
    arguments = Arguments()
    at, n_length = arguments.pointer(counts, "counts", INT32), arguments.integer(length, "length")
    b = arguments.builder("sort_sum")
    many = arguments.term(b, n_length)
    base = arguments.term(b, at) + b.program(0).to(INT64) * many.to(INT64)

    def step(start: Term, *carried: Term) -> Sequence[Term]:
        places = start + b.index(_SUMMED)
        inside = places < many
        count = (base + places).load(inside, 0)
        upto = b.prefixes(count, 0)
        (base + places).store(upto - count + carried[0], inside)
        return [carried[0] + b.total(count, 0)]

    b.loop(0, many, _SUMMED, [b.number(0, INT32)], step)
    return Launch(arguments.finish(b, warps=8), (rows,), arguments.values)


def _move_launch(here: _Rows, there: _Rows, counts: Memory, dtype: DType, n: int, length: int, shift: int) -> Launch:
    """Each element to its place by a digit."""
    arguments = Arguments()
    keys, order = arguments.pointer(here.keys, "keys", dtype), arguments.pointer(here.order, "order", INT32)
    to_keys, to_order = (
        arguments.pointer(there.keys, "to_keys", dtype),
        arguments.pointer(there.order, "to_order", INT32),
    )
    before = arguments.pointer(counts, "counts", INT32)
    n_length, programs = _place(arguments, n, length, _BLOCK)
    n_shift = arguments.number(shift, dtype, "shift")
    b = arguments.builder(f"sort_move_{dtype.abbr}")
    many = arguments.term(b, n_length)
    blocks = (many + (_BLOCK - 1)) // _BLOCK
    row, block = b.program(0) // blocks, b.program(0) % blocks
    places = block * _BLOCK + b.index(_BLOCK)
    inside = places < many
    base = row.to(INT64) * many.to(INT64)
    key = (arguments.term(b, keys) + (base + places.to(INT64))).load(inside, 0)
    index = (arguments.term(b, order) + (base + places.to(INT64))).load(inside, 0)
    digit = ((key >> arguments.term(b, n_shift)) & (_DIGITS - 1)).to(INT32)
    mine = digit[:, None].equals(b.index(_DIGITS)[None, :]) & inside[:, None]
    upto = b.prefixes(mine.to(INT32), 0)
    rank = b.total(b.where(mine, upto, 0), 1) - 1
    first = (row.to(INT64) * _DIGITS + digit.to(INT64)) * blocks.to(INT64) + block.to(INT64)
    at = base + (arguments.term(b, before) + first).load(inside, 0).to(INT64) + rank.to(INT64)
    (arguments.term(b, to_keys) + at).store(key, inside)
    (arguments.term(b, to_order) + at).store(index, inside)
    return Launch(arguments.finish(b, warps=8), (programs,), arguments.values)


def _write_launch(x: Operand, values: Operand, indices: Operand, order: Memory, first: int) -> Launch:
    """The elements in order, and their indices."""
    arguments = Arguments()
    source, to, to_index = (Array(arguments, v, n) for v, n in ((x, "x"), (values, "values"), (indices, "indices")))
    batch, at = Batch(arguments, x.shape[:-1]), arguments.pointer(order, "order", INT32)
    n_length, n_first = arguments.integer(x.shape[-1], "length"), arguments.integer(first, "first")
    n_count, programs = _place(arguments, numel(x.shape[:-1]), values.shape[-1], _SUMMED)
    b = arguments.builder(f"sort_write_{x.dtype.abbr}")
    length, count = arguments.term(b, n_length), arguments.term(b, n_count)
    blocks = (count + (_SUMMED - 1)) // _SUMMED
    row, rank = b.program(0) // blocks, b.program(0) % blocks * _SUMMED + b.index(_SUMMED)
    inside = rank < count
    place = row.to(INT64) * length.to(INT64) + (rank + arguments.term(b, n_first)).to(INT64)
    index = (arguments.term(b, at) + place).load(inside, 0)
    item = batch.split(b, row)
    to.pointer(b, *item, rank).store(source.pointer(b, *item, index).load(inside, 0), inside)
    to_index.pointer(b, *item, rank).store(index, inside)
    return Launch(arguments.finish(b), (programs,), arguments.values)
