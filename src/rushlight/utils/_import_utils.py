"""`torch.utils._import_utils`: whether optional packages are installed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType

__all__ = ["dill_available", "import_dill"]


def _check_module_exists(name: str) -> bool:
    """Whether a module could be imported; it is not.

    >>> torch.utils._import_utils._check_module_exists("json")
    True
    """
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


@functools.lru_cache
def dill_available() -> bool:
    """Whether `dill` is installed, with which functions can be pickled by value."""
    return _check_module_exists("dill")


@functools.lru_cache
def import_dill() -> ModuleType | None:
    """The module `dill`, told to leave the standard pickler alone; None where it is not installed."""
    if not dill_available():
        return None
    dill = importlib.import_module("dill")
    dill.extend(use_dill=False)
    return dill
