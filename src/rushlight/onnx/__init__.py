"""`torch.onnx`: models as ONNX files, which other runtimes read.

>>> import rushlight as torch
>>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
>>> program = torch.onnx.export(model, (torch.ones(2, 4),), dynamic_shapes=({0: "batch"},), verbose=False)
>>> print(program)
ONNXProgram(
    opset ai.onnx 20
    inputs: input
    linear = Gemm(input, 0.weight, 0.bias)
    relu = Relu(linear)
    outputs: relu
)

The package `onnx` writes the files: `pip install 'rushlight[onnx]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from rushlight._interface.base import LazyModule, lazy_files
from rushlight.onnx.errors import OnnxExporterError

__all__ = [
    "ExportableModule", "InputObserver", "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TrainingMode", "export", "is_in_onnx_export",
    "load", "register_custom_op_symbolic", "unregister_custom_op_symbolic",
]  # fmt: skip

_exporter: Any = LazyModule("rushlight.onnx.exporting.exporter")
_capture: Any = LazyModule("rushlight.onnx.exporting.capture")
_exportable: Any = LazyModule("rushlight.onnx.exporting.exportable")
_custom: Any = LazyModule("rushlight.onnx.exporting.custom")

__getattr__ = lazy_files(
    "rushlight.onnx",
    {
        "ONNXProgram": "exporting.program",
        "ExportableModule": "exporting.exportable",
        "InputObserver": "exporting.observer",
        "load": "importing.module",
    },
    ("backend", "errors", "operators", "ops", "symbolic_helper", *[f"symbolic_opset{n}" for n in range(9, 19)]),
)


class TrainingMode(Enum):
    """The mode of a model while it is exported by the classic form."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(Enum):
    """Which operators a model may have: those of ONNX."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def export(
    model: Any,
    args: tuple[Any, ...] = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: Any = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    operator_export_type: OperatorExportTypes = OperatorExportTypes.ONNX,
    do_constant_folding: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool | Collection[type[Any]] = False,
    autograd_inlining: bool = True,
) -> Any:
    """Export a module (or an `ExportedProgram`) to ONNX: an `ONNXProgram`, and a file where `f` is a path.

    - `args`, `kwargs`: example arguments; tensors become inputs, numbers are constants of the model
    - `input_names`, `output_names`: names in order; else those of the program
    - `opset_version`: 17 to 23 (20 by default); older ones by way of onnx's converter
    - `dynamic_shapes`: sizes that vary, as for `torch.export.export`, or names: `({0: "batch"},)`
    - `dynamic_axes`: the same by names of inputs: `{"x": {0: "batch"}}`
    - `external_data`: weights of the file go into `<f>.data` beside it; without, all is one file (up to 2 GB)
    - `custom_translation_table`: operator -> function that writes ONNX: one of onnxscript, or one whose first parameter is
      `g` and that calls `g.op("Name", x, alpha_f=0.5)`
    - `optimize`: compute calls of constants (`do_constant_folding` in the classic form)
    - `verify`: run it by onnxruntime and compare; OnnxExporterError where results differ
    - `report`, `profile`, `dump_exported_program`: files in `artifacts_dir`
    - `export_params=False` leaves the weights out; `keep_initializers_as_inputs` lists them as inputs too
    - `training`: the model's mode while it is exported, of the classic form (`dynamo=False`), which returns None

    `UnsupportedOperatorError` names an operator without an ONNX form, the line of the program, and what would work.
    """
    if operator_export_type is not OperatorExportTypes.ONNX:
        raise NotImplementedError(
            f"torch.onnx.export: {operator_export_type} is not supported: models have operators of ONNX alone"
        )
    if export_modules_as_functions:
        raise NotImplementedError("torch.onnx.export: export_modules_as_functions is not supported")
    if not dynamo and f is None:
        raise ValueError("torch.onnx.export: the classic form (dynamo=False) writes a file: give f")
    if isinstance(model, _exportable.ExportableModule) and not args and not kwargs:
        args, kwargs = model.example_arguments()
        input_names, output_names = input_names or model.input_names(), output_names or model.output_names()
        dynamic_shapes = model.dynamic_shapes() if dynamic_shapes is None else dynamic_shapes
    options = _exporter.Options(
        input_names, output_names, opset_version, dynamo, dynamic_shapes, dynamic_axes, custom_translation_table,
        optimize if dynamo else do_constant_folding, None if dynamo else training,
    )  # fmt: skip
    program = _exporter.exported(model, args, kwargs, options)
    checked = ""
    if verify:
        with _exporter.timed(options, "verify"):
            checked = _exporter.verified(program, model, args, kwargs)
    if report or profile or dump_exported_program:
        _exporter.write_artifacts(program, options, artifacts_dir, report, profile, dump_exported_program, checked)
    if f is not None:
        with _exporter.timed(options, "write"):
            _exporter.write(program, f, external_data and dynamo, keep_initializers_as_inputs, export_params)
    if verbose:
        print(program)
    return program if dynamo else None


def is_in_onnx_export() -> bool:
    """Whether a model is being exported by this thread."""
    return bool(_capture.in_export())


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Let `symbolic_fn(g, *args)` write an operator (`ns::name`) at an opset and those after it.

    It takes precedence of the translation that exists; ValueError for a name of another form.

    >>> import rushlight as torch
    >>> register_custom_op_symbolic("aten::silu", lambda g, x: g.op("my.domain::Swish", x), 17)
    >>> program = torch.onnx.export(torch.nn.SiLU(), (torch.ones(2),))
    >>> [(node.domain, node.op_type) for node in program.model_proto.graph.node]
    [('my.domain', 'Swish')]
    >>> unregister_custom_op_symbolic("aten::silu", 17)
    """
    _custom.register(symbolic_name, symbolic_fn, opset_version)


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Take back `register_custom_op_symbolic`."""
    _custom.unregister(symbolic_name, opset_version)
