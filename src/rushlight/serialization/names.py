"""Which name in a file stands for which object here. Files carry PyTorch's names; real PyTorch is never imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import rushlight
from rushlight import sparse
from rushlight._interface.files import SCHEMES
from rushlight._interface.memory import TYPED_STORAGES
from rushlight.serialization import rebuild
from rushlight.serialization.memory import BY_NAME, DType
from rushlight.storage import TypedStorage, UntypedStorage

__all__ = [
    "StorageType",
    "find_torch_global",
    "normalize_storage_type",
    "storage_to_tensor_type",
    "tensor_globals",
    "torch_global",
]


class StorageType:
    """`torch.FloatStorage` and its kin in a file: a name that gives a storage its dtype.

    >>> import rushlight as torch
    >>> torch.serialization.StorageType("HalfStorage").dtype
    torch.float16
    """

    __slots__ = ("_dtype", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._dtype: DType = TYPED_STORAGES[name].dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return StorageType, (self._name,)

    @property
    def dtype(self) -> DType:
        """The dtype of the storage's elements."""
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


STORAGE_TYPES = {name: StorageType(name) for name in TYPED_STORAGES}

REBUILDERS = (*rebuild.BY_NAME.values(), rebuild.rebuild_from_type_v2, rebuild.rebuild_njt)
# Tensor classes by dtype, which files of the first years name.
_OLD_NAMES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
OLD_TENSORS = tuple(getattr(rushlight, f"{name}Tensor") for name in _OLD_NAMES)


def tensor_globals() -> dict[str, Any]:
    """Every name that a file of tensors may use, with what it stands for."""
    if _globals:
        return _globals
    found = _globals
    found.update({f"torch._utils.{name}": function for name, function in rebuild.BY_NAME.items()})
    found["torch._tensor._rebuild_from_type_v2"] = rebuild.rebuild_from_type_v2
    found["torch.nested._internal.nested_tensor._rebuild_njt"] = rebuild.rebuild_njt
    found["torch.nested._internal.nested_tensor.NestedTensor"] = rebuild.JaggedType
    found["torch._dynamo.decorators._DimRange"] = rebuild.DimRange
    found["torch.serialization._get_layout"] = rebuild.get_layout
    for page in ("torch", "torch.cuda"):  # older files name the device in the type, all name it beside the storage
        found.update({f"{page}.{name}": kind for name, kind in STORAGE_TYPES.items()})
        found.update({f"{page}.{name}Tensor": cls for name, cls in zip(_OLD_NAMES, OLD_TENSORS, strict=True)})
        found.update(
            {f"{page}.sparse.{name}Tensor": getattr(sparse, f"{name}Tensor") for name in _OLD_NAMES if name != "Bool"}
        )
    found["torch.storage.TypedStorage"] = found["torch.TypedStorage"] = TypedStorage
    found["torch.UntypedStorage"] = found["torch.storage.UntypedStorage"] = UntypedStorage
    found.update({f"torch.{name}": dtype for name, dtype in BY_NAME.items()})
    found.update({f"torch.{name}": scheme for name, scheme in SCHEMES.items()})
    found["torch.Size"] = rushlight.Size
    found["torch.device"] = rushlight.device
    found["torch.Tensor"] = rushlight.Tensor
    found["torch.nn.parameter.Parameter"] = rushlight.nn.Parameter
    return found


_globals: dict[str, Any] = {}

# ***** from objects to names *****

