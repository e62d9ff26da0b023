"""Neural networks: modules, parameters, functions without state, initialisation, and tools for parameters."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PAGES = ("_reduction", "attention", "common_types", "functional", "grad", "init", "modules", "parallel", "parameter", "utils")
_PARAMETERS = ("Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "factory_kwargs")

__all__ = ["Buffer", "Module", "Parameter", "functional", "init", "modules", "parameter", "utils"]


def __getattr__(name: str) -> Any:
    # Everything is loaded by its first use, so that importing the package costs nothing.
    if name in _PAGES:
        return import_module(f"{__name__}.{name}")
    if name.startswith("__"):
        raise AttributeError(name)
    source = "parameter" if name in _PARAMETERS else "parallel" if name == "DataParallel" else "modules"
    value = getattr(import_module(f"{__name__}.{source}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    modules = import_module(f"{__name__}.modules")
    return sorted({*globals(), *_PAGES, *_PARAMETERS, "DataParallel", *modules.__all__})
