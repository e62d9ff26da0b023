"""`torch.classes`: the namespaces of classes that are written in C++.  There are none here, and every look says so."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["classes"]


class _Namespace:
    """The classes of one library."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"Tried to instantiate class '{self.name}.{name}', but it does not exist: rushlight loads no classes that are written in C++"
        )


class _Classes:
    """`torch.classes.LIBRARY.CLASS`.

    >>> torch.classes.loaded_libraries
    set()
    """

    loaded_libraries: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Namespace(name)

    def load_library(self, path: str) -> NoReturn:
        """NotImplementedError: a library of C++ is written against PyTorch's headers."""
        raise NotImplementedError(f"torch.classes.load_library: rushlight loads no libraries of C++, asked for {path}")


classes = _Classes()
