"""Sequences, as lists, and optionals, as a value or None."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.shapes import as_list
from rushlight.onnx.importing.table import Numbers, Value, operator
from rushlight.onnx.importing.values import Host, numpy, tensor

__all__: list[str] = []


def _place(position: Any, count: int) -> int:
    place = int(as_list(position)[0])
    if not -count <= place < count:
        raise IndexError(f"position {place} of a sequence of {count}")
    return place


@operator("SequenceConstruct", since=11)
def sequence_construct(*items: Value) -> list[Any]:
    return [tensor(item) for item in items]


@operator("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> list[Any]:
    return []


@operator("SequenceAt", since=11)
def sequence_at(items: Value, position: Numbers) -> Any:
    return items[_place(position, len(items))]


@operator("SequenceLength", since=11)
def sequence_length(items: Value) -> Host:
    return Host([len(items)], scalar=True)


@operator("SequenceInsert", since=11)
def sequence_insert(items: Value, item: Value, position: Numbers = None) -> list[Any]:
    place = len(items) if position is None else int(as_list(position)[0])
    if not -len(items) <= place <= len(items):
        raise IndexError(f"position {place} of a sequence of {len(items)}")
    place = place + len(items) if place < 0 else place
    return [*items[:place], tensor(item), *items[place:]]


@operator("SequenceErase", since=11)
def sequence_erase(items: Value, position: Numbers = None) -> list[Any]:
    place = _place(-1 if position is None else position, len(items)) % len(items)
    return [*items[:place], *items[place + 1 :]]


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(items: Value, *, axis: int, new_axis: int = 0) -> Any:
    if isinstance(items[0], numpy.ndarray):
        return numpy.stack(items, axis) if new_axis else numpy.concatenate(items, axis)
    return torch.stack(items, axis) if new_axis else torch.cat(items, axis)


@operator("SplitToSequence", since=11)
def split_to_sequence(x: Value, split: Numbers = None, *, axis: int = 0, keepdims: int = 1) -> list[Any]:
    """Parts of one size, of given sizes, or single slices, whose axis may be dropped."""
    x = tensor(x)
    size = x.shape[axis]
    if split is None:
        sizes = [1] * size
    elif isinstance(split, list):
        sizes = split
    else:
        sizes = [min(split, size - start) for start in range(0, size, split)]
    if isinstance(x, numpy.ndarray):
        parts = numpy.split(x, numpy.cumsum(sizes)[:-1], axis)
        return [part.squeeze(axis) for part in parts] if split is None and not keepdims else list(parts)
    parts = torch.split(x, sizes, axis)
    return [part.squeeze(axis) for part in parts] if split is None and not keepdims else list(parts)


@operator("Optional", since=15)
def optional(x: Value = None, *, type: Any = None) -> Value:
    return x


@operator("OptionalHasElement", since=15)
def optional_has_element(x: Value = None) -> Any:
    return torch.tensor(x is not None)


@operator("OptionalGetElement", since=15)
def optional_get_element(x: Value) -> Value:
    if x is None:
        raise ValueError("the optional has no element")
    return x
