"""`torch.jit.script`: functions, classes and modules."""

from __future__ import annotations

import ast
import inspect
import types
from typing import Any

import rushlight
from rushlight.jit.frontend import hints as written
from rushlight.jit.frontend.errors import CompileError, own_place, stays_python
from rushlight.jit.frontend.inference import NoType, type_of
from rushlight.jit.frontend.library import method_of
from rushlight.jit.frontend.python import UNIT, PythonNames, compile_syntax, define_from, qualified_name
from rushlight.jit.frontend.syntax import syntax_of
from rushlight.jit.frontend.text import TextFunction
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.types import Type
from rushlight.jit.modules import ScriptFunction, ScriptModule, is_compiled, wrap_module
from rushlight.jit.runtime.constants import number_of
from rushlight.jit.runtime.containers import ScriptDict, ScriptList
from rushlight.jit.serialization.quantized_layers import compiled_layer
from rushlight.nn.modules.module import Module

__all__ = ["compile_object", "define_methods", "script", "script_function", "script_module"]

# What every module has; these are no attributes of scripts.
_INNER = frozenset((
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_compiled_call_impl", "_version", "_all_weights",
    "_jit_override_qualname", "forward", "_forward_cache", "_call_fast", "_attribute_types", "_text_methods",
))  # fmt: skip
# Attributes that layers give by properties here, and as plain values in PyTorch.
_COMPUTED = {"RNNBase": ("_flat_weights_names", "_flat_weights")}


def script_function(function: Any) -> ScriptFunction:
    """A compiled function; what cannot be compiled raises, and names the line."""
    made = define_from(function)
    made.ensure_defined()
    return ScriptFunction(made, inspect.unwrap(function))


class _Shape:
    """The types of a module's parts."""

    def __init__(self) -> None:
        self.attributes: dict[str, Type] = {}
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, tuple[Type, Any]] = {}
        self.raw: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def key(self) -> Any:
        """Equal for modules of one type."""
        held = tuple((n, str(t), id(t) if isinstance(t, T.Declared) else 0) for n, t in self.attributes.items())
        constants = tuple((n, str(t), repr(v)) for n, (t, v) in self.constants.items())
        raw = tuple(
            (n, id(v)) for n, v in self.raw.items() if not isinstance(v, (types.MethodType, types.FunctionType))
        )
        return held, constants, tuple(sorted(self.parameters)), tuple(sorted(self.buffers)), raw


_SHARED: dict[tuple[type, Any], T.ClassType] = {}


