"""Tools around models and tensors, as `torch.utils`; the pages are loaded when they are first asked for."""

from __future__ import annotations

from typing import Any

from rushlight._base.importing import import_whole
from rushlight._base.naming import no_name
from rushlight._base.tracebacks import shorten

__all__ = [
    "ThroughputBenchmark", "benchmark", "checkpoint", "collect_env", "cpp_extension", "data", "deterministic", "dlpack", "flop_counter",
    "generate_methods_for_privateuse1_backend", "get_cpp_backtrace", "hooks", "model_zoo", "module_tracker", "rename_privateuse1_backend",
    "serialization", "set_module", "swap_tensors", "throughput_benchmark", "weak",
]  # fmt: skip

_FROM_PAGES = {
    "ThroughputBenchmark": "throughput_benchmark", "set_module": "swapping", "swap_tensors": "swapping",
    **dict.fromkeys(("generate_methods_for_privateuse1_backend", "get_cpp_backtrace", "rename_privateuse1_backend"), "custom_device"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    try:
        if name in _FROM_PAGES:
            return getattr(import_whole(f"{__name__}.{_FROM_PAGES[name]}"), name)
        if name in __all__ or name in (
            "_contextlib",
            "_foreach_utils",
            "_python_dispatch",
            "_pytree",
            "tensorboard",
        ):  # the last needs an extra: it is loaded for those who ask for it
            return import_whole(f"{__name__}.{name}")
        raise no_name(__name__, name)
    except BaseException as error:
        shorten(error)
        raise
