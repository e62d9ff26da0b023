"""Types of TorchScript: what every value of a graph has.

A type prints in two ways: `str` as in graphs (`Tensor?`, `int[]`, `Dict(str, int)`), `annotation` as in code
(`Optional[Tensor]`, `List[int]`, `Dict[str, int]`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "ANY", "BOOL", "COMPLEX", "DEVICE", "FLOAT", "GENERATOR", "INT", "NONE", "NUMBER", "PACKED", "STR", "STREAM", "STORAGE", "TENSOR", "ClassType", "EnumType",
    "FunctionType", "InterfaceType", "Kind", "NamedTupleType", "ShapedType", "Type", "TypeVariable", "dict_of", "future_of", "is_subtype", "list_of", "named_tuple", "optional",
    "tuple_of", "unify", "union",
]  # fmt: skip


class Type:
    """A type: a `name`, and the types `inner` of which it is made.  Equal types are equal objects in meaning."""

    __slots__ = ("_hash", "inner", "name")

    def __init__(self, name: str, inner: Sequence[Type] = ()) -> None:
        self.name, self.inner = name, tuple(inner)
        self._hash = hash((name, self.inner))

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, Type) and self._hash == other._hash and self._same(other)

    def _same(self, other: Type) -> bool:
        return type(self) is type(other) and self.name == other.name and self.inner == other.inner

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        shown = [str(t) for t in self.inner]
        if self.name == "List":
            return f"{shown[0]}[]"
        if self.name == "Optional":
            return f"{shown[0]}?"
        if self.name == "Tuple":
            return f"({', '.join(shown)})"
        return f"{self.name}({', '.join(shown)})" if shown else self.name

    __repr__ = __str__

    @property
    def annotation(self) -> str:
        """As code writes it."""
        if not self.inner:
            return {"Tuple": "Tuple[()]", "Scalar": "number"}.get(self.name, self.name)
        return f"{self.name}[{', '.join(t.annotation for t in self.inner)}]"

    def kind(self) -> str:
        """As `type.kind()` of PyTorch names it."""
        return Kind.get(self.name, f"{self.name}Type")

    def annotation_str(self) -> str:
        """`annotation`, under PyTorch's name."""
        return self.annotation

    def isSubtypeOf(self, other: Type) -> bool:
        """Whether a value of this type may stand where `other` is wanted."""
        return is_subtype(self, other)

    def getElementType(self) -> Type:
        """The type of the elements of a list, or of what an optional holds."""
        return self.inner[0]

    def elements(self) -> list[Type]:
        """The types of a tuple's elements."""
        return list(self.inner)

    def __call__(self) -> Type:
        """Itself: programs written for PyTorch ask a value for its `type()`."""
        return self

    @property
    def shown(self) -> str:
        """As a graph shows it, with the shapes that a trace saw."""
        if self.name == "Tuple" and self.inner and all(t.sizes() is not None for t in self.inner):
            return f"({', '.join(t.shown for t in self.inner)})"
        return str(self)

    def sizes(self) -> Any:
        """The sizes of a tensor that a trace saw; None where they are not known."""
        return None

    strides = dim = dtype = scalarType = device = requires_grad = sizes


Kind = {
    "Tensor": "TensorType", "int": "IntType", "float": "FloatType", "bool": "BoolType", "str": "StringType", "Scalar": "NumberType",
    "complex": "ComplexType", "Device": "DeviceObjType", "Any": "AnyType", "NoneType": "NoneType",
}  # fmt: skip
TENSOR, INT, FLOAT, BOOL, COMPLEX, STR = (Type(n) for n in ("Tensor", "int", "float", "bool", "complex", "str"))
NONE, NUMBER, ANY, DEVICE = (Type(n) for n in ("NoneType", "Scalar", "Any", "Device"))
GENERATOR, STREAM, STORAGE = Type("Generator"), Type("Stream"), Type("Storage")


class TypeVariable(Type):
    """A type that a schema leaves open, such as `t`."""

    __slots__ = ()


