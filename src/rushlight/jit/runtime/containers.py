"""Lists and dicts with a type, as `torch.jit.script([...])` gives them: compiled functions change them, not copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

from rushlight.jit.frontend.inference import type_of
from rushlight.jit.ir import types as T
from rushlight.jit.runtime.objects import is_instance
from rushlight.jit.runtime.operators import text_of

__all__ = ["ScriptDict", "ScriptList", "plain"]


def _checked(value: Any, kind: T.Type) -> Any:
    if not is_instance(value, [kind]):
        raise TypeError(f"a value of type {kind.annotation} is wanted, not {type(value).__name__}")
    return value


def plain(value: Any) -> Any:
    """A list or a dict of Python in place of one with a type: what a compiled function gives back."""
    if isinstance(value, ScriptList):
        return list(value)
    return dict(value) if isinstance(value, ScriptDict) else value


class ScriptList(list):
    """A list whose elements have one type; TypeError for others.  Without elements it is one of tensors."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        given = list(items)
        self.element_type = type_of(given) if given else T.list_of(T.TENSOR)
        super().__init__(given)

    def _element(self, value: Any) -> Any:
        return _checked(value, self.element_type.inner[0])

    def append(self, value: Any) -> None:
        """One more element."""
        super().append(self._element(value))

    def extend(self, values: Iterable[Any]) -> None:
        """More elements."""
        super().extend([self._element(v) for v in values])

    def insert(self, at: SupportsIndex, value: Any) -> None:
        """One more element at a place."""
        super().insert(at, self._element(value))

    def remove(self, value: Any) -> None:
        """Take the first equal element out; ValueError where there is none."""
        super().remove(self._element(value))

    def count(self, value: Any) -> int:
        """How many elements are equal to a value."""
        return super().count(self._element(value))

    def __contains__(self, value: object) -> bool:
        return super().__contains__(self._element(value))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, [self._element(v) for v in value] if isinstance(at, slice) else self._element(value))

    def __repr__(self) -> str:
        return text_of(list(self))


class ScriptDict(dict):
    """A dict whose keys and values have one type each; TypeError for others.  Without entries it holds tensors by strings."""

    def __init__(self, items: Any = ()) -> None:
        given = dict(items)
        self.item_type = type_of(given) if given else T.dict_of(T.STR, T.TENSOR)
        super().__init__(given)

    def _key(self, key: Any) -> Any:
        if not is_instance(key, [self.item_type.inner[0]]):
            raise KeyError(key)
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_checked(key, self.item_type.inner[0]), _checked(value, self.item_type.inner[1]))

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._key(key))

    def __repr__(self) -> str:
        return text_of(dict(self))
