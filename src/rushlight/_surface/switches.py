"""Settings that programs turn on and off, facts about this build, and plain-number forms of the functions for symbolic
sizes.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NoReturn

from rushlight._base.errors import set_warn_always as warn_always
from rushlight._base.errors import warn_once, warns_always
from rushlight._base.lazy import require
from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core.integers import is_numpy_scalar
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch import autocast
from rushlight._surface.casts import type_name
from rushlight._surface.registry import SPACES
from rushlight._surface.settings import are_deterministic_algorithms_enabled as _is_deterministic
from rushlight._surface.settings import is_deterministic_algorithms_warn_only_enabled as _only_warns
from rushlight._surface.settings import public, use_deterministic_algorithms
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.shape_env import Undecided, chosen_by, require_between
from rushlight._types.symbols import Integer, Real, as_double, extreme, is_symbolic, told, truncated

__all__: list[str] = []

_TORCH = SPACES["torch"]


@public
@changes_later_calls
def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turn the detection of anomalies in backward on or off; see `torch.autograd.set_detect_anomaly`."""
    require("rushlight._engine.autograd.anomaly").set_detect_anomaly(mode, check_nan)


# ***** automatic casts: the state that `amp` reads and sets *****


@public
def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operators on this type of device cast by themselves in this thread; without an argument on CUDA."""
    if device_type.__class__ is str and device_type in autocast.PLACES:
        return STATE.casts.get(device_type, False)
    return STATE.casts.get(_casting_place(device_type), False)


@public
@changes_later_calls
def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Turn automatic casts in this thread on or off.  `torch.autocast` does it for a region."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    autocast.set_enabled(_casting_place(device_type), bool(enabled))


def _casting_place(device_type: Any) -> str:
    place = autocast.place_of(device_type)
    if place not in autocast.PLACES:
        raise RuntimeError(f"unknown device type for autocast: '{place}', expected one of {', '.join(autocast.PLACES)}")
    return place


@public
def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that automatic casts on this type of device go to.  RuntimeError where there are none."""
    place = autocast.place_of(device_type)
    if place not in autocast.PLACES:
        raise RuntimeError(f"unsupported scalarType: there are no automatic casts for the device type '{place}'")
    return autocast.dtype_of(place)


@public
@changes_later_calls
def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the dtype that automatic casts on this type of device go to."""
    if not isinstance(dtype, DType):
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    autocast.set_dtype(autocast.place_of(device_type), dtype)


@public
def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept while automatic casting is on."""
    return STATE.cast_keeps


