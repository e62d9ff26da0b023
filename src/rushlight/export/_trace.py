"""`export`: a module and example inputs become an `ExportedProgram`."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import rushlight
from rushlight import SymBool, SymFloat, SymInt, compiler
from rushlight._dynamo.exc import UserError, UserErrorType
from rushlight.export._guards import InputGuards
from rushlight.export._preserved import entries
from rushlight.export._tracing import Input, Traced, class_name, state_of, trace_module
from rushlight.export.dynamic_shapes import specs_of_leaves
from rushlight.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from rushlight.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from rushlight.fx.node import Node
from rushlight.jit.modules import is_compiled
from rushlight.nn.modules.module import Module
from rushlight.utils._pytree import tree_flatten, tree_map

__all__ = ["exported"]

_KINDS = {
    "parameter": InputKind.PARAMETER,
    "buffer": InputKind.BUFFER,
    "constant": InputKind.CONSTANT_TENSOR,
    "user": InputKind.USER_INPUT,
}
_ADVICE = (
    "\n\nThe error above occurred when calling torch.export.export. If you would like to view some more information about this error, "
    "and get a list of all other errors that may occur in your export call, you can replace your `export()` call with `draft_export()`."
)


def exported(
    mod: Any, args: Any, kwargs: Any, dynamic_shapes: Any, strict: bool, preserve: Any = ()
) -> ExportedProgram:
    """See `torch.export.export`."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if is_compiled(mod):
        raise ValueError(
            "Exporting a ScriptModule is not supported: export the module that it was made of, or call it without export"
        )
    if not isinstance(args, tuple):
        raise UserError(
            UserErrorType.INVALID_INPUT,
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}",
        )
    for name in preserve:
        mod.get_submodule(name)
    kwargs = kwargs or {}
    if strict:
        _check_strictly(mod, args, kwargs)
    leaves = specs_of_leaves(mod, args, kwargs, dynamic_shapes)
    in_spec = tree_flatten((args, kwargs))[1]
    traced = trace_module(mod, leaves, in_spec, tuple(preserve))
    traced.sizes.checked()
    names = _argument_names(mod, args, kwargs)
    signature = ExportGraphSignature([input_spec(i) for i in traced.inputs], [_output_spec(r) for r in traced.results])
    state = state_of(mod)
    hidden = {n: v for n, v in state.buffers.items() if not state.persistent[n]}
    kept = {**state.parameters, **{n: v for n, v in state.buffers.items() if state.persistent[n]}}
    calls = [ModuleCallEntry("", ModuleCallSignature([], [], in_spec, traced.out_spec, names))]
    calls += entries(traced.preserved, [name for name in traced.modules if name], argument_spec)
    made = ExportedProgram(
        traced.root, traced.graph, signature, kept, traced.sizes.ranges(), calls, (args, kwargs), {**hidden, **traced.constants}
    )  # fmt: skip
    made._shape_env, made._guards = traced.sizes.env, InputGuards.of(traced)
    return made


def _check_strictly(mod: Module, args: Any, kwargs: Any) -> None:
    """`Unsupported` where the compiler cannot follow the program's Python as one graph; a copy of the module runs."""
    given, named = tree_map(lambda v: v.detach().clone() if isinstance(v, rushlight.Tensor) else v, (args, kwargs))
    before = compiler._is_exporting_flag
    compiler._is_exporting_flag = True
    try:
        with rushlight.random.fork_rng():
            rushlight.compile(copy.deepcopy(mod), backend="eager", fullgraph=True)(*given, **named)
    finally:
        compiler._is_exporting_flag = before


def _argument_names(mod: Module, args: Any, kwargs: Any) -> list[str]:
    """The names of the arguments of a call; of `*args` one for each."""
    names: list[str] = []
    count = len(args)
    for parameter in inspect.signature(mod.forward).parameters.values():
        if len(names) == count or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            break
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{n}" for n in range(count - len(names))]
        else:
            names.append(parameter.name)
    return [*names, *kwargs]


def argument_spec(name: str, value: Any) -> Any:
    """Argument spec of the value of a node."""
    if isinstance(value, rushlight.Tensor):
        return TensorArgument(name)
    if isinstance(value, SymBool):
        return SymBoolArgument(name)
    if isinstance(value, SymInt) and type(value) is not int:
        return SymIntArgument(name)
    if isinstance(value, SymFloat) and type(value) is not float:
        return SymFloatArgument(name)
    return ConstantArgument(name, value)


def input_spec(each: Input) -> InputSpec:
    """The spec of a placeholder."""
    return InputSpec(
        _KINDS[each.kind], argument_spec(each.node.name, each.node.meta["val"]), each.target, each.persistent
    )


def _output_spec(result: Any) -> OutputSpec:
    if isinstance(result, Node):
        return OutputSpec(OutputKind.USER_OUTPUT, argument_spec(result.name, result.meta["val"]), None)
    return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", result), None)


__all__ += ["Traced", "argument_spec", "class_name", "input_spec"]
