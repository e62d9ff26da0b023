"""Sequences of different lengths in one tensor."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor

__all__ = ["pad_sequence", "unpad_sequence"]


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Any:
    """Stack tensors (L_i, *) of different lengths, filled up with `padding_value`.

    The result is (L, B, *), or (B, L, *) if `batch_first`, with L the longest length; the filling is on the `padding_side`,
    "right" or "left".

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
                f"The size of tensor a {tuple(trailing)} must match the size of tensor b {tuple(sequence.shape[1:])} "
                "in all dimensions but the first"
            )
    longest = max(sequence.shape[0] for sequence in sequences)
    padded = [_pad_first(sequence, longest - sequence.shape[0], padding_value, padding_side) for sequence in sequences]
    return rushlight.stack(padded, 0 if batch_first else 1)


def _pad_first(sequence: Any, missing: int, value: float, side: str) -> Any:
    if missing == 0:
        return sequence
    filling = sequence.new_full((missing, *sequence.shape[1:]), value)
    return rushlight.cat([filling, sequence] if side == "left" else [sequence, filling])


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Any]:
    """Undo `pad_sequence` (with padding on the right): a list of tensors of the given lengths."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[: int(length)] for sequence, length in zip(padded_sequences, lengths, strict=True)]
