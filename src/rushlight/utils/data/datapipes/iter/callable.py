"""Steps that call a function for every sample."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.utils.data._utils.collate import default_collate
from rushlight.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe

__all__ = ["CollatorIterDataPipe", "FilterIterDataPipe", "MapperIterDataPipe"]


def _check_function(fn: Any, columns: Any) -> None:
    """TypeError where `fn` is no function, ValueError where it takes another number of arguments than there are
    columns.
    """
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:
        return  # built in: it does not say
    given = len(columns) if isinstance(columns, (list, tuple)) else 1
    name = getattr(fn, "__name__", str(fn))
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return
    needed = sum(
        p.default is p.empty for p in parameters if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD
    )
    allowed = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if needed > given:
        raise ValueError(f"The function {name} takes {needed} positional parameters, but {given} are required.")
    if allowed < given:
        raise ValueError(f"The function {name} takes {allowed} parameters, but {given} are required.")


def _picked(sample: Any, columns: Any) -> tuple[Any, ...]:
    if columns is None:
        return (sample,)
    return tuple(sample[c] for c in columns) if isinstance(columns, (list, tuple)) else (sample[columns],)


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """`fn` of every sample, or of its columns `input_col`; the result takes the place of the sample, or of its column
    `output_col` (-1: a new one).

    Example: `IterableWrapper(range(3)).map(lambda x: x + 1)`
    """

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        _check_function(fn, input_col)
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        self.datapipe = datapipe
        self.fn = fn
        self.input_col = input_col
        self.output_col = output_col

    def _mapped(self, sample: Any) -> Any:
        result = self.fn(*_picked(sample, self.input_col))
        if self.input_col is None:
            return result
        if isinstance(sample, dict):
            sample = dict(sample)
            columns: Any = sample
        else:
            columns = list(sample)
        if self.output_col is None:
            several = isinstance(self.input_col, (list, tuple))
            columns[self.input_col[0] if several else self.input_col] = result
            for index in sorted(self.input_col[1:], reverse=True) if several else ():
                del columns[index]
        elif self.output_col == -1 and isinstance(columns, list):
            columns.append(result)
        else:
            columns[self.output_col] = result
        return tuple(columns) if isinstance(sample, tuple) else columns

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            yield self._mapped(sample)

    def __len__(self) -> int:
        return _length(self, self.datapipe)


def _length(pipe: Any, source: Any) -> int:
    try:
        return len(source)
    except TypeError:
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length") from None


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Batches of samples become batches of tensors, by `collate_fn` or a `conversion` (a function, or a dict of one for
    each column).
    """

    def __init__(
        self, datapipe: Any, conversion: Any = default_collate, collate_fn: Callable[..., Any] | None = None
    ) -> None:
        if collate_fn is None:
            collate_fn = conversion if callable(conversion) else lambda batch: _by_columns(batch, conversion)
        super().__init__(datapipe, fn=collate_fn)


def _by_columns(batch: Any, conversion: dict[Any, Any]) -> dict[Any, Any]:
    return {name: conversion.get(name, default_collate)([sample[name] for sample in batch]) for name in batch[0]}


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The samples of which (or of whose columns `input_col`) `filter_fn` is True.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper(range(5)).filter(lambda n: n % 2 == 0))
    [0, 2, 4]
    """

    def __init__(self, datapipe: Any, filter_fn: Callable[..., bool], input_col: Any = None) -> None:
        _check_function(filter_fn, input_col)
        self.datapipe = datapipe
        self.filter_fn = filter_fn
        self.input_col = input_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            found = self.filter_fn(*_picked(sample, self.input_col))
            if not isinstance(found, bool):
                raise ValueError("Boolean output is required for `filter_fn` of FilterIterDataPipe, got", type(found))
            if found:
                yield sample
