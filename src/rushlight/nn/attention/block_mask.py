"""Masks of attention by blocks: which blocks of queries and keys take part, and which of those need the mask inside.

Source: the format is that of Dong et al., "Flex Attention: a programming model for generating optimized attention
kernels" (2024).
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["BlockMask", "dense_of", "noop_mask", "ordered_of"]

_TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip
_ORDERS = ("dq_write_order", "dq_write_order_full", "dq_kv_order")
SLICED = (
    "Cannot use mask_mod from a sliced BlockMask: its indices no longer mean what they meant in the original. Set `sliced.mask_mod` to a function "
    "made from the original BlockMask's mask_mod, with the offsets of the slice added."
)


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask that lets everything take part."""
    return batch.new_ones(size=(), dtype=rushlight.bool)


def _sliced_mask_mod_error(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Stands for the mask of a part of a BlockMask, which nobody knows."""
    raise RuntimeError(SLICED)


def dense_of(count: Any, indices: Any) -> Any:
    """Ones (int32) at the places that the first `count` of `indices` name in each row; shape (..., rows, columns)."""
    columns = indices.shape[-1]
    valid = rushlight.arange(columns, device=indices.device) < count.unsqueeze(-1)
    places = rushlight.where(valid, indices.long(), columns)  # what does not count goes to a column of its own
    dense = rushlight.zeros((*indices.shape[:-1], columns + 1), dtype=rushlight.int32, device=indices.device)
    return dense.scatter_(-1, places, 1)[..., :columns].contiguous()


def ordered_of(dense: Any) -> tuple[Any, Any]:
    """(how many ones each row has, the columns with those that hold ones first), int32."""
    count = dense.sum(-1).to(rushlight.int32)
    indices = rushlight.argsort(dense.to(rushlight.int32), dim=-1, descending=True, stable=True)
    return count, indices.to(rushlight.int32).contiguous()


def _turned(count: Any, indices: Any) -> tuple[Any, Any]:
    """The same blocks, by columns."""
    return ordered_of(dense_of(count, indices).transpose(-2, -1))


class BlockMask:
    """Which blocks of `BLOCK_SIZE` (queries, keys) of an attention take part, for every batch and head.

    `kv_num_blocks` (..., rows) says how many blocks of keys each block of queries attends to, `kv_indices` (..., rows,
    columns) which ones (the first so many of each row; the rest means nothing); inside of them `mask_mod` decides.  The
    blocks in `full_kv_num_blocks` and `full_kv_indices` (or None) take part whole.  The `q_` tensors are the same by
    columns.  Usually made by `create_block_mask`.

        >>> from rushlight.nn.attention.flex_attention import create_block_mask
        >>> create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 256, 256).sparsity()
        25.0
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Any,
        kv_indices: Any,
        full_kv_num_blocks: Any,
        full_kv_indices: Any,
        q_num_blocks: Any,
        q_indices: Any,
        full_q_num_blocks: Any,
        full_q_indices: Any,
        BLOCK_SIZE: tuple[int, int] = (128, 128),
        mask_mod: Callable[..., Any] = noop_mask,
        *,
        dq_write_order: Any = None,
        dq_write_order_full: Any = None,
        dq_kv_order: Any = None,
        dq_kv_order_spt: bool | None = None,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        pairs = (
            ("full_kv_num_blocks", full_kv_num_blocks, "full_kv_indices", full_kv_indices),
            ("q_num_blocks", q_num_blocks, "q_indices", q_indices),
            ("full_q_num_blocks", full_q_num_blocks, "full_q_indices", full_q_indices),
        )
        for name, count, other, indices in pairs:
            if (count is None) != (indices is None):
                raise AssertionError(f"{name} and {other} must be both provided or omitted")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE, self.mask_mod = BLOCK_SIZE, mask_mod
        self.dq_write_order, self.dq_write_order_full = dq_write_order, dq_write_order_full
        self.dq_kv_order, self.dq_kv_order_spt = dq_kv_order, dq_kv_order_spt

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Any,
        kv_indices: Any,
        full_kv_num_blocks: Any = None,
        full_kv_indices: Any = None,
        BLOCK_SIZE: int | tuple[int, int] = 128,
        mask_mod: Callable[..., Any] | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        *,
        dq_write_order: Any = None,
        dq_write_order_full: Any = None,
        dq_kv_order: Any = None,
    ) -> BlockMask:
        """A mask from its blocks by rows; those by columns are computed unless `compute_q_blocks` is False.

        RuntimeError for indices with less than two dims, AssertionError where of the two tensors for full blocks only
        one is given.
        """
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        q_blocks: tuple[Any, Any] = (None, None)
        full_q_blocks: tuple[Any, Any] = (None, None)
        if compute_q_blocks:
            q_blocks = _turned(kv_num_blocks, kv_indices)
            full_q_blocks = (None, None) if full_kv_indices is None else _turned(full_kv_num_blocks, full_kv_indices)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        spt = dq_kv_order if isinstance(dq_kv_order, bool) else None
        return cls(
            seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            *q_blocks,
            *full_q_blocks,
            size,
            mask_mod or noop_mask,
            dq_write_order=dq_write_order,
            dq_write_order_full=dq_write_order_full,
            dq_kv_order=None if spt is not None else dq_kv_order,
            dq_kv_order_spt=spt,
        )

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Everything that the mask is made of, in the order of the constructor; with `flatten`, lengths and block size
        as single numbers.
        """
        middle = [getattr(self, name) for name in (*_TENSORS, *_ORDERS, "dq_kv_order_spt")]
        lengths, size = (
            (tuple(self.seq_lengths), tuple(self.BLOCK_SIZE)) if flatten else ((self.seq_lengths,), (self.BLOCK_SIZE,))
        )
        return (*lengths, *middle, *size, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """(batches, heads, queries, keys)"""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many elements the whole mask has."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    def sparsity(self) -> float:
        """How many per cent of the elements lie in blocks that take no part."""
        blocks = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            blocks = blocks + self.full_kv_num_blocks.sum()
        return 100 * (1 - int(blocks) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """One (int32) for each block that takes part, shape (batches, heads, blocks of queries, blocks of keys)."""
        dense = dense_of(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None:
            return dense
        return dense | dense_of(self.full_kv_num_blocks, self.full_kv_indices)

    def to(self, device: Any) -> BlockMask:
        """The same mask with its tensors on another device."""

        def move(name: str) -> Any:
            held = getattr(self, name)
            return None if held is None else held.to(device)

        made = copy.copy(self)
        for name in (*_TENSORS, *_ORDERS):
            setattr(made, name, move(name))
        return made

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask for some batches, heads and blocks of queries; dims stay, and `mask_mod` must be set anew."""
        places = index if isinstance(index, tuple) else (index,)
        places = tuple([slice(i, i + 1 or None) if isinstance(i, int) else i for i in places])

        def part(name: str) -> Any:
            held = getattr(self, name)
            return None if held is None else held[places]

        count, indices, full_count, full_indices = map(part, _TENSORS[:4])
        return BlockMask.from_kv_blocks(
            count,
            indices,
            full_count,
            full_indices,
            self.BLOCK_SIZE,
            _sliced_mask_mod_error,
            self.seq_lengths,
            self.q_indices is not None,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left corner of the mask, for shorter sequences."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])

        def crop(count: Any, indices: Any) -> tuple[Any, Any]:
            return (None, None) if count is None else ordered_of(dense_of(count, indices)[..., :rows, :columns])

        count, indices = crop(self.kv_num_blocks, self.kv_indices)
        full_count, full_indices = crop(self.full_kv_num_blocks, self.full_kv_indices)
        lengths = (new_q_len, new_kv_len)
        return BlockMask.from_kv_blocks(
            count, indices, full_count, full_indices, self.BLOCK_SIZE, self.mask_mod, lengths
        )

    # ***** printing *****

    def __repr__(self) -> str:
        lines = []
        for name in (*_TENSORS, *_ORDERS):
            held = getattr(self, name)
            if held is not None or name in _TENSORS:
                lines.append(f"    {name}={None if held is None else held.shape}")
        name = getattr(self.mask_mod, "__name__", repr(self.mask_mod))
        lines += [
            f"    BLOCK_SIZE={self.BLOCK_SIZE}",
            f"    shape={self.shape}",
            f"    sparsity={self.sparsity():.2f}%",
            f"    mask_mod={name}",
        ]
        return "BlockMask(\n" + ",\n".join(lines) + "\n)"

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks for each batch and head, at most `limit` of them (-1: all), each drawn with at most
        `grid_size` cells.

        A dark cell stands for blocks that all take part, a light one for some, an empty one for none.
        """
        grid = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        dense = self.to_dense()
        heads = list(itertools.product(*[range(n) for n in dense.shape[:-2]]))
        shown = heads if limit == -1 else heads[:limit]
        pictures = [f"{place}\n" + _picture(dense[place] if place else dense, grid) for place in shown]
        if len(shown) < len(heads):
            pictures.append(
                "...\nTo print out more, set BlockMask.to_string(limit=N)\nYou can also index (BlockMask[batch, head]) to choose a specific batch or head"
            )
        return "\n".join(pictures)


def _picture(blocks: Any, grid: tuple[int, int]) -> str:
    """The blocks of one mask as lines of two characters a cell."""
    rows = blocks.tolist()
    tall, wide = (max(1, -(-n // g)) for n, g in zip(blocks.shape, grid, strict=True))
    lines = []
    for top in range(0, len(rows), tall):
        line = ""
        for left in range(0, blocks.shape[1], wide):
            cell = [value for row in rows[top : top + tall] for value in row[left : left + wide]]
            line += "██" if all(cell) else "░░" if any(cell) else "  "
        lines.append(line + "\n")
    return "".join(lines)
