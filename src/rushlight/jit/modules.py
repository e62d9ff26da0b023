"""Modules and functions that were compiled: they run graphs."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule, trace_marks
from rushlight.jit import _TRACING
from rushlight.jit.arguments import ArgumentMismatch, Binder, converter
from rushlight.jit.errors import raise_from_graph
from rushlight.jit.frontend.text import names_of_caller, text_functions
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.passes.inlining import inline_calls
from rushlight.jit.marked import keep_attribute, prepare
from rushlight.jit.runtime.containers import plain
from rushlight.jit.runtime.objects import PythonMethod
from rushlight.jit.serialization.printer import function_code
from rushlight.jit.tracing.recording import current
from rushlight.nn.modules.module import Module

compiler: Any = LazyModule("rushlight.compiler")
scripting: Any = LazyModule("rushlight.jit.scripting")
writer: Any = LazyModule("rushlight.jit.serialization.writer")

__all__ = [
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptMethod",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracedModule",
    "is_compiled",
    "wrap_module",
]


class _Compiled:
    """Common base of compiled functions and methods: the graph and its texts."""

    _function: Function

    @property
    def graph(self) -> Any:
        """The graph."""
        return self._function.graph

    @property
    def inlined_graph(self) -> Any:
        """A copy of the graph in which calls are replaced by what they call."""
        return inline_calls(self._function.graph.copy())

    @property
    def schema(self) -> Any:
        """The arguments and the result."""
        return self._function.schema

    @property
    def code(self) -> str:
        """The graph as code."""
        return function_code(self._function)[0]

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        """The graph as code, and the constants that it refers to."""
        text, constants = function_code(self._function)
        return text, ConstMap(constants)

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        """The graph that runs for these arguments: all calls inlined."""
        return self.inlined_graph

    def get_debug_state(self) -> Any:
        """Nothing is optimised by profile: the state is empty."""
        return {}


class ConstMap:
    """Constants by their names in code: `c0`, `c1`, ..."""

    def __init__(self, constants: Any) -> None:
        self.const_mapping = {f"c{i}": v for i, v in enumerate(constants)}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["const_mapping"][name]
        except KeyError:
            raise AttributeError(name) from None


class ScriptFunction(_Compiled):
    """A compiled function: calling it runs its graph."""

    def __init__(self, function: Function, python: Any = None) -> None:
        self._function = function
        self._binder: Any = None
        self._torchdynamo_inline = python
        if python is not None:
            functools.update_wrapper(self, python)
        else:
            self.__name__ = self.__qualname__ = function.name
            self.__module__ = "rushlight.jit"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._torchdynamo_inline is not None and compiler.is_exporting():
            return self._torchdynamo_inline(*args, **kwargs)  # exported programs take the Python function
        if self._binder is None:
            self._binder = Binder(self._function.schema, self._function.name)
        values = self._binder(args, kwargs)
        if _TRACING.depth:
            recorder = current()
            if recorder is not None:
                return recorder.call_function(self._function, values)
        mode = rushlight.is_grad_enabled()
        try:
            return plain(self._function.run(*values))
        except Exception as error:
            rushlight.set_grad_enabled(mode)  # code that was left by an error may have changed it
            raise_from_graph(error)

    @property
    def name(self) -> str:
        """The function's name."""
        return self._function.name

    @property
    def qualified_name(self) -> str:
        """The function's name with its place."""
        return self._function.qualified_name

    @trace_marks.changes_later_calls
    def save(self, filename: Any, _extra_files: Any = None) -> None:
        """Write the function to a file or a path."""
        writer.save(self, filename, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """The function's archive as bytes."""
        return writer.archive_bytes(self, _extra_files)

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction object {self.__name__} at {hex(id(self))}>"

    def __reduce__(self) -> Any:
        raise pickle.PickleError("ScriptFunction cannot be pickled: torch.jit.save writes it to a file")


def _stand_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The class of an argument that stands for a value while a program is traced; None for values."""
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if hasattr(kind, "__torch_function__") and not isinstance(value, rushlight.Tensor):
            return kind
    return None


class ScriptMethod(_Compiled):
    """A method of a compiled module."""

    def __init__(self, owner: Any, function: Function) -> None:
        self.owner, self._function = owner, function
        self._binder = Binder(function.schema, function.name, skip=1)
        self.name = self.__name__ = function.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        asked = _stand_in(args, kwargs)
        if asked is not None:
            return asked.__torch_function__(self, (asked,), args, kwargs)
        values = self._binder(args, kwargs)
        if _TRACING.depth:
            recorder = current()
            if recorder is not None and not recorder.inlines and self.owner is not recorder.module:
                return plain(recorder.call_function(self._function, values, self.owner))
        mode = rushlight.is_grad_enabled()
        try:
            return plain(self._function.run(self.owner, *values))
        except Exception as error:
            rushlight.set_grad_enabled(mode)  # code that was left by an error may have changed it
            raise_from_graph(error)

    def __repr__(self) -> str:
        return f"<torch.ScriptMethod object {self.name} at {hex(id(self))}>"


class ScriptModule(Module):
    """A module whose methods are compiled: base of what `script`, `trace` and `load` give, and of users' classes whose
    methods are marked with `script_method`.
    """

    _type: Any = T.ClassType("__torch__.ScriptModule", is_module=True)  # of classes of users', whose methods are Python

    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not getattr(cls, "_disable_script_meta", False):
            prepare(cls)

    @property
    def _c(self) -> Any:
        return _Facade(self)

    @property
    def original_name(self) -> str:
        """The name of the class that was compiled."""
        name = self._type.name
        if "_type" not in self.__dict__:
            return type(self).__name__
        if self.__dict__.get("_original_name"):
            return str(self.__dict__["_original_name"])
        return str(name).rpartition(".")[2]

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The name of the class that was compiled."""
        return f"original_name={self.original_name}"

    def _method_names(self) -> Iterator[str]:
        kind = self._type
        names = dict.fromkeys(kind.methods)
        if isinstance(kind.context, tuple):
            names |= dict.fromkeys(kind.context[1])
        return iter(n for n in names if not n.startswith("__torch"))

    def _method(self, name: str) -> ScriptMethod | None:
        kind = self.__dict__.get("_type")
        if kind is None:
            return None
        held = self.__dict__["_methods"]
        found = held.get(name)
        if found is None:
            function = kind.find_method(name)
            if function is None:
                return None
            found = held[name] = ScriptMethod(self, function)
        return found

    # ***** attributes *****

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        kind = state.get("_type")
        if kind is not None:
            for table in ("_parameters", "_buffers", "_modules"):
                if name in state[table]:
                    return state[table][name]
            found = self._method(name)
            if found is not None:
                return found
            if name in kind.constants:
                return kind.constants[name][1]
            if name in kind.properties:
                return self._method(kind.properties[name][0])()  # type: ignore[misc]
            if name in kind.raw:
                return _bound(kind.raw[name], self)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self.__dict__.get("_type")
        if kind is None and isinstance(value, rushlight.jit.Attribute):
            keep_attribute(self, name, value)
            return
        if kind is None or name in ("training",) or name.startswith("_") and name not in kind.attributes:
            super().__setattr__(name, value)
            return
        if name in kind.attributes:
            self._set_typed(name, value, kind)
        elif name in kind.constants:
            raise AttributeError(f"Cannot mutate TorchScript constant value: '{name}'. Value: '{value}'")
        elif name in kind.properties and kind.properties[name][1] is not None:
            self._method(kind.properties[name][1])(value)  # type: ignore[misc]
        else:
            super().__setattr__(name, value)

    def _set_typed(self, name: str, value: Any, kind: T.ClassType) -> None:
        if name in kind.parameters:
            self._parameters[name] = value
        elif name in kind.buffers:
            self._buffers[name] = value
        elif getattr(kind.attributes[name], "is_module", False):
            self._check_interface(name, value, kind.attributes[name])
            self._modules[name] = value
        else:
            try:
                self.__dict__[name] = converter(kind.attributes[name])(value)
            except ArgumentMismatch:
                raise RuntimeError(
                    f"Could not cast attribute '{name}' to type {kind.attributes[name].annotation}: Unable to cast Python instance of type "
                    f"{type(value)} to it"
                ) from None

    def _check_interface(self, name: str, value: Any, wanted: Any) -> None:
        """RuntimeError for a module that does not have the interface of an attribute."""
        if not isinstance(wanted, T.InterfaceType):
            return
        held = value.__dict__.get("_type") if isinstance(value, rushlight.nn.Module) else None
        if held is None:
            raise RuntimeError(
                f"Cannot assign a module that is not scripted to the attribute '{name}' with an interface"
            )
        why = T.why_not_interface(held, wanted)
        if why is not None:
            raise RuntimeError(f"Object of type {held.name} is not compatible with interface {wanted.name}\n{why}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._method_names(), *self._type.constants})

    def __delattr__(self, name: str) -> None:
        if name in self._type.attributes:
            raise AttributeError(f"attributes of compiled modules cannot be deleted: '{name}'")
        super().__delattr__(name)

    # ***** calls *****

    @property
    def forward_magic_method(self) -> Any:
        """The compiled `forward`."""
        return self._method("forward")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph of `forward`."""
        method = self._method("forward")
        if method is None and "_type" in self.__dict__ and "forward" in self._type.overloads:
            return self._overloaded("forward", args, kwargs)
        if method is None:
            left = self._type.raw.get("forward") if "_type" in self.__dict__ else None
            if left is not None:
                return PythonMethod("forward")(self, *args, **kwargs)
            raise NotImplementedError(f"{type(self).__name__} has no compiled forward")
        return method(*args, **kwargs)

    def _overloaded(self, name: str, args: Any, kwargs: Any) -> Any:
        """Call the first overload that takes the arguments."""
        errors = []
        for each in self._type.overloads[name]:
            method = self._method(each)
            assert method is not None
            try:
                method._binder(args, kwargs)
            except RuntimeError as error:
                errors.append(str(error))
                continue
            return method(*args, **kwargs)
        raise RuntimeError(f"no overload of {name} takes these arguments:\n" + "\n".join(errors))

    @property
    def graph(self) -> Any:
        """The graph of `forward`."""
        return self._forward().graph

    @property
    def inlined_graph(self) -> Any:
        """The graph of `forward` in which calls are replaced by what they call."""
        return self._forward().inlined_graph

    @property
    def code(self) -> str:
        """The code of `forward`."""
        return self._forward().code

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        """The code of `forward`, and the constants that it refers to."""
        return self._forward().code_with_constants

    def _forward(self) -> ScriptMethod:
        method = self._method("forward")
        if method is None:
            raise RuntimeError("Method 'forward' is not defined.")
        return method

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        """The graph that runs for these arguments."""
        return self._forward().graph_for(*args, **kwargs)

    def get_debug_state(self, *args: Any, **kwargs: Any) -> Any:
        """The state of `forward`."""
        return self._forward().get_debug_state()

    def define(self, src: str) -> None:
        """Add methods from their source text, which may use the names of the calling function.

        Example: `m.define("def double(self, x): return x * 2")`
        """
        names = names_of_caller(1)
        if is_compiled(self):
            scripting.define_methods(self, text_functions(src, names))
            return
        texts = self.__dict__.setdefault("_text_methods", {})
        texts |= {each.node.name: each for each in text_functions(src, names)}

    # ***** files *****

    @trace_marks.changes_later_calls
    def save(self, f: Any, **kwargs: Any) -> None:
        """Write the module to a file or a path; `_extra_files` are further records by name."""
        writer.save(self, f, kwargs.get("_extra_files"))

    def save_to_buffer(self, *args: Any, **kwargs: Any) -> bytes:
        """The module's archive as bytes."""
        return writer.archive_bytes(self, kwargs.get("_extra_files"))

    def _save_for_lite_interpreter(self, *args: Any, **kwargs: Any) -> None:
        """NotImplementedError: there is no lite interpreter here."""
        raise NotImplementedError("rushlight writes no archives for PyTorch's lite interpreter: save writes full ones")

    _save_to_buffer_for_lite_interpreter = _save_for_lite_interpreter

    # ***** copies *****

    def __copy__(self) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update(_type=self._type, _methods={})
        for table in ("_parameters", "_buffers", "_modules"):
            made.__dict__[table] = dict(self.__dict__[table])
        self._copy_rest(made)
        return made

    def _copy_rest(self, made: Any) -> None:
        for name, value in self.__dict__.items():
            if name not in ("_parameters", "_buffers", "_modules", "_methods", "_type"):
                made.__dict__[name] = value.copy() if isinstance(value, (dict, set)) else value

    def copy(self) -> Any:
        """A shallow copy."""
        return self.__copy__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        made = type(self).__new__(type(self))
        made.__dict__.update(_type=self._type, _methods={})
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            if name not in ("_methods", "_type"):
                made.__dict__[name] = copy.deepcopy(value, memo)
        return made

    def copy_instance(self) -> Any:
        """A deep copy."""
        import copy

        return copy.deepcopy(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise pickle.PickleError("compiled modules cannot be pickled: torch.jit.save writes them to files")

    def __len__(self) -> int:
        method = self._method("__len__")
        return method() if method is not None else len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self._modules[index]
        return list(self._modules.values())[index]

    def __contains__(self, name: Any) -> bool:
        return name in self._modules

    def __bool__(self) -> bool:
        return True


class _Facade:
    """The module as PyTorch's C++ object shows it."""

    def __init__(self, module: Any) -> None:
        self._module = module

    @property
    def module(self) -> Any:
        """The module itself."""
        return self._module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a compiled module has no '{name}' yet")
        if name in self._module._type.attributes:
            return self.getattr(name)
        return getattr(self._module, name)

    @property
    def name(self) -> str:
        """The class's short name."""
        return self._module.original_name

    @property
    def qualified_name(self) -> str:
        """The class's full name."""
        return self._module._type.name

    def _type(self) -> Any:
        return self._module._type

    def _method_names(self) -> list[str]:
        return list(self._module._method_names())

    def _get_method(self, name: str) -> Any:
        return self._module._method(name)

    def _has_method(self, name: str) -> bool:
        return self._module._type.find_method(name) is not None

    def hasattr(self, name: str) -> bool:
        """Whether there is an attribute of this name."""
        return name in self._module._type.attributes

    def getattr(self, name: str) -> Any:
        """An attribute."""
        found = getattr(self._module, name)
        return found._c if is_compiled(found) else found


class RecursiveScriptModule(ScriptModule):
    """A compiled module: parameters, buffers, modules and attributes as a module has them, methods as graphs."""

    _disable_script_meta = True

    def __init__(self, kind: Any) -> None:
        if not isinstance(kind, T.ClassType):
            raise TypeError("RecursiveScriptModule is made by torch.jit.script, torch.jit.trace or torch.jit.load")
        super().__init__()
        self.__dict__["_type"] = kind
        self.__dict__["_methods"] = {}


class TopLevelTracedModule(RecursiveScriptModule):
    """The result of `torch.jit.trace`."""

    def extra_repr(self) -> str:
        """The name of the class that was traced."""
        return f"original_name={self.original_name}"


TracedModule = TopLevelTracedModule


def _bound(held: Any, owner: Any) -> Any:
    if (
        hasattr(held, "__get__")
        and callable(held)
        and not isinstance(held, type)
        and not getattr(held, "_is_static", False)
    ):
        return held.__get__(owner)
    return held


def is_compiled(module: Any) -> bool:
    """Whether a module is a compiled one."""
    return isinstance(module, ScriptModule) and "_type" in module.__dict__


def wrap_module(kind: T.ClassType, cls: Any = RecursiveScriptModule) -> Any:
    """A module of a compiled class, without parameters and attributes."""
    return cls(kind)
