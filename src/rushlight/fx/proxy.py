"""`torch.fx.proxy`: values that write down what is done to them, and what makes nodes of it."""

from __future__ import annotations

import collections
import copy
import dataclasses
import dis
import enum
import inspect
import operator
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import rushlight
from rushlight import device as Device
from rushlight import dtype as DType
from rushlight.fx import traceback as fx_traceback
from rushlight.fx.graph import Graph
from rushlight.fx.node import Argument, Node, Target
from rushlight.fx.operator_schemas import check_for_mutable_operation
from rushlight.overrides import is_tensor_method_or_property, resolve_name

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]


class TraceError(ValueError):
    """Raised where a tracer cannot follow: a decision that depends on a value, an unknown number of values."""


class Scope(NamedTuple):
    """The module whose call is being traced: its path and its class."""

    module_path: str
    module_type: Any


class ScopeContextManager(AbstractContextManager[Any]):
    """Inside, a tracer is in another scope."""

    def __init__(self, scope: _CurrentScope, current_scope: Scope) -> None:
        self.scope, self.before = scope, (scope.module_path, scope.module_type)
        scope.module_path, scope.module_type = current_scope

    def __enter__(self) -> _CurrentScope:
        return self.scope

    def __exit__(self, *exc: object) -> None:
        self.scope.module_path, self.scope.module_type = self.before


# Metadata that a node has from the one it is made for, inside `fx.traceback.preserve_node_meta`.
_INHERITED = (
    "stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id", "has_backward_hook",
    "from_node", "quantization_tag", "_numeric_debug_handle", "custom", "partitioner_tag",
)  # fmt: skip


@dataclasses.dataclass
class _CurrentScope:
    module_path: str = ""
    module_type: Any = None


class TracerBase:
    """Makes nodes and values of calls; `graph` gets the nodes.  `Tracer` is the one that follows programs."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    param_shapes_constant = False
    traced_func_name = "forward"

    def __init__(self) -> None:
        self.scope = _CurrentScope()
        self.module_stack: dict[str, Any] = collections.OrderedDict()
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A node at the end of the graph; arguments are nodes and constants.  A tracer may refuse one or change it
        here.
        """
        if kind == "call_function" and self.check_mutable_operations:
            check_for_mutable_operation(target, args, kwargs)  # type: ignore[arg-type]
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            known = fx_traceback.get_current_meta()
            node.meta.update({key: copy.copy(known[key]) for key in _INHERITED if known.get(key) is not None})
        elif self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        return node

    def proxy(self, node: Node) -> Proxy:
        """The value of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Any:
        """A node for a call with these values, and its value."""
        made = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        proxy = self.proxy(made) if proxy_factory_fn is None else proxy_factory_fn(made)
        if self.record_stack_traces and not proxy.node.stack_trace:
            frames = [frame for frame in traceback.extract_stack() if not frame.filename.startswith(_PACKAGE)]
            proxy.node.stack_trace = "".join(traceback.format_list(frames))
        return proxy

    def create_arg(self, a: Any) -> Argument:
        """A value as a node's argument: proxies become their nodes, containers are walked through; NotImplementedError
        for what cannot stand there.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return type(a)(*items) if hasattr(a, "_fields") else type(a)(items) if type(a) is tuple else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return {self._create_key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(part) for part in (a.start, a.stop, a.step)))
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        if (
            isinstance(a, (*_CONSTANTS, enum.Enum))
            or a is None
            or a is ...
            or isinstance(a, type)
            or _is_known_function(a)
        ):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _create_key(self, key: Any) -> Any:
        made = self.create_arg(key)
        if isinstance(made, Node):
            raise RuntimeError("Keys for dictionaries used as an argument cannot contain a Node. Got key: " + str(key))
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """A value decides what the program does next: TraceError, unless a tracer knows the answer."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """A value is iterated over: TraceError, unless it is unpacked into a number of names that the program says."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs function argument. "
            "See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control flow can be traced: "
            "how often a loop runs must not depend on a traced value (leave the loop in a function or module that is not looked into)"
        )

    def keys(self, obj: Any) -> Any:
        """`**value`: the keys that a value has; TraceError in effect, as they are not known."""
        return Attribute(obj, "keys")()


_PACKAGE = os.path.dirname(os.path.abspath(rushlight.__file__)) + os.sep  # of our own frames
_CONSTANTS = (str, int, float, bool, complex, bytes, DType, Device)


def _is_known_function(a: Any) -> bool:
    """Functions and constants of the package (a layout, a memory format) that code names."""
    module = getattr(type(a), "__module__", "") or ""
    return (
        inspect.isfunction(a)
        or inspect.isbuiltin(a)
        or module.partition(".")[0] in ("rushlight", "torch")
        and not hasattr(a, "__torch_function__")
    )


