"""Attributes of objects while a function is traced: what is read of modules, classes, functions and objects is guarded,
what is written to objects from outside waits.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._capture.bytecode.operations import in_python
from rushlight._capture.recording import shown
from rushlight._capture.trace.entering import enter
from rushlight._capture.trace.objects import classes
from rushlight._capture.trace.objects.instances import DELETED, InstanceDict
from rushlight._capture.trace.outside import ABSENT, grad_condition, is_plain, type_attribute
from rushlight._capture.trace.package_code import (
    PACKAGE,
    is_foreign,
    is_foreign_attribute,
    is_leaf,
    is_module_getattr,
    module_of_class,
)
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.tensor import Tensor
from rushlight._native.mutable_objects import own_attributes
from rushlight._types.device import Device

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = [
    "adopt", "delete_object_attribute", "generic_attribute", "guard_class", "guard_names", "is_users_class", "known_attribute", "no_attribute",
    "require_missing", "set_object_attribute", "store_tensor_attribute", "tensor_attribute",
]  # fmt: skip


def known_attribute(tracer: Tracer, obj: Any, name: str) -> Any:
    """An attribute of a module, a class, a function or another object."""
    if isinstance(obj, types.ModuleType):
        return module_attribute(tracer, obj, name)
    if isinstance(obj, type):
        return class_attribute(tracer, obj, name)
    if isinstance(obj, super):
        return super_attribute(tracer, obj, name)
    if isinstance(obj, types.FunctionType):
        return function_attribute(tracer, obj, name)
    if (
        isinstance(obj, (types.MethodType, types.BuiltinFunctionType))
        or id(obj) in tracer.outside.shadows
        or not tracer.is_user_object(obj)
    ):
        return plain_attribute(tracer, obj, name)
    return object_attribute(tracer, obj, name)


def require_missing(tracer: Tracer, obj: Any, name: str) -> None:
    """Require that a module, class, function or native object has no such attribute."""
    if is_plain(obj) or id(obj) in tracer.made_functions or isinstance(obj, InstanceDict):
        return
    if isinstance(obj, types.ModuleType) and name in tracer.outside.globals.get(id(vars(obj)), ()):
        return  # the trace deleted it
    named = isinstance(obj, (types.ModuleType, type, types.FunctionType))
    source = tracer.constant_source(obj) if named else tracer.outside.source_of(obj)
    if source is not None:
        tracer.reads.check(source, f"not hasattr({{}}, {name!r})")


def plain_attribute(tracer: Tracer, obj: Any, name: str) -> Any:
    if isinstance(obj, types.MethodType) and name not in ("__func__", "__self__"):
        return tracer.load_attr(obj.__func__, name)
    found = getattr(obj, name) if id(obj) in tracer.outside.unread else tracer.native(getattr, obj, name)
    source = tracer.outside.sources.get(id(obj))
    if source is None or callable(found) or id(obj) in tracer.outside.shadows:
        return found
    return tracer.outside.wrap(found, tracer.reads.source(f"{{}}.{name}", source))


def tensor_attribute(tracer: Tracer, obj: Tensor, name: str) -> Any:
    known = tracer.outside.tensors.get(id(obj))
    if known is not None:
        real, source = known
        held = own_attributes(real) if hasattr(type(real), "__dict__") else {}
        if name in held and obj.__dict__.get(name, held[name]) is held[name]:
            return tracer.outside.wrap(held[name], tracer.reads.source(f"{{}}.__dict__[{name!r}]", source))
        if name == "grad":
            guard_gradient(tracer, obj, real, source)
        elif name == "_base" and real._base is not None:
            raise Break("asks what a tensor from outside is a view of")
        elif name not in obj.__dict__ and type_attribute(type(obj), name) is ABSENT:
            tracer.reads.check(source, f"{name!r} not in {{}}.__dict__")
    found = type_attribute(type(obj), name)
    if isinstance(found, property) and is_followed_function(found.fget):
        guard_class(tracer, type(obj), name, found)
        return enter(tracer, found.fget, (obj,), {})
    if isinstance(found, types.FunctionType) and is_foreign(found):
        guard_class(tracer, type(obj), name, found)
        adopt(tracer, found)
    value = tracer.native(getattr, obj, name)
    if name == "grad_fn" and known is not None and value is not None:
        tracer.outside.adopt(value, tracer.reads.source("{}.grad_fn", known[1]))
    return shown(value) if isinstance(value, Device) else value


def is_followed_function(function: Any) -> bool:
    """Whether a function is Python code that is followed."""
    return isinstance(function, types.FunctionType) and not is_leaf(function)


def module_attribute(tracer: Tracer, obj: types.ModuleType, name: str) -> Any:
    space = vars(obj)
    waiting = tracer.outside.globals.get(id(space))
    if waiting and name in waiting:
        if waiting[name] is DELETED:
            raise AttributeError(f"module '{obj.__name__}' has no attribute '{name}'", name=name, obj=obj)
        return waiting[name]
    if name in space:
        value = space[name]
        if tracer.is_internal_space(space) and isinstance(value, (types.FunctionType, type)):
            place = tracer.reads.source(f"{{}}[{name!r}]", tracer.reads.constant(space))
            tracer.reads.check(place, f"{{}} is {tracer.constants.name(value)}")  # programs patch `F.relu`
            return tracer.wrap_constant(value)
        return tracer.wrap_global(space, name, value)
    value = getattr(obj, name)
    if is_plain(value):  # of a module whose class has properties, as those of backends
        return tracer.outside.wrap(value, tracer.reads.source(f"{{}}.{name}", tracer.constant_source(obj)))
    return tracer.wrap_constant(value)


def class_attribute(tracer: Tracer, obj: type, name: str) -> Any:
    raw = type_attribute(obj, name)
    getter = ABSENT if raw is ABSENT else type_attribute(type(raw), "__get__")
    if isinstance(getter, types.FunctionType) and id(obj) not in tracer.made_functions and is_foreign(getter):
        if type_attribute(type(obj), name) is ABSENT and tracer.outside.source_of(raw) is not None:
            guard_class(tracer, obj, name, raw)
            guard_class(tracer, type(raw), "__get__", getter)
            return enter(tracer, getter, (raw, None, obj), {})
    value = getattr(obj, name)
    waiting = tracer.outside.attributes.get(id(obj))
    if waiting and name in waiting:
        return waiting[name]
    if id(obj) in tracer.made_functions:
        return value
    if isinstance(raw, (property, staticmethod, classmethod, types.FunctionType)) or isinstance(
        value, types.BuiltinFunctionType
    ):
        guard_class(tracer, obj, name, raw)
        return value if isinstance(value, types.MethodType) else adopt(tracer, value)
    if callable(value) and not is_plain(value) and isinstance(value, (types.MethodWrapperType, types.MethodType)):
        return value
    source = tracer.constant_source(obj)
    return tracer.outside.wrap(value, tracer.reads.source(f"{{}}.{name}", source))


def adopt(tracer: Tracer, value: Any) -> Any:
    """A function or the like that a guarded class holds."""
    if not is_plain(value) and id(value) not in tracer.made_functions:
        tracer.outside.adopt(value, tracer.reads.constant(value))
    return value


def guard_class(tracer: Tracer, kind: type, name: str, raw: Any) -> None:
    """Require that a class has this attribute still."""
    guard_names(tracer, kind)
    for each in kind.__mro__:
        if name in each.__dict__:
            # A program may have given a function of its own to a class of ours.
            if is_users_class(tracer, each) or is_foreign_attribute(raw):
                tracer.reads.check(
                    tracer.reads.constant(each), f"{{}}.__dict__.get({name!r}) is {tracer.constants.name(raw)}"
                )
            return


def is_users_class(tracer: Tracer, kind: type) -> bool:
    """Whether a class may change that the trace did not make: those of ours that are followed too, since programs
    patch them.
    """
    module = module_of_class(kind)
    if module.partition(".")[0] == PACKAGE:
        return f"{module}.".startswith(HOOKS.inlined)
    return module != "builtins" and id(kind) not in tracer.made_functions


def guard_names(tracer: Tracer, kind: type) -> None:
    """Require that a class and those that it inherits from have no attributes but those they have: one that is
    added may hide others.
    """
    if id(kind) in tracer.named:
        return
    tracer.named.add(id(kind))
    tracer.kept.append(kind)
    for each in kind.__mro__:
        if is_users_class(tracer, each):
            names = tracer.constants.name([*each.__dict__])
            tracer.reads.check(tracer.reads.constant(each), f"[*{{}}.__dict__] == {names}")
            tracer.reads.check(tracer.reads.constant(each), f"{{}}.__mro__ is {tracer.constants.name(each.__mro__)}")


def super_attribute(tracer: Tracer, obj: Any, name: str) -> Any:
    start, owner = obj.__thisclass__, obj.__self__
    kind = obj.__self_class__
    mro = kind.__mro__
    for each in mro[mro.index(start) + 1 :]:
        if name in each.__dict__:
            raw = each.__dict__[name]
            guard_class(tracer, each, name, raw)
            if isinstance(raw, property) and isinstance(raw.fget, types.FunctionType):
                return enter(tracer, raw.fget, (owner,), {})
            if name == "__dict__":
                return object_attribute(tracer, owner, name)
            bound = getattr(obj, name)
            adopt(tracer, raw)
            return bound
    return getattr(obj, name)


def function_attribute(tracer: Tracer, obj: types.FunctionType, name: str) -> Any:
    if id(obj) in tracer.made_functions:
        return getattr(obj, name)
    value = getattr(obj, name)
    if is_plain(value) and tracer.is_internal_space(obj.__globals__):
        return value  # nobody changes our own functions
    if isinstance(value, (types.MethodWrapperType, types.BuiltinFunctionType)):
        return value
    return tracer.outside.wrap(value, tracer.reads.source(f"{{}}.{name}", tracer.constant_source(obj)))


def object_attribute(tracer: Tracer, obj: Any, name: str) -> Any:
    """Load an attribute as the object's type does."""
    kind = type(obj)
    guard_names(tracer, kind)
    getter = type_attribute(kind, "__getattribute__")
    if not isinstance(getter, types.FunctionType):
        return generic_attribute(tracer, obj, name, functools.partial(missing_attribute, tracer))
    guard_class(tracer, kind, "__getattribute__", getter)
    adopt(tracer, getter)
    fallback = type_attribute(kind, "__getattr__")
    if fallback is ABSENT:
        return enter(tracer, getter, (obj, name), {})

    def caught(error: BaseException) -> Any:
        if isinstance(error, AttributeError):
            return missing_attribute(tracer, obj, kind, name)
        raise error

    return enter(tracer, getter, (obj, name), {}, caught=caught)


