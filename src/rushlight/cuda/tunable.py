"""Settings of PyTorch's tuned matrix products, as `torch.cuda.tunable`.

They are kept and answered.  They change nothing: which of two kernels makes a product is measured once and kept on disk
anyway, so there is no file of results to write or read.
"""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight._interface.base import trace_marks, warn_once
from rushlight.cuda.device import current_device

__all__ = [
    "enable", "get_filename", "get_max_tuning_duration", "get_max_tuning_iterations", "get_results", "get_rotating_buffer_size", "get_validators",
    "is_enabled", "mgpu_tune_gemm_in_file", "read_file", "record_untuned_enable", "record_untuned_is_enabled", "set_filename",
    "set_max_tuning_duration", "set_max_tuning_iterations", "set_numerical_check_tolerances", "set_rotating_buffer_size", "tune_gemm_in_file",
    "tuning_enable", "tuning_is_enabled",
]  # fmt: skip

_SETTINGS: dict[str, Any] = {
    "enabled": False, "tuning": True, "record": False, "duration": 30, "iterations": 100, "filename": "tunableop_results.csv", "buffer": -1,
}  # fmt: skip


def enable(val: bool = True) -> None:
    """Ask for tuned products: a warning says that it changes nothing."""
    if val:
        warn_once("torch.cuda.tunable changes nothing: rushlight measures its products without it")
    _SETTINGS["enabled"] = bool(val)


def is_enabled() -> bool:
    """The last argument of `enable`."""
    return bool(_SETTINGS["enabled"])


def tuning_enable(val: bool = True) -> None:
    """Say whether products that were not met before are tuned."""
    _SETTINGS["tuning"] = bool(val)


def tuning_is_enabled() -> bool:
    """The last argument of `tuning_enable`."""
    return bool(_SETTINGS["tuning"])


def record_untuned_enable(val: bool = True) -> None:
    """Say whether products that are not tuned are written to a file."""
    _SETTINGS["record"] = bool(val)


def record_untuned_is_enabled() -> bool:
    """The last argument of `record_untuned_enable`."""
    return bool(_SETTINGS["record"])


@trace_marks.changes_later_calls
def set_max_tuning_duration(duration: int) -> None:
    """Milliseconds for one product at most."""
    _SETTINGS["duration"] = int(duration)


def get_max_tuning_duration() -> int:
    """Milliseconds for one product at most."""
    return int(_SETTINGS["duration"])


@trace_marks.changes_later_calls
def set_max_tuning_iterations(iterations: int) -> None:
    """Runs of one product at most."""
    _SETTINGS["iterations"] = int(iterations)


def get_max_tuning_iterations() -> int:
    """Runs of one product at most."""
    return int(_SETTINGS["iterations"])


@trace_marks.changes_later_calls
def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """The file of results, with the device's number before its ending if asked."""
    if insert_device_ordinal:
        stem, dot, ending = filename.rpartition(".")
        number = current_device()
        filename = f"{stem}{number}{dot}{ending}" if dot else f"{filename}{number}"
    _SETTINGS["filename"] = filename


def get_filename() -> str:
    """The file of results."""
    return str(_SETTINGS["filename"])


def get_results() -> tuple[Any, ...]:
    """No results: none are kept in PyTorch's form."""
    return ()


def get_validators() -> tuple[Any, ...]:
    """No versions of libraries on which results would depend."""
    return ()


def read_file(filename: str | None = None) -> bool:
    """False: no results are read."""
    return False


@trace_marks.changes_later_calls
def set_rotating_buffer_size(buffer_size: int) -> None:
    """Megabytes by which the cache is emptied between runs."""
    _SETTINGS["buffer"] = int(buffer_size)


def get_rotating_buffer_size() -> int:
    """Megabytes by which the cache is emptied between runs; -1: the size of the cache."""
    return int(_SETTINGS["buffer"])


@trace_marks.changes_later_calls
def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    """How far results of candidates may differ; nothing is compared here."""


def _no_files(name: str) -> NoReturn:
    raise NotImplementedError(f"rushlight has no torch.cuda.tunable.{name}: products are measured when they first run")


def tune_gemm_in_file(filename: str) -> None:
    """NotImplementedError: products are not read from files."""
    _no_files("tune_gemm_in_file")


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int) -> None:
    """NotImplementedError: products are not read from files."""
    _no_files("mgpu_tune_gemm_in_file")