def script_module(module: Module, memo: dict[int, Any] | None = None) -> Any:
    """A compiled module with the same parameters and buffers."""
    memo = {} if memo is None else memo
    found = memo.get(id(module))
    if found is not None:
        return found
    if is_compiled(module):
        return module
    _check_initialised(module)
    layer = compiled_layer(module)
    if layer is not None:
        memo[id(module)] = layer
        return layer
    children = {name: None if m is None else script_module(m, memo) for name, m in module._modules.items()}
    shape = _shape_of(module, children)
    kind = _class_of(module, shape)
    made = wrap_module(kind)
    memo[id(module)] = made
    made.__dict__["_original_name"] = type(module).__name__
    made._parameters.update(module._parameters)
    made._buffers.update(module._buffers)
    made._modules.update({n: m for n, m in children.items() if m is not None})
    made.__dict__["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    made.training = module.training
    if any(map(stays_python, type(module).__mro__)):
        made.__dict__["_python"] = module
    for name, value in shape.values.items():
        made.__dict__[name] = value
    for table in ("_state_dict_hooks", "_load_state_dict_pre_hooks"):
        made.__dict__[table] = module.__dict__[table]
    _compile_methods(module, kind)
    _python_hooks(module, made, kind)
    return made


def compile_object(module: ScriptModule) -> None:
    """Compile the marked methods of an object of a `ScriptModule` class: the object itself becomes the compiled one."""
    _check_initialised(module)
    memo: dict[int, Any] = {}
    children = {name: None if m is None else script_module(m, memo) for name, m in module._modules.items()}
    shape = _shape_of(module, children)
    kind = _class_of(module, shape)
    module.__dict__["_original_name"] = type(module).__name__
    module._modules.update(children)
    for name, value in shape.values.items():
        module.__dict__[name] = value
    module.__dict__.update(_type=kind, _methods={})
    for name in sorted({**vars(type(module))["_marked_methods"], **module.__dict__.get("_text_methods", {})}):
        made = kind.find_method(name)
        assert made is not None
        made.ensure_defined()
    for getter, _ in kind.properties.values():
        kind.methods[getter].ensure_defined()


def _check_initialised(module: Module) -> None:
    if "_parameters" not in module.__dict__:
        raise RuntimeError("'nn.Module' was not initialised: super().__init__() must be called first")
    if isinstance(module, rushlight.nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with torch.jit.script: run a forward first"
        )


def _class_of(module: Module, shape: _Shape) -> T.ClassType:
    key = (type(module), shape.key())
    found = _SHARED.get(key)
    hooks = (*module._forward_hooks, *module._forward_pre_hooks, *module.__dict__.get("_text_methods", ()))
    if found is not None and not hooks:
        return found
    kind = T.ClassType(qualified_name(type(module), UNIT, object()), is_module=True)
    kind.python = type(module)
    kind.attributes, kind.parameters, kind.buffers = shape.attributes, shape.parameters, shape.buffers
    kind.constants, kind.raw = shape.constants, shape.raw
    kind.define = _definer(module, kind)
    kind.context = (UNIT, [])
    if not hooks:
        _SHARED[key] = kind
    _properties(module, kind)
    _overloads(module, kind)
    return kind


# ***** the parts of a module *****


def _hints(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if own_place(base).startswith(("rushlight.nn", "rushlight.jit")):
            continue
        space = vars(__import__("sys").modules.get(base.__module__, types.ModuleType("")))
        for name, held in inspect.get_annotations(base).items():
            found[name] = (held, space)
    return found


def _annotated(held: Any, space: dict[str, Any]) -> tuple[Type | None, bool]:
    """(type, whether it is Final) of an annotation."""
    if isinstance(held, str):
        node = ast.parse(held, mode="eval").body
        held = written.evaluate(node, lambda n: (n in space, space.get(n)), None)
    if written.is_final(held):
        args = written._split(held)[1]
        return (written.type_of_annotation(args[0], UNIT) if args else None), True
    return written.type_of_annotation(held, UNIT), False


def _shape_of(module: Module, children: dict[str, Any]) -> _Shape:
    shape = _Shape()
    hints = _hints(type(module))
    for table, names in ((module._parameters, shape.parameters), (module._buffers, shape.buffers)):
        for name, value in table.items():
            if value is not None:
                shape.attributes[name] = T.TENSOR
                names.add(name)
            elif name in hints and _optional_hint(hints[name]):
                shape.attributes[name] = T.optional(T.TENSOR)
                names.add(name)
            else:
                shape.attributes[name] = T.NONE
                names.add(name)
    for name, child in children.items():
        if child is None:
            shape.attributes[name] = T.NONE
            shape.values[name] = None
        else:
            shape.attributes[name] = _module_type(name, child, hints)
    _constants(module, shape, hints)
    _values(module, shape, hints)
    return shape


def _optional_hint(hint: tuple[Any, dict[str, Any]]) -> bool:
    try:
        kind, _ = _annotated(*hint)
    except CompileError:
        return False
    return kind is not None and kind.name == "Optional"


def _module_type(name: str, child: Any, hints: dict[str, Any]) -> Type:
    if name in hints:
        held, space = hints[name]
        if isinstance(held, str):
            held = written.evaluate(ast.parse(held, mode="eval").body, lambda n: (n in space, space.get(n)), None)
        if isinstance(held, type) and getattr(held, "_is_script_interface", False):
            kind = UNIT.of_class(held)
            assert isinstance(kind, T.InterfaceType)
            why = T.why_not_interface(child._type, kind)
            if why is not None:
                raise CompileError(why)
            return kind
    return child._type


def _constants(module: Module, shape: _Shape, hints: dict[str, Any]) -> None:
    names = dict.fromkeys(n for cls in type(module).__mro__ for n in vars(cls).get("__constants__", ()))
    finals = {}
    for name, hint in hints.items():
        try:
            kind, final = _annotated(*hint)
        except CompileError:
            continue
        if final:
            finals[name] = kind
    names |= dict.fromkeys(_class_constants(type(module)))
    for name in (*names, *finals):
        if name in shape.attributes or not hasattr(module, name):
            continue
        value = getattr(module, name)
        if isinstance(value, (Module, rushlight.nn.Parameter)):
            continue
        value = _plain_value(value)
        try:
            kind = finals.get(name) or type_of(value, UNIT.of_value)
        except NoType:
            if value == [] or value == {}:
                continue
            raise CompileError(
                f"'{type(value).__name__}' object in attribute '{type(module).__name__}.{name}' is not a valid constant"
            ) from None
        shape.constants[name] = (kind, value)


def _class_constants(cls: type) -> list[str]:
    """Constants of the package's own layers: the operator's name, the number of dims."""
    found = []
    for base in cls.__mro__:
        if own_place(base).startswith("rushlight.nn.modules.") and base is not Module:
            found += [
                n
                for n, v in vars(base).items()
                if n[0] == "_" and n[1:2] != "_" and isinstance(v, (int, str, tuple)) and v not in ("", ())
            ]
    return [n for n in found if n not in ("_version", "_abc_impl")]


def _plain_value(value: Any) -> Any:
    if isinstance(value, rushlight.Size):
        return list(value)
    if isinstance(value, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
        return number_of(value)
    return value


def _values(module: Module, shape: _Shape, hints: dict[str, Any]) -> None:
    held = {n: v for n, v in module.__dict__.items() if n not in _INNER}
    for cls in type(module).__mro__:
        for name in _COMPUTED.get(cls.__name__, ()):
            held[name] = getattr(module, name)
    for name in hints:
        if name not in held and name not in shape.attributes and name in dir(type(module)):
            value = getattr(type(module), name)
            if not callable(value) and not isinstance(value, property):
                held[name] = value
    for name, value in held.items():
        if name in shape.attributes or name in shape.constants:
            continue
        kind = _value_type(module, name, value, hints)
        if kind is None:
            shape.raw[name] = value
            continue
        shape.attributes[name] = kind
        if isinstance(value, rushlight.jit.Attribute):
            value = value.value
        shape.values[name] = _copied(_plain_value(value))
    shape.attributes.setdefault("training", T.BOOL)
    shape.attributes["_is_full_backward_hook"] = T.optional(T.BOOL)


def _copied(value: Any) -> Any:
    if type(value) in (list, dict):
        return value.copy()
    if isinstance(UNIT.classes.get(type(value)), T.ClassType) and type(value).__module__ != "builtins":
        made = object.__new__(type(value))  # an object of a class is taken over as its attributes are
        made.__dict__.update({name: _copied(held) for name, held in value.__dict__.items()})
        return made
    return value


def _value_type(module: Module, name: str, value: Any, hints: dict[str, Any]) -> Type | None:
    told = module.__dict__.get("_attribute_types", {})
    if name in told:
        return written.type_of_annotation(told[name], UNIT)
    if name in hints:
        try:
            kind, _ = _annotated(*hints[name])
        except CompileError:
            return None
        if kind is not None:
            return kind
    if isinstance(value, rushlight.jit.Attribute):
        return written.type_of_annotation(value.type, UNIT)
    try:
        return type_of(_plain_value(value), UNIT.of_value)
    except NoType:
        return None


# ***** methods *****


def _definer(module: Module, kind: T.ClassType) -> Any:
    cls = type(module)

    def define(name: str) -> Function | None:
        text = module.__dict__.get("_text_methods", {}).get(name)
        if text is not None:
            return text_method(kind, text)
        held = _python_method(module, cls, name)
        if held is None:
            return None
        modifier = getattr(held, "_torchscript_modifier", "")
        if modifier.startswith(("ignore", "unused")) or stays_python(held):
            kind.raw[name] = held
            return None
        made = Function(f"{kind.name}.{name}", _compiler(held, kind))
        made.python, made.owner = held, kind
        kind.methods[name] = made
        return made

    return define


def _python_method(module: Module, cls: type, name: str) -> Any:
    marked = getattr(cls, "_marked_methods", {}).get(name)
    if marked is not None:
        return marked
    library = method_of(cls, name)
    own = module.__dict__.get(name)
    if own is not None and isinstance(own, types.MethodType) and own.__self__ is module:
        return own.__func__
    if library is not None:
        return library
    if name in (
        "__getstate__",
        "__setstate__",
        "__repr__",
        "__dir__",
        "__delattr__",
        "__setattr__",
        "__getattr__",
        "__init__",
    ):
        held = getattr(cls, name, None)
        return held if getattr(held, "_torchscript_modifier", "").startswith("export") else None
    if name in ("__len__", "__contains__", "__getitem__", "__iter__") and own_place(cls).startswith("rushlight.nn"):
        return None
    for base in cls.__mro__:
        if name in vars(base):
            held = vars(base)[name]
            if base is Module or own_place(base) in (
                "rushlight.jit.modules",
                "rushlight.nn.modules.hooks",
                "rushlight.nn.modules.state",
                "rushlight.nn.modules.conversion",
            ):
                return None
            if isinstance(held, types.FunctionType):
                return held
            return None
    return None


def _compiler(held: Any, kind: T.ClassType) -> Any:
    def compile_now(made: Function) -> None:
        node, source = syntax_of(held)
        compile_syntax(made, node, source, PythonNames(inspect.unwrap(held), UNIT, kind), kind)

    return compile_now


def _properties(module: Module, kind: T.ClassType) -> None:
    unused = set(getattr(type(module), "__jit_unused_properties__", ()))
    for cls in type(module).__mro__:
        if cls is Module or own_place(cls).startswith(("rushlight.nn", "rushlight.jit")):
            continue
        for name, held in vars(cls).items():
            if not isinstance(held, property) or name in unused or name in kind.properties or held.fget is None:
                continue
            if getattr(held.fget, "_torchscript_modifier", "").startswith(("ignore", "unused")):
                continue
            getter = f"__{name}_getter"
            kind.methods[getter] = Function(f"{kind.name}.{getter}", _compiler(held.fget, kind))
            setter = None
            if held.fset is not None:
                setter = f"__{name}_setter"
                kind.methods[setter] = Function(f"{kind.name}.{setter}", _compiler(held.fset, kind))
            kind.properties[name] = (getter, setter)


def _overloads(module: Module, kind: T.ClassType) -> None:
    marked = rushlight.jit._OVERLOADS
    for cls in type(module).__mro__:
        for name, held in vars(cls).items():
            declared = marked.get(f"{cls.__module__}.{getattr(held, '__qualname__', '')}")
            if not declared or name in kind.overloads or not isinstance(held, types.FunctionType):
                continue
            names = []
            for at, declaration in enumerate(d for d in declared if d is not held):
                own = f"{name}__{at}"
                kind.methods[own] = _overload_function(kind, own, declaration, held)
                names.append(own)
            kind.overloads[name] = names


def _overload_function(kind: T.ClassType, name: str, declaration: Any, body: Any) -> Function:
    def compile_now(made: Function) -> None:
        node, source = syntax_of(body)
        head, _ = syntax_of(declaration)
        node.args, node.returns = head.args, head.returns
        compile_syntax(made, node, source, PythonNames(inspect.unwrap(body), UNIT, kind), kind)

    return Function(f"{kind.name}.{name}", compile_now)


def _compile_methods(module: Module, kind: T.ClassType) -> None:
    names = []
    has_forward = (
        getattr(type(module).forward, "__name__", "") != "_forward_unimplemented" or "forward" in module.__dict__
    )
    if has_forward and "forward" not in kind.overloads:
        names.append("forward")
    for name in dir(type(module)):
        held = inspect.getattr_static(type(module), name)
        if getattr(held, "_torchscript_modifier", "").startswith("export"):
            names.append(name)
    _hook_methods(module, kind)
    for name in names:
        made = kind.find_method(name)
        if made is not None:
            made.ensure_defined()
    for getter, _ in kind.properties.values():
        kind.methods[getter].ensure_defined()


# ***** hooks *****


def _hook_methods(module: Module, kind: T.ClassType) -> None:
    for table, names in ((module._forward_hooks, kind.forward_hooks), (module._forward_pre_hooks, kind.pre_hooks)):
        for hook in table.values():
            name = getattr(hook, "__name__", None)
            if name is None:
                raise RuntimeError("hooks of scripted modules must be functions")
            if name in kind.methods and kind.methods[name].python is not hook:
                raise RuntimeError(f"Hook '{name}' on module '{type(module).__name__}' has the name of another method")
            if name not in kind.methods:
                made = kind.methods[name] = Function(f"{kind.name}.{name}", _compiler(hook, kind))
                made.python = hook
            if name not in names:
                names.append(name)
    # Types of hooks are those of `forward`: they are compiled with their own written.


def _python_hooks(module: Module, made: Any, kind: T.ClassType) -> None:
    """Calls from Python run the compiled hooks."""
    for name in kind.pre_hooks:
        kind.methods[name].ensure_defined()
        made.register_forward_pre_hook(_pre_hook(name))
    for name in kind.forward_hooks:
        kind.methods[name].ensure_defined()
        made.register_forward_hook(_forward_hook(name))


def _pre_hook(name: str) -> Any:
    return lambda module, args: module._method(name)(args)


def _forward_hook(name: str) -> Any:
    return lambda module, args, result: module._method(name)(args, result)


# ***** script *****


def script(obj: Any, example_inputs: Any = None) -> Any:
    """A function, a class or a module, compiled."""
    if isinstance(obj, (ScriptModule, ScriptFunction)):
        return obj
    if isinstance(obj, Module):
        return script_module(obj)
    if isinstance(obj, type):
        if issubclass(obj, Module):
            raise RuntimeError(
                f"Type '{obj}' cannot be compiled since it inherits from nn.Module, consider passing an instance instead"
            )
        if not issubclass(obj, (tuple,)) or hasattr(obj, "_fields"):
            if UNIT.of_class(obj) is None:
                raise CompileError(f"class {obj} cannot be compiled")
        return obj
    if isinstance(obj, (dict, list)):
        try:
            return ScriptDict(obj) if isinstance(obj, dict) else ScriptList(obj)
        except NoType as error:
            raise rushlight.jit.Error(f"Unable to infer type of {type(obj).__name__}: {error}") from None
    if not callable(obj) and isinstance(UNIT.of_value(obj), T.ClassType):
        return obj
    if not callable(obj):
        raise RuntimeError(f"torch.jit.script cannot compile a {type(obj).__name__}")
    return script_function(obj)


def text_method(kind: T.ClassType, text: TextFunction) -> Function:
    """A method of a class that is given as text; it is compiled when first needed."""

    def compile_now(made: Function) -> None:
        names = PythonNames(_Nothing(), UNIT, kind)
        names.globals = text.names
        names.defaults = text.defaults  # type: ignore[method-assign]
        compile_syntax(made, text.node, text.source, names, kind)

    made = kind.methods[text.node.name] = Function(f"{kind.name}.{text.node.name}", compile_now)
    return made


def define_methods(module: ScriptModule, texts: list[TextFunction]) -> None:
    """Add methods to a compiled module from their texts."""
    for made in [text_method(module._type, text) for text in texts]:
        made.ensure_defined()
        module.__dict__["_methods"].pop(made.name, None)


class _Nothing:
    """A function that is only text."""
