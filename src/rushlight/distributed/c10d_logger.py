"""`torch.distributed.c10d_logger`: what collectives log, and decorators that log what they raise."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from rushlight import distributed as dist

__all__: list[str] = []

P = ParamSpec("P")
R = TypeVar("R")
_DEFAULT_DESTINATION = "default"
_FORMAT = "%(asctime)s %(filename)s:%(lineno)s %(levelname)s p:%(processName)s t:%(threadName)s: %(message)s"
# Destination -> its handler; programs add theirs.
_log_handlers: dict[str, logging.Handler] = {_DEFAULT_DESTINATION: logging.NullHandler()}


def _get_logging_handler(destination: str = _DEFAULT_DESTINATION) -> tuple[logging.Handler, str]:
    handler = _log_handlers[destination]
    return handler, f"{type(handler).__name__}-{destination}"


def _get_or_create_logger(destination: str = _DEFAULT_DESTINATION) -> logging.Logger:
    handler, name = _get_logging_handler(destination)
    logger = logging.getLogger(f"c10d-{name}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger.addHandler(handler)
    return logger


_c10d_logger = _get_or_create_logger()


def _get_msg_dict(func_name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The name of a call, and its group where there is one."""
    if not dist.is_initialized():
        return {"func_name": func_name}
    group = kwargs.get("group") or kwargs.get("process_group")
    return {
        "func_name": func_name,
        "backend": str(dist.get_backend(group)),
        "world_size": str(dist.get_world_size()),
        "group_size": str(dist.get_world_size(group)),
        "global_rank": str(dist.get_rank()),
        "local_rank": str(dist.get_rank(group)),
    }


def _exception_logger(func: Callable[P, R]) -> Callable[P, R]:
    """Log what a function raises, and raise it."""

    @functools.wraps(func)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            _c10d_logger.debug({**_get_msg_dict(func.__name__, *args, **kwargs), "error": str(error)})
            raise

    return wrapper
