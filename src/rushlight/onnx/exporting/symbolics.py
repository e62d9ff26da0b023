"""The translations as symbolic functions, `f(g, *args)`: what pages like `torch.onnx.symbolic_opset11` have.

They write for the opset of the export, whichever page they are taken from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.onnx.exporting.table import translations

__all__ = ["symbolic_named"]


def symbolic_named(name: str) -> Callable[..., Any]:
    """The symbolic function of an aten operator; AttributeError for an operator without a translation."""
    if name.startswith("__"):
        raise AttributeError(name)
    table = translations()
    found = [k for k in table if k == f"aten::{name}" or k.startswith(f"aten::{name}.")]
    if not found:
        raise AttributeError(f"no translation of aten::{name} to ONNX")
    translation = table[found[0]]

    def symbolic(g: Any, *args: Any, **kwargs: Any) -> Any:
        return translation(g.call, *args, **kwargs)

    symbolic.__name__ = name
    return symbolic
