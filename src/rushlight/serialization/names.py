"""Which name in a file stands for which object here. Files carry PyTorch's names; real PyTorch is never imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import rushlight
from rushlight._engine.quantized import SCHEMES
from rushlight.serialization import rebuild
from rushlight.serialization.memory import BY_NAME, DType

__all__ = ["StorageType", "find_torch_global", "torch_global", "tensor_globals"]


class StorageType:
    """Stands for `torch.FloatStorage` and its kin: a name that gives a storage its dtype."""

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, dtype: DType) -> None:
        self.name = name
        self.dtype = dtype


_STORAGE_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QUInt8Storage": "quint8",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
}
STORAGE_TYPES = {name: StorageType(name, BY_NAME[dtype]) for name, dtype in _STORAGE_DTYPES.items()}
STORAGE_TYPE_OF = {kind.dtype: kind for kind in STORAGE_TYPES.values()}
UNTYPED = StorageType("UntypedStorage", BY_NAME["uint8"])

_REBUILDERS = {
    "_rebuild_parameter": rebuild.rebuild_parameter,
    "_rebuild_qtensor": rebuild.rebuild_qtensor,
    "_rebuild_parameter_with_state": rebuild.rebuild_parameter_with_state,
    "_rebuild_sparse_tensor": rebuild.rebuild_sparse_tensor,
    "_rebuild_tensor": rebuild.rebuild_tensor,
    "_rebuild_tensor_v2": rebuild.rebuild_tensor_v2,
    "_rebuild_tensor_v3": rebuild.rebuild_tensor_v3,
    "_rebuild_meta_tensor_no_storage": rebuild.rebuild_meta_tensor_no_storage,
}


def tensor_globals() -> dict[str, Any]:
    """Every name that a file of tensors may use, with what it stands for."""
    found: dict[str, Any] = {f"torch._utils.{name}": function for name, function in _REBUILDERS.items()}
    found["torch._tensor._rebuild_from_type_v2"] = rebuild.rebuild_from_type_v2
    found["torch.serialization._get_layout"] = rebuild.get_layout
    found.update({f"torch.{name}": kind for name, kind in STORAGE_TYPES.items()})
    found["torch.storage.UntypedStorage"] = found["torch.UntypedStorage"] = UNTYPED
    found.update({f"torch.{name}": dtype for name, dtype in BY_NAME.items()})
    found.update({f"torch.{name}": scheme for name, scheme in SCHEMES.items()})
    found["torch.Size"] = rushlight.Size
    found["torch.device"] = rushlight.device
    found["torch.Tensor"] = rushlight.Tensor
    found["torch.nn.parameter.Parameter"] = rushlight.nn.Parameter
    return found


# ***** from objects to names *****

def torch_global(obj: Any) -> tuple[str, str] | None:
    """The (module, name) under which PyTorch knows `obj`, or None for what is not ours."""
    if isinstance(obj, DType):
        return "torch", repr(obj).removeprefix("torch.")
    if isinstance(obj, StorageType):
        return ("torch.storage" if obj is UNTYPED else "torch"), obj.name
    known = _known_names().get(id(obj))
    if known is not None:
        module, _, name = known.rpartition(".")
        return module, name
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or not (module == "rushlight" or module.startswith("rushlight.")):
        return None
    qualname = obj.__qualname__
    return "torch" + module[len("rushlight") :], qualname


_names: dict[int, str] = {}


def _known_names() -> dict[int, str]:
    if not _names:
        _names.update({id(value): name for name, value in tensor_globals().items()})
    return _names


# ***** from names to objects (only when the user trusts the file) *****


def find_torch_global(module: str, name: str) -> Any:
    """What `module.name` of PyTorch is here; `AttributeError` or `ModuleNotFoundError` if we lack it."""
    known = tensor_globals().get(f"{module}.{name}")
    if known is not None:
        return known
    if module.startswith("torch.nn.modules."):
        value: Any = rushlight.nn.modules
    else:
        value = import_module("rushlight" + module[len("torch") :])
    for part in name.split("."):
        value = getattr(value, part)
    return value
