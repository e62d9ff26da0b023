"""`torch._logging`: which reports of the compiler are printed.

>>> import rushlight as torch
>>> torch._logging.set_logs(graph_breaks=True, recompiles=True)
>>> torch._logging.set_logs()
"""

from __future__ import annotations

import logging
import os
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.compiler.journal import ARTIFACTS, COMPONENTS, apply_settings

__all__ = ["getArtifactLogger", "set_logs", "warning_once"]


@trace_marks.changes_later_calls
def set_logs(*, modules: dict[str, int | bool] | None = None, **settings: Any) -> None:
    """Print the reports that are named, and no others: `graph_breaks=True`, `recompiles=True`, `guards=True`,
    `dynamo=logging.INFO`, ...

    Names are those of `TORCH_LOGS`; ValueError for an unknown one, and for a value of the wrong type.  Where the
    environment has `TORCH_LOGS`, that holds, and a warning is logged.
    """
    if os.environ.get("TORCH_LOGS"):
        logging.getLogger(__name__).warning(
            "Using TORCH_LOGS environment variable for log settings, ignoring call to set_logs"
        )
        return
    wanted = {**settings, **(modules or {})}
    for name, value in settings.items():
        if name not in ARTIFACTS and name not in COMPONENTS:
            raise ValueError(f"Unrecognized log or artifact name passed to set_logs: {name}")
        if name in ARTIFACTS and not isinstance(value, bool):
            raise ValueError(f"Expected bool to enable artifact {name}, received {value}")
        if name in COMPONENTS and value is not None and value not in logging._nameToLevel.values():
            raise ValueError(f"Unrecognized log level for log {name}: {value}, valid level values are: {_LEVELS}")
    apply_settings(wanted)


_LEVELS = "DEBUG, INFO, WARNING, ERROR, CRITICAL of `logging`"


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:
    """The logger of an artifact of a module; ValueError for an unknown artifact."""
    if artifact_name not in ARTIFACTS:
        raise ValueError(
            f"Artifact name: {artifact_name!r} not registered, please call register_artifact({artifact_name!r}) first"
        )
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


_said: set[tuple[Any, ...]] = set()


def warning_once(logger_obj: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """A warning that is logged once."""
    if args not in _said:
        _said.add(args)
        logger_obj.warning(*args, **kwargs)
