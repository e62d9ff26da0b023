"""`torch.ops`: operators by namespace and name; `aten` has the package's own, all others are users'.

>>> import rushlight as torch
>>> torch.ops.aten.add.Tensor(torch.ones(2), torch.ones(2))
tensor([2., 2.])
"""

from __future__ import annotations

from typing import Any

from rushlight.library.libraries import REFUSED as refused_libraries
from rushlight.library.operators import namespace as _namespace

__all__ = ["load_library", "loaded_libraries"]

loaded_libraries: set[str] = set()


class LibraryRefusedError(NotImplementedError, OSError):
    """A library of compiled operators that cannot be loaded; programs that can do without it expect OSError."""


def load_library(path: Any) -> None:
    """NotImplementedError (an OSError too): libraries of operators are compiled for PyTorch's own interface, which is
    not here.

    OSError where there is no such file.
    """
    import os

    if not os.path.exists(path):
        raise OSError(f"Could not load this library: {path}")
    refused_libraries.add(str(path))
    raise LibraryRefusedError(
        f"rushlight loads no libraries of compiled operators ({path}): they are made for PyTorch's own interface. "
        "Operators in Python are defined with torch.library."
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    if name == "higher_order":
        from importlib import import_module

        import_module("rushlight._higher_order_ops.operators")
    if name in ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"):
        from importlib import import_module

        import_module("rushlight.distributed._ops")
    if name == "prims":
        from importlib import import_module

        import_module("rushlight.library.prims")
    if name == "quantized":
        from importlib import import_module

        return import_module("rushlight.ao.operators").QuantizedNamespace.instance()
    return _namespace(name)
