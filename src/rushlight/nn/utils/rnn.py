"""Sequences of different lengths in one tensor: padded, or packed step by step."""

from __future__ import annotations

from collections import namedtuple
from itertools import pairwise
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.nn.modules.conversion import parse_to

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
    "unpack_sequence", "unpad_sequence",
]  # fmt: skip


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack tensors (L_i, *) of different lengths, filled up with `padding_value`.

    The result is (L, B, *), or (B, L, *) if `batch_first`, with L the longest length; the filling is on the
    `padding_side`, "right" or "left".

    Example: `pad_sequence([torch.ones(3), torch.ones(5)], batch_first=True).shape  # (2, 5)`
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, (tuple, list)):
        if not hasattr(sequences, "__iter__"):
            raise RuntimeError(
                f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
            )
        sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    trailing = sequences[0].shape[1:]
    for sequence in sequences:
        if sequence.dim() == 0 or sequence.shape[1:] != trailing:
            raise RuntimeError(
                f"pad_sequence: all sizes of the sequences but the first must match the sizes {tuple(trailing)}, found "
                f"{tuple(sequence.shape[1:])}"
            )
    longest = max(sequence.shape[0] for sequence in sequences)
    dtype = sequences[0].dtype  # that of the first is the result's
    padded = [
        _pad_first(sequence.to(dtype), longest - sequence.shape[0], padding_value, padding_side)
        for sequence in sequences
    ]
    return rushlight.stack(padded, 0 if batch_first else 1)


def _pad_first(sequence: Any, missing: int, value: float, side: str) -> Any:
    if missing == 0:
        return sequence
    filling = sequence.new_full((missing, *sequence.shape[1:]), value)
    return rushlight.cat([filling, sequence] if side == "left" else [sequence, filling])


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Undo `pad_sequence` (with padding on the right): a list of tensors of the given lengths.

    >>> import rushlight as torch
    >>> torch.nn.utils.rnn.unpad_sequence(torch.tensor([[1, 4], [2, 0]]), torch.tensor([2, 1]))
    [tensor([1, 2]), tensor([4])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[: int(length)] for sequence, length in zip(padded_sequences, lengths, strict=True)]


# ***** packed sequences *****


