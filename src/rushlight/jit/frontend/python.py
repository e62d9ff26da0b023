"""Names in Python functions: what closures, globals and builtins hold, and what it means in scripts."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import re
import types
import typing
import weakref
from collections import OrderedDict
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from rushlight.jit.frontend import hints
from rushlight.jit.frontend.builtins import BUILTIN_NAMES
from rushlight.jit.frontend.emitter import Emitter
from rushlight.jit.frontend.errors import CompileError, NotSupportedError, Source, own_place, stays_python
from rushlight.jit.frontend.library import form_of
from rushlight.jit.frontend.library.derived import Flagged, Form
from rushlight.jit.frontend.library.functional import reduced
from rushlight.jit.frontend.sugared import (
    Builtin,
    Callee,
    ClassValue,
    EnumClass,
    ExceptionClass,
    Items,
    Methods,
    NoneValue,
    PythonCall,
    PythonValue,
    Simple,
    Special,
    Sugared,
    TupleClass,
)
from rushlight.jit.frontend.syntax import syntax_of
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.graph import Location
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.ir.schemas import NO_DEFAULT, Argument, Schema, variants
from rushlight.jit.ir.types import Type
from rushlight.jit.runtime.constants import number_of
from rushlight.jit.runtime.objects import PythonMethod
from rushlight.library.aten.calls import aten_name
from rushlight.library.operators import OpNamespace

classes: Any = LazyModule("rushlight.jit.frontend.classes")

__all__ = ["PythonNames", "Unit", "define_form", "define_from", "qualified_name"]

_MODIFIERS = {"unused": "unused", "ignore": "ignored"}


def qualified_name(held: Any, unit: Unit, key: Any = None) -> str:
    """`__torch__.module.name`, with a mangled place where another thing has the name."""
    module = getattr(held, "__module__", None) or "__main__"
    name = getattr(held, "__qualname__", held.__name__).rpartition(".")[2].replace("<lambda>", "_lambda")
    place = "__torch__" if module == "__main__" else f"__torch__.{module}"
    place = re.sub(r"^__torch__\.rushlight\b", "__torch__.torch", place)
    place = re.sub(r"[^\w.]", "_", place)
    return unit.take(place, name, held if key is None else key)


class Unit:
    """Everything compiled in this process, by name."""

    def __init__(self) -> None:
        self.taken: dict[str, Any] = {}
        self.functions: dict[Any, Function] = {}
        self.classes: dict[type, Type] = {}
        self.refused: weakref.WeakSet[type] = weakref.WeakSet()  # classes of values that have no type in scripts
        self.count = 0

    def take(self, place: str, name: str, key: Any) -> str:
        """A name that nothing else has."""
        full = f"{place}.{name}"
        while full in self.taken and self.taken[full] is not key:
            full = f"{place}.___torch_mangle_{self.count}.{name}"
            self.count += 1
        self.taken[full] = key
        return full

    def of_class(self, held: type) -> Type | None:
        """The type of a class: named tuples, enumerations, interfaces, classes that were or can be compiled."""
        found = self.classes.get(held)
        if found is not None:
            return found
        return classes.compile_class(held, self)

    def of_value(self, value: Any) -> Type | None:
        """The type of an object whose class has one."""
        held = getattr(value, "__dict__", {}).get("_type")
        if isinstance(held, T.ClassType):
            return held
        if isinstance(value, (bool, int, float, str, complex, dict, list, rushlight.Tensor)) and not hints.is_enum(
            type(value)
        ):
            return None
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return None
        if isinstance(value, rushlight.nn.Module) or type(value).__module__ in ("builtins", "collections", "types"):
            return None
        if hasattr(value, "_fields") or hints.is_enum(type(value)) or type(value) in self.classes:
            return self.of_class(type(value))
        if type(value) in self.refused or not hasattr(value, "__dict__"):
            return None
        found: Type | None = classes.compile_whole(type(value), self)
        if found is None:
            self.refused.add(type(value))
        return found


UNIT = Unit()


def define_from(function: Any, unit: Unit = UNIT, owner: Any = None, names: Any = None) -> Function:
    """A compiled function of a Python function; it is compiled when first needed."""
    python = inspect.unwrap(function)
    cached = unit.functions.get((python, owner))
    if cached is not None:
        return cached
    name = qualified_name(python, unit) if owner is None else f"{owner.name}.{python.__name__}"

    def define(made: Function) -> None:
        node, source = syntax_of(python)
        resolver = names or PythonNames(python, unit, owner)
        compile_syntax(made, node, source, resolver, owner)

    made = Function(name, define)
    made.python, made.owner = python, owner
    unit.functions[python, owner] = made
    return made


def define_form(form: Form, unit: Unit = UNIT) -> Function:
    """A compiled function of a form."""
    cached = unit.functions.get((form, None))
    if cached is None:

        def define(made: Function) -> None:
            compile_syntax(made, form.node, form.source, _FormNames(form, unit), None)

        name = unit.take("__torch__.torch.nn.functional", form.name, form)
        cached = unit.functions[form, None] = Function(name, define)
    return cached


def overload_of(function: Any, declaration: Any, unit: Unit) -> Function:
    """A function compiled with the types of one of its declarations."""
    cached = unit.functions.get((function, declaration))
    if cached is not None:
        return cached

    def define(made: Function) -> None:
        node, source = syntax_of(function)
        head, _ = syntax_of(declaration)
        node.args, node.returns = head.args, head.returns
        compile_syntax(made, node, source, PythonNames(function, unit), None)

    made = Function(qualified_name(function, unit, declaration), define)
    unit.functions[function, declaration] = made
    return made


def compile_syntax(made: Function, node: ast.FunctionDef, source: Source, resolver: PythonNames, owner: Any) -> None:
    """Compile the syntax of a function into `made`."""
    emitter = Emitter(source, resolver)
    arguments, returns = signature(node, source, resolver, owner)
    try:
        made.graph, made.schema = emitter.function(node, arguments, returns, owner)
    except RecursionError:
        raise CompileError(
            f"function '{made.name}' is nested too deeply or called recursively", source.at(node)
        ) from None


def signature(
    node: ast.FunctionDef, source: Source, resolver: PythonNames, owner: Any
) -> tuple[list[Argument], Type | None]:
    """The arguments of a function with their types and defaults, and the annotated result."""
    args = node.args
    at = source.at(node)
    if args.vararg is not None or args.kwarg is not None:
        raise NotSupportedError(
            "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults", at
        )
    comment = _type_comment(node, source)
    listed = [*args.posonlyargs, *args.args]
    if owner is not None:
        if not listed:
            raise CompileError("methods must have a self argument", at)
        listed = listed[1:]
    told = getattr(resolver.function, "__annotations__", {})
    for name, written in [(a.arg, a.annotation) for a in (*listed, *args.kwonlyargs)] + [("return", node.returns)]:
        if written is not None and name in told:
            resolver.note_hint(written, told[name])
    kinds = _comment_types(comment, resolver, at, len(listed)) if comment else None
    values = resolver.defaults()
    made = []
    for place, arg in enumerate((*listed, *args.kwonlyargs)):
        if kinds is not None:
            kind: Type = kinds[0][place] if place < len(kinds[0]) else T.TENSOR
        else:
            kind = T.TENSOR if arg.annotation is None else resolver.type(arg.annotation, source.at(arg))
        if kind == T.ANY and own_place(resolver.globals.get("__name__", "")).startswith(
            ("rushlight.nn.", "rushlight.ao.")
        ):
            kind = T.TENSOR  # the package's own layers take tensors where they say Any
        default = values.get(arg.arg, NO_DEFAULT)
        argument = Argument(arg.arg, kind, _default(default, kind, source.at(arg)), kwarg_only=arg in args.kwonlyargs)
        argument.N = _spread(arg.annotation)
        if argument.N is not None and isinstance(argument.default, int):
            argument.default = [argument.default] * argument.N
        made.append(argument)
    if kinds is not None:
        return made, kinds[1]
    returns = None if node.returns is None else resolver.type(node.returns, at)
    if returns == T.ANY and own_place(resolver.globals.get("__name__", "")).startswith(
        ("rushlight.nn.", "rushlight.ao.")
    ):
        returns = None
    return made, returns


def _spread(annotation: ast.expr | None) -> int | None:
    """The length of `BroadcastingList2[int]`: one number may stand for so many."""
    if annotation is not None:
        words = ast.unparse(annotation).split("BroadcastingList")
        if len(words) == 2 and words[1][:1].isdigit():
            return int(words[1][0])
    return None


def _default(value: Any, kind: Type, at: Location) -> Any:
    if value is NO_DEFAULT or value is None:
        return value
    if isinstance(value, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
        return number_of(value)
    listed = kind.inner[0] if kind.name == "Optional" else kind
    if listed == T.FLOAT and type(value) is int:
        return float(value)
    if listed.name == "List" and isinstance(value, tuple):
        return list(value)
    return value


def _type_comment(node: ast.FunctionDef, source: Source) -> str | None:
    last = node.body[0].lineno
    for line in source.lines[node.lineno - 1 : last]:
        matched = re.search(r"#\s*type:\s*(\(.*)$", line)
        if matched and "->" in matched[1] and "ignore" not in matched[1][:8]:
            return matched[1].strip()
    return None


def _comment_types(text: str, resolver: PythonNames, at: Location, count: int) -> tuple[list[Type], Type]:
    args, _, result = text.rpartition("->")
    try:
        tree = ast.parse(args.strip(), mode="eval").body
        returned = ast.parse(result.strip(), mode="eval").body
    except SyntaxError:
        raise CompileError(f"Bad type line {text!r}", at) from None
    nodes = list(tree.elts) if isinstance(tree, ast.Tuple) else [tree]
    return [resolver.type(n, at) for n in nodes], resolver.type(returned, at)


_WORDS: dict[str, Any] = {
    "Tensor": rushlight.Tensor, "torch": rushlight, **{n: getattr(typing, n) for n in ("List", "Dict", "Tuple", "Optional", "Union", "Any")}
}  # fmt: skip


class PythonNames:
    """The names that a Python function may use."""

    def __init__(self, function: Any, unit: Unit = UNIT, owner: Any = None) -> None:
        self.function, self.unit, self.owner = function, unit, owner
        self.globals = getattr(function, "__globals__", {})
        code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
        self.closure: dict[str, Any] = {}
        self.hinted: dict[str, Any] = {}
        for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
            try:
                self.closure[name] = cell.cell_contents
            except ValueError:
                continue

    def defaults(self) -> dict[str, Any]:
        """The defaults of the function's arguments."""
        found = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                found[name] = parameter.default
        return found

    def find(self, name: str) -> tuple[bool, Any]:
        """(whether there is such a name, what it holds)."""
        if name in self.closure:
            return True, self.closure[name]
        if name in self.globals:
            return True, self.globals[name]
        if self.owner is not None and name == getattr(self.owner.python, "__name__", None):
            return True, self.owner.python  # a class that is decorated has no name yet
        return (True, self.hinted[name]) if name in self.hinted else (False, None)

    def note_hint(self, node: ast.expr, held: Any) -> None:
        """Learn what a name in an annotation means from the evaluated annotation: the name may be a local one."""
        if isinstance(node, ast.Name) and not isinstance(held, (str, typing.ForwardRef)):
            self.hinted.setdefault(node.id, held)
        elif isinstance(node, ast.Subscript):
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for part, meaning in zip(inner, typing.get_args(held), strict=False):
                self.note_hint(part, meaning)

    def find_type(self, name: str) -> tuple[bool, Any]:
        """As `find`, and the words that comments about types may use without an import."""
        found = self.find(name)
        return (True, _WORDS[name]) if not found[0] and name in _WORDS else found

    def type(self, node: ast.expr, at: Location | None) -> Type:
        """The type that an annotation means."""
        if isinstance(node, ast.Name) and node.id == "NoneType" and not self.find("NoneType")[0]:
            return T.NONE
        return hints.type_of_annotation(hints.evaluate(node, self.find_type, at), self.unit, at)

    # ***** values *****

    def value(self, name: str, at: Location | None, e: Any) -> Sugared | None:
        """The meaning of a name; None for an unknown one."""
        found, held = self.find(name)
        if found:
            return self.python_value(held, at, e)
        if name in BUILTIN_NAMES:
            return BUILTIN_NAMES[name]
        if hasattr(builtins, name):
            return self.python_value(getattr(builtins, name), at, e)
        return None

    def python_value(self, held: Any, at: Location | None, e: Any, constant: bool = False) -> Sugared:
        """The meaning of a Python object."""
        if isinstance(held, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
            return Simple(e.graph.constant(number_of(held), T.INT))
        if constant:
            made = self._constant(held, e)
            if made is not None:
                return made
        if held is None:
            return NoneValue()
        if isinstance(held, type):
            return _specials().get(held) or self._class(held, at)
        if isinstance(held, types.ModuleType):
            return PythonValue(held)
        if callable(held) and not isinstance(held, rushlight.nn.Module):
            return self._callable(held, at, e)
        return PythonValue(held)

    def _constant(self, held: Any, e: Any) -> Sugared | None:
        for python, kind in (
            (bool, T.BOOL),
            (int, T.INT),
            (float, T.FLOAT),
            (complex, T.COMPLEX),
            (str, T.STR),
            (rushlight.device, T.DEVICE),
        ):
            if type(held) is python:
                return Simple(e.graph.constant(held, kind))
        if type(held) is tuple:
            parts = [self._constant(v, e) for v in held]
            if all(p is not None for p in parts):
                return Items([p for p in parts if p is not None])
        return None

    def attribute(self, held: Any, name: str, at: Location, e: Any) -> Sugared:
        """An attribute of a Python object."""
        if not hasattr(held, name):
            if isinstance(held, OpNamespace):
                return _AbsentOperator(f"{held._word}::{name}")
            raise CompileError(
                f"module has no attribute '{name}'"
                if isinstance(held, types.ModuleType)
                else f"python value of type '{type(held).__name__}' has no attribute '{name}'",
                at,
            )
        if not isinstance(held, types.ModuleType) and not isinstance(held, type) and not own_place(type(held)):
            raise CompileError(
                f"python value of type '{type(held).__name__}' cannot be used as a value. Perhaps it is a closed over global variable? If so, please consider passing it in as an argument or use a local varible instead.",
                at,
            )
        return self.python_value(getattr(held, name), at, e, constant=True)

    def _class(self, held: Any, at: Location | None) -> Sugared:
        if issubclass(held, BaseException):
            place = held.__module__
            return ExceptionClass(f"{place}.{held.__qualname__}" if place else held.__name__)
        name = held.__name__
        if held.__module__ == "builtins" and name in BUILTIN_NAMES:
            return BUILTIN_NAMES[name]
        if held is rushlight.device:
            return Builtin("aten::device")
        if held is rushlight.Size:
            return Special("list")
        if held is OrderedDict:
            return Special("dict")
        made = self.unit.of_class(held) if held is not rushlight.Tensor else None
        if isinstance(made, T.NamedTupleType):
            return TupleClass(made)
        if isinstance(made, T.EnumType):
            return EnumClass(made)
        if isinstance(made, T.ClassType):
            return ClassValue(made)
        return PythonValue(held)

    def _callable(self, held: Any, at: Location | None, e: Any) -> Sugared:
        special = _specials().get(held) if _hashable(held) else None
        if special is not None:
            return special
        if hasattr(held, "_function") and isinstance(held._function, Function):
            return Callee(held._function)
        modifier = getattr(held, "_torchscript_modifier", "")
        if modifier.startswith(("unused", "ignore")):
            return self.ignored(held)
        if getattr(held, "__module__", None) == "torch._ops.quantized":
            name = f"quantized::{held.__name__}"
            return Builtin(name) if variants(name) else self.ignored(held._function)
        forms = form_of(held) if _hashable(held) else None
        if isinstance(forms, Flagged):
            return _Dispatched(forms, self.unit)
        if forms is not None:
            return Callee(*[define_form(f, self.unit) for f in forms])
        name = _operator_name(held)
        if name is not None:
            return Builtin(name)
        if isinstance(held, (types.FunctionType, types.MethodType)):
            marked = rushlight.jit._OVERLOADS.get(f"{held.__module__}.{held.__qualname__}", ())
            declared = [d for d in marked if d is not held]
            if declared:
                return Callee(*[overload_of(held, d, self.unit) for d in declared])
            return Callee(define_from(held, self.unit))
        return PythonValue(held)

    def ignored(self, held: Any, owner: Any = None) -> Sugared:
        """A function or a method (of `owner`) that is left to Python, or that must not be called."""
        node, source = syntax_of(held)
        names = PythonNames(inspect.unwrap(held), self.unit)
        method = owner.type if owner is not None else None
        unused = getattr(held, "_torchscript_modifier", "").startswith("unused")
        if unused and (node.args.vararg is not None or node.args.kwarg is not None):
            return Special("unused", T.TENSOR if node.returns is None else names.type(node.returns, source.at(node)))
        arguments, returns = signature(node, source, names, method)
        if unused:
            return Special("unused", returns or T.TENSOR)
        name = held.__name__
        if stays_python(held):
            returns = T.TENSOR if returns == T.ANY else returns  # such layers give tensors
            held = PythonMethod(name) if owner is not None else held
        return PythonCall(held, Schema(name, "", arguments, [Argument("", returns or T.TENSOR)]), owner)

    # ***** modules and classes *****

    def container(self, kind: T.ClassType) -> tuple[str, list[str]] | None:
        """(list, sequential or dict, the names of the modules) of a container of modules."""
        held = kind.python
        if not isinstance(held, type) or not issubclass(held, rushlight.nn.Module):
            return None
        nn = rushlight.nn
        for cls, word in ((nn.ModuleList, "list"), (nn.Sequential, "sequential"), (nn.ModuleDict, "dict"), (nn.ParameterList, "list"),
                          (nn.ParameterDict, "dict")):  # fmt: skip
            if issubclass(held, cls):
                names = [
                    n for n, t in kind.attributes.items() if getattr(t, "is_module", False) or n in kind.parameters
                ]
                return word, names
        return None

    def static_method(self, kind: T.ClassType, name: str, e: Any) -> Sugared | None:
        """A static method of a class."""
        held = getattr(kind.python, name, None) if kind.python is not None else None
        return Callee(define_from(held, self.unit)) if isinstance(held, types.FunctionType) else None

    def parent(self, e: Any, at: Location) -> Sugared | None:
        """`super()` in a method."""
        if self.owner is None:
            return None
        return _Parent(self, self.closure.get("__class__"), e.lookup("self", at))


_LISTS = {
    "BroadcastingList1": BroadcastingList1, "BroadcastingList2": BroadcastingList2, "BroadcastingList3": BroadcastingList3,
}  # fmt: skip


class _FormNames(PythonNames):
    """The names that a form may use."""

    def __init__(self, form: Form, unit: Unit) -> None:
        super().__init__(form.names or reduced, unit)
        self.form = form
        self.globals = {**self.globals, **_LISTS}

    def defaults(self) -> dict[str, Any]:
        """The form's own: its signature may be another than the function's that gives the names."""
        return self.form.defaults


class _Dispatched(Sugared):
    """A function whose flags choose what it returns: they must be known."""

    kind = "function"

    def __init__(self, flagged: Flagged, unit: Unit) -> None:
        self.flagged, self.unit = flagged, unit

    def call(self, e: Any, at: Location, args: Any, kwargs: Any) -> Sugared:
        chosen = tuple(self._flag(name, place, args, kwargs, at) for name, place in self.flagged.flags)
        taken = {place for _, place in self.flagged.flags}
        args = [value for place, value in enumerate(args) if place not in taken]
        return Callee(define_form(self.flagged.forms[chosen], self.unit)).call(e, at, args, kwargs)

    def _flag(self, name: str, place: int, args: Any, kwargs: Any, at: Location) -> bool:
        asked = kwargs.pop(name, args[place] if len(args) > place else None)
        if asked is not None and not is_constant(asked):
            raise CompileError(f"{name} must be known when the function is compiled", at)
        return asked is not None and bool(constant_of(asked))


class _AbsentOperator(Sugared):
    """An operator of a library that is not loaded: code that calls it may be compiled, and raises where it runs."""

    kind = "operator"

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, e: Any, at: Location, args: Any, kwargs: Any) -> Sugared:
        text = e.graph.constant(f"there is no operator {self.name}: its library is not loaded", T.STR)
        e._raise(text, e.graph.constant("builtins.NotImplementedError", T.STR), at)
        return Simple(e.graph.op("prim::Uninitialized", [], T.TENSOR))


