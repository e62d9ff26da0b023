"""Functions of `nn.functional` in the typed subset, written from their signatures and the schemas of their operators.

A function that differs from its operator in the arguments alone needs no form by hand: `inplace` chooses the operator's
in-place form, `return_indices` the operator that gives them, a reduction's word becomes its number, and None stands for
the operator's empty list.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from rushlight.jit.frontend.errors import Source, own_place
from rushlight.jit.ir import types as T
from rushlight.jit.ir.schemas import Argument, Schema, variants
from rushlight.library.aten.calls import aten_name

__all__ = ["Flagged", "Form", "defaults", "derived"]

# Operators under another name than their function.
_OPERATORS = {
    "cross_entropy": "cross_entropy_loss", "nll_loss": "nll_loss_nd", "dropout2d": "feature_dropout", "dropout3d": "feature_dropout",
    "logsigmoid": "log_sigmoid", "affine_grid": "affine_grid_generator",
}  # fmt: skip
_OLD = ("size_average", "reduce")  # what `reduction` was before
_CHOOSE = ("inplace", "return_indices")  # what chooses the operator
_FLAGS = {"cudnn_enabled": "True"}  # arguments of operators that no function has


class Form:
    """A function as it is compiled: its name in scripts, syntax and defaults, and the Python function whose names it may
    use (None: those of the written forms).
    """

    def __init__(self, name: str, node: ast.FunctionDef, source: Source, defaults: dict[str, Any], names: Any) -> None:
        self.name, self.node, self.source, self.defaults, self.names = name, node, source, defaults, names


class Flagged(NamedTuple):
    """A function whose number of results depends on flags: the names and the places of the flags, and a form, which does
    not take them, for the values that they have.
    """

    flags: tuple[tuple[str, int], ...]
    forms: dict[tuple[bool, ...], Form]


class _Pair(NamedTuple):
    """An argument of a function and that of its operator; None where the operator has none."""

    parameter: inspect.Parameter
    argument: Argument | None


@cache
def derived(function: Any, always: bool = False) -> Any:
    """The form of a function: one, or those that a flag chooses from; None where a call of it is a call of its operator
    (unless `always`), or where it is more than that.
    """
    if own_place(function) != "rushlight.nn.functional":
        return None
    renamed = _OPERATORS.get(function.__name__)
    schema = _schema(renamed or aten_name(function))
    if schema is None:
        return None
    parameters = list(inspect.signature(function).parameters.values())
    pairs = _paired(parameters, schema)
    if pairs is None or not (always or renamed) and _same(pairs, schema):
        return None
    if not any(p.parameter.name == "return_indices" for p in pairs):
        return _form(function, pairs, schema)
    both = _schema(f"{schema.name.partition('::')[2]}_with_indices") or schema
    place = next(i for i, p in enumerate(parameters) if p.name == "return_indices")
    forms: dict[tuple[bool, ...], Form] = {
        (False,): _form(function, pairs, schema, first=True),
        (True,): _form(function, pairs, both),
    }
    return Flagged((("return_indices", place),), forms)


def _schema(name: str) -> Schema | None:
    """The first overload of an operator that makes its result."""
    return next((s for s in variants(f"aten::{name}") if not any(a.written for a in s.arguments)), None)


def _paired(parameters: list[inspect.Parameter], schema: Schema) -> list[_Pair] | None:
    """Each parameter with its argument: by name, the first with the first, the others in order; None where it does not
    work out.
    """
    found = {a.name: a for a in schema.arguments}
    named = {p.name: found.pop(p.name) for p in parameters if p.name in found}
    if schema.arguments[0].name not in found and parameters[0].name not in named:
        return None  # another parameter has the place of the first
    if parameters[0].name not in named:
        named[parameters[0].name] = found.pop(schema.arguments[0].name)
    rest = [p for p in parameters if p.name not in named and p.name not in (*_OLD, *_CHOOSE)]
    needed = [a for a in found.values() if not a.has_default_value() and a.name not in _FLAGS]
    if len(needed) > len(rest) or any(p.default is not None for p in rest[len(needed) :]):
        return None
    if any(_filled(p, named.get(p.name)) and named[p.name].type == T.TENSOR for p in parameters):
        return None
    named |= {p.name: a for p, a in zip(rest, needed, strict=False)}
    return [_Pair(p, named.get(p.name)) for p in parameters]


def _same(pairs: list[_Pair], schema: Schema) -> bool:
    """Whether a call of the function is one of the operator, whose names calls may use."""
    for at, (parameter, argument) in enumerate(pairs):
        if argument is None or schema.arguments[at] is not argument or _filled(parameter, argument):
            return False
        if parameter.default is not parameter.empty and not argument.has_default_value():
            return False
        if isinstance(parameter.default, str) and argument.type == T.INT:
            return False
    return True


def _filled(parameter: inspect.Parameter, argument: Argument | None) -> bool:
    """Whether None is given for what the operator wants."""
    return argument is not None and parameter.default is None and argument.type.name != "Optional"


# ***** text *****


def _form(function: Any, pairs: list[_Pair], schema: Schema, first: bool = False) -> Form:
    """The form of a function; `first` gives the first of several results."""
    name = function.__name__
    head = ", ".join(f"{p.parameter.name}: {_annotation(p)}" for p in pairs if p.parameter.name != "return_indices")
    lines = [f"def {name}({head}) -> {_returned(schema, first)}:"]
    lines += [line for p in pairs for line in _prelude(name, p)]
    call = f"{_call(schema, pairs)}{'[0]' if first and len(schema.returns) > 1 else ''}"
    if any(p.parameter.name == "inplace" for p in pairs):
        change = call.replace("(", "_(", 1)
        lines += ["    if inplace:", f"        result = {change}", "    else:", f"        result = {call}"]
    else:
        lines.append(f"    result = {call}")
    text = "\n".join([*lines, "    return result"])
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return Form(name, node, Source(text, name=name), defaults([p.parameter for p in pairs]), None)


def defaults(parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    """The defaults of those that have one."""
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _annotation(pair: _Pair) -> str:
    parameter, argument = pair
    default = parameter.default
    if parameter.name == "inplace":
        return "bool"
    if argument is None:
        return "Optional[bool]" if parameter.name in _OLD else "Optional[Tensor]"
    if isinstance(default, str):
        return "str"
    if argument.type == T.NUMBER:
        return "int" if type(default) is int else "float"
    text = argument.type.annotation
    if argument.N is not None:
        text = re.sub(r"List\[", f"BroadcastingList{argument.N}[", text)
    return f"Optional[{text}]" if _filled(parameter, argument) else text


def _returned(schema: Schema, first: bool) -> str:
    if first or len(schema.returns) == 1:
        return "Tensor"
    return f"Tuple[{', '.join('Tensor' for _ in schema.returns)}]"


def _prelude(name: str, pair: _Pair) -> list[str]:
    """Statements that replace None by its meaning, and refuse values that the operator does not take."""
    parameter, argument = pair
    word = parameter.name
    if argument is None and word not in (*_OLD, *_CHOOSE):
        return [f"    if {word} is not None:",
                f"        raise NotImplementedError('{word} of {name} is not compiled: leave it out')"]  # fmt: skip
    if argument is None or not _filled(parameter, argument):
        return []
    empty = "False" if argument.type == T.BOOL else f"torch.jit.annotate({argument.type.annotation}, [])"
    return [f"    if {word} is None:", f"        {word} = {empty}"]


def _call(schema: Schema, pairs: list[_Pair]) -> str:
    given = {p.argument.name: p.parameter for p in pairs if p.argument is not None}
    old = ", ".join(_OLD) if any(p.parameter.name == _OLD[0] for p in pairs) else "None, None"
    parts, named = [], False
    for argument in schema.arguments:
        parameter = given.get(argument.name)
        if parameter is None and argument.name not in _FLAGS:
            named = True  # it has a default: what follows is given by name
            continue
        value = _FLAGS[argument.name] if parameter is None else parameter.name
        if parameter is not None and isinstance(parameter.default, str) and argument.type == T.INT:
            value = f"reduction_number({old}, {value})"
        parts.append(f"{argument.name}={value}" if named or argument.kwarg_only else value)
    return f"torch.ops.{schema.name.replace('::', '.')}({', '.join(parts)})"
