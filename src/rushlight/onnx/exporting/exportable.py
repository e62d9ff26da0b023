"""`torch.onnx.ExportableModule`: a module that says itself how it is exported."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.nn.modules.module import Module

__all__ = ["ExportableModule"]


class ExportableModule(Module, ABC):
    """A module with example arguments, names and sizes that vary: `torch.onnx.export(module)` needs nothing else.

    >>> import rushlight as torch
    >>> class Twice(torch.onnx.ExportableModule):
    ...     def forward(self, x):
    ...         return x * 2
    ...     def example_arguments(self):
    ...         return (torch.ones(3),), None
    ...     def input_names(self):
    ...         return ["numbers"]
    >>> Twice().to_onnx(verbose=False).model_proto.graph.input[0].name
    'numbers'
    """

    @abstractmethod
    def example_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any] | None]:
        """Example arguments: (positional ones, named ones or None)."""

    def dynamic_shapes(self) -> Any:
        """Sizes that vary, as `torch.export.export` takes them; None for none."""
        return None

    def input_names(self) -> Sequence[str] | None:
        """Names of the inputs; None for those of the program."""
        return None

    def output_names(self) -> Sequence[str] | None:
        """Names of the results; None for those of the program."""
        return None

    def to_onnx(self, **kwargs: Any) -> Any:
        """The module as an `ONNXProgram`; `kwargs` are those of `torch.onnx.export`."""
        return rushlight.onnx.export(self, **kwargs)
