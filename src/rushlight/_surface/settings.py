"""Settings of the process: threads, printing, default dtype and device, deterministic mode; and facts about numbers."""

from __future__ import annotations

import math
import warnings
from typing import Any, NoReturn

from rushlight._backends.precision import DETERMINISTIC, FP32_PRECISION, LIBRARIES
from rushlight._base.errors import MissingDeviceError, MissingTypeError
from rushlight._base.knobs import on_planned
from rushlight._base.lazy import LazyModule
from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core import dlpack, printing, storage
from rushlight._engine.core.convert import detach
from rushlight._engine.core.creation import as_shape, python_dtype
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import clear_plans
from rushlight._engine.core.tensor import Tensor, plain_classes
from rushlight._engine.dispatch import determinism
from rushlight._engine.dispatch.override import as_subclass
from rushlight._surface.casts import TYPE_NAMES
from rushlight._surface.registry import SPACES
from rushlight._types.device import CPU, Device, as_device, on_default_device
from rushlight._types.device import set_default_device as choose_device
from rushlight._types.dtype import BY_NAME, DTYPES, DType
from rushlight._types.layout import Size
from rushlight._types.promotion import default_dtype

__all__ = ["FP32_PRECISION", "LIBRARIES", "finfo", "iinfo"]

_TORCH = SPACES["torch"]
on_default_device(clear_plans)
on_planned(clear_plans)


def public(function: Any) -> Any:
    """A plain function of the package."""
    _TORCH[function.__name__] = function
    return function


_threads = LazyModule("rushlight._backends.cpu.runtime.threads")


@public
@changes_later_calls
def set_num_threads(num: int) -> None:
    """How many threads kernels use."""
    if not isinstance(num, int):
        raise TypeError(f"set_num_threads expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    _threads.set_num_threads(num)


@public
def get_num_threads() -> int:
    """How many threads kernels use."""
    return _threads.get_num_threads()


_INTEROP = [1]


@public
def get_num_interop_threads() -> int:
    """Operators run one after another here, so this setting is kept but has no effect."""
    return _INTEROP[0]


@public
@changes_later_calls
def set_num_interop_threads(num: int) -> None:
    """Operators run one after another here, so this setting is kept but has no effect."""
    if not isinstance(num, int):
        raise RuntimeError(f"set_num_interop_threads expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _INTEROP[0] = num


_TORCH["set_printoptions"] = printing.set_printoptions
_TORCH["from_dlpack"] = dlpack.from_dlpack
_TORCH["to_dlpack"] = dlpack.to_dlpack
_TORCH["UntypedStorage"] = storage.UntypedStorage
_TORCH["TypedStorage"] = storage.TypedStorage
for _name, _class in storage.TYPED_STORAGES.items():
    _TORCH[_name] = _class
_TORCH["Storage"] = storage.TYPED_STORAGES["FloatStorage"]


@public
@changes_later_calls
def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that are the same on every run.

    Every kernel here gives them anyway.  As in PyTorch `torch.empty` and its like are filled meanwhile (see
    `torch.utils.deterministic.fill_uninitialized_memory`), and the few operators whose result PyTorch leaves open raise
    RuntimeError, or warn with `warn_only`: `put_` without `accumulate`, and max unpooling.
    """
    for name, value, place in (("mode", mode, " (position 1)"), ("warn_only", warn_only, "")):
        if not isinstance(value, bool):
            raise TypeError(
                f"_set_deterministic_algorithms(): argument '{name}'{place} must be bool, not {type(value).__name__}"
            )
    determinism.MODE.on, determinism.MODE.warns = mode, warn_only
    DETERMINISTIC[0] = mode
    clear_plans()  # plans that allocate leave new memory as it is


@public
def are_deterministic_algorithms_enabled() -> bool:
    """The last setting of `use_deterministic_algorithms`."""
    return determinism.MODE.on


@public
def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The last setting of `use_deterministic_algorithms`."""
    return determinism.MODE.warns


@public
def get_default_device() -> Any:
    """Where factories make tensors."""
    return as_device(None)


@public
@changes_later_calls
def set_default_device(device: Any) -> None:
    """Let factories make tensors on this device: the CPU (also for None), a GPU, or `meta`, where they have shapes alone.

    "cuda" without a number is the current GPU, also when `torch.cuda.set_device` makes that another one later.

    >>> import rushlight as torch
    >>> with torch.device("meta"):
    ...     torch.ones(2).device
    device(type='meta')
    """
    choose_device(device)


@public
@changes_later_calls
def set_float32_matmul_precision(precision: str) -> None:
    """float32 products are computed in float32 whatever is allowed here; the setting is remembered."""
    if not isinstance(precision, str):
        raise RuntimeError(f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}")
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the call has no effect",
            UserWarning,
            stacklevel=2,
        )
        return
    FP32_PRECISION.matmul = precision
    word = {"highest": "ieee", "high": "tf32", "medium": "bf16"}[precision]
    FP32_PRECISION["mkldnn", "matmul"] = word
    FP32_PRECISION["cuda", "matmul"] = "tf32" if word == "bf16" else word


@public
def get_float32_matmul_precision() -> str:
    """The last setting of `set_float32_matmul_precision`; RuntimeError where a newer, finer setting contradicts it."""
    told = FP32_PRECISION.matmul
    gpu, cpu = FP32_PRECISION.get(("cuda", "matmul")), FP32_PRECISION.get(("mkldnn", "matmul"))
    least = {"bf16": "medium", "tf32": "high"}.get(str(cpu), told)
    if (gpu == "tf32" and told == "highest") or told != least:
        raise RuntimeError(
            "the precision of float32 products was asked for, but fp32_precision was set otherwise: this is a mix of the legacy and new APIs, of "
            "which only the new one, fp32_precision, says what holds"
        )
    return told


# (Backend, operator) -> the precision that a program allows inside of float32 operations; no entry: not set.
FP32_PRECISION.changed.append(clear_plans)
LIBRARIES.changed.append(clear_plans)


@public
def is_storage(obj: Any) -> bool:
    """Whether it is a storage."""
    return isinstance(obj, storage.StorageBase)


# ***** numeric limits *****


def _limit(dtype: DType | None, wanted: str) -> DType:
    if dtype is None:
        return default_dtype()
    if not isinstance(dtype, DType):
        try:
            return python_dtype(dtype)
        except TypeError:
            raise TypeError(f"torch.{wanted}() argument must be a dtype, not {type(dtype).__name__}") from None
    return dtype


_FLOATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}
# eps, largest, smallest normal; PyTorch gives both fnuz formats the eps of three bits of mantissa.
_FLOATS8 = {
    "float8_e4m3fn": (0.125, 448.0, 2.0**-6),
    "float8_e5m2": (0.25, 57344.0, 2.0**-14),
    "float8_e4m3fnuz": (0.125, 240.0, 2.0**-7),
    "float8_e5m2fnuz": (0.125, 57344.0, 2.0**-15),
    "float8_e8m0fnu": (1.0, 2.0**127, 2.0**-127),
}


