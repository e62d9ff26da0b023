"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, dict as _dict, int as _int, str as _str, tuple as _tuple, type as _type
from collections.abc import Callable as _Callable, Collection as _Collection, Mapping as _Mapping, Sequence as _Sequence
from enum import Enum as _Enum
from rushlight.onnx import OperatorExportTypes as _OperatorExportTypes, TrainingMode as _TrainingMode
from typing import Any as _Any

from rushlight.onnx.exporting.exportable import ExportableModule as ExportableModule
from rushlight.onnx.exporting.observer import InputObserver as InputObserver
from rushlight.onnx.exporting.program import ONNXProgram as ONNXProgram
from rushlight.onnx.errors import OnnxExporterError as OnnxExporterError
class OperatorExportTypes(_Enum):
    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3
class TrainingMode(_Enum):
    EVAL = 0
    PRESERVE = 1
    TRAINING = 2
from rushlight.onnx import backend as backend
from rushlight.onnx import errors as errors
def export(model: _Any, args: _tuple[_Any, ...] = (), f: _Any = None, *, kwargs: _dict[_str, _Any] | None = None, verbose: _bool | None = None, input_names: _Sequence[_str] | None = None, output_names: _Sequence[_str] | None = None, opset_version: _int | None = None, dynamo: _bool = True, external_data: _bool = True, dynamic_shapes: _Any = None, custom_translation_table: _Mapping[_Any, _Any] | None = None, report: _bool = False, optimize: _bool = True, verify: _bool = False, profile: _bool = False, dump_exported_program: _bool = False, artifacts_dir: _Any = '.', export_params: _bool = True, keep_initializers_as_inputs: _bool = False, dynamic_axes: _Mapping[_str, _Any] | None = None, training: _TrainingMode = ..., operator_export_type: _OperatorExportTypes = ..., do_constant_folding: _bool = True, custom_opsets: _Mapping[_str, _int] | None = None, export_modules_as_functions: _bool | _Collection[_type[_Any]] = False, autograd_inlining: _bool = True) -> _Any: ...
from rushlight.onnx import exporting as exporting
from rushlight.onnx import importing as importing
def is_in_onnx_export() -> _bool: ...
from rushlight.onnx.importing.module import load as load
from rushlight.onnx import operators as operators
from rushlight.onnx import ops as ops
def register_custom_op_symbolic(symbolic_name: _str, symbolic_fn: _Callable[..., _Any], opset_version: _int) -> None: ...
from rushlight.onnx import symbolic_helper as symbolic_helper
from rushlight.onnx import symbolic_opset10 as symbolic_opset10
from rushlight.onnx import symbolic_opset11 as symbolic_opset11
from rushlight.onnx import symbolic_opset12 as symbolic_opset12
from rushlight.onnx import symbolic_opset13 as symbolic_opset13
from rushlight.onnx import symbolic_opset14 as symbolic_opset14
from rushlight.onnx import symbolic_opset15 as symbolic_opset15
from rushlight.onnx import symbolic_opset16 as symbolic_opset16
from rushlight.onnx import symbolic_opset17 as symbolic_opset17
from rushlight.onnx import symbolic_opset18 as symbolic_opset18
from rushlight.onnx import symbolic_opset9 as symbolic_opset9
def unregister_custom_op_symbolic(symbolic_name: _str, opset_version: _int) -> None: ...
