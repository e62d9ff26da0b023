"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, dict as _dict, int as _int, str as _str, tuple as _tuple, type as _type
from typing import Any as _Any

from rushlight.export.dynamic_shapes import AdditionalInputs as AdditionalInputs
from rushlight.export.dynamic_shapes import Constraint as Constraint
from rushlight.export.decomp_utils import CustomDecompTable as CustomDecompTable
from rushlight.export.dynamic_shapes import Dim as Dim
from rushlight.export.graph_signature import ExportBackwardSignature as ExportBackwardSignature
from rushlight.export.graph_signature import ExportGraphSignature as ExportGraphSignature
from rushlight.export.exported_program import ExportedProgram as ExportedProgram
from rushlight.export.unflatten import FlatArgsAdapter as FlatArgsAdapter
from rushlight.export.exported_program import ModuleCallEntry as ModuleCallEntry
from rushlight.export.exported_program import ModuleCallSignature as ModuleCallSignature
from rushlight.export.dynamic_shapes import ShapesCollection as ShapesCollection
from rushlight.export.unflatten import UnflattenedModule as UnflattenedModule
from rushlight.export import decomp_utils as decomp_utils
from rushlight.export.exported_program import default_decompositions as default_decompositions
from rushlight.export.dynamic_shapes import dims as dims
def draft_export(mod: _Any, args: _tuple[_Any, ...], kwargs: _dict[_str, _Any] | None = None, *, dynamic_shapes: _Any = None, preserve_module_call_signature: _tuple[_str, ...] = (), strict: _bool = False, prefer_deferred_runtime_asserts_over_guards: _bool = False) -> _Any: ...
from rushlight.export import dynamic_shapes as dynamic_shapes
def export(mod: _Any, args: _tuple[_Any, ...], kwargs: _dict[_str, _Any] | None = None, *, dynamic_shapes: _Any = None, strict: _bool = False, preserve_module_call_signature: _tuple[_str, ...] = (), prefer_deferred_runtime_asserts_over_guards: _bool = False) -> _Any: ...
from rushlight.export import exported_program as exported_program
from rushlight.export import graph_signature as graph_signature
def load(f: _Any, *, extra_files: _dict[_str, _Any] | None = None, expected_opset_version: _dict[_str, _int] | None = None) -> _Any: ...
from rushlight.export import pt2_archive as pt2_archive
def register_dataclass(cls, *, serialized_type_name: _str | None = None, field_names: _Any = None, drop_field_names: _Any = None) -> None: ...
def save(ep: _Any, f: _Any, *, extra_files: _dict[_str, _Any] | None = None, opset_version: _dict[_str, _int] | None = None, pickle_protocol: _int = 2) -> None: ...
from rushlight.export import unflatten as unflatten
