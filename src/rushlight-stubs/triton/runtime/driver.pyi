"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, int as _int
from collections.abc import Callable as _Callable, Sequence as _Sequence
from rushlight.triton.compiler.compiler import GPUTarget as _GPUTarget
from rushlight.triton.runtime.driver import DriverConfig as _DriverConfig
from typing import Any as _Any

class Driver:

    def __init__(self) -> None:
        ...

    @staticmethod
    def device_of(values: _Sequence[_Any]) -> _Any:
        ...

    @staticmethod
    def target_of(device: _Any) -> _GPUTarget:
        ...

    def get_current_target(self) -> _GPUTarget:
        ...

    @staticmethod
    def get_current_device() -> _int:
        ...

    @staticmethod
    def set_current_device(device: _int) -> None:
        ...

    @staticmethod
    def get_current_stream(device: _int=...) -> _int:
        ...

    @staticmethod
    def get_device_capability(device: _int=...) -> _Any:
        ...

    @staticmethod
    def get_active_torch_device() -> _Any:
        ...

    @staticmethod
    def get_device_interface() -> _Any:
        ...

    @staticmethod
    def is_active() -> _bool:
        ...

    @staticmethod
    def get_empty_cache_for_benchmark() -> _Any:
        ...

    @staticmethod
    def clear_cache(cache: _Any) -> None:
        ...

    def get_benchmarker(self) -> _Callable[..., _Any]:
        ...
class DriverConfig:

    def __init__(self) -> None:
        ...

    @property
    def default(self) -> _Any:
        ...

    @property
    def active(self) -> _Any:
        ...

    def set_active(self, driver: _Any) -> None:
        ...

    def reset_active(self) -> None:
        ...
from rushlight.triton.compiler.compiler import GPUTarget as GPUTarget
from rushlight.triton.testing import do_bench as do_bench
driver: _DriverConfig
