"""Steps that make one pipe of several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rushlight.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe

__all__ = ["ConcaterIterDataPipe", "MultiplexerIterDataPipe", "ZipperIterDataPipe"]


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """Pipes one after the other.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper([1, 2]).concat(torch.utils.data.datapipes.iter.IterableWrapper([3])))
    [1, 2, 3]
    """

    def __init__(self, *datapipes: Any) -> None:
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("Expected all inputs to be `IterDataPipe`")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("mux")
class MultiplexerIterDataPipe(IterDataPipe[Any]):
    """One sample of each pipe in turn, until the first of them has no more.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper([1, 2]).mux(torch.utils.data.datapipes.iter.IterableWrapper([10, 20, 30])))
    [1, 10, 2, 20]
    """

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for row in zip(*self.datapipes, strict=False):
            yield from row

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes) * len(self.datapipes)


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples of one sample of each pipe, until the first of them has no more.

    >>> import rushlight as torch
    >>> list(torch.utils.data.datapipes.iter.IterableWrapper([1, 2]).zip(torch.utils.data.datapipes.iter.IterableWrapper(["a", "b"])))
    [(1, 'a'), (2, 'b')]
    """

    def __init__(self, *datapipes: Any) -> None:
        if not all(isinstance(pipe, IterDataPipe) for pipe in datapipes):
            raise TypeError("All inputs are required to be `IterDataPipe` for `ZipIterDataPipe`.")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)
