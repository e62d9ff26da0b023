"""Meanings of names and expressions while a function is compiled: values of the graph, and things that exist only then
(modules, functions, classes, ranges).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.frontend.matching import converted, match_schemas
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location, Value
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.ir.schemas import NO_DEFAULT, Argument, Schema, variants
from rushlight.jit.ir.types import Type

__all__ = [
    "Builtin", "Callee", "ClassValue", "EnumClass", "ExceptionClass", "Items", "Methods", "NoneValue", "PythonCall",
    "PythonValue", "Simple", "SliceParts", "Special",
    "Sugared", "TupleClass",
]  # fmt: skip


class Sugared:
    """Something that a name may stand for while a function is compiled."""

    kind = "value"

    def value(self, e: Any, at: Location) -> Value:
        """As a value of the graph; CompileError where it is none."""
        raise CompileError(f"{self.kind} cannot be used as a value", at)

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        """An attribute."""
        raise CompileError(f"attribute lookup is not defined on {self.kind}", at)

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """A call with values."""
        raise CompileError(f"cannot call a {self.kind}", at)

    def items(self, e: Any, at: Location) -> list[Sugared] | None:
        """The items of something whose number is known; None where it is not."""
        return None

    def getitem(self, e: Any, at: Location, index: Value) -> Sugared:
        """`self[index]`."""
        raise CompileError(f"'{self.kind}' object is not subscriptable", at)


def packed(e: Any, at: Location, outputs: Sequence[Value], results: Sequence[Any]) -> Value:
    """The value of a call: one result, or a tuple of several."""
    if len(outputs) == 1:
        return outputs[0]
    names = [r.name for r in results]
    kinds = [v.type for v in outputs]
    kind = T.named_tuple("", names, kinds) if names and all(names) else T.tuple_of(*kinds)
    if not outputs:
        return e.graph.constant(None, T.NONE)
    return e.graph.op("prim::TupleConstruct", outputs, kind)


def builtin_call(e: Any, at: Location, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Insert a call of an operator: the overload that takes the arguments."""
    found = variants(name)
    if not found:
        raise CompileError(f"Unknown builtin op: {name}.\nHere are some suggestions: \n\nThe original call is", at)
    e.graph.location = at
    matched = match_schemas(e.graph, found, args, kwargs, at)
    schema = matched.schema
    kinds = [_tuple_names(r) for r in matched.results]
    node = e.graph.create(name, matched.inputs, kinds)
    node.schema = schema
    e.graph.insert(node)
    return packed(e, at, node.outputs, schema.returns)


def _tuple_names(kind: Type) -> Type:
    return kind


_TENSOR_PROPERTIES = {
    "dtype": "prim::dtype", "device": "prim::device", "grad": "prim::grad", "data": "prim::data", "shape": "aten::size", "is_cuda": "prim::is_cuda",
    "is_xpu": "prim::is_xpu", "is_sparse": "prim::is_sparse", "is_sparse_csr": "prim::is_sparse_csr", "is_mkldnn": "prim::is_mkldnn",
    "is_quantized": "prim::is_quantized", "is_vulkan": "prim::is_vulkan", "is_ipu": "prim::is_ipu", "is_meta": "prim::is_meta",
    "is_leaf": "aten::is_leaf", "requires_grad": "prim::requires_grad", "layout": "prim::layout", "T": "aten::numpy_T", "H": "aten::matrix_H",
    "mT": "aten::mT", "mH": "aten::mH", "ndim": "aten::dim", "itemsize": "prim::itemsize", "nbytes": "prim::nbytes", "real": "aten::real",
    "imag": "aten::imag", "name": "prim::name", "is_cpu": "prim::is_cpu", "retains_grad": "aten::retains_grad", "is_mps": "prim::is_mps",
}  # fmt: skip


