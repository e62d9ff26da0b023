"""`torch.export`: whole programs as graphs of operators that say what each input and result is.

>>> import rushlight as torch
>>> class Scale(torch.nn.Module):
...     def forward(self, x):
...         return torch.sin(x) * 2
>>> program = torch.export.export(Scale(), (torch.ones(3),))
>>> print(program.graph_module.code.strip())
def forward(self, x):
    sin = torch.ops.aten.sin.default(x);  x = None
    mul = torch.ops.aten.mul.Tensor(sin, 2);  sin = None
    return (mul,)
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import LazyModule, absent_class, absent_function, lazy_files

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "default_decompositions", "dims",
    "draft_export", "export", "load", "register_dataclass", "save", "unflatten",
]  # fmt: skip

_exporting: Any = LazyModule("rushlight.export._trace")

_WHY = "that part of torch.export is not there yet"
CustomDecompTable, FlatArgsAdapter, UnflattenedModule = (
    absent_class(f"torch.export.{name}", _WHY) for name in ("CustomDecompTable", "FlatArgsAdapter", "UnflattenedModule")
)
draft_export, load, register_dataclass, save, unflatten = (
    absent_function(f"torch.export.{name}", _WHY)
    for name in ("draft_export", "load", "register_dataclass", "save", "unflatten")
)
_MODULES = ("dynamic_shapes", "exported_program", "graph_signature")
__getattr__ = lazy_files(
    "rushlight.export",
    {
        "AdditionalInputs": "dynamic_shapes", "Constraint": "dynamic_shapes", "Dim": "dynamic_shapes", "ShapesCollection": "dynamic_shapes",
        "dims": "dynamic_shapes", "ExportBackwardSignature": "graph_signature",
        "ExportGraphSignature": "graph_signature", "ExportedProgram": "exported_program", "ModuleCallEntry": "exported_program",
        "ModuleCallSignature": "exported_program", "default_decompositions": "exported_program",
    },
    _MODULES,
)  # fmt: skip


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> Any:
    """The program that a module is, as an `ExportedProgram`: the operators that run on `args` and `kwargs`.

    - `dynamic_shapes`: which sizes may vary: for each argument None, or for its dims `Dim("batch")`, `Dim.AUTO`,
      `Dim.DYNAMIC`, `Dim.STATIC`; by the names of the arguments or in their order, or a `ShapesCollection` or
      `AdditionalInputs`.  All other sizes and all numbers are constants of the program.
    - `preserve_module_call_signature`: submodules whose inputs and results `unflatten` keeps

    ValueError for what is no module; `torch._dynamo.exc.UserError` for specs that fit no argument, and where the program
    does not hold for all sizes that were promised.
    """
    return _exporting.exported(mod, args, kwargs, dynamic_shapes, strict, preserve_module_call_signature)
