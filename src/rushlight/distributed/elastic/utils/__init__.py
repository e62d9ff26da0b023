"""`torch.distributed.elastic.utils`: small parts of launchers: ports, stores, variables of the environment."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]

__getattr__ = lazy_files(__name__, dict.fromkeys(__all__, "api"), ("api", "data", "distributed", "logging", "store"))
