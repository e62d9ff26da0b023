"""Settings of PyTorch's CUDA libraries (cuBLAS, cuFFT, cuSOLVER): none is here.  Which ways of attention are allowed
counts on CPUs too.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import device as _device
from rushlight import set_float32_matmul_precision
from rushlight._interface.base import trace_marks
from rushlight._interface.cuda import backend_of, why_absent
from rushlight._interface.operators import ALLOWED, FP32_PRECISION, LIBRARIES
from rushlight.backends.pages import mixed, precision_of, set_precision

__all__ = [
    "SDPAParams", "allow_fp16_bf16_reduction_math_sdp", "blas_workspace_size", "can_use_cudnn_attention", "can_use_efficient_attention",
    "can_use_flash_attention", "cuBLASModule", "cuFFTPlanCache", "cuFFTPlanCacheAttrContextProp", "cuFFTPlanCacheManager", "cublas_workspace_size",
    "cublaslt_workspace_size", "cudnn_sdp_enabled", "cufft_plan_cache", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
    "enable_mem_efficient_sdp", "flash_sdp_enabled", "fp16_bf16_reduction_math_sdp_allowed", "is_built", "is_ck_sdpa_available",
    "is_flash_attention_available", "math_sdp_enabled", "matmul", "mem_efficient_sdp_enabled", "preferred_blas_library",
    "preferred_linalg_library", "preferred_rocm_fa_library", "sdp_kernel",
]  # fmt: skip


def is_built() -> bool:
    """Whether there are GPUs to compute on: nothing is built for them ahead, so one condition decides."""
    return why_absent("cuda") is None


# ***** cuBLAS *****


class cuBLASModule:
    """Precisions that are allowed inside of matrix products on GPUs."""

    _FLAGS = (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
        "fp32_precision",
    )

    # Sums in less than float32: whether at all, and whether in sums that are cut along k.
    _REDUCTIONS = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")

    def __init__(self) -> None:
        self.__dict__["_values"] = {
            **{name + end: True for name in self._REDUCTIONS for end in ("", "_split_k")},
            "allow_fp16_accumulation": False,
        }

    def __getattr__(self, name: str) -> Any:
        if name == "allow_tf32":
            allowed: bool = FP32_PRECISION.get(("cuda", "matmul")) == "tf32"
            if allowed is not (FP32_PRECISION.matmul != "highest"):
                raise RuntimeError(mixed("allow_tf32 of cuBLAS"))
            return allowed
        if name == "fp32_precision":
            return precision_of("cuda", "matmul")
        if name not in self.__dict__["_values"]:
            raise AttributeError(f"Unknown attribute {name}")
        return self.__dict__["_values"][name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "fp32_precision":
            set_precision("cuda", "matmul", value)
        elif name == "allow_tf32":
            cpu = FP32_PRECISION.get(("mkldnn", "matmul"))
            set_float32_matmul_precision("high" if value else "highest")
            FP32_PRECISION.pop(("mkldnn", "matmul"), None)
            if cpu is not None:
                FP32_PRECISION["mkldnn", "matmul"] = cpu
        elif name in self._REDUCTIONS:
            values = self.__dict__["_values"]
            values[name], values[f"{name}_split_k"] = _pair(name, value)
        elif name in self._FLAGS:
            self.__dict__["_values"][name] = value
        else:
            raise AttributeError(f"Unknown attribute {name}")


def _pair(name: str, value: Any) -> tuple[bool, bool]:
    """A bool, or one or two of them, as two; the second is True unless given."""
    given = (value,) if isinstance(value, bool) else value
    if not isinstance(given, (tuple, list)):
        raise TypeError(f"{name} expects a bool or a tuple/list of bools, but got {type(value)!r}")
    if not 1 <= len(given) <= 2:
        most = "at least one boolean argument" if not given else "at most two boolean arguments"
        raise TypeError(f"{name} expects {most}")
    for part, word in zip(given, ("allow_reduced_precision", "allow_splitk"), strict=False):
        if not isinstance(part, bool):
            raise TypeError(f"{name} expects a bool for {word}, but got {type(part)!r}")
    return given[0], given[-1] if len(given) == 2 else True


matmul = cuBLASModule()


def _check_gpu(name: str) -> None:
    reason = why_absent("cuda")
    if reason is not None:
        raise RuntimeError(f"{name}: cuBLAS has a workspace on GPUs only, and there is none: {reason}")


_WORKSPACES = {"cublas": 32 << 20, "cublaslt": 32 << 20}  # bytes, as PyTorch has them on an H200


def _workspace(library: str, size: int | None) -> int:
    _check_gpu(f"{library}_workspace_size")
    if size is not None:
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"a workspace has an int of bytes, not {type(size).__name__}")
        if size < 0:
            raise ValueError(f"a workspace cannot have {size} bytes")
        _WORKSPACES[library] = size
    return _WORKSPACES[library]


def cublas_workspace_size(size: int | None = None) -> int:
    """Bytes of cuBLAS's workspace, after setting it: kept, and of no effect.  RuntimeError without a GPU."""
    return _workspace("cublas", size)


