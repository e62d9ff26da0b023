"""rushlight: PyTorch's programming model, the whole stack in Python.

>>> import rushlight as torch
>>> x = torch.tensor([1.0, 2.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad
tensor([2., 4.])
"""

from __future__ import annotations

import math
import os
from typing import Any

from rushlight._base.importing import import_whole, install
from rushlight._base.interpreter import require_supported
from rushlight._base.lazy import LazyModule
from rushlight._base.naming import no_name
from rushlight._base.tracebacks import shorten

require_supported()
install()
del install

from rushlight import _surface
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from rushlight._types.device import Device as device
from rushlight._types.dtype import ALL_DTYPES
from rushlight._types.dtype import DType as dtype
from rushlight._types.formats import FORMATS, JAGGED, SPARSE_LAYOUTS, STRIDED
from rushlight._types.formats import Layout as layout
from rushlight._types.formats import MemoryFormat as memory_format
from rushlight._types.layout import Size
from rushlight._types.promotion import can_cast, default_dtype, promote
from rushlight.torch_version import TorchVersion as _TorchVersion

_OWN_VERSION = __version__ = _TorchVersion("0.1.0")

globals().update(FORMATS)
legacy_contiguous_format = FORMATS["contiguous_format"]
globals().update(SPARSE_LAYOUTS)
for _dtype in ALL_DTYPES:
    for _name in (_dtype.name, *_dtype.aliases):
        globals()[_name] = _dtype
del _dtype, _name

strided, jagged = STRIDED, JAGGED
get_default_dtype = default_dtype
promote_types = promote
inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
newaxis = None