class _Limits:
    """Facts about the numbers of a dtype: one immutable object for each dtype."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"attribute '{name}' of 'torch.{type(self).__name__}' objects is not writable")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (BY_NAME[self.dtype],)  # type: ignore[attr-defined]


_FLOAT_LIMITS: dict[DType, finfo] = {}
_INT_LIMITS: dict[DType, iinfo] = {}


def _filled(made: Any, **values: Any) -> Any:
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


class finfo(_Limits):
    """Limits of a floating point dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    __slots__ = ("bits", "dtype", "eps", "max", "min", "resolution", "smallest_normal", "tiny")

    bits: int
    dtype: str
    eps: float
    max: float
    min: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __new__(cls, type: DType | None = None) -> finfo:
        if type.__class__ is DType and (found := _FLOAT_LIMITS.get(type)) is not None:
            return found
        dtype = _limit(type, "finfo").to_real()
        if dtype.name in _FLOATS8:
            eps, most, tiny = _FLOATS8[dtype.name]
            resolution, least = 1.0, -most if dtype.is_signed else tiny
        elif dtype.name in _FLOATS:
            digits, low, high = _FLOATS[dtype.name]
            eps, tiny = 2.0 ** (1 - digits), 2.0**low
            most = (2.0 - eps) * 2.0**high
            resolution, least = 10.0 ** -math.floor((digits - 1) * math.log10(2)), -most
        else:
            raise TypeError(
                f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{dtype.name}'"
            )
        made: finfo = _filled(
            object.__new__(cls),
            bits=dtype.itemsize * 8,
            dtype=dtype.name,
            eps=eps,
            max=most,
            min=least,
            resolution=resolution,
            smallest_normal=tiny,
            tiny=tiny,
        )
        _FLOAT_LIMITS[dtype] = made
        return made

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, "
            f"tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo(_Limits):
    """Limits of an integer dtype, or of the integers of a quantized one: bits, max, min."""

    __slots__ = ("bits", "dtype", "max", "min")

    bits: int
    dtype: str
    max: int
    min: int

    def __new__(cls, type: DType) -> iinfo:
        if type.__class__ is DType and (found := _INT_LIMITS.get(type)) is not None:
            return found
        dtype = _limit(type, "iinfo")
        if not (dtype.is_integer or dtype.kind == "q"):
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{dtype.name}'")
        bits, signed = dtype.itemsize * 8, dtype.name.startswith("qint") if dtype.kind == "q" else dtype.is_signed
        most, least = 2 ** (bits - int(signed)) - 1, -(2 ** (bits - 1)) if signed else 0
        made: iinfo = _filled(object.__new__(cls), bits=bits, dtype=dtype.name, max=most, min=least)
        _INT_LIMITS[dtype] = made
        return made

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


_TORCH["finfo"], _TORCH["iinfo"] = finfo, iinfo


# ***** legacy constructors *****


