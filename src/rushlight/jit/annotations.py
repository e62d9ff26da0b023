"""Types that only annotations use, as `torch.jit.annotations`."""

from __future__ import annotations

import typing
from typing import Any, Optional, Union

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union"]


Dict, List, Tuple = typing.Dict, typing.List, typing.Tuple  # noqa: UP006  # older packages take these from here


class _BroadcastingList:
    """`BroadcastingList2[int]`: a list of two numbers, for which one number may stand."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, kind: Any) -> Any:
        return list[kind]

    def __repr__(self) -> str:
        return self._name


BroadcastingList1, BroadcastingList2, BroadcastingList3 = (_BroadcastingList(f"BroadcastingList{n}") for n in (1, 2, 3))
