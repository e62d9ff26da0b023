"""From samples to batches: tensors are stacked, numbers become tensors, containers are turned inside out."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.memory import empty_spec, stack_rows
from rushlight.utils.data._utils import worker

__all__ = ["collate", "default_collate", "default_convert"]

# NumPy arrays of these kinds (strings, bytes, objects) cannot become tensors.
np_str_obj_array_pattern = re.compile(r"[SaUO]")
_REFUSED = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def _is_numpy(cls: type) -> bool:
    return cls.__module__ == "numpy" and cls.__name__ not in ("str_", "bytes_", "string_")


def default_convert(data: Any) -> Any:
    """Turn the NumPy arrays in `data` into tensors, inside of containers as well; everything else is kept.

    >>> import rushlight as torch
    >>> torch.utils.data.default_convert([1.5, "text"])
    [1.5, 'text']
    """
    cls = type(data)
    if isinstance(data, Tensor):
        return data
    if _is_numpy(cls):
        if cls.__name__ == "ndarray" and np_str_obj_array_pattern.search(data.dtype.str):
            return data
        return rushlight.as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple):
        items = [default_convert(item) for item in data]
        return cls(*items) if hasattr(data, "_fields") else items
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, [default_convert(item) for item in data])
    return data


def _like_mapping(example: Any, items: dict[Any, Any]) -> Any:
    """A mapping of the example's type with other values, or a dict where the type does not allow it."""
    try:
        if isinstance(example, MutableMapping):
            made = copy.copy(example)
            made.update(items)
            return made
        return type(example)(items)
    except TypeError:
        return items


def _like_sequence(example: Any, items: list[Any]) -> Any:
    try:
        if isinstance(example, MutableSequence):
            made = copy.copy(example)
            for i, item in enumerate(items):
                made[i] = item
            return made
        return type(example)(items)
    except TypeError:
        return items


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """Combine a list of samples into one batch, with a function for each type of element.

    `collate_fn_map` maps types (or tuples of them) to functions `f(batch, *, collate_fn_map)`; the type itself is
    looked for first, then its bases. Mappings and sequences are combined element by element.
    """
    element = batch[0]
    cls = type(element)
    if collate_fn_map is default_collate_fn_map:
        _map_with_numpy()
    if collate_fn_map is not None:
        if cls in collate_fn_map:
            return collate_fn_map[cls](batch, collate_fn_map=collate_fn_map)
        for types, function in collate_fn_map.items():
            if isinstance(element, types):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(element, Mapping):
        columns = {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in element}
        return _like_mapping(element, columns)
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return cls(*(collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)))
    if isinstance(element, Sequence):
        if any(len(sample) != len(element) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        made = [collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=True)]
        return made if isinstance(element, tuple) else _like_sequence(element, made)
    raise TypeError(_REFUSED.format(cls))


# ***** one function for each type *****


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack tensors; a worker does so in the memory that it shares with the main process."""
    first, arena = batch[0], worker.arena()
    if type(first) is not Tensor and (first.layout is not rushlight.strided or first.is_nested):
        kind = "nested" if first.is_nested else "sparse"
        raise RuntimeError(
            f"Batches of {kind} tensors are not currently supported by the default collate_fn; please provide a custom collate_fn to handle "
            "them appropriately."
        )
    made = stack_rows(batch, empty_spec if arena is None else arena.empty)
    return rushlight.stack(batch, 0) if made is None else made


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if np_str_obj_array_pattern.search(batch[0].dtype.str):
        raise TypeError(_REFUSED.format(batch[0].dtype))
    return collate_tensor_fn([rushlight.as_tensor(array) for array in batch])


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return rushlight.as_tensor(list(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return rushlight.tensor(list(batch), dtype=rushlight.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return rushlight.tensor(list(batch))


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """Combine a list of samples into one batch.

    Tensors and NumPy arrays are stacked along a new first dimension, ints and floats (as float64) become tensors,
    strings stay a list; mappings, tuples and lists are combined element by element. Raises `TypeError` for other types.

    Example: `default_collate([(torch.ones(2), 0), (torch.zeros(2), 1)])  # [tensor of shape (2, 2), tensor([0, 1])]`
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def _map_with_numpy() -> None:
    # NumPy's types join the table once NumPy is loaded; without it no sample can have them.
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray") and numpy.ndarray not in default_collate_fn_map:
        first = {
            numpy.ndarray: collate_numpy_array_fn,
            (numpy.bool_, numpy.number, numpy.object_): collate_numpy_scalar_fn,
        }
        rest = dict(default_collate_fn_map)
        default_collate_fn_map.clear()
        default_collate_fn_map.update({Tensor: rest.pop(Tensor), **first, **rest})


_map_with_numpy()