# Where PyTorch has what lies elsewhere here.
_ELSEWHERE = {
    "torch.amp.autocast_mode.autocast": "rushlight.amp.autocast",
    "torch.amp.grad_scaler.GradScaler": "rushlight.amp.GradScaler",
    "torch.nn.attention.flex_attention.BlockMask": "rushlight.nn.attention.flex_attention.BlockMask",
    "torch.nn.attention.flex_attention.noop_mask": "rushlight.nn.attention.flex_attention.noop_mask",
    "torch.nn.modules.loss.LinearCrossEntropyLoss": "rushlight.nn.LinearCrossEntropyLoss",
    "torch.sparse.check_sparse_tensor_invariants": "rushlight.sparse.check_sparse_tensor_invariants",
    "torch.optim.Adafactor": "rushlight.optim.Adafactor",
    "torch.optim.Muon": "rushlight.optim.Muon",
    "torch.optim.adamw.AdamW": "rushlight.optim.AdamW",
    "torch.utils.hooks.RemovableHandle": "rushlight.utils.hooks.RemovableHandle",
    "torch.utils.data._utils.collate.default_collate": "rushlight.utils.data.default_collate",
    "torch.utils.data._utils.collate.default_convert": "rushlight.utils.data.default_convert",
    "torch.utils.data._utils.worker.get_worker_info": "rushlight.utils.data.get_worker_info",
}
# Pages on which functions are public that are written elsewhere here.
_FUNCTION_PAGES = ("nn.functional", "", "autograd.graph", "sparse", "special", "linalg", "fft")


def _at(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def torch_global(obj: Any) -> tuple[str, str] | None:
    """The (module, name) under which PyTorch knows `obj`, or None for what is not ours."""
    if isinstance(obj, DType):
        return "torch", repr(obj).removeprefix("torch.")
    known = _known_names().get(id(obj))
    if known is not None:
        module, _, name = known.rpartition(".")
        return module, name
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str) or not (module == "rushlight" or module.startswith("rushlight.")):
        return None
    qualname = obj.__qualname__
    for theirs, ours in _ELSEWHERE.items():
        if ours.endswith(f".{qualname}") and _at(ours) is obj:
            place, _, name = theirs.rpartition(".")
            return place, name
    if not isinstance(obj, type) or any(part.startswith("_") for part in module.split(".")):
        name = qualname.removeprefix("functional_")
        for page in _FUNCTION_PAGES:
            if getattr(import_module(f"rushlight.{page}".rstrip(".")), name, None) is obj:
                return f"torch.{page}".rstrip("."), name
    return "torch" + module[len("rushlight") :], qualname


_names: dict[int, str] = {}


def _known_names() -> dict[int, str]:
    if not _names:
        _names.update(
            {id(value): name for name, value in tensor_globals().items() if not isinstance(value, StorageType)}
        )
        _names.update({id(cls): f"torch.{name}" for name, cls in TYPED_STORAGES.items()})
    return _names


# ***** from names to objects (only when the user trusts the file) *****


def find_torch_global(module: str, name: str) -> Any:
    """The object here for `module.name` of PyTorch; `AttributeError` or `ModuleNotFoundError` if we lack it."""
    full = f"{module}.{name}"
    known = tensor_globals().get(full)
    if known is not None:
        return known
    if full in _ELSEWHERE:
        return _at(_ELSEWHERE[full])
    # PyTorch's compiled functions are pickled as attributes of these.
    if full == "torch._C._VariableFunctionsClass":
        return rushlight
    if module == "torch._C._nn":
        module = "torch.nn.functional"
    ours = "rushlight" + module[len("torch") :]
    while True:
        try:
            value: Any = import_module(ours)
            for part in name.split("."):
                value = getattr(value, part)
            return value
        except (AttributeError, ModuleNotFoundError):
            # A package shows what PyTorch keeps in a module of it: rushlight.nn.modules has
            # torch.nn.modules.linear.Linear.
            package = ours.rpartition(".")[0]
            if package in ("", "rushlight"):
                raise
            ours = package


def normalize_storage_type(storage_type: type) -> Any:
    """The class of storages that is public under the name of `storage_type`."""
    return getattr(rushlight, storage_type.__name__)


def storage_to_tensor_type(storage: Any) -> Any:
    """The class of tensors that goes with a storage's class (`torch.FloatTensor` with `torch.FloatStorage`)."""
    name = storage.pickle_storage_type() if isinstance(storage, TypedStorage) else type(storage).__name__
    return getattr(rushlight, name.replace("Storage", "Tensor"))