class GraphAppendingTracer(TracerBase):
    """Puts what is done to its values at the end of a given graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


def assert_fn(x: Any) -> None:
    """`assert x` as a function."""
    assert x


# ***** values *****


class Proxy:
    """A value of a program that is being traced: operators, methods, attributes and functions of tensors make nodes and
    give further values.

    What needs the value itself (`if`, a loop over it, `len`, `int`) raises.  A proxy made of a node by hand adds to the
    node's graph.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in ("node", "tracer"):  # not there while a copy is being made
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        made = Proxy.__new__(type(self))
        memo[id(self)] = made
        made.__dict__ = {name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()}
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked(inspect.currentframe())
        return (
            iter([operator.getitem(self, number) for number in range(count)])
            if count is not None
            else self.tracer.iter(self)
        )

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        frame = inspect.currentframe()
        if self.tracer.trace_asserts and frame is not None and _asserts(frame.f_back):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """See `TracerBase.keys`."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tracers = {id(proxy.tracer): proxy.tracer for proxy in _proxies((args, kwargs))}
        if len(tracers) != 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers.values())} while trying to trace operations {orig_method}"
                if tracers
                else "no Proxy among the arguments"
            )
        (tracer,) = tracers.values()
        if orig_method is _INDEX_OF_TENSOR():
            return tracer.create_proxy("call_function", operator.getitem, args, kwargs)
        owner = getattr(orig_method, "owner", None)
        if isinstance(owner, rushlight.nn.Module):  # a compiled method
            return tracer.create_proxy("call_method", orig_method.name, (owner, *args), kwargs)
        if _is_method(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        return tracer.create_proxy(
            "call_function", orig_method, args, kwargs, name=tracer.graph._target_to_str(orig_method)
        )


def _INDEX_OF_TENSOR() -> Any:
    return getattr(rushlight.Tensor, "__getitem__", None)


def _is_method(function: Any) -> bool:
    """Whether a function is one of Tensor's only."""
    return is_tensor_method_or_property(function) and (resolve_name(function) or "torch.Tensor.").startswith(
        "torch.Tensor."
    )


def _proxies(values: Any) -> Iterator[Proxy]:
    """The proxies in nested arguments."""
    if isinstance(values, Proxy):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _proxies(value)
    elif isinstance(values, dict):
        yield from _proxies(list(values.values()))
    elif isinstance(values, slice):
        yield from _proxies((values.start, values.stop, values.step))


def _instruction(frame: Any) -> dis.Instruction | None:
    """The instruction that a frame is at."""
    return next((each for each in dis.get_instructions(frame.f_code) if each.offset == frame.f_lasti), None)


def _unpacked(frame: Any) -> int | None:
    """How many names a program unpacks a value into, when it iterates for that: read in the code of who called
    `__iter__`.
    """
    caller = frame.f_back if frame is not None else None
    found = _instruction(caller) if caller is not None else None
    return found.argval if found is not None and found.opname == "UNPACK_SEQUENCE" else None


def _asserts(frame: Any) -> bool:
    """Whether a program asks for a truth in order to `assert` it."""
    following = (
        [each for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti]
        if frame is not None
        else []
    )
    return any(each.opname == "LOAD_ASSERTION_ERROR" for each in following[:3])


class Attribute(Proxy):
    """An attribute of a value: a node is made when it is used, and none where it is only called, which is a call of a
    method.
    """

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    def __getattr__(self, k: str) -> Any:
        if k in ("root", "attr", "tracer", "_node"):
            raise AttributeError(k)
        return Attribute(self, k)

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that asks for the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter: as any value, though its shape and size are known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    def size(self) -> Any:
        """The parameter's shape."""
        return self.param.size()

    def dim(self) -> int:
        """The parameter's number of dims."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """The parameter's number of dims."""
        return self.param.ndim

    def numel(self) -> int:
        """How many elements the parameter has."""
        return self.param.numel()

    def nelement(self) -> int:
        """How many elements the parameter has."""
        return self.param.nelement()


# ***** operators *****

_OPERATORS = (
    "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift", "lt", "matmul", "mod", "mul", "ne", "neg", "or_", "pos", "pow",
    "rshift", "sub", "truediv", "xor",
)  # fmt: skip
_REFLECTED = (
    "add",
    "and_",
    "floordiv",
    "lshift",
    "matmul",
    "mod",
    "mul",
    "or_",
    "pow",
    "rshift",
    "sub",
    "truediv",
    "xor",
)


def _operator(name: str) -> None:
    target = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, *args), {})

    method.__name__ = f"__{name.strip('_')}__"
    setattr(Proxy, method.__name__, method)


def _reflected(name: str) -> None:
    target = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    method.__name__ = f"__r{name.strip('_')}__"
    setattr(Proxy, method.__name__, method)


for _name in _OPERATORS:
    _operator(_name)
for _name in _REFLECTED:
    _reflected(_name)
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
del _name