# Functions are made, and pages loaded, when they are first asked for: see `__getattr__`.
_FUNCTIONS = _surface.SPACES["torch"]
# Packages and pages that are loaded when they are first asked for.
_PAGES = frozenset((
    "_C", "_VF", "_awaits", "_classes", "_custom_ops", "_dynamo", "_export", "_functorch", "_guards", "_higher_order_ops", "_inductor", "_library", "_logging", "_prims_common", "_refs", "_subclasses", "_tensor", "_tensor_str", "_utils", "_utils_internal",
    "ao", "compiler", "distributed", "export", "fx", "jit", "onnx",
    "amp", "array_api", "autograd", "backends", "distributions", "fft", "func", "futures", "hub", "library", "linalg", "masked", "monitor",
    "multiprocessing", "nested", "nn", "ops", "optim", "profiler", "random", "return_types", "serialization", "signal", "sparse", "special", "testing", "utils", "types", "overrides", "package", "quantization", "cpu", "cuda", "version",
    "quasirandom", "storage", "xpu", "mps", "mtia", "functional", "torch_version", "accelerator", "__config__", "__future__",
))  # fmt: skip
_FROM_PAGES = {
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm", "_scaled_mm"), "nn.composites.grouped"),
    **dict.fromkeys(("_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data"), "nn.composites.softmax"),
    **dict.fromkeys(("_amp_foreach_non_finite_check_and_unscale_", "_amp_update_scale_"), "amp.scaling"),
    "cond": "_higher_order_ops", "while_loop": "_higher_order_ops",
    **dict.fromkeys(("eig", "lstsq", "matrix_rank", "solve", "symeig"), "_surface.legacy"),
    **dict.fromkeys(("DeviceObjType", "StorageBase", "TensorType"), "_C"),
    "_has_compatible_shallow_copy_type": "_prims_common", "_disable_dynamo": "compiler", "explain": "compiler.inspection", "install_as_torch": "_base.alias", "compile": "compiler", "PyTorchFileReader": "_C", "set_vital": "_C",
    "JITException": "jit", "ScriptModule": "jit", "ScriptFunction": "jit", "CompilationUnit": "jit",
    "classes": "_classes", "_debug_has_internal_overlap": "_C",
    "vmap": "func", "autocast": "amp", "GradScaler": "amp", "Future": "futures",
    "from_file": "_engine.sharing.mapped", "frombuffer": "_engine.sharing.mapped", "from_dlpack": "_engine.core.dlpack", "to_dlpack": "_engine.core.dlpack",
    "DisableTorchFunctionSubclass": "_engine.dispatch.override", "UntypedStorage": "_engine.core.storage", "TypedStorage": "_engine.core.storage",
    "is_anomaly_enabled": "_engine.autograd.anomaly", "is_anomaly_check_nan_enabled": "_engine.autograd.anomaly",
    "save": "serialization", "load": "serialization", "manual_seed": "random", "seed": "random", "initial_seed": "random",
    "get_rng_state": "random", "set_rng_state": "random", "default_generator": "random", "Generator": "random",
    "thread_safe_generator": "random",
    **dict.fromkeys((
        "_weight_norm", "batch_norm_backward_elemt", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_gather_stats",
        "batch_norm_gather_stats_with_counts", "batch_norm_stats",
        "batch_norm", "batch_norm_update_stats", "binary_cross_entropy_with_logits", "convolution", "cosine_embedding_loss", "ctc_loss",
        "embedding", "embedding_bag", "embedding_renorm_", "frobenius_norm", "gru", "gru_cell", "hinge_embedding_loss", "instance_norm",
        "kaiser_window", "kl_div", "lstm", "lstm_cell", "margin_ranking_loss", "norm_except_dim", "nuclear_norm", "poisson_nll_loss", "rnn_relu",
        "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell", "triplet_margin_loss",
    ), "nn.composites.positional"),
    **dict.fromkeys((
        "AcceleratorError", "DispatchKey", "DispatchKeySet", "Event", "ExcludeDispatchKeyGuard", "FatalError", "OutOfMemoryError", "Stream", "Tag",
    ), "_surface.dispatch"),
    **dict.fromkeys((
        "_choose_qparams_per_tensor", "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_make_per_channel_quantized_tensor",
        "_make_per_tensor_quantized_tensor", "choose_qparams_optimized", "dequantize", "empty_quantized", "fused_moving_avg_obs_fake_quant", "int_repr", "per_channel_affine",
        "per_channel_affine_float_qparams", "per_channel_symmetric", "per_tensor_affine", "per_tensor_symmetric", "q_per_channel_axis",
        "q_per_channel_scales", "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme", "quantize_per_channel", "quantize_per_tensor",
        "quantize_per_tensor_dynamic",
    ), "_surface.quantized"),
    **dict.fromkeys(("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor",
                     "sparse_compressed_tensor", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo"), "sparse.construct"),
    **dict.fromkeys((
        "_assert", "_assert_async", "_assert_tensor_metadata", "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_tensor_all_with",
        "_check_type", "_check_value", "_check_with", "_reshape_from_tensor", "_shape_as_tensor",
    ), "_surface.checks"),
    **dict.fromkeys(("dsmm", "smm", "spmm", "sspaddmm", "hspmm"), "sparse.matrix_products"),
    **dict.fromkeys(("indices_copy", "values_copy", "crow_indices_copy", "col_indices_copy", "ccol_indices_copy", "row_indices_copy",
                     "resize_as_sparse_"),
                    "sparse.members"),
}  # fmt: skip
_NAMES_THERE = {"JITException": "Error", "_disable_dynamo": "disable"}
# Methods of tensors that are there when `rushlight.sparse` is: the first look at one loads it.
_SPARSE_METHODS = (
    "indices", "values", "_indices", "_values", "crow_indices", "col_indices", "ccol_indices", "row_indices", "_nnz", "sparse_dim", "dense_dim",
    "is_coalesced", "_coalesced_", "coalesce", "to_dense", "to_sparse", "_to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc",
    "to_sparse_bsr", "to_sparse_bsc", "sparse_mask", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_", "smm", "sspaddmm",
)  # fmt: skip
# Methods of tensors that are operators of `torch.ops.aten`.
_ATEN_METHODS = ("_conj", "_is_all_true", "_is_any_true")

__all__ = [
    "FORMATS", "SPARSE_LAYOUTS", "STRIDED", "Size", "Tensor", "can_cast", "device", "dtype", "e", "enable_grad", "get_default_dtype", "inf",
    "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "layout", "memory_format", "nan", "newaxis", "no_grad", "pi",
    "promote_types", "set_grad_enabled", "strided",
]  # fmt: skip


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    """The functions of the Python array API standard over tensors: `rushlight.array_api`."""
    namespace = import_whole("rushlight.array_api")
    if api_version is not None and api_version not in namespace.VERSIONS:
        raise ValueError(
            f"__array_namespace__: expected api_version one of {namespace.VERSIONS}, found {api_version!r}"
        )
    return namespace


Tensor.__array_namespace__ = _array_namespace  # type: ignore[attr-defined]


def _sparse_method(name: str) -> Any:
    return import_whole("rushlight.sparse.members").METHODS[name]


def _aten_method(name: str) -> Any:
    operator = _aten(name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return operator(self, *args, **kwargs)

    method.__name__ = name
    return method


def _sparse_factory(name: str) -> Any:
    return getattr(import_whole("rushlight.sparse.construct"), name)


def _nested_method(name: str) -> Any:
    return import_whole("rushlight.nested.operators").METHODS[name]


for _name in ("to_padded_tensor",):
    setattr(Tensor, _name, _surface.LazyMethod(_name, _nested_method, _name))
for _name in _SPARSE_METHODS:
    setattr(Tensor, _name, _surface.LazyMethod(_name, _sparse_method, _name))
for _name in _ATEN_METHODS:
    setattr(Tensor, _name, _surface.LazyMethod(_name, _aten_method, _name))
_below: Any = LazyModule("rushlight.library.aten.calls")
HOOKS.below = lambda function, args, kwargs: _below.below(function, args, kwargs)
HOOKS.own_below = lambda leaf, gradient: _below.own_below(leaf, gradient)
for _name in ("zeros", "empty", "ones", "full"):
    _surface.SPARSE_FACTORIES.promise(_name, _sparse_factory, _name)


def __getattr__(name: str) -> Any:
    try:
        if name in _FUNCTIONS:
            value = _FUNCTIONS[name]
        elif name in _FROM_PAGES:
            value = getattr(import_whole(f"rushlight.{_FROM_PAGES[name]}"), _NAMES_THERE.get(name, name))
        elif name.startswith("_foreach_"):
            value = getattr(import_whole("rushlight._surface.foreach"), name)
        elif name in _PAGES:
            try:
                value = import_whole(f"rushlight.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"rushlight.{name}":
                    raise
                raise no_name(__name__, name) from None
        elif name.startswith("_") and not name.startswith("__"):
            value = _aten(name)
        else:
            raise no_name(__name__, name)
        globals()[name] = value
        return value
    except BaseException as error:
        shorten(error)
        raise


def _aten(name: str) -> Any:
    """A private operator, as `torch.ops.aten` has it: PyTorch shows those as functions too."""
    try:
        return getattr(import_whole("rushlight.ops").aten, name)
    except AttributeError:
        raise no_name(__name__, name) from None


# What `from torch import *` gives.
__all__ += [
    name
    for name in dict.fromkeys(
        (*_FUNCTIONS, *_FROM_PAGES, *FORMATS, *SPARSE_LAYOUTS, *(n for d in ALL_DTYPES for n in (d.name, *d.aliases)))
    )
    if not name.startswith("_")
]


def __dir__() -> list[str]:
    return sorted({*globals(), *_FUNCTIONS, *_PAGES, *_FROM_PAGES})


if os.environ.get("TORCH_CUDA_SANITIZER"):
    import_whole("rushlight.cuda._sanitizer").enable_cuda_sanitizer()