class ShapedType(Type):
    """Tensor with the dtype (and its word in graphs), sizes, strides, device and `requires_grad` that a trace saw: equal to
    Tensor.
    """

    __slots__ = ("_facts",)

    def __init__(
        self,
        dtype: Any,
        word: str,
        sizes: Sequence[int | None] | None,
        strides: Sequence[int] | None,
        device: Any,
        requires_grad: bool | None,
    ) -> None:
        super().__init__("Tensor")
        shape = None if sizes is None else tuple(sizes)
        self._facts = dtype, word, shape, None if strides is None else tuple(strides), device, requires_grad

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and other.name == "Tensor"

    __hash__ = Type.__hash__

    @property
    def shown(self) -> str:
        """`Float(2, *, strides=[3, 1], requires_grad=0, device=cpu)`: what is known."""
        _, word, sizes, strides, device, requires_grad = self._facts
        parts = ["*" if n is None else str(n) for n in sizes or ()]
        if sizes and strides is not None:
            parts.append(f"strides=[{', '.join(map(str, strides))}]")
        if requires_grad is not None:
            parts.append(f"requires_grad={int(requires_grad)}")
        if device is not None:
            parts.append(f"device={device}")
        return f"{word}({', '.join(parts)})" if parts or sizes is not None else word

    def sizes(self) -> list[int] | None:
        """The sizes; None where one of them is not known."""
        sizes = self._facts[2]
        return None if sizes is None or None in sizes else [n for n in sizes if n is not None]

    def varyingSizes(self) -> list[int | None] | None:
        """The sizes, with None for each that is not known; None where not even their number is."""
        return None if self._facts[2] is None else list(self._facts[2])

    def strides(self) -> list[int] | None:
        """The strides; None for a tensor without any."""
        return None if self._facts[3] is None else list(self._facts[3])

    def dim(self) -> int | None:
        """How many dims there are; None where that is not known."""
        return None if self._facts[2] is None else len(self._facts[2])

    def dtype(self) -> Any:
        """The dtype."""
        return self._facts[0]

    def scalarType(self) -> str:
        """The dtype's word, such as `Float`."""
        return self._facts[1]

    def device(self) -> Any:
        """The device."""
        return self._facts[4]

    def requires_grad(self) -> bool | None:
        """Whether gradients were wanted."""
        return self._facts[5]


class NamedTupleType(Type):
    """A tuple with a name and names of its fields."""

    __slots__ = ("defaults", "fields", "python")

    def __init__(self, name: str, fields: Sequence[str], inner: Sequence[Type], defaults: Sequence[Any] = ()) -> None:
        super().__init__(name, inner)
        self.fields, self.defaults = tuple(fields), tuple(defaults)
        self.python: Any = None

    def _same(self, other: Type) -> bool:
        return super()._same(other) and self.fields == other.fields  # type: ignore[attr-defined]

    def __str__(self) -> str:
        if not self.name:
            return "NamedTuple(" + ", ".join(f"{f} : {t}" for f, t in zip(self.fields, self.inner, strict=True)) + ")"
        return self.name

    @property
    def annotation(self) -> str:
        """The qualified name; results of operators, which have none, are plain tuples in code."""
        return self.name or tuple_of(*self.inner).annotation

    def kind(self) -> str:
        """TupleType."""
        return "TupleType"


class Declared(Type):
    """A type that is known by its name and not by what it is made of."""

    __slots__ = ()

    def _same(self, other: Type) -> bool:
        return self is other

    @property
    def annotation(self) -> str:
        """The qualified name."""
        return self.name


class ClassType(Declared):
    """A class: attributes with types, constants, methods.  `is_module` for modules."""

    __slots__ = (
        "attributes", "buffers", "constants", "context", "define", "forward_hooks", "is_module", "methods", "overloads", "parameters",
        "pre_hooks", "properties", "python", "raw",
    )  # fmt: skip

    def __init__(self, name: str, is_module: bool = False) -> None:
        super().__init__(name)
        self.attributes: dict[str, Type] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, tuple[Type, Any]] = {}
        self.methods: dict[str, Any] = {}
        self.properties: dict[str, tuple[str, str | None]] = {}
        self.overloads: dict[str, list[str]] = {}
        self.forward_hooks: list[str] = []
        self.pre_hooks: list[str] = []
        self.is_module = is_module
        self.python: Any = None
        self.define: Callable[[str], Any] | None = None  # compiles a method when it is first needed
        self.context: Any = None
        self.raw: dict[str, Any] = {}  # what a module has that is no attribute: functions, ignored methods

    def find_method(self, name: str) -> Any:
        """The method of this name, compiled where that has not happened; None for none."""
        found = self.methods.get(name)
        if found is None and self.define is not None:
            found = self.define(name)
        return found

    def qualified_name(self) -> str:
        """The name."""
        return self.name

    def kind(self) -> str:
        """ClassType."""
        return "ClassType"


