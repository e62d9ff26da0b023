"""Graphs of TorchScript and the types of their values, under the names of PyTorch's native module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._awaits import _Await
from rushlight.futures import Future
from rushlight.jit.freezing import freeze
from rushlight.jit.ir.copying import copy_graph
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.graph import Block, Graph, Node, Use, Value
from rushlight.jit.ir.parsing import parse_graph, parse_type
from rushlight.jit.ir.passes.constants import fold_constants, pool_constants, remove_dead
from rushlight.jit.ir.passes.inlining import inline_calls
from rushlight.jit.ir.passes.subexpressions import eliminate_common
from rushlight.jit.ir.passes.tuples import lower_simple_tuples
from rushlight.jit.ir.schemas import Argument, parse_schema, variants
from rushlight.jit.ir.schemas import Schema as FunctionSchema
from rushlight.jit.ir.types import ClassType, EnumType, InterfaceType, Type
from rushlight.jit.modules import ScriptFunction, ScriptMethod, ScriptModule
from rushlight.jit.runtime.containers import ScriptDict, ScriptList
from rushlight.jit.units import CompilationUnit
from rushlight.library.aten.schemas import names_of_operators
from rushlight.testing.file_check import FileCheck

__all__ = [
    "AnyType", "Argument", "Block", "BoolType", "ClassType", "CompilationUnit", "ComplexType", "DeviceObjType", "DictType", "EnumType", "FileCheck", "FloatType",
    "FunctionSchema", "Future", "FutureType", "Graph", "IntType", "InterfaceType", "ListType", "Node", "NoneType", "NumberType", "OptionalType", "ScriptDict", "ScriptFunction", "ScriptList", "ScriptMethod", "ScriptModule",
    "StringType", "TensorType", "TupleType", "Type", "UnionType", "Use", "Value", "_Await", "_freeze_module", "parse_ir", "parse_schema", "parse_type",
]  # fmt: skip


class _Named(type):
    """A class of PyTorch's for types that have one name here: for `isinstance`, and to make such a type."""

    word: str

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Type) and (
            value.name == cls.word or cls.word == "Tuple" and value.kind() == "TupleType"
        )

    def get(cls) -> Type:
        """The type."""
        return Type(cls.word)

    def __call__(cls, inner: Type | Sequence[Type], *more: Type) -> Any:
        return Type(cls.word, [inner, *more] if isinstance(inner, Type) else inner)


def _named(name: str, word: str) -> Any:
    return _Named(name, (), {"word": word, "__module__": "torch._C", "__doc__": f"The type `{word}`."})


AnyType, BoolType, ComplexType, DeviceObjType = (
    _named("AnyType", "Any"),
    _named("BoolType", "bool"),
    _named("ComplexType", "complex"),
    _named("DeviceObjType", "Device"),
)
FloatType, IntType, NoneType, NumberType = (
    _named("FloatType", "float"),
    _named("IntType", "int"),
    _named("NoneType", "NoneType"),
    _named("NumberType", "Scalar"),
)
StringType, TensorType = _named("StringType", "str"), _named("TensorType", "Tensor")
FutureType, UnionType = _named("FutureType", "Future"), _named("UnionType", "Union")
DictType, ListType, OptionalType, TupleType = (
    _named("DictType", "Dict"),
    _named("ListType", "List"),
    _named("OptionalType", "Optional"),
    _named("TupleType", "Tuple"),
)


def parse_ir(text: str, parse_tensor_constants: bool = False) -> Graph:
    """The graph of a text, as `str(graph)` prints it."""
    return parse_graph(text, parse_tensor_constants)


def _create_function_from_graph(name: str, graph: Graph) -> ScriptFunction:
    """A function that runs a graph."""
    arguments = [Argument(v.debugName(), v.type) for v in graph.inputs()]
    results = [v.type for v in graph.outputs()]
    kind = results[0] if len(results) == 1 else TupleType(results)
    made = Function(f"__torch__.{name}", schema=FunctionSchema(name, "", arguments, [Argument("", kind)]))
    made.graph = graph
    return ScriptFunction(made)


