"""Variables of the environment, a free port, and words that stand for a worker's number."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from string import Template
from typing import Any

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]


def get_env_variable_or_raise(env_name: str) -> str:
    """The value of a variable of the environment; ValueError where it is not set."""
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value


def get_socket_with_port() -> socket.socket:
    """A socket that listens on a free port of loopback; RuntimeError where none can be made.

    >>> with get_socket_with_port() as held:
    ...     held.getsockname()[1] > 0
    True
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.bind(("localhost", 0))
            made.listen(0)
            return made
        except OSError:
            made.close()
    raise RuntimeError("Failed to create a socket")


class macros:
    """Words in a worker's arguments that stand for what is known when it is started.

    >>> macros.substitute(["--device", macros.local_rank], "1")
    ['--device', '1']
    """

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: Iterable[Any], local_rank: str) -> list[str]:
        """The arguments, with the worker's number for `local_rank`."""
        return [Template(x).safe_substitute(local_rank=local_rank) if isinstance(x, str) else x for x in args]