@public
@changes_later_calls
def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether casts of weights are kept while automatic casting is on."""
    STATE.cast_keeps = bool(enabled)


@public
def clear_autocast_cache() -> None:
    """Forget the casts of weights that were kept."""
    autocast.clear_casts()


@public
@changes_later_calls
def autocast_increment_nesting() -> int:
    """Count a region of automatic casts that is entered; gives how many are open in this thread."""
    return autocast.enter()


@public
@changes_later_calls
def autocast_decrement_nesting() -> int:
    """Count a region of automatic casts that is left; gives how many are still open in this thread."""
    return autocast.leave()


def _older_autocast(name: str, place: str) -> None:
    def getter() -> DType:
        return get_autocast_dtype(place)

    def setter(dtype: DType) -> None:
        set_autocast_dtype(place, dtype)

    for function, word in ((getter, "get"), (setter, "set")):
        function.__name__ = f"{word}_autocast_{name}_dtype"
        function.__doc__ = f"The same as `{word}_autocast_dtype` for '{place}'."
        public(function)


_older_autocast("cpu", "cpu")
_older_autocast("gpu", "cuda")


@public
def is_autocast_cpu_enabled() -> bool:
    """The same as `is_autocast_enabled('cpu')`."""
    return is_autocast_enabled("cpu")


@public
@changes_later_calls
def set_autocast_cpu_enabled(enabled: bool) -> None:
    """The same as `set_autocast_enabled('cpu', enabled)`."""
    set_autocast_enabled("cpu", enabled)


# ***** determinism, denormals, warnings, threads *****

_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


@public
@changes_later_calls
def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """ "default" (0), "warn" (1) or "error" (2): other words for `use_deterministic_algorithms`."""
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = _DEBUG_MODES[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


@public
def get_deterministic_debug_mode() -> int:
    """0 where any algorithm may be used, 1 where others than deterministic ones warn, 2 where they raise."""
    return 0 if not _is_deterministic() else 1 if _only_warns() else 2


@public
@changes_later_calls
def set_flush_denormal(mode: bool) -> bool:
    """Whether the CPU treats denormal numbers as zero from now on; returns whether that was done.

    False for `True`: kernels run with the processor's standard arithmetic and always keep denormal numbers.
    """
    return not mode


@public
@changes_later_calls
def set_warn_always(b: bool, /) -> None:
    """Whether warnings that are given once in a program by default are given every time; what Python's filters make of
    them is theirs.
    """
    if not isinstance(b, bool):
        raise RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    warn_always(b)


@public
def is_warn_always_enabled() -> bool:
    """The last setting of `set_warn_always`."""
    return warns_always()


@public
def init_num_threads() -> None:
    """Bring the thread pool to the number of threads in force."""
    pool = require("rushlight._backends.cpu.runtime.threads")
    pool.set_num_threads(pool.get_num_threads())


# ***** facts *****


@public
def compiled_with_cxx11_abi() -> bool:
    """True, as for every PyTorch of these days; there is no C++ here whose interface could differ."""
    return True


# Features that builds of PyTorch may lack: factorisations, Intel's MKL (the BLAS is NumPy's), OpenMP (the threads are
# our own), Fourier transforms.
_TORCH["has_lapack"], _TORCH["has_mkl"], _TORCH["has_openmp"], _TORCH["has_spectral"] = True, False, False, True


@public
def typename(obj: Any, /) -> str:
    """The full name of an object's type; of a tensor the older one with its dtype (`torch.FloatTensor`)."""
    if isinstance(obj, Tensor):
        return type_name(obj)
    module = getattr(obj, "__module__", None) or ""
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if name is None:
        kind = type(obj)
        module, name = kind.__module__, kind.__qualname__
    module = "torch" if isinstance(obj, DType) else module
    name = "dtype" if isinstance(obj, DType) else name
    return name if module in ("", "builtins") else f"{module.replace('rushlight', 'torch', 1)}.{name}"


_MODULES: dict[str, Any] = {}  # the modules of types of device from outside


@public
def _register_device_module(device_type: str, module: Any) -> None:
    """Let `torch.<device_type>` be the module of a device type from outside.

    RuntimeError where there is one already, or where a backend is neither registered nor expected under the name.
    """
    place = Device(device_type).type
    page = sys.modules["rushlight"]
    if hasattr(page, place):
        raise RuntimeError(f"The runtime module of '{place}' has already been registered with '{getattr(page, place)}'")
    setattr(page, place, module)
    _MODULES[place] = module
    sys.modules[f"rushlight.{place}"] = module


@public
def get_device_module(device: Any = None) -> Any:
    """The module of a device's functions: `torch.cpu`, `torch.cuda`; by default the CPU's."""
    if device is not None and not isinstance(device, (str, Device)):
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    place = "cpu" if device is None else Device(device).type
    if place in _MODULES:
        return _MODULES[place]
    try:
        return require(f"rushlight.{place}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{place}' does not have a corresponding module registered as 'torch.{place}'."
        ) from None


@public
@changes_later_calls
def set_default_tensor_type(t: Any) -> None:
    """The dtype that Python floats get, given as a tensor type (`torch.DoubleTensor`) or its name; a type of GPUs makes
    the GPU the default device, too.
    """
    warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and torch.set_default_device() as "
        "alternatives."
    )
    if isinstance(t, str):
        name = t.removeprefix("torch.")
        found = getattr(get_device_module("cuda"), name[5:], None) if name.startswith("cuda.") else _TORCH.get(name)
        if found is None:
            raise ModuleNotFoundError(f"there is no tensor type {t!r}")
        t = found
    dtype = getattr(t, "dtype", None)
    if not isinstance(dtype, DType):
        raise TypeError("invalid type object")
    _TORCH["set_default_dtype"](dtype)
    place = Device(getattr(t, "device_type", "cpu"))
    if place.type != _TORCH["get_default_device"]().type:
        _TORCH["set_default_device"](place)