def _jit_get_schemas_for_operator(name: str) -> list[FunctionSchema]:
    """The overloads of an operator of graphs."""
    return list(variants(name))


def _jit_get_all_schemas() -> list[FunctionSchema]:
    """The overloads of every operator of aten."""
    return [s for name in names_of_operators() for s in variants(f"aten::{name}")]


# ***** passes over graphs *****


def _remove_dead(graph: Any) -> None:
    """Take out what nothing uses, of a graph or a block."""
    remove_dead(graph if isinstance(graph, Graph) else graph.graph)


def _constants(graph: Graph) -> bool:
    """Compute what needs nothing but constants; whether the graph became another."""
    before = str(graph)
    fold_constants(graph)
    return str(graph) != before


_PASSES: dict[str, Callable[..., Any]] = {
    "inline": lambda graph: inline_calls(graph) and None, "dce": _remove_dead, "dce_graph": _remove_dead, "lint": lambda graph: graph.lint(), "cse": eliminate_common,
    "canonicalize": lambda graph, keep_unique_names=True: copy_graph(graph), "constant_propagation": _constants,
    "constant_propagation_immutable_types": _constants, "constant_pooling": pool_constants, "lower_all_tuples": lower_simple_tuples,
}  # fmt: skip


# ***** switches of the executor *****

# Graphs run operator by operator, whatever they say: programs that turn profiling and fusion on or off get the value before.
_SWITCHES = {
    "profiling_executor": True, "profiling_mode": True, "texpr_fuser_enabled": True, "texpr_reductions_enabled": False, "texpr_dynamic_shape_enabled": False,
    "te_must_use_llvm_cpu": True, "nvfuser_enabled": False, "num_profiled_runs": 1, "bailout_depth": 20, "can_fuse_on_cpu": False, "can_fuse_on_gpu": True,
    "can_fuse_on_cpu_legacy": False, "inline_everything_mode": False, "symbolic_shapes_test_mode": False,
}  # fmt: skip
_READ = {
    "can_fuse_on_cpu",
    "can_fuse_on_gpu",
    "can_fuse_on_cpu_legacy",
    "texpr_fuser_enabled",
    "texpr_reductions_enabled",
    "nvfuser_enabled",
}


def _setter(name: str) -> Callable[..., Any]:
    def change(value: Any) -> Any:
        before, _SWITCHES[name] = _SWITCHES[name], value
        return before

    return change


def _functions_of_switches() -> dict[str, Callable[..., Any]]:
    """`_jit_set_...` or `_jit_override_...`, and what reads each."""
    made: dict[str, Callable[..., Any]] = {}
    for name in _SWITCHES:
        made[f"_jit_override_{name}" if name.startswith("can_fuse") else f"_jit_set_{name}"] = _setter(name)
        made[f"_jit_{name}" if name in _READ else f"_jit_get_{name}"] = lambda name=name: _SWITCHES[name]
    made["_jit_symbolic_shapes_test_mode_enabled"] = made["_jit_get_symbolic_shapes_test_mode"]
    return made


def _freeze_module(
    module: Any, preservedAttrs: Sequence[str] = (), freezeInterfaces: bool = True, preserveParameters: bool = False
) -> Any:
    """`torch.jit.freeze` of a module's native object, without folding of norms; it gives such an object."""
    if preserveParameters:
        raise NotImplementedError("_freeze_module with preserveParameters: parameters become constants")
    whole = module.module if hasattr(module, "module") else module
    return freeze(whole, preservedAttrs, False, freezeInterfaces)._c


_FUNCTIONS = (
    _functions_of_switches()
    | {"_jit_get_schemas_for_operator": _jit_get_schemas_for_operator, "_jit_get_all_schemas": _jit_get_all_schemas}
    | {f"_jit_pass_{name}": function for name, function in _PASSES.items()}
)
