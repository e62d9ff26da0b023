"""Runs the steps of CUDA routines without a device: block kernels by the reference interpreter, host calls on its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rushlight._backends.cuda import library  # noqa: F401  (fills the table of routines)
from rushlight._backends.cuda.externs import EXTERNS, ExternCall
from rushlight._backends.cuda.program.steps import Constant, Launch, Memory, Operand, Step
from rushlight._codegen.blocks import BlockMemory, interpret, verify
from rushlight._codegen.blocks.memory import bits_of, numbers_of
from rushlight._prims import PRIMITIVES
from rushlight._types.dtype import BY_NAME, DType

__all__ = ["Device", "close", "primitive", "run_steps"]

JUNK = 0xA7  # what memory holds before anything is written


class Device:
    """Memory of the interpreter with an address for each `Memory`; `last` is the one that was made last, whose memory
    pretended libraries read and write.
    """

    last: Device

    def __init__(self) -> None:
        Device.last = self
        self.memory = BlockMemory()
        self.data: dict[Memory, Any] = {}
        self.addresses: dict[Memory, int] = {}

    def place(self, memory: Memory, data: Any) -> None:
        self.data[memory] = data
        self.addresses[memory] = self.memory.add(data)

    def address(self, memory: Memory) -> int:
        if memory not in self.addresses:
            given = memory.data if isinstance(memory, Constant) else bytes([JUNK]) * max(memory.nbytes, 1)
            self.place(memory, np.frombuffer(bytearray(given), np.uint8))
        return self.addresses[memory]

    def argument(self, given: Any) -> Any:
        if isinstance(given, Operand):
            return self.address(given.memory) + given.offset * given.dtype.itemsize
        return self.address(given) if isinstance(given, Memory) else given

    def run(self, steps: Sequence[Step], undefined: int = 0x55) -> None:
        for step in steps:
            arguments = [self.argument(a) for a in step.arguments]
            if not isinstance(step, Launch):
                step.function(0, *arguments)
                continue
            verify(step.kernel)
            interpret(step.kernel, step.grid, arguments, self.memory, undefined=undefined)


run_steps: Callable[..., None] = Device.run


def operand(device: Device, array: Any, dtype: DType, order: Sequence[int] | None, name: str) -> Operand:
    """An array in the memory of a device; its dims lie in `order`, the outermost first, by default row-major."""
    order = tuple(range(array.ndim)) if order is None else tuple(order)
    laid = array.transpose(order).copy("C")
    bits = np.ascontiguousarray(bits_of(laid, dtype)) if laid.size else np.zeros(0, np.uint8)
    memory = Memory(laid.size * dtype.itemsize, name)
    device.place(memory, bits.reshape(-1).view(np.uint8) if bits.size else np.zeros(1, np.uint8))
    strides = [0] * array.ndim
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= array.shape[d]
    return Operand(memory, dtype, array.shape, strides)


def primitive(
    name: str,
    arrays: Sequence[Any],
    params: Mapping[str, Any],
    *,
    dtypes: Sequence[DType | None] = (),
    orders: Mapping[int, Sequence[int]] | None = None,
    spreads: Mapping[int, Sequence[int]] | None = None,
    build: Callable[[ExternCall], Sequence[Step]] | None = None,
) -> list[Any]:
    """The results of a primitive's routine; `orders` says how operands lie, `spreads` to what shape some are broadcast."""
    device, orders = Device(), orders or {}
    given = [*dtypes, *[None] * (len(arrays) - len(dtypes))]
    types = [BY_NAME[a.dtype.name] if d is None else d for a, d in zip(arrays, given, strict=True)]
    inputs = [
        operand(device, a, d, orders.get(i), f"in{i}") for i, (a, d) in enumerate(zip(arrays, types, strict=True))
    ]
    for i, shape in (spreads or {}).items():
        x = inputs[i]
        x.strides = tuple(0 if size == 1 else step for size, step in zip(x.shape, x.strides, strict=True))
        x.shape = tuple(shape)
    specs = PRIMITIVES[name].spec(*inputs, **params)
    specs = specs if isinstance(specs, list) else [specs]
    outputs = [
        operand(
            device, np.zeros(shape, np.uint8 if dtype.numpy_name is None else dtype.numpy_name), dtype, None, f"out{i}"
        )
        for i, (shape, dtype) in enumerate(specs)
    ]
    for out in outputs:
        device.data[out.memory][...] = JUNK
    device.run((build or EXTERNS[name].build)(ExternCall(name, inputs, outputs, params)))
    results = []
    for out in outputs:
        count = int(np.prod(out.shape))
        raw = device.data[out.memory][: count * out.dtype.itemsize]
        results.append(np.array(numbers_of(raw, out.dtype)).reshape(out.shape))
    return results


_BOUNDS = {"float64": 1e-11, "complex128": 1e-11, "float32": 2e-5, "complex64": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}


def close(found: Any, expected: Any, dtype: str | None = None) -> None:
    """Equal but for rounding, measured against the largest number; integers are equal."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 1.0
    bound = _BOUNDS[dtype or expected.dtype.name]
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * max(scale, 1e-30))