def _legacy(
    cls: type[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any], dtype: DType | None = None, home: Device = CPU
) -> Tensor:
    """`torch.Tensor(2, 3)` is uninitialised, `torch.Tensor([1, 2])` holds these numbers; float32 unless a type says
    otherwise.

    They are on the device `home`, whatever the default device is.
    """
    given = kwargs.pop("device", None)
    device = home if given is None else _legacy_device(given, args, home)
    if not args:
        args = _named_argument(kwargs)
    if kwargs:
        raise TypeError(f"Tensor() got an unexpected keyword argument '{next(iter(kwargs))}'")
    kind = dtype or default_dtype()
    if not args:
        made = _TORCH["empty"](0, dtype=kind, device=device)
    elif len(args) == 1 and isinstance(args[0], Tensor):
        if dtype not in (None, args[0]._spec.dtype):
            raise TypeError(f"expected a tensor of dtype {dtype!r} (got {args[0].dtype!r})")
        # Of a subclass with memory of its own, a plain tensor, and its `__torch_function__` is not asked.
        held = type(args[0]) not in plain_classes and args[0]._storage is not None
        made = detach(args[0]) if held else args[0].detach()
    elif len(args) == 1 and isinstance(args[0], (storage.TypedStorage, storage.UntypedStorage)):
        if isinstance(args[0], storage.TypedStorage) and args[0].dtype is not kind:
            raise RuntimeError(
                f"Expected a Storage of type {kind.scalar} or an UntypedStorage, but got type {args[0].dtype.scalar} for argument 1 'storage'"
            )
        made = storage.storage_tensor(args[0].untyped(), kind)
    elif all(_is_size(a) or (k and isinstance(a, bool)) for k, a in enumerate(args)):
        made = _TORCH["empty"](*[int(a) for a in args], dtype=kind, device=device)
    elif len(args) == 1 and type(args[0]).__name__ == "Size":
        made = _TORCH["empty"](tuple(args[0]), dtype=kind, device=device)
    elif len(args) == 1:
        if (
            not hasattr(type(args[0]), "__getitem__")
            or not hasattr(type(args[0]), "__len__")
            or isinstance(args[0], dict)
        ):
            kind_of = type(args[0])
            module = "" if kind_of.__module__ == "builtins" else f"{kind_of.__module__}."
            raise TypeError(f"new(): data must be a sequence (got {module}{kind_of.__name__})")
        name = "as_tensor" if hasattr(args[0], "__array_interface__") else "tensor"
        made = _TORCH[name](args[0], dtype=kind, device=device)
    else:
        raise TypeError("new(): invalid combination of arguments; give sizes as ints, or one sequence of numbers")
    return made if cls is Tensor else as_subclass(made, cls)


def _legacy_device(given: Any, args: tuple[Any, ...], home: Device) -> Device:
    """The `device=` of a legacy constructor, which names the type that the constructor has anyway."""
    if len(args) == 1 and isinstance(args[0], Tensor):
        raise RuntimeError(
            "Legacy tensor constructors and new() do not take a tensor together with a device. Use torch.tensor(...) or "
            "torch.as_tensor(...) instead."
        )
    kind = Device(given).type  # also of a device that this machine lacks
    if kind != home.type:
        raise RuntimeError(f"legacy constructor expects device type: {home.type} but device type: {kind} was passed")
    return as_device(given)


def _named_argument(kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The only argument of a legacy constructor, by its name; empty where there is none.  It is taken out of `kwargs`."""
    if "size" in kwargs:
        size = kwargs.pop("size")
        if not isinstance(size, (tuple, list)):
            raise TypeError(f"new(): argument 'size' must be tuple of ints, not {type(size).__name__}")
        return (Size(as_shape((size,), "new")),)
    for word in ("data", "other"):
        if word in kwargs:
            value = kwargs.pop(word)
            if _is_size(value):
                raise TypeError(f"new(): data must be a sequence (got {type(value).__name__})")
            return (value,)
    return ()


def _is_size(value: Any) -> bool:
    """Whether a legacy constructor takes this for a size: a whole number, not an array of one."""
    return (
        hasattr(type(value), "__index__")
        and not isinstance(value, (bool, Tensor))
        and not hasattr(type(value), "__setitem__")
    )


HOOKS.legacy_constructor = _legacy


class TypedTensor(type):
    """`torch.FloatTensor`, `torch.cuda.FloatTensor` and their kin: constructors, and classes for isinstance."""

    dtype: DType
    device_type = "cpu"
    is_sparse = False

    @property
    def is_cuda(cls) -> bool:
        """Whether tensors of this type are on GPUs."""
        return cls.device_type == "cuda"

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance._spec.dtype is cls.dtype
            and instance.is_sparse is cls.is_sparse
            and instance.device.type == cls.device_type
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            home = as_device(cls.device_type)
        except MissingDeviceError as error:
            raise MissingTypeError(f"type {cls.__module__}.{cls.__name__} is not available: {error}") from None
        return _legacy(Tensor, args, kwargs, cls.dtype, home)


for _name in [d.name for d in DTYPES]:
    _word = TYPE_NAMES[_name]
    _TORCH[_word + "Tensor"] = TypedTensor(_word + "Tensor", (), {"dtype": BY_NAME[_name], "__module__": "torch"})
