"""`triton.language.extra.libdevice`: elementary functions under the names of libdevice, on every machine.

The names that begin with `fast_` are not less accurate here.
"""

from __future__ import annotations

from typing import Any

from ..._semantics.libdevice import ABSENT
from ..._semantics.mathematics import FUNCTIONS

__all__: list[str] = []  # the names come by `__getattr__`


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in ABSENT:
        return _refused(name)
    raise AttributeError(f"libdevice has no function {name!r} in rushlight; there are {', '.join(sorted(FUNCTIONS))}")


def _refused(name: str) -> Any:
    """A function that kernels may import, and not call."""

    def function(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"libdevice.{name} is not there in rushlight's Triton language")

    function.__name__ = function.__qualname__ = name
    return function


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
