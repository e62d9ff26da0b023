"""Neural networks: modules, parameters, functions without state, initialisation, and tools for parameters."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import import_whole, no_name, shorten

_PAGES = (
    "_reduction",
    "attention",
    "common_types",
    "functional",
    "grad",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
)
_OLDER = ("intrinsic", "qat", "quantizable", "quantized")  # packages that are in `torch.ao.nn` now
_PARAMETERS = ("Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "factory_kwargs")

__all__ = ["Buffer", "Module", "Parameter", "functional", "init", "modules", "parameter", "utils"]


def __getattr__(name: str) -> Any:
    try:
        # Everything is loaded by its first use, so that importing the package costs nothing.
        if name in _PAGES:
            return import_whole(f"{__name__}.{name}")
        if name in _OLDER:
            return import_whole(f"rushlight.ao.nn.{name}")
        if name.startswith("__"):
            raise AttributeError(name)
        source = "parameter" if name in _PARAMETERS else "parallel" if name == "DataParallel" else "modules"
        page = import_whole(f"{__name__}.{source}")
        try:
            value = getattr(page, name)
        except AttributeError:
            raise no_name(__name__, name) from None
        globals()[name] = value
        return value
    except BaseException as error:
        shorten(error)
        raise


def __dir__() -> list[str]:
    modules = import_whole(f"{__name__}.modules")
    return sorted({*globals(), *_PAGES, *_PARAMETERS, "DataParallel", *modules.__all__})