class _Parent(Sugared):
    """`super()`."""

    kind = "super"

    def __init__(self, names: PythonNames, cls: Any, owner: Any) -> None:
        self.names, self.cls, self.owner = names, cls, owner

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        held = self.names.owner
        mro = held.python.__mro__
        start = mro.index(self.cls) + 1 if self.cls in mro else 1
        for cls in mro[start:]:
            if name in vars(cls):
                return _ParentMethod(self.names, cls, name, self.owner)
        raise CompileError(f"super() has no attribute '{name}'", at)


class _ParentMethod(Sugared):
    kind = "method"

    def __init__(self, names: PythonNames, cls: type, name: str, owner: Any) -> None:
        self.names, self.cls, self.name, self.owner = names, cls, name, owner

    def call(self, e: Any, at: Location, args: Any, kwargs: Any) -> Sugared:
        if self.name == "__init__":
            return NoneValue()
        kind = self.names.owner
        hidden = f"__{self.cls.__name__}_{self.name}"
        if hidden not in kind.methods:
            made = define_from(vars(self.cls)[self.name], self.names.unit, kind)
            made.qualified_name = f"{kind.name}.{hidden}"
            kind.methods[hidden] = made
        return Methods(self.owner.value(e, at), [hidden]).call(e, at, args, kwargs)


