"""Capabilities of the namespace, in the form in which programs ask for them."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import dtype
from rushlight.array_api.dtypes import KINDS, default_complex, default_integer, isdtype

__all__ = ["__array_namespace_info__"]

_NAMES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


class Info:
    """Capabilities, devices and dtypes of `rushlight.array_api`."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks as indices, shapes that depend on data, and the largest number of dims."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new arrays."""
        return rushlight.get_default_device()

    def devices(self) -> list[Any]:
        """The devices that arrays can be on."""
        found = [rushlight.device("cpu")]
        if rushlight.cuda.is_available():
            found += [rushlight.device("cuda", i) for i in range(rushlight.cuda.device_count())]
        return found

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        """The dtypes of new arrays by kind of content."""
        return {
            "real floating": rushlight.get_default_dtype(),
            "complex floating": default_complex(),
            "integral": default_integer(),
            "indexing": rushlight.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, dtype]:
        """The standard's dtypes by name, all or those of a kind (a string, or a tuple of strings)."""
        kind = tuple(KINDS) if kind is None else kind
        known = {name: getattr(rushlight, name) for name in _NAMES}
        return {name: one for name, one in known.items() if isdtype(one, kind)}


def __array_namespace_info__() -> Info:
    """The object that tells what this namespace can do.

    >>> import rushlight.array_api as xp
    >>> xp.__array_namespace_info__().default_dtypes()["integral"]
    torch.int64
    """
    return Info()