def cublaslt_workspace_size(size: int | None = None) -> int:
    """The same of cuBLASLt."""
    return _workspace("cublaslt", size)


def blas_workspace_size(size: int | None = None, backend: Any = None) -> int:
    """The same of a library, by default of `preferred_blas_library()`."""
    wanted = preferred_blas_library() if backend is None else _NAMES[_BlasBackend].get(backend, backend)
    if not isinstance(wanted, _BlasBackend):
        raise RuntimeError(f"Unknown input value. Choose from: {', '.join(_NAMES[_BlasBackend])}.")
    return _workspace("cublaslt" if wanted is _BlasBackend.Cublaslt else "cublas", size)


# ***** cuFFT *****


class cuFFTPlanCacheAttrContextProp:
    """An attribute that is read by one function and set by another."""

    def __init__(self, getter: Any, setter: Any) -> None:
        self.getter, self.setter = getter, setter

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.getter(instance.device_index)

    def __set__(self, instance: Any, value: Any) -> None:
        if not callable(self.setter):
            raise RuntimeError(self.setter)
        self.setter(instance.device_index, value)


_MOST_PLANS: dict[int, int] = {}  # by device
_PLANS = 4096


def _with_gpus() -> None:
    if not is_built():
        raise AssertionError("Torch not compiled with CUDA enabled: there is no GPU, and no plans of cuFFT")


def _size(device: int) -> int:
    _with_gpus()
    return 0


def _max_size(device: int) -> int:
    _with_gpus()
    return _MOST_PLANS.get(device, _PLANS)


@trace_marks.changes_later_calls
def _set_max_size(device: int, value: int) -> None:
    _with_gpus()
    if value < 0:
        raise RuntimeError(f"cuFFT plan cache size must be non-negative, but got {value}")
    _MOST_PLANS[device] = value


class cuFFTPlanCache:
    """The plans of cuFFT on a GPU: none, as our kernels transform.  AssertionError without a GPU."""

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    size = cuFFTPlanCacheAttrContextProp(
        _size, ".size is a read-only property showing the number of plans currently in the cache"
    )
    max_size = cuFFTPlanCacheAttrContextProp(_max_size, _set_max_size)

    def clear(self) -> None:
        """Nothing: there is no plan."""
        _with_gpus()