class PackedSequence(namedtuple("PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):
    """Sequences, longest first, stored step by step: `data` holds the first elements of all, then the second ones, ...

    `batch_sizes` (int64) says how many sequences reach each step; the two permutations lead from the caller's order to
    the sorted one and back, None if they are equal. Made by `pack_padded_sequence` and `pack_sequence`.
    """

    __slots__ = ()

    def __new__(
        cls, data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                f"batch_sizes should always be on CPU, found {batch_sizes.device}. Make a PackedSequence by pack_sequence or "
                "pack_padded_sequence."
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Convert the data; itself if there is nothing to do."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = (
            None if order is None else order.to(data.device) for order in (self.sorted_indices, self.unsorted_indices)
        )
        return type(self)(data, self.batch_sizes, *moved)

    def double(self) -> PackedSequence:
        """The data as float64."""
        return self.to(dtype=rushlight.float64)

    def float(self) -> PackedSequence:
        """The data as float32."""
        return self.to(dtype=rushlight.float32)

    def half(self) -> PackedSequence:
        """The data as float16."""
        return self.to(dtype=rushlight.float16)

    def long(self) -> PackedSequence:
        """The data as int64."""
        return self.to(dtype=rushlight.int64)

    def int(self) -> PackedSequence:
        """The data as int32."""
        return self.to(dtype=rushlight.int32)

    def short(self) -> PackedSequence:
        """The data as int16."""
        return self.to(dtype=rushlight.int16)

    def char(self) -> PackedSequence:
        """The data as int8."""
        return self.to(dtype=rushlight.int8)

    def byte(self) -> PackedSequence:
        """The data as uint8."""
        return self.to(dtype=rushlight.uint8)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data on the CPU; other arguments are those of `to`."""
        return self._on("cpu", *args, **kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data on a GPU; other arguments are those of `to`."""
        return self._on("cuda", *args, **kwargs)

    def _on(self, kind: str, *args: Any, **kwargs: Any) -> PackedSequence:
        # The device that the arguments name counts if it is of this kind ("cuda:1").
        wanted = parse_to(*args, **dict(kwargs))[0]
        if wanted is not None and wanted.type == kind:
            return self.to(*args, **kwargs)
        return self.to(*args, **{**kwargs, "device": kind})

    def pin_memory(self) -> PackedSequence:
        """The data in memory that a GPU can read directly."""
        parts = (part if part is None else part.pin_memory() for part in self)
        return type(self)(*parts)

    @property
    def is_cuda(self) -> bool:
        """Whether the data are on a GPU."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether the data are in memory that a GPU can read directly."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Any) -> Any:
    """The permutation that undoes `permutation`; None for None.

    >>> import rushlight as torch
    >>> torch.nn.utils.rnn.invert_permutation(torch.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    places = rushlight.arange(permutation.numel(), device=permutation.device)
    return rushlight.empty_like(permutation).scatter_(0, permutation, places)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded tensor (L, N, *), or (N, L, *) if `batch_first`, whose sequences have the given lengths.

    With `enforce_sorted` the lengths must not increase; without it the sequences are sorted here, and the result
    remembers the order. Raises `RuntimeError` for lengths that do not fit.

    >>> import rushlight as torch
    >>> x = torch.tensor([[1, 2, 3], [4, 5, 0]])
    >>> torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True).data
    tensor([1, 4, 2, 5, 3])
    """
    lengths = rushlight.as_tensor(lengths).to(dtype=rushlight.int64)
    sorted_indices = None
    if not input.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if not enforce_sorted:
        lengths, sorted_indices = rushlight.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    sizes = lengths.tolist()
    sequence = input.transpose(0, 1) if batch_first else input
    batch = sequence.size(1)
    _check_lengths(sizes, batch, sequence.size(0))
    batch_sizes = [sum(1 for size in sizes if size > step) for step in range(sizes[0])]
    places = [step * batch + i for step, count in enumerate(batch_sizes) for i in range(count)]
    flat = sequence.reshape(sequence.size(0) * batch, *sequence.shape[2:])
    data = flat.index_select(0, rushlight.tensor(places, dtype=rushlight.int64, device=flat.device))
    return PackedSequence(data, rushlight.tensor(batch_sizes, dtype=rushlight.int64), sorted_indices)


def _check_lengths(sizes: list[int], batch: int, longest: int) -> None:
    if len(sizes) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={batch})"
        )
    if any(size <= 0 for size in sizes):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if any(a < b for a, b in pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX "
            "exportability."
        )
    if sizes and sizes[0] > longest:
        raise RuntimeError(
            f"Expected lengths of at most {longest} (the size of the padded dimension), but got {sizes[0]}"
        )


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Any, Any]:
    """Undo `pack_padded_sequence`: the padded tensor, in the caller's order, and the lengths.

    >>> import rushlight as torch
    >>> packed = torch.nn.utils.rnn.pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
    >>> torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2, 3],
            [4, 5, 0]]), tensor([3, 2]))

    RuntimeError if the sequence's `batch_sizes` are empty or do not belong to its data.
    """
    counts = sequence.batch_sizes.tolist()
    if not counts:
        raise RuntimeError("batch_sizes can not be empty")
    if any(left < right for left, right in pairwise(counts)) or sum(counts) != sequence.data.shape[0]:
        raise RuntimeError(
            "Expected batch_sizes in decreasing order whose sum is the number of rows of data, but got "
            f"batch_sizes={counts} and {sequence.data.shape[0]} rows"
        )
    length = len(counts) if total_length is None else total_length
    if length < len(counts):
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(counts)}"
        )
    batch = counts[0]
    data = sequence.data
    places = [step * batch + i for step, count in enumerate(counts) for i in range(count)]
    flat = data.new_full((length * batch, *data.shape[1:]), padding_value)
    flat = flat.index_copy(0, rushlight.tensor(places, dtype=rushlight.int64, device=flat.device), data)
    padded = flat.reshape(length, batch, *data.shape[1:])
    lengths = rushlight.tensor([sum(1 for c in counts if c > i) for i in range(batch)], dtype=rushlight.int64)
    if batch_first:
        padded = padded.transpose(0, 1)
    order = sequence.unsorted_indices
    if order is not None:
        return padded.index_select(0 if batch_first else 1, order), lengths.index_select(0, order.cpu())
    return padded, lengths


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of tensors (L_i, *).

    >>> import rushlight as torch
    >>> torch.nn.utils.rnn.pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])]).batch_sizes
    tensor([2, 2, 1])
    """
    lengths = rushlight.tensor([sequence.size(0) for sequence in sequences], dtype=rushlight.int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """Undo `pack_sequence`: a list of tensors (L_i, *).

    >>> import rushlight as torch
    >>> packed = torch.nn.utils.rnn.pack_sequence([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
    >>> torch.nn.utils.rnn.unpack_sequence(packed)
    [tensor([1, 2, 3]), tensor([4, 5])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
