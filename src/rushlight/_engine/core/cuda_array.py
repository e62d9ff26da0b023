"""Arrays of other libraries on GPUs, by `__cuda_array_interface__` (Numba's, CuPy's, PyTorch's)."""

from __future__ import annotations

from typing import Any

from rushlight._backends.protocol import ForeignBlock
from rushlight._backends.registry import backend_of
from rushlight._engine.core.memory import from_address
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import Device
from rushlight._types.dtype import BY_NAME
from rushlight._types.layout import contiguous_strides, extent
from rushlight._types.spec import Spec

__all__ = ["shared"]

_KINDS = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


def shared(array: Any) -> Tensor:
    """A tensor over the memory of what has the interface; it keeps the array alive."""
    shown = array.__cuda_array_interface__
    backend = backend_of(Device("cuda", 0))
    if shown.get("mask") is not None:
        raise TypeError("a masked array cannot be shown as a tensor")
    code, shape = shown["typestr"], tuple(shown["shape"])
    size = int(code[2:])
    dtype = BY_NAME.get("bool" if code[1] == "b" else f"{_KINDS.get(code[1], '?')}{8 * size}")
    if dtype is None or code[0] == ">":
        raise TypeError(f"rushlight has no dtype for elements {code!r}")
    given = shown.get("strides")
    if given is not None and any(s % size or s < 0 for s in given):
        raise ValueError("strides must be multiples of the size of an element, and not negative")
    strides = contiguous_strides(shape) if given is None else tuple(s // size for s in given)
    address = shown["data"][0]
    device = Device("cuda", backend.device_at(address) if address else backend.current_device())
    stream = shown.get("stream")
    if stream:
        backend.external_stream(0 if stream == 1 else stream, device).synchronize()
    nbytes = extent(shape, strides) * size if 0 not in shape else 0
    block = ForeignBlock(address, nbytes, device, array)
    return from_address(address, Spec.of(dtype, device, shape, strides), nbytes, block)