class Simple(Sugared):
    """A value of the graph."""

    __slots__ = ("inner",)

    def __init__(self, inner: Value) -> None:
        self.inner = inner

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The type."""
        return f"value of type '{self.inner.type.annotation}'"

    def value(self, e: Any, at: Location) -> Value:
        """The value."""
        return self.inner

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        """A property, a field, a method."""
        kind = self.inner.type
        e.graph.location = at
        if kind == T.TENSOR and name in _TENSOR_PROPERTIES:
            return Simple(builtin_call(e, at, _TENSOR_PROPERTIES[name], [self.inner], {}))
        if kind == T.TENSOR and name in _CASTS:
            return _Cast(self.inner, _CASTS[name])
        if kind == T.DEVICE and name in ("type", "index"):
            return Simple(builtin_call(e, at, f"prim::{name}", [self.inner], {}))
        if isinstance(kind, T.EnumType) and name in ("name", "value"):
            op = "prim::EnumName" if name == "name" else "prim::EnumValue"
            return Simple(e.graph.op(op, [self.inner], T.STR if name == "name" else kind.value_type))
        if isinstance(kind, T.NamedTupleType) and name in kind.fields:
            at_ = kind.fields.index(name)
            index = e.graph.constant(at_, T.INT)
            return Simple(e.graph.op("prim::TupleIndex", [self.inner, index], kind.inner[at_]))
        if kind.name in T.PACKED:
            return self._packed_method(at, name)
        if isinstance(kind, T.ClassType):
            return self._class_attr(e, at, name, kind)
        if isinstance(kind, T.InterfaceType) and name in kind.methods:
            return Methods(self.inner, [name])
        if kind.name == "Await":  # its value has the attribute
            return Simple(builtin_call(e, at, "prim::awaitable_wait", [self.inner], {})).attr(e, at, name)
        if kind == T.COMPLEX and name in ("real", "imag"):
            return Simple(builtin_call(e, at, f"aten::{name}", [self.inner], {}))
        if variants(f"aten::{name}"):
            return Builtin(f"aten::{name}", self)
        if kind == T.TENSOR and variants(f"prim::{name}"):
            return Builtin(f"prim::{name}", self)
        shown = f"{kind.annotation}" if not isinstance(kind, T.Declared) else str(kind)
        hint = " Did you forget to initialize an attribute in __init__()?" if isinstance(kind, T.ClassType) else ""
        raise CompileError(f"'{shown}' object has no attribute or method '{name}'.{hint}", at)

    def _packed_method(self, at: Location, name: str) -> Sugared:
        """A method of packed weights: the operator that gives the same."""
        short = self.inner.type.name.rpartition(".")[2].removesuffix("PackedParamsBase").lower()
        operator = f"quantized::{'embedding_bag' if short == 'embedding' else short}_{name}"
        if not variants(operator):
            raise CompileError(f"packed weights have no method '{name}'", at)
        return Builtin(operator, self)

    def _class_attr(self, e: Any, at: Location, name: str, kind: T.ClassType) -> Sugared:
        if name in kind.overloads:
            return Methods(self.inner, kind.overloads[name])
        if name in kind.attributes:
            return e.module_attribute(self.inner, kind, name, at)
        if name in kind.constants:
            constant, held = kind.constants[name]
            return Simple(e.constant(held, constant))
        if name in kind.properties:
            return Methods(self.inner, [kind.properties[name][0]]).call(e, at, [], {})
        if kind.is_module and (found := e.container_method(self.inner, kind, name, at)) is not None:
            return found
        method = kind.find_method(name)
        if method is not None:
            return Methods(self.inner, [name])
        found = e.raw_attribute(self.inner, kind, name, at)
        if found is None and kind.python is not None:
            found = e.static_method(kind, name)
        if found is not None:
            return found
        owner = "Module" if kind.is_module else f"{kind.name.rpartition('.')[2]}"
        named = f"{owner} '{kind.name.rpartition('.')[2]}'" if kind.is_module else f"'{kind.name}' object"
        raise CompileError(f"{named} has no attribute '{name}' ", at)

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """`forward` of a module, `__call__` of a class."""
        kind = self.inner.type
        if isinstance(kind, (T.ClassType, T.InterfaceType)):
            if kind.is_module:
                return e.call_module(self.inner, kind, at, args, kwargs)
            return self.attr(e, at, "__call__").call(e, at, args, kwargs)
        if isinstance(kind, T.FunctionType):
            return Callee(kind.function).call(e, at, args, kwargs)
        raise CompileError(f"'{kind.annotation}' object is not callable", at)

    def items(self, e: Any, at: Location) -> list[Sugared] | None:
        """The parts of a tuple."""
        kind = self.inner.type
        if kind.name == "Tuple" or isinstance(kind, T.NamedTupleType):
            e.graph.location = at
            node = e.graph.insert(e.graph.create("prim::TupleUnpack", [self.inner], kind.inner))
            return [Simple(v) for v in node.outputs]
        if isinstance(kind, T.ClassType) and kind.is_module:
            return e.module_items(self.inner, kind, at)
        return None


# Methods that change the dtype, and the numbers of the dtypes.
_CASTS = {
    "byte": 0, "char": 1, "short": 2, "int": 3, "long": 4, "half": 5, "float": 6, "double": 7, "cfloat": 9, "cdouble": 10, "bool": 11, "bfloat16": 15,
}  # fmt: skip


class _Cast(Sugared):
    """`x.float()` and the like."""

    kind = "method"

    def __init__(self, owner: Value, dtype: int) -> None:
        self.owner, self.dtype = owner, dtype

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        e.graph.location = at
        dtype = e.graph.constant(self.dtype, T.INT)
        return Simple(builtin_call(e, at, "aten::to", [self.owner, dtype, *args], kwargs))


class Given(Sugared):
    """A function without arguments whose result is known."""

    kind = "method"

    def __init__(self, result: Sugared) -> None:
        self.result = result

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """The result."""
        return self.result


class KnownKeys(Sugared):
    """`in` of a dict whose keys are known."""

    kind = "method"

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Whether the key is one of them."""
        if len(args) == 1 and is_constant(args[0]):
            return Simple(e.graph.constant(constant_of(args[0]) in self.names, T.BOOL))
        listed = e.graph.op("prim::ListConstruct", [e.graph.constant(n, T.STR) for n in self.names], T.list_of(T.STR))
        return Simple(builtin_call(e, at, "aten::__contains__", [listed, *args], kwargs))