def _hashable(held: Any) -> bool:
    try:
        hash(held)
    except TypeError:
        return False
    return True


_SPECIALS: dict[Any, Sugared] = {}
_MATH = "ceil copysign erf erfc exp expm1 fabs floor gamma lgamma log log10 log1p pow sqrt isnan isinf isfinite degrees radians fmod modf frexp ldexp factorial gcd sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh"


_LEGACY = tuple(
    f"{n}Tensor" for n in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
)


def _record_function() -> Special:
    """`record_function`: its object is entered and left as it is in Python."""
    held = rushlight.profiler.record_function
    kind = T.ClassType("__torch__.torch.autograd.profiler.record_function")
    kind.python = held
    for name, returned in (("__enter__", kind), ("__exit__", T.NONE)):
        schema = Schema(name, "", [Argument("self", kind)], [Argument("", returned)])
        kind.methods[name] = Function(f"{kind.name}.{name}", schema=schema)
    arguments = [Argument("name", T.STR), Argument("args", T.optional(T.STR), default=None)]
    return Special("record_function", (held, Schema("record_function", "", arguments, [Argument("", kind)]), kind))


def _specials() -> dict[Any, Sugared]:
    if not _SPECIALS:
        jit = rushlight.jit
        table: dict[Any, Sugared] = {
            **{getattr(builtins, n): v for n, v in BUILTIN_NAMES.items() if hasattr(builtins, n)},
            **{getattr(math, n): Builtin(f"aten::{n}") for n in _MATH.split()},
            math.remainder: Builtin("aten::mathremainder"),
            jit.annotate: Special("annotate"), jit.isinstance: Special("isinstance"), jit.is_scripting: Special("is_scripting"),
            jit.is_tracing: Special("is_tracing"), jit.fork: Special("fork"), jit.wait: Special("wait"),
            jit._awaitable: Special("awaitable"), jit._awaitable_wait: Builtin("prim::awaitable_wait"),
            jit._awaitable_nowait: Builtin("prim::awaitable_nowait"), typing.cast: Special("annotate"),
            rushlight.compiler.is_compiling: Special("is_compiling"), rushlight.is_grad_enabled: Builtin("aten::is_grad_enabled"),
            rushlight.compiler.is_dynamo_compiling: Special("is_compiling"),
            rushlight.no_grad: Special("no_grad"), rushlight.enable_grad: Special("enable_grad"),
            rushlight.autograd.grad: Builtin("aten::grad"), rushlight.tensor: Builtin("aten::tensor"), rushlight.as_tensor: Builtin("aten::as_tensor"),
            rushlight.manual_seed: Builtin("aten::manual_seed"), rushlight.save: Builtin("aten::save"),
        }  # fmt: skip
        import warnings

        table[rushlight._check] = Special("check")
        table[rushlight.profiler.record_function] = _record_function()
        for name in _LEGACY:
            table[getattr(rushlight, name)] = Special("legacy_tensor", getattr(rushlight, name).dtype)
        table[warnings.warn] = Special("warn")
        for name in ("is_torchdynamo_compiling", "has_torch_function", "has_torch_function_unary"):
            held = getattr(rushlight.overrides, name, None)
            if held is not None:
                table[held] = Special("is_compiling")
        _SPECIALS.update(table)
    return _SPECIALS


def _operator_name(held: Any) -> str | None:
    """The operator that a function of the package is; None for none."""
    op = getattr(held, "_opname", None)
    if op is not None and hasattr(held, "namespace"):
        return f"{held.namespace}::{op}"
    if type(held).__name__ in ("OpOverloadPacket", "BuiltinPacket"):
        return f"{held._qualified_op_name if hasattr(held, '_qualified_op_name') else 'aten::' + held.__name__}"
    module = getattr(held, "__module__", "") or ""
    if own_place(module).startswith("rushlight.jit"):
        return None
    if not own_place(module) and not hasattr(held, "operator"):
        return None
    name = aten_name(held)
    if name and variants(f"aten::{name}"):
        return f"aten::{name}"
    return None
