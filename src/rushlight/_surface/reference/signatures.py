"""How a function of the package may be called: forms, made from the operator table's schemas and from Python functions.

A form is one way to write the call, with types in the words of a stub.  Type stubs and documentation pages are written
from forms.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from rushlight._engine.dispatch.call import Caller
from rushlight._ops.forms import forms_of
from rushlight._ops.schema import Argument
from rushlight._ops.table import Operator
from rushlight._surface.reference.annotations import Names

OWN = "... -> "  # a form that only says what the function's own parameters give

__all__ = ["Form", "Parameter", "operator_forms", "python_forms", "render"]

_BASES = {"Scalar": "Scalar", "int": "int", "float": "float", "bool": "bool", "str": "str", "dtype": "dtype", "device": "DeviceLike",
          "layout": "layout", "memory_format": "memory_format", "Generator": "Generator", "ints": "Any", "any": "Any", "Tensor": "Tensor"}  # fmt: skip
# Name of an argument -> its type, for functions that leave it open.
_BY_NAME = {
    "dtype": "dtype | None", "device": "DeviceLike", "layout": "layout | None", "memory_format": "memory_format | None", "generator": "Generator | None",
    "requires_grad": "bool", "pin_memory": "bool", "keepdim": "bool", "kernel_size": "int | Sequence[int]",
    "output_size": "int | Sequence[int | None]", "split_size_or_sections": "int | Sequence[int]",
    "indices_or_sections": "int | Sequence[int] | Tensor",
}  # fmt: skip
# The same for arguments that a schema calls `any`.
_ANY = {"dims": "int | Sequence[Sequence[int]]", "padding": "str | int | Sequence[int]"}
# Keywords that `**options: Factory` and its like stand for in a form: those that all factories of tensors share.
_LIKE = "dtype: dtype | None = None, layout: layout | None = None, device: DeviceLike = None, pin_memory: bool = False, requires_grad: bool = False"
_FACTORY = f"out: Tensor | None = None, {_LIKE}"
_OPTIONS = {"Like": _LIKE, "Factory": _FACTORY, "Random": f"generator: Generator | None = None, {_FACTORY}"}


class Parameter:
    """One parameter: `star` is "" for a plain one, "*" or "**" for the two that gather."""

    __slots__ = ("default", "keyword_only", "name", "star", "type")

    def __init__(
        self, name: str, type_: str, default: str | None = None, keyword_only: bool = False, star: str = ""
    ) -> None:
        self.name, self.type, self.default, self.keyword_only, self.star = name, type_, default, keyword_only, star

    def __str__(self) -> str:
        text = f"{self.star}{self.name}" + (f": {self.type}" if self.type else "")
        return text if self.default is None else f"{text} = {self.default}" if self.type else f"{text}={self.default}"


class Form:
    """Parameters and the type of the result."""

    __slots__ = ("parameters", "result")

    def __init__(self, parameters: list[Parameter], result: str) -> None:
        self.parameters, self.result = parameters, result

    def __str__(self) -> str:
        words: list[str] = []
        gathering = False
        for p in self.parameters:
            if p.keyword_only and not gathering:
                words.append("*")
            gathering = gathering or p.keyword_only or p.star == "*"
            words.append(str(p))
        return f"({', '.join(words)}) -> {self.result}"

    def as_method(self, names: Names, name: str) -> Form:
        """The form without its first parameter, which is the tensor itself; what ends in `_` returns that tensor."""
        rest = self.parameters[1:] if self.parameters and not self.parameters[0].star else self.parameters
        rest = rest[1:] if rest and rest[0].name == "/" else rest
        result = self.result
        if name.endswith("_") and not name.endswith("__") and result == names.word("Tensor"):
            result = names.word("Self")
        # Methods take no `out=`
        return Form([Parameter("self", ""), *[p for p in rest if p.name not in ("self", "out")]], result)


# ***** from the operator table *****


def operator_forms(
    op: Operator, names: Names, *, inplace: bool = False, inplace_flag: bool = False, out: bool | None = None
) -> list[Form]:
    """The forms of one row: as declared, with `out=` where it has that form, and with loose ints for a list at the end."""
    schema = op.schema
    tensor = names.word("Tensor")
    parameters = [_declared(op, a, names) for a in schema.arguments]
    result = tensor if inplace else _result(op, names)
    if inplace_flag:
        parameters.insert(schema.positional, Parameter("inplace", names.word("bool"), "False"))
    if (op.out if out is None else out) and not inplace:
        count = len(schema.results)
        target = tensor if count == 1 else f"{names.word('tuple')}[{', '.join([tensor] * count)}]"
        parameters.append(Parameter("out", f"{target} | None", "None", True))
    made = [Form(parameters, result)]
    last = schema.arguments[schema.positional - 1] if schema.positional else None
    if last is not None and last.repeat == 0 and last.base in ("int", "Tensor") and not inplace_flag:
        loose = Parameter(last.name, names.word(last.base), star="*")
        place = schema.positional - 1
        made.append(Form([*parameters[:place], loose, *parameters[place + 1 :]], result))
        made[0].parameters[place].type = made[0].parameters[place].type.replace(f"{names.word('int')} | ", "", 1)
    return made


def _declared(op: Operator, argument: Argument, names: Names) -> Parameter:
    base = names.word(_BASES[argument.base])
    if argument.base == "Tensor" and argument.name in op.numbers:
        base = f"{base} | {names.word('Scalar')}"
    if argument.base in ("any", "ints"):
        text = _ANY.get(argument.name) or _BY_NAME.get(argument.name, "Any")
        base = names.translate(text, __name__, words_first=True)
    if argument.is_sequence:
        one = base
        base += " | None" if argument.holes else ""
        base = f"{names.word('Sequence')}[{base}]"
        if argument.base == "int" or argument.repeat:
            base = f"{one} | {base}"
    # DeviceLike has None among its own
    if argument.base not in ("device", "any", "ints") and (
        argument.optional or not argument.required and argument.default is None
    ):
        base += " | None"
    return Parameter(
        argument.name, base, None if argument.required else default_text(argument.default), argument.keyword_only
    )


def _result(op: Operator, names: Names) -> str:
    tensor = names.word("Tensor")
    if op.schema.returns_list:
        return f"{names.word('tuple')}[{tensor}, ...]"
    if len(op.schema.results) == 1:
        return tensor
    made = Caller(op).result
    if made is not None:
        return f"{names.use_module('rushlight.return_types')}.{made.__name__}"
    return f"{names.word('tuple')}[{', '.join([tensor] * len(op.schema.results))}]"


def default_text(value: Any) -> str:
    """A default as it is written, or `...` where it is no literal."""
    if value is None or type(value) in (bool, int, str) or type(value) is float and value - value == 0:
        return repr(value)
    if type(value) is tuple and all(type(v) in (bool, int, float, str) for v in value):
        return repr(value)
    return "..."


# ***** from Python *****


def python_forms(function: Any, names: Names) -> list[Form]:
    """The forms of a Python function: those written at it (`forms`), else its own signature."""
    inner = inspect.unwrap(function)
    context = getattr(inner, "__globals__", {}).get("__name__", inner.__module__)
    written = forms_of(inner) or forms_of(function)
    if written and not written[0].startswith(OWN):
        return [_parsed(text, context, names) for text in written]
    signature = inspect.signature(inner)
    result = _annotation(signature.return_annotation, context, names)
    if written:
        result = names.translate(written[0].removeprefix(OWN), context, words_first=True)
    return [Form([_python_parameter(p, context, names, result) for p in signature.parameters.values()], result)]


def _annotation(annotation: Any, context: str, names: Names) -> str:
    """An annotation: a text, a class, None, or nothing."""
    if isinstance(annotation, str):
        return names.translate(annotation, context)
    if annotation is inspect.Signature.empty:
        return names.word("Any")
    return "None" if annotation is None else names.use(annotation.__module__, annotation.__name__)


def _python_parameter(p: inspect.Parameter, context: str, names: Names, result: str) -> Parameter:
    stars: dict[Any, str] = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}
    type_ = _annotation(p.annotation, context, names)
    if p.name in ("self", "cls"):
        type_ = ""
    elif type_ == names.word("Any") and not stars.get(p.kind):
        type_ = _known(p.name, names, result, p.default) or type_
    default = None if p.default is p.empty else default_text(p.default)
    return Parameter(p.name, type_, default, p.kind is p.KEYWORD_ONLY, stars.get(p.kind, ""))


def _known(name: str, names: Names, result: str, default: Any) -> str:
    if name == "out":
        tensor = names.word("Tensor")
        several = f"{names.word('tuple')}[{tensor}, ...] | {names.word('list')}[{tensor}]"
        return f"{tensor} | None" if result == tensor else f"{tensor} | {several} | None"
    if name not in _BY_NAME:
        return ""
    wanted = _BY_NAME[name]
    if default is None and wanted != "DeviceLike" and not wanted.endswith("| None"):
        wanted += " | None"
    return names.translate(wanted, __name__, words_first=True)


def _parsed(text: str, context: str, names: Names) -> Form:
    """A form in Python's notation."""
    for word, options in _OPTIONS.items():
        text = text.replace(f"**options: {word}", options)
    tree = ast.parse(f"def form{text}: ...").body[0]
    assert isinstance(tree, ast.FunctionDef)

    def one(argument: ast.arg, default: Any = None, keyword_only: bool = False, star: str = "") -> Parameter:
        type_ = (
            names.translate(argument.annotation, context, words_first=True) if argument.annotation is not None else ""
        )
        return Parameter(argument.arg, type_, None if default is None else ast.unparse(default), keyword_only, star)

    a = tree.args
    plain = [*a.posonlyargs, *a.args]
    defaults = [*[None] * (len(plain) - len(a.defaults)), *a.defaults]
    made = [one(p, d) for p, d in zip(plain, defaults, strict=True)]
    if a.posonlyargs:
        made.insert(len(a.posonlyargs), Parameter("/", ""))
    if a.vararg is not None:
        made.append(one(a.vararg, star="*"))
    made += [one(p, d, True) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg is not None:
        made.append(one(a.kwarg, star="**"))
    return Form(
        made,
        names.translate(tree.returns, context, words_first=True) if tree.returns is not None else names.word("Any"),
    )


def render(name: str, forms: list[Form], names: Names, indent: str = "", note: str = "") -> list[str]:
    """`def` lines of a stub; several forms become overloads."""
    lines = []
    for form in forms:
        if len(forms) > 1:
            lines.append(f"{indent}@{names.word('overload')}")
        lines.append(f"{indent}def {name}{form}: ...{note}")
    return lines
