"""`torch.fx.tensor_type`: types of tensors by their sizes, for gradual typing.

>>> is_consistent(TensorType((1, Dyn, 3)), TensorType((1, 2, 3))), is_more_precise(Dyn, int)
(True, False)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """A tensor with sizes `dim`, each a number or `Dyn`; also written `TensorType[1, 2, Dyn]`."""

    def __init__(self, dim: Sequence[Any]) -> None:
        self.__origin__, self.__args__ = TensorType, dim

    @property
    def dims(self) -> Sequence[Any]:
        """The sizes."""
        return self.__args__

    def __repr__(self) -> str:
        return f"TensorType[{self.dims}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and list(self.dims) == list(other.dims)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        return TensorType(args[0] if len(args) == 1 and isinstance(args[0], tuple) else args)


class _DynType:
    """The type of what may have any type."""

    __name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Dyn"


Dyn = _DynType()


def _sizes_agree(one: Any, other: Any, agree: Any) -> bool:
    return (
        isinstance(one, TensorType)
        and isinstance(other, TensorType)
        and len(one.dims) == len(other.dims)
        and all(agree(a, b) for a, b in zip(one.dims, other.dims, strict=True))
    )


def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether two types may be of one value: equal where neither is `Dyn`.  Symmetric, not transitive."""
    return t1 == t2 or t1 == Dyn or t2 == Dyn or _sizes_agree(t1, t2, is_consistent)


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether `t1` says at least as much as `t2`."""
    return t1 == t2 or t2 == Dyn or _sizes_agree(t1, t2, is_more_precise)