def generic_attribute(tracer: Tracer, obj: Any, name: str, missing: Callable[[Any, type, str], Any]) -> Any:
    """Load as `object.__getattribute__` does; `missing` is called for absent names."""
    kind = type(obj)
    if name == "__dict__":
        return InstanceDict(tracer, obj) if tracer.outside.is_outside(obj) else obj.__dict__
    if name == "__class__":
        return tracer.wrap_constant(kind)
    raw = type_attribute(kind, name)
    data = raw is not ABSENT and hasattr(type(raw), "__set__")
    if raw is not ABSENT and in_python(type(raw)) and tracer.outside.is_outside(obj):
        guard_names(tracer, type(raw))  # whether it is a descriptor, and of which kind
    if data:
        guard_class(tracer, kind, name, raw)
        return descriptor_attribute(tracer, obj, name, raw)
    found = tracer.instance_attribute(obj, name)
    if found is not ABSENT:
        return found
    if raw is not ABSENT:
        guard_class(tracer, kind, name, raw)
        return descriptor_attribute(tracer, obj, name, raw)
    return missing(obj, kind, name)


def no_attribute(obj: Any, kind: type, name: str) -> Any:
    """Raises the error for an attribute that is not there."""
    raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'", name=name, obj=obj)


def missing_attribute(tracer: Tracer, obj: Any, kind: type, name: str) -> Any:
    """Load an absent attribute through `__getattr__`."""
    fallback = type_attribute(kind, "__getattr__")
    if fallback is ABSENT:
        return no_attribute(obj, kind, name)
    tracer.searched += 1
    guard_class(tracer, kind, "__getattr__", fallback)
    if is_module_getattr(fallback):
        for table in ("_parameters", "_modules", "_buffers"):
            held = tracer.instance_attribute(obj, table)
            if held is not ABSENT and name in held:
                return held[name]
    if not isinstance(fallback, types.FunctionType):
        raise Break(f"{kind.__name__}.__getattr__ is native")
    if is_leaf(fallback) and tracer.outside.is_outside(obj):
        return _made_when_asked(tracer, obj, name)
    return enter(tracer, fallback, (obj, name), {})