class cuFFTPlanCacheManager:
    """The plan caches of all GPUs, by device; attributes are those of the current one's."""

    def __getitem__(self, device: Any) -> cuFFTPlanCache:
        gpus = rushlight.cuda
        index = device if isinstance(device, int) else getattr(rushlight.device(device), "index", None)
        index = gpus.current_device() if index is None and is_built() else index or 0
        if not 0 <= index < gpus.device_count():
            raise RuntimeError(
                f"cufft_plan_cache: expected 0 <= device index < {gpus.device_count()}, but got device with index {index}"
            )
        return cuFFTPlanCache(index)

    def _current(self) -> cuFFTPlanCache:
        return self[rushlight.cuda.current_device()] if is_built() else cuFFTPlanCache(0)

    def __getattr__(self, name: str) -> Any:
        if name in ("size", "max_size", "clear"):
            return getattr(self._current(), name)
        raise AttributeError(f"cufft_plan_cache has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._current(), name, value)


cufft_plan_cache = cuFFTPlanCacheManager()


# ***** preferred libraries *****


class _LinalgBackend(enum.Enum):
    Default = 0
    Cusolver = 1
    Magma = 2

    def __str__(self) -> str:
        return f"_LinalgBackend.{self.name}"

    __repr__ = __str__


class _BlasBackend(enum.Enum):
    Default = 0
    Cublas = 1
    Cublaslt = 2
    Ck = 3

    def __str__(self) -> str:
        return f"_BlasBackend.{self.name}"

    __repr__ = __str__


class _ROCmFABackend(enum.Enum):
    Default = 0
    AOTriton = 1
    Ck = 2

    def __str__(self) -> str:
        return f"_ROCmFABackend.{self.name}"

    __repr__ = __str__


_preferred: dict[type, Any] = {
    _LinalgBackend: _LinalgBackend.Default,
    _BlasBackend: _BlasBackend.Cublas,
    _ROCmFABackend: _ROCmFABackend.Default,
}
_NAMES: dict[type, dict[str, Any]] = {
    _LinalgBackend: {"default": _LinalgBackend.Default, "cusolver": _LinalgBackend.Cusolver, "magma": _LinalgBackend.Magma},
    _BlasBackend: {
        "default": _BlasBackend.Default, "cublas": _BlasBackend.Cublas, "hipblas": _BlasBackend.Cublas, "cublaslt": _BlasBackend.Cublaslt,
        "hipblaslt": _BlasBackend.Cublaslt, "ck": _BlasBackend.Ck,
    },
    _ROCmFABackend: {"default": _ROCmFABackend.Default, "aotriton": _ROCmFABackend.AOTriton, "ck": _ROCmFABackend.Ck},
}  # fmt: skip
# Those that PyTorch's CPU build lets a program prefer, since they would do nothing; and its build for NVIDIA's GPUs.
_HARMLESS = {_LinalgBackend.Default, _BlasBackend.Default, _BlasBackend.Cublas, *_ROCmFABackend}
_OF_GPUS = {_LinalgBackend.Cusolver, _LinalgBackend.Magma, _BlasBackend.Cublaslt}


def _prefer(kind: type, backend: Any) -> Any:
    if backend is not None:
        if isinstance(backend, str):
            known = _NAMES[kind]
            if backend not in known:
                raise RuntimeError(f"Unknown input value. Choose from: {', '.join(known)}.")
            backend = known[backend]
        elif not isinstance(backend, kind):
            raise RuntimeError(
                f"Unknown input value type: expected str or {kind.__name__}, found {type(backend).__name__}."
            )
        if backend not in _HARMLESS and not (backend in _OF_GPUS and is_built()):
            raise RuntimeError(
                f"Cannot set preferred backend to {backend.name} if PyTorch has not been compiled with {backend.name}."
            )
        _preferred[kind] = backend
    return _preferred[kind]


def _missing_library(name: str) -> str | None:
    """Why a library cannot be preferred, or None."""
    backend: Any = backend_of(_device("cuda", 0))
    text: str | None = backend.missing_library(name)
    return text


@trace_marks.changes_later_calls
def preferred_linalg_library(backend: Any = None) -> _LinalgBackend:
    """Which library a program prefers for factorisations on GPUs: `cusolver` is taken wherever it has one, by `default`
    whoever was measured to be faster (see `RUSHLIGHT_CUDA_LINALG`), and `magma` is as `default`.

    RuntimeError for setting one without a GPU, and for cuSOLVER where it is not installed.
    """
    before = _preferred[_LinalgBackend]
    found: _LinalgBackend = _prefer(_LinalgBackend, backend)
    if found is not before:
        missing = _missing_library("cusolver") if found is _LinalgBackend.Cusolver else None
        if missing is not None:
            _preferred[_LinalgBackend] = before
            raise RuntimeError(f"Cannot set preferred backend to Cusolver: {missing}")
        LIBRARIES.set("linalg", found.name.lower())
    return found


def preferred_blas_library(backend: Any = None) -> _BlasBackend:
    """Which library a program prefers for products on GPUs: kept, and of no effect (`RUSHLIGHT_CUDA_GEMM` has one).

    RuntimeError for setting cuBLASLt without a GPU.
    """
    return _prefer(_BlasBackend, backend)


def preferred_rocm_fa_library(backend: Any = None) -> _ROCmFABackend:
    """Which library computes attention on AMD's GPUs."""
    return _prefer(_ROCmFABackend, backend)


# ***** attention *****


class SDPAParams:
    """The arguments of a call of `scaled_dot_product_attention`."""

    __slots__ = ("attn_mask", "dropout", "enable_gqa", "is_causal", "key", "query", "value")

    def __init__(
        self, query: Any, key: Any, value: Any, attn_mask: Any, dropout: float, is_causal: bool, enable_gqa: bool
    ) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def flash_sdp_enabled() -> bool:
    """Whether flash attention is allowed."""
    return ALLOWED["flash"]


@trace_marks.changes_later_calls
def enable_flash_sdp(enabled: bool) -> None:
    """Allow flash attention, or not."""
    ALLOWED["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether memory-efficient attention is allowed."""
    return ALLOWED["mem_efficient"]


@trace_marks.changes_later_calls
def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow memory-efficient attention, or not."""
    ALLOWED["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """Whether attention by plain products is allowed."""
    return ALLOWED["math"]


@trace_marks.changes_later_calls
def enable_math_sdp(enabled: bool) -> None:
    """Allow attention by plain products, or not."""
    ALLOWED["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN's attention is allowed."""
    return ALLOWED["cudnn"]


@trace_marks.changes_later_calls
def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow cuDNN's attention, or not."""
    ALLOWED["cudnn"] = bool(enabled)


_reduced_sums = [False]


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Whether plain attention may add up in half precision."""
    return _reduced_sums[0]


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow plain attention to add up in half precision, or not; it adds up in float32 here whatever is allowed."""
    _reduced_sums[0] = bool(enabled)


def is_flash_attention_available() -> bool:
    """Whether attention is computed without storing its scores on a GPU: where there is one."""
    return is_built()


def is_ck_sdpa_available() -> bool:
    """False: that is a library for AMD's GPUs."""
    return False


def _can_use(way: str, params: SDPAParams, debug: bool) -> bool:
    q, k, v = params.query, params.key, params.value
    why: str | None = "the tensors are on no GPU"
    if q.is_cuda:
        why = ALLOWED.misfit(way, q, k, v, params.attn_mask, params.dropout, params.enable_gqa)
    if why is not None and debug:
        warnings.warn(f"{way} attention takes no such call: {why}", stacklevel=3)
    return why is None


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether a GPU's flash attention could take this call; with `debug` a warning says why not."""
    return _can_use("flash", params, debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether a GPU's memory-efficient attention could take this call."""
    return _can_use("mem_efficient", params, debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether PyTorch would let cuDNN's attention take this call; ours computes it then."""
    return _can_use("cudnn", params, debug)


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[None]:
    """Which ways of attention are allowed inside; deprecated for `torch.nn.attention.sdpa_kernel`."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. Please see `torch.nn.attention.sdpa_kernel()`.",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(ALLOWED)
    ALLOWED.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        ALLOWED.update(before)
