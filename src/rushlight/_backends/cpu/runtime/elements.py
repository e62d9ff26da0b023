"""The CPU as native plans know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.runtime.elements_native import NESTED, NUMBER_CODES
from rushlight._host.device_records import NativeDevice
from rushlight._host.plans.plan_records import packed

if TYPE_CHECKING:
    from rushlight._types.spec import Spec

__all__ = ["CpuElements"]


class CpuElements(NativeDevice):
    """Readers and writers of elements, over the native functions of a loaded runtime."""

    def __init__(self, functions: int, readers: Mapping[str, int], runtime: Any) -> None:
        self.functions, self.readers, self.codes = functions, readers, NUMBER_CODES
        self._nested = runtime.nested
        self.of_numbers, self.coordinates = runtime.of_numbers, runtime.coordinates  # type: ignore[method-assign]

    def nested_reader(self, spec: Spec) -> Callable[[int], Any] | None:
        """As declared there; the rarer dtypes, conjugates and tensors without dims have no reader."""
        code = NUMBER_CODES.get(spec.dtype.name)
        if code is None or spec.conj or not spec.ndim:
            return None
        size, nested = spec.dtype.itemsize, self._nested
        dims = [
            w
            for n, s in zip(spec.shape, spec.strides, strict=True)
            for w in (n, s * size if n > 1 and spec.numel else 0)
        ]
        layout, _ = packed(NESTED, {"ndim": spec.ndim, "code": code, "dims": dims})
        where = layout.buffer_info()[0]

        def read(address: int, _held: Any = layout) -> Any:
            return nested(address, where)

        return read