# ***** symbolic numbers *****


class _SymbolicNumbers(type):
    kind: Any

    def __instancecheck__(cls, value: Any) -> bool:
        return type(value) is cls.kind


def _symbolic(name: str, plain: str, kind: Any) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name}: symbolic numbers come from the sizes of traced tensors; elsewhere use {plain}"
        )

    text = f"For isinstance: a symbolic {plain}, which is an instance of {plain} as well."
    made: type = _SymbolicNumbers(name, (), {"__new__": refuse, "__module__": "torch", "__doc__": text, "kind": kind})
    _TORCH[name] = made
    return made


_symbolic("SymInt", "int", Integer)
_symbolic("SymFloat", "float", Real)
_symbolic("SymBool", "bool", Undecided)


@public
def sym_int(a: Any) -> int:
    """`a` as an int, cut toward zero; of a symbolic number a symbolic one."""
    return told(sym_int, (a,), truncated(a)) if is_symbolic(a) else int(a)


@public
def sym_float(a: Any) -> float:
    """`a` as a float; of a symbolic number a symbolic one."""
    return told(sym_float, (a,), as_double(a)) if is_symbolic(a) else float(a)


@public
def sym_not(a: Any) -> bool:
    """Not `a`; of a condition on sizes without a value the opposite condition."""
    opposite: Any = ~a if isinstance(a, Undecided) else not a
    return opposite


@public
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` if `b` else `f`, two values of one type; of a condition on sizes without a value a symbolic integer."""
    if isinstance(b, Undecided) and isinstance(t, int) and isinstance(f, int):
        return chosen_by(sym_ite, b, t, f)
    if not isinstance(b, bool) or type(t) is not type(f):
        raise AssertionError(
            f"sym_ite takes a bool and two values of one type, got {type(b).__name__}, {type(t).__name__}, {type(f).__name__}"
        )
    return t if b else f


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)) and not (is_numpy_scalar(value) and value.dtype.kind in "iuf"):
        raise AssertionError(f"expected an int or a float, got {type(value)}")
    return value


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or is_numpy_scalar(value) and value.dtype.kind == "f"


def _either(pick: Any, a: Any, b: Any) -> Any:
    """A float where either is one."""
    found = pick(_number(a), _number(b))
    return float(found) if _is_float(a) or _is_float(b) else found


def _symbolic_pair(a: Any, b: Any) -> bool:
    return (
        is_symbolic(a)
        and isinstance(a, int)
        and isinstance(b, int)
        or is_symbolic(b)
        and type(a) is int
        and isinstance(b, int)
    )


@public
def sym_max(a: Any, b: Any) -> Any:
    """The larger of two numbers; a float where either is one.  Of symbolic integers a symbolic one."""
    return told(sym_max, (a, b), extreme("max", a, b)) if _symbolic_pair(a, b) else _either(max, a, b)


@public
def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two numbers; a float where either is one.  Of symbolic integers a symbolic one."""
    return told(sym_min, (a, b), extreme("min", a, b)) if _symbolic_pair(a, b) else _either(min, a, b)


@public
def sym_sum(*args: Any) -> Any:
    """The sum of numbers, given one by one or as a sequence."""
    return sum(args[0] if len(args) == 1 and not isinstance(args[0], (int, float)) else args)


@public
def sym_sqrt(a: Any) -> float:
    """The square root; of a symbolic number a symbolic one."""
    if not is_symbolic(a):
        return math.sqrt(a)
    a = sym_float(a)
    return told(sym_sqrt, (a,), a.square_root())


@public
def sym_fresh_size(expr: Any) -> Any:
    """The size itself."""
    return expr


@public
def sym_constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """RuntimeError unless min <= size <= max."""
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    if require_between(size, low, high):
        return
    if not low <= size <= high:
        raise RuntimeError(f"Invalid value range for {size} between [{low}, {high}].")


@public
def sym_constrain_range_for_size(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """`sym_constrain_range` for a size, which is not negative."""
    sym_constrain_range(size, min=0 if min is None else min, max=max)
