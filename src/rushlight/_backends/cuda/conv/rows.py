"""The dims of convolutions: positions, taps and elements of images, and rows of products that positions of all images are.

Rows are image by image, or position by position where images are neighbours in memory, as they are in the gradient by
weights over channels-last images: there an image is a channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.program.steps import Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.layout import numel

__all__ = ["Geometry", "Rows", "digits", "images_are_inner", "sizes_of"]

Ints = tuple[int, ...]
_NEIGHBOURS = 16  # images side by side in memory, from which on a tile's rows are neighbours there


class Geometry(NamedTuple):
    """How positions, taps and elements of an image belong together: along each dim the element of position p and tap k is
    (p stride + k dilation - lo) / spread, if that is whole and inside.
    """

    kernel: Ints
    stride: Ints
    spread: Ints
    dilation: Ints
    lo: Ints
    size: Ints
    flip: bool

    @property
    def taps(self) -> int:
        return numel(self.kernel)

    @property
    def positions(self) -> int:
        return numel(self.size)


def digits(b: TermBuilder, number: Term, sizes: Sequence[Any]) -> list[Term]:
    """The indices of a row-major number; sizes are numbers or terms, of which the first is not needed."""
    found: list[Term] = []
    for size in reversed(sizes[1:]):
        if isinstance(size, int) and size == 1:
            found.append(b.number(0, number.dtype, number.shape))
            continue
        found.append(number % size)
        number = number // size
    return [number, *reversed(found)]


def images_are_inner(x: Operand) -> bool:
    """Whether rows go position by position."""
    return x.strides[0] == 1 and x.strides[2] != 1 and x.shape[0] >= _NEIGHBOURS


class Rows:
    """The sizes of a result [N, G, O, *size] among the parameters of a kernel, by which a row is an image and a position."""

    def __init__(self, arguments: Arguments, images: int, size: Ints, images_inner: bool, of: str = "") -> None:
        self.arguments, self.images_inner = arguments, images_inner
        self.images = arguments.integer(images, f"{of}images") if images_inner else 0
        self.size = [arguments.integer(n, f"{of}size{d}") for d, n in enumerate(size)]

    def split(self, b: TermBuilder, rows: Term) -> tuple[Term, list[Term]]:
        """The image and the position."""
        sizes = sizes_of(b, self.arguments, self.size)
        if not self.images_inner:
            image, *place = digits(b, rows, [0, *sizes])
            return image, place
        *place, image = digits(b, rows, [*sizes, *sizes_of(b, self.arguments, [self.images])])
        return image, place

    def in_order(self, b: TermBuilder, rows: Term) -> Term:
        """The number of a row, if rows went image by image."""
        number, place = self.split(b, rows)
        for n, digit in zip(sizes_of(b, self.arguments, self.size), place, strict=True):
            number = number * n + digit
        return number


def sizes_of(b: TermBuilder, arguments: Arguments, which: Sequence[int | tuple[int]]) -> list[Any]:
    """Terms of parameters, and numbers."""
    return [n[0] if isinstance(n, tuple) else arguments.term(b, n) for n in which]
