"""Engines of quantized layers: kernels are generated, whatever the name; names choose default qconfigs where they are given."""

from __future__ import annotations

from typing import Any

from rushlight.backends.pages import make_page

__all__ = ["QuantizedEngine"]


engine: str
supported_engines: list[str]


class QuantizedEngine:
    """The engine in use, and those that can be chosen."""

    def __init__(self, m: Any = None, name: str = "") -> None:
        self.m, self.name, self._name = m, name, "x86"

    @property
    def supported_engines(self) -> list[str]:
        """Those that can be chosen."""
        return ["qnnpack", "onednn", "x86", "fbgemm"]

    @property
    def engine(self) -> str:
        """The name in use; RuntimeError for setting an unknown one.  All names stand for the kernels of this library."""
        return self._name

    @engine.setter
    def engine(self, value: str) -> None:
        if value not in self.supported_engines:
            raise RuntimeError(
                f"{value} is not a valid value for quantized engine: it is one of {self.supported_engines}"
            )
        self._name = value


_ENGINE = QuantizedEngine()


class _Engine:
    outlasts = True  # as in PyTorch, the engine is no flag

    def get(self) -> str:
        return _ENGINE.engine

    def set(self, value: Any) -> None:
        _ENGINE.engine = value


class _Supported:
    outlasts = True

    def get(self) -> list[str]:
        return _ENGINE.supported_engines

    def set(self, value: Any) -> None:
        raise RuntimeError("Assignment not supported")


make_page(__name__, engine=_Engine(), supported_engines=_Supported())
