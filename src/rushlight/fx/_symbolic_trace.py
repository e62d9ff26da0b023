"""`torch.fx._symbolic_trace`: running a program with values that write down what is done to them.

>>> import rushlight as torch
>>> def double(x, y):
...     return (x + y).relu() * 2
>>> print(torch.fx.symbolic_trace(double).code.strip())
def forward(self, x, y):
    add = x + y;  x = y = None
    relu = add.relu();  add = None
    mul = relu * 2;  relu = None
    return mul
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import copy
import functools
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import absent_class
from rushlight._interface.operators import SPACES
from rushlight.fx._compatibility import compatibility
from rushlight.fx.codegen import PyTreeCodeGen, PyTreeInfo
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Argument
from rushlight.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.utils import _pytree as pytree

__all__ = [
    "PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "ScriptObject", "Tracer", "compatibility", "is_fx_symbolic_tracing", "is_fx_tracing",
    "symbolic_trace", "wrap",
]  # fmt: skip

ScriptObject = absent_class("torch.ScriptObject", "there is no TorchScript")

_tracing: list[Any] = []
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
_wrapped_methods_to_patch: list[tuple[type, str]] = []
_proxyable_classes: dict[type, None] = {}
# Packages whose tracers run programs themselves take the unchanged methods, the patcher and these from here.
_orig_module_call, _orig_module_getattr = Module.__call__, Module.__getattr__


def is_fx_tracing() -> bool:
    """Whether a program is being traced now."""
    return bool(_tracing)


def is_fx_symbolic_tracing() -> bool:
    """Whether a program is being traced now, by values that are not known."""
    return is_fx_tracing()


class PHBase:
    """Stands in `concrete_args` where a value is an input of the traced function."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """A `PH` whose attributes the placeholder's node gets."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key


class ProxyableClassMeta(type):
    """A metaclass: objects of the class may be made of traced values, which is then a node of the graph.

    >>> import rushlight as torch
    >>> class Pair(metaclass=ProxyableClassMeta):
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> "Pair(x, y)" in torch.fx.symbolic_trace(lambda x, y: torch.fx.wrap and Pair(x, y)).code
    True
    """

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = cls.__new__(cls)  # type: ignore[call-overload]
        if not is_fx_tracing():
            cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
            return made
        found = _find_proxy(args, kwargs)
        if found is not None:
            return found.tracer.create_proxy("call_function", cls, args, kwargs)
        cls.__init__(made, *args, **kwargs)  # type: ignore[misc]
        return made


def _find_proxy(*values: Any) -> Proxy | None:
    """A proxy among nested arguments."""
    found: list[Proxy] = []
    pytree.tree_map(
        lambda leaf: found.append(leaf) if isinstance(leaf, Proxy) else None,
        values,
        is_leaf=lambda leaf: isinstance(leaf, Proxy),
    )
    return found[0] if found else None


# ***** functions that are not looked into *****


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Mark a function of the calling module, itself or by name, as one that a tracer does not look into: a call of it
    with a traced value is a node.

    To be called at the top level of a module, or as a decorator there.
    """
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if not isinstance(name, str):
        raise AssertionError(f"fn_name must be a str, got {type(name)}")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def _wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that becomes a node where one of its arguments is traced."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        if proxy is None:
            return original(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", original, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return wrapped


def _method_wrapper(cls: type, name: str) -> Callable[..., Any]:
    original = getattr(cls, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy(args, kwargs)
        return (
            original(*args, **kwargs) if proxy is None else proxy.tracer.create_proxy("call_method", name, args, kwargs)
        )

    return wrapped


class _Patcher:
    """Changes of globals and classes that are taken back at the end of a `with`."""

    _ABSENT = object()

    def __init__(self) -> None:
        self.done: list[tuple[Any, str, Any]] = []
        self.seen: set[int] = set()

    def patch(self, frame_dict: dict[str, Any], name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Another value in a dict; with `deduplicate` only the first time."""
        if not deduplicate or not any(place is frame_dict and each == name for place, each, _ in self.done):
            self.done.append((frame_dict, name, frame_dict.get(name, self._ABSENT)))
            frame_dict[name] = new_fn

    def patch_method(self, cls: type, name: str, new_fn: Any, deduplicate: bool = True) -> None:
        """Another attribute of a class; with `deduplicate` only the first time."""
        if not deduplicate or not any(place is cls and each == name for place, each, _ in self.done):
            self.done.append((cls, name, cls.__dict__.get(name, self._ABSENT)))
            setattr(cls, name, new_fn)

    def visit_once(self, thing: Any) -> bool:
        """Whether this was not asked about before."""
        new = id(thing) not in self.seen
        self.seen.add(id(thing))
        return new

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exc: object) -> None:
        while self.done:
            place, name, before = self.done.pop()
            if isinstance(place, dict):
                if before is self._ABSENT:
                    del place[name]
                else:
                    place[name] = before
            elif before is self._ABSENT:
                delattr(place, name)
            else:
                setattr(place, name, before)


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """The marked functions in their modules, and marked methods."""
    for (_, name), space in _wrapped_fns_to_patch.items():
        if name not in space and hasattr(builtins, name):
            original = getattr(builtins, name)
        elif name in space:
            original = space[name]
        else:
            continue
        patcher.patch(space, name, _wrapper(original))
    for cls, name in _wrapped_methods_to_patch:
        patcher.patch_method(cls, name, _method_wrapper(cls, name))


