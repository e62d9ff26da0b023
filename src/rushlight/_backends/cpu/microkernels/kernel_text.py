"""Shape of the inner kernels: LLVM text, the symbols that it defines, and a key under which it is compiled once."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["FunctionText", "KernelText"]


class KernelText(ABC):
    """Functions written as LLVM text."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> str:
        """Everything that `text` depends on: equal keys stand for equal texts."""

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The symbols that `text` defines."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The LLVM text."""


class FunctionText(KernelText):
    """One function, `symbol`."""

    __slots__ = ("symbol",)

    symbol: str

    @property
    def symbols(self) -> tuple[str, ...]:
        return (self.symbol,)
