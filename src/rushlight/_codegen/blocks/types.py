"""Types of the block IR: tiles of numbers and of pointers.

>>> from rushlight._codegen.blocks.types import Pointer, Tile
>>> from rushlight._types.dtype import FLOAT32
>>> Tile(FLOAT32, (16, 64)), Tile(Pointer(FLOAT32))
(f32[16, 64], *f32)
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight._types.dtype import DType

__all__ = ["Element", "Pointer", "Tile"]


class Pointer(NamedTuple):
    """An address in the memory of the device, of numbers of a dtype."""

    to: DType

    def __repr__(self) -> str:
        return f"*{self.to.abbr}"


Element = DType | Pointer


class Tile(NamedTuple):
    """An array of a static shape; `()` is a scalar.  Sizes need not be powers of two here; Triton's front end asks for
    them.
    """

    element: Element
    shape: tuple[int, ...] = ()

    @property
    def dtype(self) -> DType:
        """The dtype of numbers; TypeError for pointers.  So a tile can be given to the rules of primitives."""
        if isinstance(self.element, Pointer):
            raise TypeError(f"{self!r} is a tile of pointers, which have no dtype")
        return self.element

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        product = 1
        for size in self.shape:
            product *= size
        return product

    def of(self, element: Element) -> Tile:
        """The same shape with other elements."""
        return Tile(element, self.shape)

    def __repr__(self) -> str:
        name = self.element.abbr if isinstance(self.element, DType) else repr(self.element)
        return f"{name}[{', '.join(map(str, self.shape))}]" if self.shape else name