def _autowrap_check(patcher: _Patcher, space: dict[str, Any], functions: set[int]) -> None:
    """Functions that are never looked into, where some globals hold them."""
    if not patcher.visit_once(space):
        return
    for name, value in list(space.items()):
        if not name.startswith("_") and callable(value) and id(value) in functions:
            patcher.patch(space, name, _wrapper(value))


def _assert_is_none(value: Any, msg: str) -> None:
    """`value` is None; AssertionError where it is not."""
    assert value is None, msg


# ***** the tracer *****


class Tracer(TracerBase):
    """Runs a module's `forward` or a function with proxies and keeps what they write down as a `Graph`.

    Calls of modules for which `is_leaf_module` says yes (the package's own, but for `Sequential`) are nodes; others are
    looked into.  Functions of `autowrap_modules` and `autowrap_functions`, and those marked by `wrap`, are nodes.  A
    subclass may change these decisions: `is_leaf_module`, `call_module`, `create_arg`, `create_node`, `path_of_module`,
    `getattr`, `to_bool`, `iter`.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_function_ids = {
            id(value)
            for module in autowrap_modules
            for name, value in module.__dict__.items()
            if not name.startswith("_") and callable(value)
        } | {id(function) for function in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root: Module = Module()
        self.num_calls: dict[str, int] = {}
        self.tensor_attrs: dict[Any, str] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Tracer:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():  # the modules of _autowrap_search have no copies
            made.__dict__[name] = copy.copy(value) if name == "_autowrap_search" else copy.deepcopy(value, memo)
        return made

    # ***** decisions that a subclass may change *****

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one node: the package's own modules, but for `Sequential`."""
        kind = type(m)
        ours = kind.__module__.startswith(("rushlight.nn", "torch.nn", "rushlight.ao.nn", "torch.ao.nn"))
        return ours and kind.__qualname__ not in ("Sequential", "Module")

    def path_of_module(self, mod: Module) -> str:
        """The path of a module below the root; NameError where it is not there."""
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, each in self.root.named_modules():
            if each is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of a module's call: a node, or what its `forward` does."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            count = self.num_calls.get(path, 0)
            key = f"{scope.module_path}@{count}" if count else scope.module_path
            self.module_stack[key] = (path, scope.module_type)
            self.num_calls[path] = count + 1
            try:
                return (
                    forward(*args, **kwargs)
                    if not self.is_leaf_module(m, path)
                    else self.create_proxy("call_module", path, args, kwargs)
                )
            finally:
                self.module_stack.pop(key, None)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """The value of a module's attribute: parameters (and buffers, where `proxy_buffer_attributes`) are nodes,
        everything else is itself.
        """
        if isinstance(attr_val, Parameter):
            return self._attribute_proxy(attr_val, self.root.named_parameters(), parameter_proxy_cache)
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            return self._attribute_proxy(attr_val, self.root.named_buffers(), parameter_proxy_cache)
        return attr_val

    def _attribute_proxy(self, value: Any, named: Iterator[tuple[str, Any]], cache: dict[str, Any]) -> Any:
        name = next((name for name, each in named if each is value), None)
        if name is None:
            return value
        if name not in cache:
            cache[name] = (
                self.create_proxy(
                    "get_attr", name, (), {}, proxy_factory_fn=lambda node: ParameterProxy(self, node, name, value)
                )
                if self.param_shapes_constant
                else self.create_proxy("get_attr", name, (), {})
            )
        return cache[name]

    def create_arg(self, a: Any) -> Argument:
        """A value as a node's argument: parameters and tensors are attributes of the module, which gets those it lacks."""
        if isinstance(a, Parameter):
            for name, each in self.root.named_parameters():
                if each is a:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, each in self.root.named_buffers():
                if each is a:
                    return self.create_node("get_attr", name, (), {})
            return self.create_node("get_attr", self._constant(a), (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(item) for item in a), {})
        if type(a) in _proxyable_classes:
            return self.create_node("get_attr", self._constant(a, f"_{type(a).__name__}_constant_"), (), {})
        return super().create_arg(a)

    def _constant(self, value: Any, base: str = "_tensor_constant") -> str:
        """The path of an object that the module gets where it lacks it."""
        for held, name in self.tensor_attrs.items():
            if held is value:
                return name
        number = 0
        while hasattr(self.root, f"{base}{number}"):
            number += 1
        self.tensor_attrs[value] = f"{base}{number}"
        setattr(self.root, f"{base}{number}", value)
        return f"{base}{number}"

    # ***** the trace *****

    def trace(
        self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | tuple[Any, ...] | None = None
    ) -> Graph:
        """The graph of a module's `forward` or of a function.

        `concrete_args`: name -> value (or all values, by their places) for parameters that are no inputs: the graph is
        made for these values.  Where one is nested, its `PH` are inputs.
        """
        cls = type(self)
        self.num_calls, self.module_stack = {}, collections.OrderedDict()
        if isinstance(root, Module):
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            fn: Any = getattr(type(root), self.traced_func_name)
            self.root_module_name, self.root = type(root).__name__, root
            self.submodule_paths = {module: name for name, module in root.named_modules()}
        else:
            fn, self.root, self.root_module_name = root, Module(), ""
            self.submodule_paths = None
        self.graph = Graph(tracer_cls=cls)
        if hasattr(fn, "__code__"):
            code = inspect.unwrap(fn).__code__
            self.graph._co_fields = {
                "co_name": code.co_name,
                "co_filename": code.co_filename,
                "co_firstlineno": code.co_firstlineno,
            }
        self.tensor_attrs = {}
        self._collect_tensors(self.root, [])
        if not isinstance(fn, FunctionType):
            raise TypeError(f"a module or a function written in Python can be traced, not {fn!r}")
        space = fn.__globals__
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        with self._tracing(space):
            result = fn(*args)
            self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=_annotation(fn, "return"))
        self.submodule_paths = None
        return self.graph

    def _collect_tensors(self, module: Module, way: list[str]) -> None:
        """Tensors that are plain attributes of modules."""
        for name, value in module.__dict__.items():
            if isinstance(value, Tensor):
                self.tensor_attrs[value] = ".".join([*way, name])
        for name, child in module.named_children():
            self._collect_tensors(child, [*way, name])

    @contextlib.contextmanager
    def _tracing(self, space: dict[str, Any]) -> Iterator[None]:
        """While the program runs, modules that are called and attributes that are read come to the tracer first, and
        marked functions are wrapped.
        """
        cache: dict[str, Any] = {}
        call, get = Module.__call__, Module.__getattr__
        patcher = _Patcher()

        @functools.wraps(get)
        def module_getattr(module: Module, name: str) -> Any:
            return self.getattr(name, get(module, name), cache)

        @functools.wraps(call)
        def module_call(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(module, *args, **kwargs)

            _autowrap_check(patcher, getattr(type(module).forward, "__globals__", {}), self._autowrap_function_ids)
            return self.call_module(module, forward, args, kwargs)

        _tracing.append(self)
        try:
            with patcher:
                patcher.patch_method(Module, "__getattr__", module_getattr, deduplicate=False)
                patcher.patch_method(Module, "__call__", module_call, deduplicate=False)
                _patch_wrapped_functions(patcher)
                for each in (space, *(module.__dict__ for module in self._autowrap_search)):
                    _autowrap_check(patcher, each, self._autowrap_function_ids)
                yield
        finally:
            _tracing.pop()

    # ***** parameters of the traced function *****

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """(function, its arguments): a placeholder for each parameter, and the values of those that are concrete."""
        plain: Any = inspect.unwrap(root_fn)
        code: CodeType = plain.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:count])
        args: list[Any] = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
        variable = bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
        parameters = inspect.signature(plain).parameters
        if isinstance(concrete_args, tuple):
            if concrete_args and variable and not names:
                # No name to give a value to: each stands for an input, whatever it is.
                return root_fn, [*args, *map(self._unnamed, concrete_args, itertools.count())]
            if len(names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(names)} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(names, concrete_args, strict=True))
        args.extend(self._placeholder(name, parameters[name].default, concrete_args or {}, plain) for name in names)
        flattened = bool(concrete_args) and any(not _is_leaf(value) for value in (concrete_args or {}).values())
        if code.co_kwonlyargcount > 0 or variable:
            if flattened:
                raise RuntimeError(
                    "nested concrete_args of a function with *args, **kwargs or keyword-only parameters are not supported"
                )
            return self._with_variable(plain, args, is_module)
        if not flattened:
            return root_fn, args
        return self._flattened(root_fn, args, ["self", *names] if is_module else names)

    def _with_variable(self, fn: Any, args: list[Any], is_module: bool) -> tuple[Callable[..., Any], list[Any]]:
        """A function with *args, **kwargs or keyword-only parameters as one of positional ones."""
        code: CodeType = fn.__code__
        variable = [
            sign + code.co_varnames[code.co_argcount + code.co_kwonlyargcount + place]
            for place, sign in enumerate(
                [s for s, flag in (("*", inspect.CO_VARARGS), ("**", inspect.CO_VARKEYWORDS)) if code.co_flags & flag]
            )
        ]
        args.extend(self.create_proxy("placeholder", name, (), {}) for name in variable)
        return _positional(fn), args

    def _unnamed(self, value: Any, number: int) -> Proxy:
        """An input that only `*args` takes."""
        made = self.create_proxy("placeholder", f"input_{number}", (), {})
        _note(value, made)
        return made

    def _placeholder(self, name: str, default: Any, concrete: dict[str, Any], fn: Any) -> Any:
        """The value of a parameter: a proxy, or what it was said to be."""
        given = () if default is inspect.Parameter.empty else (default,)
        if name not in concrete:
            return self.create_proxy("placeholder", name, given, {}, type_expr=_annotation(fn, name))
        number = 0

        def replace(value: Any) -> Any:
            nonlocal number
            number += 1
            made = self.create_proxy("placeholder", f"{name}_{number}", given, {})
            if isinstance(value, PHBase):
                _note(value, made)
                return made
            said = f"{name} has been specialized to have value {value} but got another value"
            if isinstance(value, (bool, int, float)) and not isinstance(value, Tensor):
                _public("_assert")(made == value, said)
            elif value is None:
                self.create_proxy("call_function", _assert_is_none, (made, said), {})
            return value

        return pytree.tree_map(replace, concrete[name])

    def _flattened(
        self, root_fn: Callable[..., Any], args: list[Any], names: list[str]
    ) -> tuple[Callable[..., Any], list[Any]]:
        """A function of leaves for one with nested parameters; the graph's code takes the nested ones."""
        given = args[1:] if names[0] == "self" else args
        leaves, spec = pytree.tree_flatten(list(given))

        def flat(*leaves: Any) -> Any:
            values = pytree.tree_unflatten(list(leaves), spec)
            result = root_fn(*([self.root, *values] if names[0] == "self" else values))
            flat_result, out_spec = pytree.tree_flatten(result)
            codegen = self.graph._codegen
            if isinstance(codegen, PyTreeCodeGen):
                codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return flat_result

        flat.__annotations__ = {}
        self.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, spec, None)))
        return flat, leaves


