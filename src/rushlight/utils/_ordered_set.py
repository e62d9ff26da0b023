"""`torch.utils._ordered_set`: a set that remembers the order in which its elements came."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableSet, Reversible
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

__all__ = ["OrderedSet"]

T = TypeVar("T", bound=Hashable)


class OrderedSet(MutableSet[T], Reversible[T]):
    """A set in the order of insertion; equal to every set of the same elements.

    >>> OrderedSet([3, 1, 3, 2])
    OrderedSet([3, 1, 2])
    >>> OrderedSet([1, 2]) | {0} == {0, 1, 2}
    True
    """

    __slots__ = ("_dict",)

    def __init__(self, iterable: Iterable[T] | None = None) -> None:
        self._dict: dict[T, None] = dict.fromkeys(iterable if iterable is not None else ())

    def __contains__(self, elem: object) -> bool:
        return elem in self._dict

    def __iter__(self) -> Iterator[T]:
        return iter(self._dict)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"

    def __getstate__(self) -> list[T]:
        return list(self)

    def __setstate__(self, state: list[T]) -> None:
        self._dict = dict.fromkeys(state)

    def add(self, elem: T) -> None:
        """Put an element last, unless it is there."""
        self._dict.setdefault(elem)

    def discard(self, elem: T) -> None:
        """Take an element out, if it is there."""
        self._dict.pop(elem, None)

    def clear(self) -> None:
        """Take all elements out."""
        self._dict.clear()

    def pop(self) -> T:
        """Take the last element out and return it; KeyError where there is none."""
        if not self:
            raise KeyError("pop from an empty set")
        return self._dict.popitem()[0]

    def copy(self) -> OrderedSet[T]:
        """Another set of the same elements."""
        return OrderedSet(self)

    def update(self, *others: Iterable[T]) -> None:
        """Add the elements of others."""
        for other in others:
            self._dict.update(dict.fromkeys(other))

    def union(self, *others: Iterable[T]) -> OrderedSet[T]:
        """The elements of all."""
        made = self.copy()
        made.update(*others)
        return made

    def intersection(self, *others: Iterable[Any]) -> OrderedSet[T]:
        """The elements that every other has too."""
        kept: Iterable[T] = self
        for other in map(set, others):
            kept = [elem for elem in kept if elem in other]
        return OrderedSet(kept)

    def difference(self, *others: Iterable[Any]) -> OrderedSet[T]:
        """The elements that no other has."""
        made = self.copy()
        made.difference_update(*others)
        return made

    def symmetric_difference(self, other: Iterable[T]) -> OrderedSet[T]:
        """The elements that are in one of both."""
        given = OrderedSet(other)
        return (self - given).union(given - self)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        """Keep the elements that every other has too."""
        self._dict = dict.fromkeys(self.intersection(*others))

    def difference_update(self, *others: Iterable[Any]) -> None:
        """Take out the elements of others."""
        for other in others:
            for elem in list(other):
                self.discard(elem)

    def issubset(self, other: Iterable[Any]) -> bool:
        """Whether another has all elements."""
        return self <= _as_set(other)

    def issuperset(self, other: Iterable[Any]) -> bool:
        """Whether all elements of another are here."""
        return self >= _as_set(other)

    def __sub__(self, other: AbstractSet[Any]) -> OrderedSet[T]:
        return self.difference(other)


def _as_set(other: Iterable[Any]) -> AbstractSet[Any]:
    return other if isinstance(other, AbstractSet) else OrderedSet(other)
