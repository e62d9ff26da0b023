"""Specs: dtype, device, shape and strides as one interned value, compared by identity."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from rushlight._types.device import CPU, Device, as_device
from rushlight._types.dtype import DType
from rushlight._types.layout import LARGEST, Size, checked_strides, contiguous_strides, is_contiguous, numel, overflowed
from rushlight._types.symbols import as_index, env_of

__all__ = ["Spec", "bytes_on", "check_memory", "check_sizes"]


class Spec:
    """A tensor without its memory and offset.  Make one with `Spec.of`: equal specs are one object.

    `conj` means that the memory holds the complex conjugates of the elements: `x.conj()` is a view, and kernels
    conjugate on reads and writes.  For a real dtype it means that the memory holds the negatives: so are the imaginary
    parts of such a view.

    `released` means that there is no memory for the elements: the storage was made too small for the tensor, or the
    tensor is a wrapper, whose class says what operators do (`_make_wrapper_subclass`).  Views keep it; calls that read
    or write elements are refused when they are planned (`check_memory`).  Plans are found by their specs, so the calls
    of other tensors never check.
    """

    __slots__ = (
        "__weakref__",
        "conj",
        "contiguous",
        "device",
        "dtype",
        "nbytes",
        "ndim",
        "numel",
        "plain",
        "released",
        "shape",
        "strides",
    )

    dtype: DType
    device: Device
    shape: Size
    strides: tuple[int, ...]
    ndim: int
    numel: int
    nbytes: int
    contiguous: bool
    plain: bool  # the strides are those of a row-major tensor, even of dims of size 1
    conj: bool
    released: bool

    @staticmethod
    def of(
        dtype: DType,
        device: Device,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        conj: bool = False,
        released: bool = False,
    ) -> Spec:
        """The spec with these fields; strides default to row-major.  RuntimeError for a layout that `checked_strides`
        refuses."""
        shape = tuple(shape)
        if strides is not None:
            strides = tuple(strides)
        recent = (dtype, device, shape, strides, conj, released)
        known = _RECENT.get(recent)
        if known is not None:
            return known
        env = env_of(shape) or env_of(strides or ())
        if env is not None:
            shape = tuple([as_index(n) for n in shape])
            strides = None if strides is None else tuple([as_index(n) for n in strides])
            if env_of(shape) is None and env_of(strides or ()) is None:
                return Spec.of(dtype, device, shape, strides, conj, released)
            return _symbolic(env, (dtype, device, shape, strides, conj, released))
        rows = contiguous_strides(shape)
        count = numel(shape)
        requested, strides = strides, rows if strides is None else strides
        if shape and (
            min(shape) < 0 or min(strides) < 0 or max(shape) > _SMALL or max(strides) > _SMALL or count > LARGEST
        ):
            strides = checked_strides(shape, requested)
        released = released and count > 0  # without elements nothing is missing
        key = (dtype, device, shape, strides, conj, released)
        known = _TABLE.get(key)
        if known is None:
            known = Spec()
            known.dtype, known.shape, known.strides = dtype, Size(shape), strides
            known.device = _canonical(device)
            known.ndim, known.numel = len(shape), count
            known.nbytes = known.numel * dtype.itemsize
            known.plain = strides == rows
            known.contiguous = known.plain or is_contiguous(shape, strides)
            known.conj, known.released = conj, released
            _TABLE[key] = known
        if len(_RECENT) >= _MAX_RECENT:
            _RECENT.clear()
        _RECENT[recent] = known
        return known

    def __repr__(self) -> str:
        return (
            f"Spec({self.dtype.name}, {self.device}, {list(self.shape)}, strides={list(self.strides)}{self._flags()})"
        )

    def _flags(self) -> str:
        """The flags that are set, as `repr` shows them."""
        conj = (", conj" if self.dtype.is_complex else ", neg") if self.conj else ""
        return f"{conj}, released" if self.released else conj

    def conjugated(self) -> Spec:
        """The spec of the same memory read as the conjugates (of a real dtype: the negatives) of this one's elements."""
        return Spec.of(self.dtype, self.device, self.shape, self.strides, not self.conj, self.released)


def _canonical(device: Device) -> Device:
    """A device with an index is itself; while a program is recorded `as_device` gives what stands for it."""
    return device if device is CPU or isinstance(device, Device) and device.index is not None else as_device(device)


def _symbolic(env: Any, key: tuple[Any, ...]) -> Spec:
    """The spec of a layout with symbolic sizes: one object for equal formulas of the same sizes."""
    known: Spec | None = env.specs.get(key)
    if known is None:
        dtype, device, shape, strides, conj, released = key
        rows = contiguous_strides(shape)
        known = env.specs[key] = Spec()
        known.dtype, known.shape = dtype, Size(shape)
        known.device = _canonical(device)
        known.strides = rows if strides is None else strides
        known.ndim, known.numel = len(shape), numel(shape)
        known.nbytes = known.numel * dtype.itemsize
        known.plain = known.strides == rows
        known.contiguous = known.plain or is_contiguous(shape, known.strides)
        known.conj, known.released = conj, released
    return known


_SMALL = 1 << 31  # layouts with greater numbers are checked more closely
# Recent specs, under cheap keys: tensors come and go, and making a spec anew costs more than the tensor.
_MAX_RECENT = 2048
_RECENT: dict[tuple[DType, Device, tuple[int, ...], tuple[int, ...] | None, bool, bool], Spec] = {}
# Weak: otherwise a spec lives as long as a tensor or a plan that uses it.
_TABLE: weakref.WeakValueDictionary[tuple[DType, Device, tuple[int, ...], tuple[int, ...], bool, bool], Spec] = (
    weakref.WeakValueDictionary()
)


def check_memory(*specs: Spec | None) -> None:
    """RuntimeError if a spec is that of a tensor without memory for its elements (`released`)."""
    for spec in specs:
        if spec is not None and spec.released:
            raise RuntimeError(
                "The tensor has a non-zero number of elements, but its data is not allocated: either its storage was resized to fewer bytes than a tensor of "
                f"shape {list(spec.shape)}, strides {list(spec.strides)} and dtype {spec.dtype} reaches (resize the storage before its elements are used), or "
                "it is a fake tensor or another wrapper, which only functions that ask its class take (call the public function, not its body)"
            )


def check_sizes(*specs: Spec | None) -> None:
    """RuntimeError if a spec has more bytes than 64 bits can count."""
    for spec in specs:
        if spec is not None and spec.nbytes >= 1 << 63:
            raise RuntimeError(
                f"Storage size calculation overflowed with sizes={list(spec.shape)}: {spec.numel} elements of {spec.dtype} have {spec.nbytes} bytes"
            )


def bytes_on(spec: Spec, offset: int) -> int:
    """The offset in bytes of a view with this spec; RuntimeError if that of an empty one is beyond 63 bits."""
    step = offset * spec.dtype.itemsize
    if not -_FARTHEST <= step <= _FARTHEST:
        raise RuntimeError(f"{overflowed(spec.shape, spec.strides)}: it would begin {offset} elements on")
    return step


_FARTHEST = 1 << 62
