"""Symbolic sizes of a recording's inputs: dims that vary are formulas from the first operator on.

Whatever computes with a size computes with its formula, and each decision that depends on one is a condition of the
`ShapeEnv` (see `_types.symbols`).  Who needs a plain number gets one, under the condition that it is that number: so
nothing depends on a size that is not known of.

>>> import rushlight as torch
>>> from rushlight._capture.recording import Recording
>>> from rushlight._capture.recording.dynamic.sizes import Sizes
>>> x, sizes = torch.ones(5, 3), Sizes()
>>> with Recording() as recording:
...     rows = recording.stand_in(x, layout=sizes.layout(x._spec, {0})).sum(1)
>>> rows._spec.shape[0] * 2, sizes.env.conditions()
(<2*n0>, [])
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

from rushlight._base.errors import PACKAGE
from rushlight._engine.dispatch.lower import NUMBERS
from rushlight._types.shape_env import LEAST, ShapeEnv
from rushlight._types.spec import Spec
from rushlight._types.symbols import Integer, Real

__all__ = ["MOST", "Sizes", "asked_by_operator", "looked_up_by_value", "symbolic_strides", "within_rooms"]

MOST = 1 << 40  # no condition has to say that less than this many elements have fewer than 2**63 bytes

_NUMBERS = (os.path.join("_types", "symbols.py"), os.path.join("_types", "shape_env.py"))
_ASKING = (
    *_NUMBERS,
    os.path.join("dynamic", "shape_env.py"),
    os.path.join("dynamic", "unbacked.py"),
    os.path.join("export", "_shapes.py"),
)
# Rooms whose tables have formulas as keys; for all others a size as a key is its value.
_FORMULAS = tuple(
    PACKAGE + room + os.sep
    for room in (
        "_engine", "_types", "_graph", "_prims", "_ops", "_transforms", "_schedule", "_codegen", "_backends", os.path.join("_capture", "recording"),
    )
)  # fmt: skip


def looked_up_by_value() -> bool:
    """Whether the code that hashes a size knows of no formulas: that of a user, or of the interpreter for it."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename.endswith(_NUMBERS):  # of the symbols themselves
        frame = frame.f_back
    return not within_rooms(frame.f_code.co_filename)


def within_rooms(file: str) -> bool:
    """Whether a file is that of an operator, or of what runs operators."""
    return file.startswith(_FORMULAS)


def asked_by_operator() -> bool:
    """Whether the code that compares sizes is that of an operator, or of what runs operators."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename.endswith(_ASKING):
        frame = frame.f_back
    return within_rooms(frame.f_code.co_filename)


# Operators take sizes where they take numbers that each call passes on.
_KINDS: dict[Any, Any] = NUMBERS
_KINDS[Integer], _KINDS[Real] = NUMBERS[int], NUMBERS[float]


class Sizes:
    """The symbols of a trace: equal sizes are one symbol, as in eager's shape classes."""

    __slots__ = ("_known", "env")

    def __init__(self) -> None:
        self.env = ShapeEnv(())
        self.env.by_value = looked_up_by_value
        self._known: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self.env.symbols)

    @property
    def values(self) -> tuple[int, ...]:
        """Present values of the symbols."""
        return self.env.sizes

    def symbol(self, size: int) -> Any:
        """The symbol for a size; sizes that are constants of kernels stay what they are, as enormous ones do."""
        if not LEAST <= size <= MOST:
            return size
        if size not in self._known:
            self._known[size] = self.add(size)
        return self._known[size]

    def symbol_of(self, size: int, source: str) -> Any:
        """The symbol for a size that comes from `source`: here the same for equal sizes."""
        return self.symbol(size)

    def add_number(self, value: int, source: str) -> Any:
        """The symbol for a number that comes from `source`, which no size shares; None where numbers like it are
        constants of kernels.
        """
        return self.add(value) if LEAST <= value <= MOST else None

    def add(self, size: int) -> Any:
        """A further symbol, whether a size of this value has one or not."""
        return self.env.symbol(size, MOST)

    def layout(self, spec: Spec, dims: Collection[int], source: str = "") -> Spec:
        """A spec with symbols for some of its dims; itself where there is nothing to vary."""
        shape = [self.symbol_of(n, f"{source}.size()[{d}]") if d in dims else n for d, n in enumerate(spec.shape)]
        if all(type(n) is int for n in shape):
            return spec
        strides = None if spec.plain else symbolic_strides(spec, shape)
        return Spec.of(spec.dtype, spec.device, shape, strides, spec.conj)


def symbolic_strides(spec: Spec, shape: Sequence[Any]) -> list[Any]:
    """Strides as formulas: that of a dim that begins where another ends is the product of the other's.  Whether it is
    for other sizes is seen there, by the layout that comes out.
    """
    strides: list[Any] = list(spec.strides)
    inner: list[int] = []
    for d in sorted(range(spec.ndim), key=lambda d: (spec.strides[d], spec.shape[d], -d)):
        for e in reversed(inner):
            if spec.shape[e] > 1 and spec.strides[e] * spec.shape[e] == spec.strides[d]:
                strides[d] = strides[e] * shape[e]
                break
        inner.append(d)
    return strides
