"""Tools around models and tensors, as `torch.utils`; the pages are loaded when they are first asked for."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files

__all__ = [
    "ThroughputBenchmark", "benchmark", "checkpoint", "collect_env", "cpp_extension", "data", "deterministic", "dlpack", "flop_counter",
    "generate_methods_for_privateuse1_backend", "get_cpp_backtrace", "hooks", "model_zoo", "module_tracker", "rename_privateuse1_backend",
    "serialization", "set_module", "swap_tensors", "throughput_benchmark", "weak",
]  # fmt: skip

_FROM_PAGES = {
    "ThroughputBenchmark": "throughput_benchmark", "set_module": "swapping", "swap_tensors": "swapping",
    **dict.fromkeys(("generate_methods_for_privateuse1_backend", "get_cpp_backtrace", "rename_privateuse1_backend"), "custom_device"),
}  # fmt: skip

# `tensorboard` needs an extra: it is loaded for those who ask for it.
_MODULES = {
    *__all__,
    "_contextlib",
    "_foreach_utils",
    "_python_dispatch",
    "_pytree",
    "file_baton",
    "mobile_optimizer",
    "tensorboard",
} - _FROM_PAGES.keys()

__getattr__ = lazy_files(__name__, _FROM_PAGES, _MODULES)
