"""Steps that make several pipes of one; what one of them has read and another has not is kept in between."""

from __future__ import annotations

import copy
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.utils.data.datapipes.datapipe import IterDataPipe
from rushlight.utils.data.datapipes.decorators import functional_datapipe

__all__ = ["DemultiplexerIterDataPipe", "ForkerIterDataPipe"]


class _Split:
    """The source of several pipes, and what is kept for each."""

    def __init__(self, datapipe: Any, count: int, buffer_size: int, name: str, gap: str) -> None:
        if count < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {count} is found")
        if buffer_size == 0:
            raise ValueError("Setting buffer size to 0 is not allowed.")
        if buffer_size < 0:
            warnings.warn(
                f"Unlimited buffer size is set for `{name.lower()}`, please be aware of OutOfMemory risks",
                UserWarning,
                stacklevel=5,
            )
        self.datapipe = datapipe
        self.count = count
        self.buffer_size = buffer_size
        self.name, self.gap = name, gap
        self.begin()

    def begin(self) -> None:
        """From the start."""
        self.source: Iterator[Any] | None = None
        self.kept: list[deque[Any]] = [deque() for _ in range(self.count)]
        self.reading = [False] * self.count

    def join(self, place: int) -> None:
        """A pipe begins a pass: the first one, or one that has begun before, starts all anew."""
        if self.source is None or self.reading[place]:
            self.begin()
            self.source = iter(self.datapipe)
        self.reading[place] = True

    def targets(self, sample: Any) -> list[tuple[int, Any]]:
        """Which pipes get a sample."""
        raise NotImplementedError

    def held(self) -> int:
        """How much is kept."""
        raise NotImplementedError

    def read(self, place: int) -> Any:
        """The next sample for a pipe."""
        kept = self.kept[place]
        while not kept:
            if self.source is None:
                raise RuntimeError("this pass has ended: another one of the same source has begun")
            for target, sample in self.targets(next(self.source)):
                self.kept[target].append(sample)
            if 0 <= self.buffer_size < self.held() and not (
                self.held() == self.buffer_size + 1 and kept and self.name != "Forker"
            ):
                raise BufferError(
                    f"{self.name}IterDataPipe buffer overflow,{self.gap}buffer size {self.buffer_size} is insufficient."
                )
        return kept.popleft()


class _Forked(_Split):
    def __init__(self, datapipe: Any, count: int, buffer_size: int, copying: Any) -> None:
        super().__init__(datapipe, count, buffer_size, "Forker", "")
        if copying not in (None, "shallow", "deep"):
            raise ValueError(f"Unknown copy method `{copying}` - chose one of None, `shallow` or `deep`")
        self.copying = {None: lambda x: x, "shallow": copy.copy, "deep": copy.deepcopy}[copying]

    def targets(self, sample: Any) -> list[tuple[int, Any]]:
        return [(place, self.copying(sample)) for place in range(self.count)]

    def held(self) -> int:
        return max(len(kept) for kept in self.kept)


class _Sorted(_Split):
    def __init__(
        self, datapipe: Any, count: int, classifier: Callable[[Any], Any], drop_none: bool, buffer_size: int
    ) -> None:
        super().__init__(datapipe, count, buffer_size, "Demultiplexer", " ")
        self.classifier, self.drop_none = classifier, drop_none

    def targets(self, sample: Any) -> list[tuple[int, Any]]:
        place = self.classifier(sample)
        if place is None and self.drop_none:
            return []
        if place is None or not 0 <= place < self.count:
            raise ValueError(
                f"Output of the classification fn should be between 0 and {self.count - 1}. {place} is returned."
            )
        return [(place, sample)]

    def held(self) -> int:
        return sum(len(kept) for kept in self.kept)


class _ChildDataPipe(IterDataPipe[Any]):
    """One of the pipes of a split source."""

    def __init__(self, main_datapipe: _Split, instance_id: int) -> None:
        self.main_datapipe = main_datapipe
        self.instance_id = instance_id

    def __iter__(self) -> Iterator[Any]:
        self.main_datapipe.join(self.instance_id)
        return _Reading(self.main_datapipe, self.instance_id)

    def __len__(self) -> int:
        if isinstance(self.main_datapipe, _Forked):
            return len(self.main_datapipe.datapipe)
        raise TypeError(f"'{type(self).__name__}' object has no len()")


class _Reading:
    def __init__(self, main: _Split, place: int) -> None:
        self.main, self.place, self.source = main, place, main.source

    def __iter__(self) -> _Reading:
        return self

    def __next__(self) -> Any:
        if self.main.source is not self.source:
            raise RuntimeError(
                "This iterator has been invalidated, because a new iterator has been created from one of its sibling pipes."
            )
        return self.main.read(self.place)


@functional_datapipe("fork")
class ForkerIterDataPipe(IterDataPipe[Any]):
    """Several pipes with all samples of one each; at most `buffer_size` samples may lie between the fastest and the
    slowest.

    >>> import rushlight as torch
    >>> one, other = torch.utils.data.datapipes.iter.IterableWrapper(range(3)).fork(2)
    >>> list(one), list(other)
    ([0, 1, 2], [0, 1, 2])
    """

    def __new__(cls, datapipe: Any, num_instances: int, buffer_size: int = 1000, copy: str | None = None) -> Any:
        if num_instances == 1:
            return [datapipe]
        split = _Forked(datapipe, num_instances, buffer_size, copy)
        return [_ChildDataPipe(split, place) for place in range(num_instances)]


@functional_datapipe("demux")
class DemultiplexerIterDataPipe(IterDataPipe[Any]):
    """Several pipes, of which `classifier_fn` says to which one a sample goes (None with `drop_none`: to no one).

    >>> import rushlight as torch
    >>> even, odd = torch.utils.data.datapipes.iter.IterableWrapper(range(5)).demux(2, lambda n: n % 2)
    >>> list(even), list(odd)
    ([0, 2, 4], [1, 3])
    """

    def __new__(
        cls,
        datapipe: Any,
        num_instances: int,
        classifier_fn: Callable[[Any], Any],
        drop_none: bool = False,
        buffer_size: int = 1000,
    ) -> Any:
        split = _Sorted(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
        return [_ChildDataPipe(split, place) for place in range(num_instances)]
