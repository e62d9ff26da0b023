"""Settings of `init_rpc`."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rushlight import device as _device
from rushlight.distributed.rpc import constants

__all__ = ["BackendType", "RpcBackendOptions", "TensorPipeRpcBackendOptions"]


class BackendType(Enum):
    """How messages travel: there is one way, sockets."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


class RpcBackendOptions:
    """Settings that every backend has: `rpc_timeout` in seconds, and `init_method`, a URL that leads to a store."""

    def __init__(
        self, rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC, init_method: str = constants.DEFAULT_INIT_METHOD
    ) -> None:
        self._rpc_timeout, self._init_method = float(rpc_timeout), init_method

    @property
    def rpc_timeout(self) -> float:
        """How long a call may take, in seconds."""
        return self._rpc_timeout

    @rpc_timeout.setter
    def rpc_timeout(self, seconds: float) -> None:
        self._rpc_timeout = float(seconds)

    @property
    def init_method(self) -> str:
        """The URL of the store."""
        return self._init_method

    @init_method.setter
    def init_method(self, url: str) -> None:
        self._init_method = url


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Settings of a worker.

    `num_worker_threads`: how many calls of others run at a time; `rpc_timeout`: how long a call may take, in seconds (0:
    forever); `init_method`: the URL of the store.  ValueError for device maps: tensors of accelerators are not sent.

    >>> from rushlight.distributed import rpc
    >>> options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=20)
    >>> options.num_worker_threads, options.rpc_timeout, options.init_method, options.device_maps
    (8, 20.0, 'env://', {})
    """

    def __init__(
        self, *, num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS, rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD, device_maps: dict[str, dict[Any, Any]] | None = None, devices: list[Any] | None = None,
        _transports: list[Any] | None = None, _channels: list[Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rpc_timeout, init_method)
        if num_worker_threads < 1:
            raise ValueError(f"num_worker_threads must be positive, got {num_worker_threads}")
        self._num_worker_threads = num_worker_threads
        self._device_maps: dict[str, dict[Any, Any]] = {}
        self._devices: list[Any] = []
        for to, device_map in (device_maps or {}).items():
            self.set_device_map(to, device_map)
        self.set_devices(devices or [])

    @property
    def num_worker_threads(self) -> int:
        """How many calls of others run at a time."""
        return self._num_worker_threads

    @property
    def device_maps(self) -> dict[str, dict[Any, Any]]:
        """Worker -> device here -> device there."""
        return self._device_maps

    @property
    def devices(self) -> list[Any]:
        """The accelerators that are used."""
        return self._devices

    def set_device_map(self, to: str, device_map: dict[Any, Any]) -> None:
        """Where tensors of a device go on another worker: CPU to CPU; ValueError for accelerators."""
        pairs = {_device(here): _device(there) for here, there in device_map.items()}
        for pair in pairs.items():
            _refuse(pair)
        self._device_maps.setdefault(to, {}).update(pairs)

    def set_devices(self, devices: list[Any]) -> None:
        """The accelerators to use; ValueError for any: tensors of accelerators are not sent."""
        chosen = [_device(d) for d in devices]
        _refuse(chosen)
        self._devices = chosen


def _refuse(devices: Any) -> None:
    for device in devices:
        if device != _device("cpu"):
            raise ValueError(
                f"rpc sends tensors of the CPU: `{device}` cannot be in a device map or among the devices. Move tensors to the CPU first"
            )