class Builtin(Sugared):
    """An operator, perhaps with its first argument."""

    kind = "builtin"

    def __init__(self, name: str, owner: Simple | None = None) -> None:
        self.name, self.owner = name, owner

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Insert the operator."""
        if self.owner is not None:
            args = [self.owner.inner, *args]
        return Simple(e.operator(at, self.name, args, kwargs))


class Callee(Sugared):
    """Compiled functions: several where there are overloads."""

    kind = "function"

    def __init__(self, *functions: Any) -> None:
        self.functions = functions

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Insert a call."""
        for function in self.functions:
            e.compile_called(function, at)
        matched = match_schemas(e.graph, [f.schema for f in self.functions], args, kwargs, at)
        function = next(f for f in self.functions if f.schema is matched.schema)
        e.graph.location = at
        constant = e.graph.constant(function, T.FunctionType(function))
        constant.set_name(function.name)
        return Simple(e.graph.op("prim::CallFunction", [constant, *matched.inputs], matched.results[0]))

    def value(self, e: Any, at: Location) -> Value:
        """A function as a value."""
        return e.graph.constant(self.functions[0], T.FunctionType(self.functions[0]))


class Methods(Sugared):
    """A method of an object, in one or several overloads."""

    kind = "method"

    def __init__(self, owner: Value, names: Sequence[str]) -> None:
        self.owner, self.names = owner, list(names)

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Insert a call."""
        kind: Any = self.owner.type
        found = []
        for name in self.names:
            method = kind.methods[name] if isinstance(kind, T.InterfaceType) else kind.find_method(name)
            if isinstance(kind, T.ClassType):
                e.compile_called(method, at)
            found.append((name, method.schema))
        matched = match_schemas(e.graph, [s for _, s in found], [self.owner, *args], kwargs, at)
        name = next(n for n, s in found if s is matched.schema)
        e.graph.location = at
        return Simple(e.graph.op("prim::CallMethod", matched.inputs, matched.results[0], name=name))


class ClassValue(Sugared):
    """A class: calling it makes an object."""

    kind = "class"

    def __init__(self, type_: T.ClassType) -> None:
        self.type = type_

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Make an object."""
        e.graph.location = at
        made = e.graph.op("prim::CreateObject", [], self.type)
        if self.type.find_method("__init__") is not None:
            Methods(made, ["__init__"]).call(e, at, args, kwargs)
        elif args or kwargs:
            raise CompileError(f"class '{self.type.name}' takes no arguments", at)
        return Simple(made)

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        """`__new__`, static methods and constants."""
        if name == "__new__":
            return New(self.type)
        static = e.static_method(self.type, name)
        if static is not None:
            return static
        if name in self.type.constants:
            constant, held = self.type.constants[name]
            return Simple(e.constant(held, constant))
        raise CompileError(f"Tried to lookup unknown attribute '{name}' on class {self.type.name}", at)


class New(Sugared):
    kind = "class"

    def __init__(self, type_: T.ClassType) -> None:
        self.type = type_

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        return Simple(e.graph.op("prim::CreateObject", [], self.type))


