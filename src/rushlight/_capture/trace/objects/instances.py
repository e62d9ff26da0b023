"""The dictionary of an object from outside, as a traced function sees it."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rushlight._capture.trace.outside import ABSENT

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["DELETED", "InstanceDict", "name_in_dict"]

DELETED: Any = types.SimpleNamespace(name="deleted")
"""Marker of a deleted attribute among pending writes."""


class InstanceDict:
    """`x.__dict__` of an object from outside: reads and writes go the way of attributes."""

    __slots__ = ("owner", "tracer")

    def __init__(self, tracer: Tracer, owner: Any) -> None:
        self.tracer, self.owner = tracer, owner

    def __getitem__(self, name: str) -> Any:
        found = self.tracer.instance_attribute(self.owner, name)
        if found is ABSENT:
            raise KeyError(name)
        return self.tracer.real(found)

    def get(self, name: str, default: Any = None) -> Any:
        """As `dict.get`."""
        found = self.tracer.instance_attribute(self.owner, name)
        return default if found is ABSENT else self.tracer.real(found)

    def __contains__(self, name: str) -> bool:
        return self.tracer.instance_attribute(self.owner, name) is not ABSENT

    def __setitem__(self, name: str, value: Any) -> None:
        self.tracer.write_attribute(self.owner, name, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        self.tracer.write_attribute(self.owner, name, DELETED)

    def pop(self, name: str, *default: Any) -> Any:
        """As `dict.pop`."""
        found = self.tracer.instance_attribute(self.owner, name)
        if found is ABSENT:
            if not default:
                raise KeyError(name)
            return default[0]
        found = self.tracer.real(found)
        self.tracer.write_attribute(self.owner, name, DELETED)
        return found

    def setdefault(self, name: str, default: Any = None) -> Any:
        """As `dict.setdefault`."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *others: Any, **named: Any) -> None:
        """As `dict.update`."""
        for name, value in dict(*[self.tracer.real(other) for other in others], **named).items():
            self[name] = value

    def clear(self) -> None:
        """As `dict.clear`."""
        for name in self.names():
            del self[name]

    def copy(self) -> dict[str, Any]:
        """As `dict.copy`."""
        return dict(self.items())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """The names, in order."""
        return self.tracer.instance_names(self.owner)

    keys = names

    def items(self) -> list[tuple[str, Any]]:
        """Names and values."""
        return [(name, self[name]) for name in self.names()]

    def values(self) -> list[Any]:
        """Values."""
        return [self[name] for name in self.names()]

    def __len__(self) -> int:
        return len(self.names())


def name_in_dict(function: Any) -> str | None:
    """The name of the method of dictionaries in whose place a method of `InstanceDict` is; None for other functions."""
    return _NAMES.get(function) if isinstance(function, types.FunctionType) else None


_NAMES: dict[Any, str] = {
    found: name for name, found in vars(InstanceDict).items() if isinstance(found, types.FunctionType)
}
_NAMES[InstanceDict.names] = "keys"
