"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import RuntimeError as _RuntimeError, bool as _bool, int as _int, str as _str
from collections.abc import Callable as _Callable
from typing import Any as _Any, NoReturn as _NoReturn

class ONNXProgram: ...
class OnnxExporterError(_RuntimeError):
    ...
from rushlight.onnx import backend as backend
from rushlight.onnx import errors as errors
def export(*args: _Any, **kwargs: _Any) -> _NoReturn: ...
from rushlight.onnx import importing as importing
def is_in_onnx_export() -> _bool: ...
from rushlight.onnx.importing.module import load as load
def register_custom_op_symbolic(symbolic_name: _str, symbolic_fn: _Callable[..., _Any], opset_version: _int) -> None: ...
from rushlight.onnx import symbolic_helper as symbolic_helper
from rushlight.onnx import symbolic_opset11 as symbolic_opset11
