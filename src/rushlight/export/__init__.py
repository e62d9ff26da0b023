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

from rushlight._interface.base import LazyModule, lazy_files, trace_marks

__all__ = [
    "AdditionalInputs", "Constraint", "CustomDecompTable", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram",
    "FlatArgsAdapter", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "UnflattenedModule", "default_decompositions", "dims",
    "draft_export", "export", "load", "register_dataclass", "save", "unflatten",
]  # fmt: skip

_archives: Any = LazyModule("rushlight.export.pt2_archive")
_dataclasses: Any = LazyModule("rushlight.export._dataclasses")
_drafting: Any = LazyModule("rushlight.export._draft")
_unflattening: Any = LazyModule("rushlight.export.unflatten")
_exporting: Any = LazyModule("rushlight.export._trace")

_MODULES = ("decomp_utils", "dynamic_shapes", "exported_program", "graph_signature", "pt2_archive")
__getattr__ = lazy_files(
    "rushlight.export",
    {
        "AdditionalInputs": "dynamic_shapes", "Constraint": "dynamic_shapes", "Dim": "dynamic_shapes", "ShapesCollection": "dynamic_shapes",
        "dims": "dynamic_shapes", "CustomDecompTable": "decomp_utils", "ExportBackwardSignature": "graph_signature",
        "ExportGraphSignature": "graph_signature", "ExportedProgram": "exported_program", "ModuleCallEntry": "exported_program",
        "ModuleCallSignature": "exported_program", "default_decompositions": "exported_program", "FlatArgsAdapter": "unflatten", "UnflattenedModule": "unflatten",
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
    - `strict`: first let the compiler follow the program's Python, and raise `Unsupported` where that is no whole graph;
      the graph is the same
    - `preserve_module_call_signature`: names of submodules that `unflatten` makes callable as in Python; each of their
      calls must have arguments of one structure

    ValueError for what is no module; `torch._dynamo.exc.UserError` for specs that fit no argument, and where the program
    does not hold for all sizes that were promised.
    """
    return _exporting.exported(mod, args, kwargs, dynamic_shapes, strict, preserve_module_call_signature)


@trace_marks.changes_later_calls
def save(
    ep: Any,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Write a program to a file (`.pt2`): its graph as JSON, its tensors as their bytes; PyTorch 2.13 reads it.

    - `f`: a path, or what can be written to
    - `extra_files`: further records, by name

    TypeError for another object than an `ExportedProgram`.

    >>> import io
    >>> import rushlight as torch
    >>> file = io.BytesIO()
    >>> torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(3),)), file)
    >>> _ = file.seek(0)
    >>> torch.export.load(file).module()(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    _archives.package_pt2(f, exported_programs={"model": ep}, extra_files=extra_files, opset_version=opset_version)


@trace_marks.changes_later_calls
def load(
    f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: dict[str, int] | None = None
) -> Any:
    """The program of a file that `save` wrote, here or in PyTorch 2.13.

    `extra_files` gets the records of the names it has.  Nothing of the file is run: RuntimeError for a file that is
    damaged, or calls what is no operator.
    """
    found = _archives.load_pt2(f, expected_opset_version=expected_opset_version)
    if "model" not in found.exported_programs:
        raise RuntimeError(f"torch.export.load: there are the programs {list(found.exported_programs)}, and no 'model'")
    for name in extra_files or {}:
        if name in found.extra_files:
            extra_files[name] = found.extra_files[name].decode()  # type: ignore[index]
    return found.exported_programs["model"]


def draft_export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> Any:
    """As `export`; where the program does not hold for all promised sizes, the promise is dropped, with a warning.

    `program._report` says what was in the way.
    """
    return _drafting.drafted(mod, args, kwargs, dynamic_shapes, strict, preserve_module_call_signature)


def register_dataclass(
    cls: type, *, serialized_type_name: str | None = None, field_names: Any = None, drop_field_names: Any = None
) -> None:
    """From now on a dataclass is a container: its fields are inputs and results of exported programs.

    >>> import dataclasses
    >>> import rushlight as torch
    >>> @dataclasses.dataclass
    ... class Pair:
    ...     x: torch.Tensor
    ...     y: torch.Tensor
    >>> torch.export.register_dataclass(Pair, serialized_type_name="docs.Pair")
    >>> class Swap(torch.nn.Module):
    ...     def forward(self, pair):
    ...         return Pair(pair.y, pair.x)
    >>> program = torch.export.export(Swap(), (Pair(torch.ones(1), torch.zeros(1)),))
    >>> program.module()(Pair(torch.ones(1), torch.zeros(1)))
    Pair(x=tensor([0.]), y=tensor([1.]))
    """
    _dataclasses.registered(cls, serialized_type_name, field_names, drop_field_names)


def unflatten(module: Any, flat_args_adapter: Any = None) -> Any:
    """See `torch.export.unflatten.unflatten`: the program as modules in modules, like those of the original one."""
    return _unflattening.unflatten(module, flat_args_adapter)