# Classes that no code defines: weights of quantized layers as their operators take them.
PACKED: dict[str, ClassType] = {
    name: ClassType(name)
    for name in (
        *(
            f"__torch__.torch.classes.quantized.{n}PackedParamsBase"
            for n in ("Linear", "Conv2d", "Conv3d", "Embedding")
        ),
        "__torch__.torch.classes.rnn.CellParamsBase",
    )
}


class InterfaceType(Declared):
    """Methods that a class must have: name to (argument names, argument types, result type)."""

    __slots__ = ("is_module", "methods", "python")

    def __init__(self, name: str, is_module: bool) -> None:
        super().__init__(name)
        self.methods: dict[str, Any] = {}
        self.is_module = is_module
        self.python: Any = None

    def kind(self) -> str:
        """InterfaceType."""
        return "InterfaceType"


class EnumType(Declared):
    """An enumeration: `values` by name, all of one type."""

    __slots__ = ("python", "value_type", "values")

    def __init__(self, name: str, value_type: Type, values: dict[str, Any], python: Any = None) -> None:
        super().__init__(name)
        self.value_type, self.values, self.python = value_type, values, python

    def __str__(self) -> str:
        return f"Enum<{self.name}>"

    def kind(self) -> str:
        """EnumType."""
        return "EnumType"


class FunctionType(Declared):
    """The type of one function."""

    __slots__ = ("function",)

    def __init__(self, function: Any) -> None:
        super().__init__("Function")
        self.function = function


def list_of(element: Type) -> Type:
    """`List[element]`."""
    return Type("List", (element,))


def dict_of(key: Type, value: Type) -> Type:
    """`Dict[key, value]`."""
    return Type("Dict", (key, value))


def tuple_of(*elements: Type) -> Type:
    """`Tuple[...]`."""
    return Type("Tuple", elements)


def future_of(element: Type) -> Type:
    """`Future[element]`."""
    return Type("Future", (element,))


def await_of(element: Type) -> Type:
    """`Await[element]`."""
    return Type("Await", (element,))


def named_tuple(
    name: str, fields: Sequence[str], inner: Sequence[Type], defaults: Sequence[Any] = ()
) -> NamedTupleType:
    """A tuple with a name and names of its fields."""
    return NamedTupleType(name, fields, inner, defaults)


def optional(inner: Type) -> Type:
    """`Optional[inner]`; of an optional or of Any the type itself."""
    if inner.name == "Union" and NONE not in inner.inner:
        return union((*inner.inner, NONE))
    if inner.name in ("Optional", "Any", "NoneType") or inner.name == "Union":
        return inner
    return Type("Optional", (inner,))


# The order in which unions print their members.
_ORDER = (
    "AnyType", "EnumType", "AnyEnumType", "TensorType", "StorageType", "TupleType", "ListType", "DictType", "NumberType", "FloatType", "ComplexType",
    "FutureType", "AwaitType", "RRefType", "IntType", "NoneType", "StringType", "GeneratorType", "QuantizerType", "BoolType", "OptionalType", "VarType",
    "DeviceObjType", "StreamObjType", "FunctionType", "ClassType",
)  # fmt: skip


def union(members: Sequence[Type]) -> Type:
    """The union of types, in its simplest form."""
    flat: list[Type] = []
    for member in members:
        inner = (
            (*member.inner, NONE)
            if member.name == "Optional"
            else member.inner
            if member.name == "Union"
            else (member,)
        )
        flat += [t for t in inner if t not in flat]
    flat = [t for t in flat if not any(t is not u and is_subtype(t, u) and t != u for u in flat)]
    if {INT, FLOAT, COMPLEX} <= set(flat):
        flat = [t for t in flat if t not in (INT, FLOAT, COMPLEX)] + [NUMBER]
    if len(flat) == 1:
        return flat[0]
    if len(flat) == 2 and NONE in flat:
        return optional(next(t for t in flat if t != NONE))
    return Type(
        "Union", sorted(flat, key=lambda t: (_ORDER.index(t.kind()) if t.kind() in _ORDER else len(_ORDER), str(t)))
    )


