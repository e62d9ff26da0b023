"""Engines of quantized layers: QNNPACK, FBGEMM and oneDNN are not here, so there is none to choose."""

from __future__ import annotations

from typing import Any

from rushlight.backends.pages import make_page

__all__ = ["QuantizedEngine"]


engine: str
supported_engines: list[str]


class QuantizedEngine:
    """The engine in use, and those that can be chosen."""

    def __init__(self, m: Any = None, name: str = "") -> None:
        self.m, self.name = m, name

    @property
    def supported_engines(self) -> list[str]:
        """Those that can be chosen."""
        return ["none"]

    @property
    def engine(self) -> str:
        """The one in use; RuntimeError for setting one that is not there."""
        return "none"

    @engine.setter
    def engine(self, value: str) -> None:
        if value != "none":
            raise RuntimeError(
                f"{value} is not a valid value for quantized engine: rushlight has none of PyTorch's engines"
            )


_ENGINE = QuantizedEngine()


class _Engine:
    def get(self) -> str:
        return _ENGINE.engine

    def set(self, value: Any) -> None:
        _ENGINE.engine = value


class _Supported:
    def get(self) -> list[str]:
        return _ENGINE.supported_engines

    def set(self, value: Any) -> None:
        raise RuntimeError("Assignment not supported")


make_page(__name__, engine=_Engine(), supported_engines=_Supported())
