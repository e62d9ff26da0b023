"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, dict as _dict, float as _float, int as _int, str as _str
from collections.abc import Iterator as _Iterator, Mapping as _Mapping, Sequence as _Sequence
from rushlight.onnx.exporting.exporter import Options as _Options
from rushlight.onnx.exporting.program import ONNXProgram as _ONNXProgram
from typing import Any as _Any

DEFAULT_OPSET: _int
GREATEST: _int
LEAST: _int
from rushlight.onnx.exporting.program import ONNXProgram as ONNXProgram
from rushlight.onnx.errors import OnnxExporterError as OnnxExporterError
from rushlight.onnx.errors import OnnxExporterWarning as OnnxExporterWarning
class Options:
    input_names: _Sequence[_str] | None
    output_names: _Sequence[_str] | None
    opset: _int | None
    dynamo: _bool
    dynamic_shapes: _Any
    dynamic_axes: _Mapping[_str, _Any] | None
    custom: _Mapping[_Any, _Any] | None
    optimize: _bool
    training: _Any
    steps: _dict[_str, _float]
from rushlight.onnx.exporting.capture import axes_as_shapes as axes_as_shapes
from rushlight.onnx.exporting.build import built as built
from rushlight.onnx.exporting.capture import captured as captured
from rushlight.onnx.exporting.custom import custom_table as custom_table
from rushlight.onnx.exporting.capture import dim_names as dim_names
def exported(model: _Any, args: _Any, kwargs: _Any, options: _Options) -> _ONNXProgram: ...
from rushlight.onnx.exporting.capture import exporting as exporting
from rushlight.onnx.exporting.values import import_onnx as import_onnx
def timed(options: _Options, name: _str) -> _Iterator[None]: ...
def verified(program: _ONNXProgram, model: _Any, args: _Any, kwargs: _Any) -> _str: ...
from rushlight.onnx.exporting.capture import without_names as without_names
def write(program: _ONNXProgram, f: _Any, external: _bool, keep_inputs: _bool, weights: _bool) -> None: ...
def write_artifacts(program: _ONNXProgram, options: _Options, folder: _Any, report: _bool, profile: _bool, dump: _bool, checked: _str) -> None: ...
from rushlight.onnx.exporting.functions import written_by_functions as written_by_functions