def _made_when_asked(tracer: Tracer, obj: Any, name: str) -> Any:
    """An attribute that an object of ours makes when it is first read, as an operator's packet its overloads."""
    source = tracer.outside.sources[id(obj)]
    try:
        value = getattr(obj, name)
    except AttributeError:
        tracer.reads.check(source, f"not hasattr({{}}, {name!r})")
        raise
    return tracer.outside.wrap(value, tracer.reads.source(f"{{}}.{name}", source))


def descriptor_attribute(tracer: Tracer, obj: Any, name: str, raw: Any) -> Any:
    """Bind a class attribute to an instance."""
    if isinstance(raw, types.FunctionType):
        adopt(tracer, raw)
        return types.MethodType(raw, obj)
    if isinstance(raw, property):
        if isinstance(raw.fget, types.FunctionType):
            guard_class(tracer, type(obj), name, raw)
            adopt(tracer, raw.fget)
            return enter(tracer, raw.fget, (obj,), {})
        return tracer.native(getattr, obj, name)
    if isinstance(raw, functools.cached_property):
        adopt(tracer, raw.func)
        return enter(tracer, raw.func, (obj,), {}, then=_Cached(tracer, obj, name))
    if isinstance(raw, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        return slot_attribute(tracer, obj, name)
    getter = type_attribute(type(raw), "__get__")
    if isinstance(getter, types.FunctionType):
        guard_class(tracer, type(raw), "__get__", getter)
        held = tracer.wrap_constant(raw)
        if isinstance(raw, functools.singledispatchmethod):
            held = classes.without_memory(tracer, held)
        return enter(tracer, getter, (held, obj, type(obj)), {})
    if isinstance(raw, (staticmethod, classmethod)):
        value = raw.__get__(obj, type(obj))
        return value if isinstance(value, types.MethodType) else adopt(tracer, value)
    if getter is not ABSENT:
        value = raw.__get__(obj, type(obj))
        return value if callable(value) else slot_attribute(tracer, obj, name)
    return tracer.outside.wrap(raw, tracer.reads.source(f"{{}}.{name}", tracer.reads.constant(type(obj))))


def slot_attribute(tracer: Tracer, obj: Any, name: str) -> Any:
    if not tracer.outside.is_outside(obj):
        return getattr(obj, name)
    waiting = tracer.outside.attributes.get(id(obj))
    if waiting and name in waiting:
        if waiting[name] is DELETED:
            raise AttributeError(name)
        return waiting[name]
    try:
        value = getattr(obj, name)
    except AttributeError:
        tracer.reads.check(tracer.outside.sources[id(obj)], f"not hasattr({{}}, {name!r})")
        raise
    return tracer.outside.wrap(value, tracer.reads.source(f"{{}}.{name}", tracer.outside.sources[id(obj)]))


def set_object_attribute(tracer: Tracer, obj: Any, name: str, value: Any) -> Any:
    """Set as `object.__setattr__` does."""
    raw = type_attribute(type(obj), name)
    if isinstance(raw, property):
        if raw.fset is None:
            raise AttributeError(f"property '{name}' of '{type(obj).__name__}' object has no setter")
        guard_class(tracer, type(obj), name, raw)
        return enter(tracer, raw.fset, (obj, value), {})
    setter = ABSENT if raw is ABSENT else type_attribute(type(raw), "__set__")
    if isinstance(setter, types.FunctionType):
        guard_class(tracer, type(raw), "__set__", setter)
        return enter(tracer, setter, (tracer.wrap_constant(raw), obj, value), {})
    tracer.write_attribute(obj, name, value)
    return None


def delete_object_attribute(tracer: Tracer, obj: Any, name: str) -> None:
    """Delete as `object.__delattr__` does."""
    raw = type_attribute(type(obj), name)
    if isinstance(raw, property):
        if raw.fdel is None:
            raise AttributeError(f"property '{name}' of '{type(obj).__name__}' object has no deleter")
        guard_class(tracer, type(obj), name, raw)
        tracer.nested(raw.fdel, (obj,))
        return
    deleter = ABSENT if raw is ABSENT else type_attribute(type(raw), "__delete__")
    if isinstance(deleter, types.FunctionType):
        guard_class(tracer, type(raw), "__delete__", deleter)
        tracer.nested(deleter, (tracer.wrap_constant(raw), obj))
        return
    if isinstance(raw, types.MemberDescriptorType):
        tracer.finished(slot_attribute(tracer, obj, name))
    elif tracer.instance_attribute(obj, name) is ABSENT:
        raise AttributeError(name)
    tracer.write_attribute(obj, name, DELETED)


def store_tensor_attribute(tracer: Tracer, obj: Tensor, name: str, value: Any) -> None:
    if id(obj) in tracer.outside.tensors and name not in ("grad", "requires_grad", "data"):
        raise Break(f"writes the attribute '{name}' of a tensor from outside")
    if name == "data":
        raise Break("writes the data of a tensor")
    if name == "requires_grad" and id(obj) in tracer.outside.tensors and value is not obj.requires_grad:
        raise Break("changes whether a tensor from outside wants a gradient")
    if name == "grad":
        replace_gradient(tracer, obj)
    tracer.native(setattr, obj, name, value)


def guard_gradient(tracer: Tracer, made: Tensor, real: Tensor, source: Any) -> None:
    """Require that a tensor from outside has a gradient or none as it does, unless the trace has replaced it."""
    if id(made) not in tracer.unseen:
        tracer.reads.check(source, grad_condition(real))


def replace_gradient(tracer: Tracer, made: Tensor) -> None:
    """The gradient of a tensor gets another one, or none: what a call comes with is of no matter unless it was read."""
    known = tracer.outside.tensors.get(id(made))
    if known is None or tracer.settings.backend is not None or id(made) in tracer.unseen:
        return
    real, source = known
    plain = type_attribute(type(real), "grad") is type_attribute(Tensor, "grad")
    if not plain or real._node is not None or (id(source), grad_condition(real)) in tracer.reads.checked:
        return
    if tracer.rec.forgets_gradient(made):
        tracer.unseen.add(id(made))


class _Cached:
    """Keeps the value of a `functools.cached_property`."""

    __slots__ = ("name", "obj", "tracer")

    def __init__(self, tracer: Tracer, obj: Any, name: str) -> None:
        self.tracer, self.obj, self.name = tracer, obj, name

    def __call__(self, value: Any) -> Any:
        self.tracer.write_attribute(self.obj, self.name, value)
        return value