def members_of(kind: Type) -> tuple[Type, ...]:
    """The types that a value may have: those of a union or an optional, else the type itself."""
    if kind.name == "Optional":
        return (*members_of(kind.inner[0]), NONE)
    return kind.inner if kind.name == "Union" else (kind,)


def is_subtype(a: Type, b: Type) -> bool:
    """Whether a value of type `a` is one of type `b`."""
    if a == b or b.name == "Any":
        return True
    if a.name in ("Optional", "Union"):
        return all(is_subtype(m, b) for m in members_of(a)) if b.name in ("Optional", "Union", "Scalar") else False
    if b.name in ("Optional", "Union"):
        return any(is_subtype(a, m) for m in members_of(b))
    if b.name == "Scalar":
        return a in (INT, FLOAT, COMPLEX)
    if b.name in ("AnyListType", "AnyTupleType", "AnyEnumType", "AnyClassType"):
        return _is_any(a, b.name)
    if isinstance(a, NamedTupleType) and b.name == "Tuple" and not isinstance(b, NamedTupleType):
        return len(a.inner) == len(b.inner) and all(is_subtype(x, y) for x, y in zip(a.inner, b.inner, strict=True))
    if a.name == "Tuple" and b.name == "Tuple":
        return len(a.inner) == len(b.inner) and all(is_subtype(x, y) for x, y in zip(a.inner, b.inner, strict=True))
    if a.name == "Future" and b.name == "Future" or a.name == "Await" and b.name == "Await":
        return is_subtype(a.inner[0], b.inner[0])
    if isinstance(b, InterfaceType) and isinstance(a, (ClassType, InterfaceType)):
        return why_not_interface(a, b) is None
    return False


def _is_any(a: Type, name: str) -> bool:
    if name == "AnyListType":
        return a.name == "List"
    if name == "AnyTupleType":
        return a.name == "Tuple" or isinstance(a, NamedTupleType)
    return isinstance(a, EnumType if name == "AnyEnumType" else ClassType)


def why_not_interface(a: Any, b: InterfaceType) -> str | None:
    """Why a class does not have an interface; None where it has."""
    if b.is_module and isinstance(a, ClassType) and not a.is_module:
        return f"Class '{a.name}' is not a module, but interface '{b.name}' is for modules"
    for name, wanted in b.methods.items():
        method = a.find_method(name) if isinstance(a, ClassType) else a.methods.get(name)
        if method is None:
            return f"Class '{a.name}' does not have method '{name}' but '{b.name}' does."
        schema = method.schema
        if [x.name for x in schema.arguments[1:]] != [x.name for x in wanted.schema.arguments[1:]] or not all(
            is_subtype(w.type, x.type) for w, x in zip(wanted.schema.arguments[1:], schema.arguments[1:], strict=True)
        ):
            return f"Method '{name}' on class '{a.name}' is not compatible with interface '{b.name}'"
        if not is_subtype(schema.returns[0].type, wanted.schema.returns[0].type):
            return f"Method '{name}' on class '{a.name}' is not compatible with interface '{b.name}'"
    return None


def unify(a: Type, b: Type, to_union: bool = False) -> Type | None:
    """The narrowest type of which values of both are; None where there is none."""
    if is_subtype(a, b):
        return b
    if is_subtype(b, a):
        return a
    if a == NONE:
        return optional(b)
    if b == NONE:
        return optional(a)
    if a.name == "Optional" or b.name == "Optional":
        inner = unify(a.inner[0] if a.name == "Optional" else a, b.inner[0] if b.name == "Optional" else b)
        if inner is not None:
            return optional(inner)
    if a.name == "Tuple" and b.name == "Tuple" and len(a.inner) == len(b.inner):
        parts = [unify(x, y) for x, y in zip(a.inner, b.inner, strict=True)]
        if all(p is not None for p in parts):
            return tuple_of(*[p for p in parts if p is not None])
    return union((a, b)) if to_union else None
