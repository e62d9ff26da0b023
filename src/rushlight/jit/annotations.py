"""Types that only annotations use, as `torch.jit.annotations`."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  # older packages take these from here

__all__ = [
    "Any",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Dict",
    "List",
    "Optional",
    "Tuple",
    "Union",
]


class _BroadcastingList:
    """`BroadcastingList2[int]`: a list of two numbers, for which one number may stand."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, kind: Any) -> Any:
        return list[kind]

    def __repr__(self) -> str:
        return self._name


BroadcastingList1 = _BroadcastingList("BroadcastingList1")
BroadcastingList2 = _BroadcastingList("BroadcastingList2")
BroadcastingList3 = _BroadcastingList("BroadcastingList3")
