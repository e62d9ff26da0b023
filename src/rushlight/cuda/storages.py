"""The older storages of GPUs with a dtype: `torch.cuda.FloatStorage(3)` is `torch.FloatStorage` on the current GPU."""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight._interface.memory import TYPED_STORAGES
from rushlight.cuda.access import device_of, gpu
from rushlight.storage import TypedStorage

__all__ = [
    "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "ComplexDoubleStorage", "ComplexFloatStorage", "DoubleStorage", "FloatStorage",
    "HalfStorage", "IntStorage", "LongStorage", "ShortStorage",
]  # fmt: skip


class _OfGpu(type):
    """The storages of a dtype that are on a GPU are of the class."""

    dtype: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return bool(getattr(instance, "is_cuda", False)) and getattr(instance, "dtype", None) is cls.dtype


def _storage_class(name: str) -> Any:
    plain = TYPED_STORAGES[name]

    def make(cls: Any, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None) -> Any:
        gpu(name)
        place = device_of(device)
        if args and not isinstance(args[0], int):
            return plain(*args).cuda(place)
        if wrap_storage is not None:
            return plain(*args, wrap_storage=wrap_storage)
        return TypedStorage(*args, dtype=plain.__dict__["dtype"], device=place)

    def from_buffer(*args: Any, **kwargs: Any) -> NoReturn:
        """RuntimeError: a GPU shows no buffer of the host."""
        raise RuntimeError("from_buffer: Not available for CUDA storage")

    space = {
        "__new__": make, "dtype": plain.__dict__["dtype"], "from_buffer": staticmethod(from_buffer), "__module__": "torch.cuda", "__slots__": (),
        "__doc__": f"A storage of {plain.__dict__['dtype']} elements on a GPU.",
    }  # fmt: skip
    return _OfGpu(name, (), space)


BFloat16Storage = _storage_class("BFloat16Storage")
BoolStorage = _storage_class("BoolStorage")
ByteStorage = _storage_class("ByteStorage")
CharStorage = _storage_class("CharStorage")
ComplexDoubleStorage = _storage_class("ComplexDoubleStorage")
ComplexFloatStorage = _storage_class("ComplexFloatStorage")
DoubleStorage = _storage_class("DoubleStorage")
FloatStorage = _storage_class("FloatStorage")
HalfStorage = _storage_class("HalfStorage")
IntStorage = _storage_class("IntStorage")
LongStorage = _storage_class("LongStorage")
ShortStorage = _storage_class("ShortStorage")