class TupleClass(Sugared):
    """A class of named tuples."""

    kind = "named tuple"

    def __init__(self, type_: T.NamedTupleType) -> None:
        self.type = type_

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Make a tuple."""
        fields = self.type.fields
        first = len(fields) - len(self.type.defaults)
        arguments = [
            Argument(n, t, self.type.defaults[i - first] if i >= first else NO_DEFAULT)
            for i, (n, t) in enumerate(zip(fields, self.type.inner, strict=True))
        ]
        schema = Schema(self.type.name, "", arguments, [Argument("", self.type)])
        matched = match_schemas(e.graph, [schema], args, kwargs, at)
        e.graph.location = at
        return Simple(e.graph.op("prim::TupleConstruct", matched.inputs, self.type))


class EnumClass(Sugared):
    """An enumeration."""

    kind = "enum class"

    def __init__(self, type_: T.EnumType) -> None:
        self.type = type_

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        """A member."""
        if name not in self.type.values:
            raise CompileError(f"Enum '{self.type.name}' has no member '{name}'", at)
        e.graph.location = at
        return Simple(e.graph.constant(e.enum_member(self.type, name), self.type))

    def items(self, e: Any, at: Location) -> list[Sugared] | None:
        """The members."""
        return [self.attr(e, at, name) for name in self.type.values]

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Not possible."""
        raise CompileError(f"Enum class '{self.type.name}' cannot be called in scripts", at)


class ExceptionClass(Sugared):
    """A class of exceptions: calling it makes a message."""

    kind = "exception class"

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """The message."""
        return Raised(self.name, args)


class Raised(Sugared):
    """An exception that was made."""

    kind = "exception"

    def __init__(self, name: str, args: list[Value]) -> None:
        self.name, self.args = name, args


class NoneValue(Sugared):
    """None as the result of what gives nothing."""

    kind = "None"

    def value(self, e: Any, at: Location) -> Value:
        """A constant."""
        return e.graph.constant(None, T.NONE)


class Items(Sugared):
    """A number of things that is known: of a tuple, of a list of modules."""

    kind = "tuple"

    def __init__(self, parts: Sequence[Sugared]) -> None:
        self.parts = list(parts)

    def value(self, e: Any, at: Location) -> Value:
        """A tuple."""
        values = [p.value(e, at) for p in self.parts]
        return e.graph.op("prim::TupleConstruct", values, T.tuple_of(*[v.type for v in values]))

    def items(self, e: Any, at: Location) -> list[Sugared] | None:
        """The things."""
        return self.parts

    def getitem(self, e: Any, at: Location, index: Value) -> Sugared:
        """One of them; the index must be constant."""
        if not is_constant(index) or not isinstance(constant_of(index), int):
            raise CompileError("Expected integer literal for index", at)
        held = constant_of(index)
        if not -len(self.parts) <= held < len(self.parts):
            raise CompileError(f"Tuple index out of range: {held} of {len(self.parts)}", at)
        return self.parts[held]


class SliceParts(Sugared):
    """The value of `slice(lower, upper, step)`: an index; a part that is None is left out, as in syntax."""

    kind = "slice"

    def __init__(self, lower: Value | None, upper: Value | None, step: Value | None) -> None:
        self.lower, self.upper, self.step = lower, upper, step


class Special(Sugared):
    """A function that the compiler itself carries out: it gets the call's syntax."""

    kind = "special form"

    def __init__(self, name: str, payload: Any = None) -> None:
        self.name, self.payload = name, payload


class PythonCall(Sugared):
    """A function that is left to Python; a method is given its owner."""

    kind = "Python function"

    def __init__(self, function: Any, schema: Schema, owner: Value | None) -> None:
        self.function, self.schema, self.owner = function, schema, owner

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """A call of Python from compiled code."""
        matched = match_schemas(e.graph, [self.schema], args, kwargs, at)
        inputs = matched.inputs if self.owner is None else [self.owner, *matched.inputs]
        e.graph.location = at
        kind, name = matched.results[0], self.schema.name
        return Simple(e.graph.op("prim::PythonOp", inputs, kind, function=self.function, name=name))


class PythonValue(Sugared):
    """A Python object that is no value in scripts: attributes of it may be."""

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Its kind."""
        return f"python value of type '{type(self.held).__name__}'"

    def attr(self, e: Any, at: Location, name: str) -> Sugared:
        """An attribute of the object."""
        return e.python_attribute(self.held, name, at)

    def call(self, e: Any, at: Location, args: list[Value], kwargs: dict[str, Value]) -> Sugared:
        """Not possible."""
        raise CompileError(
            f"Python builtin {self.held!r} is currently not supported in Torchscript"
            if callable(self.held)
            else f"cannot call a {self.kind}",
            at,
        )

    def value(self, e: Any, at: Location) -> Value:
        """Not possible: a hint says what may be done."""
        raise CompileError(
            f"{self.kind} cannot be used as a value. Perhaps it is a closed over global variable? If so, please consider passing it in as an argument or use a local varible instead.",
            at,
        )


def convert_or_fail(e: Any, at: Location, wanted: Type, value: Value, message: str, implicit: bool = True) -> Value:
    """`value` as `wanted`; CompileError with the message."""
    e.graph.location = at
    made = converted(e.graph, wanted, value, implicit)
    if not T.is_subtype(made.type, wanted):
        raise CompileError(message, at)
    return made
