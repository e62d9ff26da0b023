"""Memory formats and layouts as named constants."""

from __future__ import annotations

from typing import Any

__all__ = ["FORMATS", "JAGGED", "SPARSE_LAYOUTS", "STRIDED", "Layout", "MemoryFormat"]


class MemoryFormat:
    """`torch.contiguous_format`, `torch.preserve_format`, `torch.channels_last`, `torch.channels_last_3d`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_format, (self.name,))


class Layout:
    """`torch.strided` and the sparse layouts."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_layout, (self.name,))


FORMATS = {n: MemoryFormat(n) for n in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")}
STRIDED, JAGGED = Layout("strided"), Layout("jagged")
SPARSE_LAYOUTS = {n: Layout(n) for n in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")}


def _format(name: str) -> MemoryFormat:
    return FORMATS[name]


def _layout(name: str) -> Layout:
    return JAGGED if name == "jagged" else SPARSE_LAYOUTS.get(name, STRIDED)
