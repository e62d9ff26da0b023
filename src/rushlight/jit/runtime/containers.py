"""Lists and dicts with a type, as `torch.jit.script([...])` gives them."""

from __future__ import annotations

from typing import Any

from rushlight.jit.frontend.inference import type_of

__all__ = ["ScriptDict", "ScriptList"]


class ScriptList(list):
    """A list whose elements have one type."""

    def __init__(self, items: Any) -> None:
        self.element_type = type_of(list(items))
        super().__init__(items)

    def __repr__(self) -> str:
        return list.__repr__(self)


class ScriptDict(dict):
    """A dict whose keys and values have one type each."""

    def __init__(self, items: Any) -> None:
        self.item_type = type_of(dict(items))
        super().__init__(items)