def _note(value: Any, made: Proxy) -> None:
    """Give the node of an input the attributes of its `PHBase` that a node does not have."""
    if isinstance(value, PHBase):
        for name, each in vars(value).items():
            if not name.startswith("__") and not hasattr(made.node, name):
                setattr(made.node, name, each)


def _is_leaf(value: Any) -> bool:
    return pytree.tree_structure(value).is_leaf()


def _public(name: str) -> Any:
    """A function of the package."""
    return SPACES["torch"][name] if name in SPACES["torch"] else getattr(sys.modules["rushlight"], name)


def _annotation(fn: Any, name: str) -> Any:
    """The annotation of a parameter; one that is written as text means what it does in the function's module, or
    nothing where it cannot be read.
    """
    found = getattr(fn, "__annotations__", {}).get(name, None)
    if not isinstance(found, str):
        return found
    if found == "Any" and (fn.__module__ or "").startswith(("rushlight.", "torch.")):  # as good as nothing
        return None
    holder = type("Holder", (), {"__annotations__": {name: found}})
    try:
        return inspect.get_annotations(holder, globals=getattr(fn, "__globals__", {}), eval_str=True)[name]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None


def _positional(fn: Any) -> Any:
    """A function with its keyword-only and starred parameters as positional ones: a traced `*args` is one value, under
    its name.
    """
    code: CodeType = fn.__code__
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + flags.bit_count()
    made = code.replace(co_flags=code.co_flags & ~flags, co_argcount=count, co_kwonlyargcount=0)
    function = FunctionType(made, fn.__globals__, fn.__name__, None, fn.__closure__)
    function.__annotations__ = getattr(fn, "__annotations__", {})
    return function


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | tuple[Any, ...] | None = None
) -> GraphModule:
    """A `GraphModule` that does what a module or a function does, found by running it with proxies.

    `concrete_args` are values of parameters that are no inputs: see `Tracer.trace`.

    >>> import rushlight as torch
    >>> module = symbolic_trace(lambda x, flag: x + 1 if flag else x - 1, concrete_args={"flag": True})
    >>> module(torch.ones(2), True)
    tensor([2., 2.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
