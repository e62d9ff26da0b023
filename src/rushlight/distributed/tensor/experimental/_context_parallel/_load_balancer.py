"""In which order a sequence is divided among processes, so that all have as much to do under a mask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["_HeadTailLoadBalancer", "_LoadBalancer", "_PTRRLoadBalancer", "_PerDocumentHeadTailLoadBalancer"]


class _LoadBalancer(ABC):
    """An order of the places of a sequence, of which each process takes an equal part."""

    @abstractmethod
    def _generate_indices(self, restore: bool = False) -> Tensor | None:
        """The places in the new order; with `restore` where each place is in it.

        Shape (1, length), or (batch, length) where rows of a batch are ordered each by itself.  None for the order as
        it is.
        """


def _mirrored(length: int, world: int, start: int, device: Any) -> Tensor:
    """Places from `start` on: for each process a piece from the front and its mirror image from the end."""
    pieces = rushlight.arange(start, start + length, dtype=rushlight.int32, device=device).chunk(2 * world)
    return rushlight.cat([x for k in range(world) for x in (pieces[k], pieces[-1 - k])])


def _check_pieces(length: int, world: int, what: str) -> None:
    if length % (2 * world):
        raise AssertionError(
            f"{what} of {length} places cannot be divided into {2 * world} equal pieces, two for each of {world} processes;"
            " pad it, or divide it without a load balancer"
        )


class _HeadTailLoadBalancer(_LoadBalancer):
    """Each process has a piece from the front and its mirror image from the end: under a causal mask all have as much to
    do.

    >>> from rushlight.distributed.tensor.experimental._attention import _HeadTailLoadBalancer
    >>> _HeadTailLoadBalancer(8, 2, "cpu")._generate_indices()
    tensor([[0, 1, 6, 7, 2, 3, 4, 5]], dtype=torch.int32)
    """

    def __init__(self, seq_length: int, world_size: int, device: Any) -> None:
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        """AssertionError for a length that does not divide into two pieces for each process."""
        _check_pieces(self.seq_length, self.world_size, "a sequence")
        order = _mirrored(self.seq_length, self.world_size, 0, self.device)
        return (order.argsort() if restore else order).unsqueeze(0)


class _PerDocumentHeadTailLoadBalancer(_LoadBalancer):
    """The same for each document of a sequence that holds several, under a mask that is causal within documents.

    - `seq_length_per_doc`: the documents' lengths, a row for each sequence of the batch, or one for all
    """

    def __init__(self, seq_length_per_doc: Sequence[Sequence[int]], world_size: int, device: Any) -> None:
        self.seq_length_per_doc, self.world_size, self.device = seq_length_per_doc, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        """AssertionError for a document that does not divide into two pieces for each process."""
        rows = []
        for lengths in self.seq_length_per_doc:
            parts, start = [], 0
            for length in lengths:
                _check_pieces(length, self.world_size, "a document")
                parts.append(_mirrored(length, self.world_size, start, self.device).long())
                start += length
            order = rushlight.cat(parts)
            rows.append(order.argsort() if restore else order)
        return rushlight.stack(rows)


class _PTRRLoadBalancer(_LoadBalancer):
    """Rows of blocks of a `BlockMask`, dealt out by how many blocks take part in each: the longest first, to the
    processes in turn, forth and back.

    - `block_mask`: with one head; a row of the batch for each order

    >>> from rushlight.distributed.tensor.experimental._attention import _PTRRLoadBalancer
    >>> from rushlight.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 8, 8, BLOCK_SIZE=2)
    >>> _PTRRLoadBalancer(mask, 2)._generate_indices()
    tensor([[0, 1, 6, 7, 2, 3, 4, 5]])
    """

    def __init__(self, block_mask: Any, world_size: int) -> None:
        self.block_mask, self.world_size = block_mask, world_size

    @staticmethod
    def ptrr_scheduling(process_time: Tensor, group_size: int) -> Tensor:
        """Which tasks each of `group_size` workers gets, (workers, tasks of each), from what each task takes, (tasks,).

        Equal tasks keep their order.  NotImplementedError where the number of tasks does not divide.
        """
        if process_time.ndim != 1:
            raise AssertionError(f"process_time has one dim, got {process_time.ndim}")
        count = process_time.size(0)
        if count % group_size:
            raise NotImplementedError(f"num_tasks {count} must be divisible by group_size {group_size}")
        rounds = process_time.argsort(descending=True, stable=True).view(-1, group_size)
        back = rushlight.arange(rounds.size(0), device=rounds.device).unsqueeze(1) % 2 == 1
        return rushlight.where(back, rounds.flip(1), rounds).t().sort(dim=1).values

    def _generate_indices(self, restore: bool = False) -> Tensor:
        """ValueError for a mask of several heads, AssertionError for blocks that are no squares."""
        mask = self.block_mask
        counts = mask.kv_num_blocks
        if mask.full_kv_num_blocks is not None:
            counts = counts + mask.full_kv_num_blocks
        if counts.ndim != 3 or counts.size(1) != 1:
            raise ValueError(f"a balanced BlockMask has one head, so that all heads lie alike; got {mask.shape}")
        size, across = mask.BLOCK_SIZE
        if size != across:
            raise AssertionError(f"for now only support q_blk_size == kv_blk_size, got {mask.BLOCK_SIZE}")
        rows = []
        for row in counts[:, 0]:
            blocks = self.ptrr_scheduling(row, self.world_size).reshape(-1, 1)
            order = (blocks * size + rushlight.arange(size, device=blocks.device)).reshape(-1)
            rows.append(order.argsort() if restore else order)
        return rushlight.stack(rows)
