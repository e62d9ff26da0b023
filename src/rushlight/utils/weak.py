"""Weak references to tensors by identity: tensors compare element by element, so that ordinary weak dictionaries cannot
hold them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from rushlight import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref[Any]):
    """A weak reference that is equal to others of the very same object, and hashes by its identity.

    >>> x = torch.ones(2)
    >>> WeakIdRef(x) == WeakIdRef(x), WeakIdRef(x) == WeakIdRef(x.clone())
    (True, False)
    """

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Callable[[Any], Any] | None = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine = self()
        if mine is not None and isinstance(other, weakref.ref):
            theirs = other()
            if theirs is not None:
                return mine is theirs
        return self is other


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dictionary whose keys are objects themselves (not what they are equal to), and which does not keep them alive.

    An entry goes away with its key.  `ref_type` makes the references.

        >>> notes = WeakTensorKeyDictionary()
        >>> x = torch.ones(2)
        >>> notes[x] = "ones"
        >>> notes[x], torch.ones(2) in notes, len(notes)
        ('ones', False, 1)
        >>> del x
        >>> len(notes)
        0
    """

    def __init__(self, dict: Mapping[Any, Any] | None = None, ref_type: type = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        held = weakref.ref(self)

        def remove(reference: Any) -> None:
            owner = held()
            if owner is not None:
                owner.data.pop(reference, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # of this there are no weak references
            return False

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def keys(self) -> Iterator[Any]:  # type: ignore[override]
        """The keys that are alive."""
        return iter(self)

    def items(self) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        """Keys that are alive, with their values."""
        for reference, value in list(self.data.items()):
            key = reference()
            if key is not None:
                yield key, value

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        """The values of keys that are alive."""
        return (value for _, value in self.items())

    def keyrefs(self) -> list[Any]:
        """The weak references themselves."""
        return list(self.data)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value, or `default`."""
        return self.data.get(self.ref_type(key), default)

    def pop(self, key: Any, *args: Any) -> Any:
        """Take an entry out; KeyError, or the second argument, where there is none."""
        return self.data.pop(self.ref_type(key), *args)

    def popitem(self) -> tuple[Any, Any]:
        """Take some entry out; KeyError where there is none."""
        while True:
            reference, value = self.data.popitem()
            key = reference()
            if key is not None:
                return key, value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value; where there is none, `default`, which is then there."""
        return self.data.setdefault(self.ref_type(key, self._remove), default)

    def update(self, dict: Any = None, **kwargs: Any) -> None:  # type: ignore[override]
        """Take over the entries of another dictionary, or of pairs."""
        pairs: Iterable[tuple[Any, Any]] = () if dict is None else dict.items() if hasattr(dict, "items") else dict
        for key, value in (*pairs, *kwargs.items()):
            self[key] = value

    def copy(self) -> WeakIdKeyDictionary:
        """Another dictionary with the same entries."""
        made = type(self)(ref_type=self.ref_type)
        made.update(self)
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        from copy import deepcopy

        made = type(self)(ref_type=self.ref_type)
        for key, value in self.items():
            made[key] = deepcopy(value, memo)
        return made

    def __or__(self, other: Any) -> WeakIdKeyDictionary:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> WeakIdKeyDictionary:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = type(self)(ref_type=self.ref_type)
        made.update(other)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> WeakIdKeyDictionary:
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    __hash__ = None  # type: ignore[assignment]


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor; AssertionError for anything else.

    >>> x = torch.ones(2)
    >>> TensorWeakRef(x)() is x
    True
    """

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        """The tensor, or None once it is gone."""
        return self.ref()
