"""The names of `torch.export` that programs need in order to be imported: programs are not exported here yet, and using
one of them raises NotImplementedError.
"""

from __future__ import annotations

from rushlight._interface.base import absent_class, absent_function

__all__ = ["Dim", "ExportedProgram", "export", "load", "save"]

_WHY = "programs are not exported yet"

ExportedProgram, Dim = absent_class("torch.export.ExportedProgram", _WHY), absent_class("torch.export.Dim", _WHY)
export, save, load = (absent_function(f"torch.export.{name}", _WHY) for name in ("export", "save", "load"))
