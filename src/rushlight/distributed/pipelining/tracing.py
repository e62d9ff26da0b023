"""A module's graph, as far as its split points are."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor, fx
from rushlight.fx.proxy import Attribute, TraceError
from rushlight.nn import Module
from rushlight.utils._pytree import tree_leaves

__all__ = ["Splits", "annotated", "note_split", "trace"]

_NOTING: list[list[str]] = []  # the stack of modules of the run that looks for split points
_FOUND: list[set[str]] = []
_TRACERS: list[fx.Tracer] = []
CONSTANTS = (bool, int, float, str, type(None))
# What asks a tensor for other things than elements; attributes do too.
FACTS = frozenset({
    "dim", "element_size", "get_device", "getattr", "is_complex", "is_contiguous", "is_floating_point", "is_tensor", "len", "ndimension", "nelement",
    "numel", "size", "storage_offset", "stride",
})  # fmt: skip


def annotated(mod: Module) -> dict[str, str]:
    """Names of parts with split points, kept with the module: name -> BEGINNING or END."""
    held: dict[str, str] = mod.__dict__.setdefault("_pipeline_split_points", {})
    return held


def note_split(function: Callable[[], None]) -> None:
    """A call of `pipe_split`: a node while a module is traced."""
    if _TRACERS:
        _TRACERS[-1].create_node("call_function", function, (), {})
    elif _FOUND:
        _FOUND[-1].update(_NOTING[-1])


def refuse_other(value: Any, expected: Any, name: str) -> None:
    """ValueError where an argument that is a constant of the stages has another value."""
    if value is not expected and value != expected:
        raise ValueError(
            f"the pipeline was made for {name}={expected!r}, got {value!r}: arguments that are no tensors are constants of its stages"
        )


def refuse_change(value: Any, expected: Any) -> None:
    """ValueError where a size or number that decided what a traced program does has another value."""
    if value != expected:
        raise ValueError(
            f"the pipeline was made for an example in which a size or number is {expected!r}, and here it is {value!r}: its program asks for it"
        )


@contextmanager
def unchanged(mod: Module) -> Iterator[None]:
    """Runs of a module inside leave no trace: buffers and random numbers are as before."""
    held = [(buffer, buffer.clone()) for buffer in mod.buffers()]
    with rushlight.no_grad(), rushlight.random.fork_rng():
        try:
            yield
        finally:
            for buffer, before in held:
                buffer.copy_(before)


class Splits:
    """Facts about a module before it is traced.

    - `bound`: its arguments by name, of one micro-batch
    - `points`: parts with split points before or behind them
    - `holders`: paths of modules whose `forward` calls `pipe_split`, and of those around them
    - `whole`: whether everything is traced as far as the package's own modules
    """

    def __init__(self, bound: inspect.BoundArguments, points: dict[str, str], holders: set[str], whole: bool) -> None:
        self.bound, self.points, self.holders, self.whole = bound, points, holders, whole

    @staticmethod
    def of(mod: Module, args: tuple[Any, ...], kwargs: dict[str, Any], whole: bool) -> Splits:
        """Runs the module once, to see which parts call `pipe_split`."""
        stack: list[str] = [""]
        handles = []
        for path, part in mod.named_modules():
            if path:
                handles.append(part.register_forward_pre_hook(lambda *_, path=path: stack.append(path)))
                handles.append(part.register_forward_hook(lambda *_: _pop(stack), always_call=True))
        _NOTING.append(stack)
        _FOUND.append(set())
        try:
            with unchanged(mod):
                mod(*args, **kwargs)
            holders = _FOUND[-1]
        finally:
            _NOTING.pop()
            _FOUND.pop()
            for handle in handles:
                handle.remove()
        bound = inspect.signature(mod.forward).bind(*args, **kwargs)
        points = dict(annotated(mod))
        for name in points:
            parts = name.split(".")
            holders.update(".".join(parts[:k]) for k in range(len(parts)))
        return Splits(bound, points, holders, whole)


def _pop(stack: list[str]) -> None:
    stack.pop()


class _Known:
    """A traced value whose example is known: what it has beside elements (sizes, lengths, numbers) may decide what the
    program does next; the graph then checks that it is the same.
    """

    node: Any
    tracer: Any

    def __getattr__(self, name: str) -> Any:
        if name in ("node", "tracer"):
            raise AttributeError(name)
        value: Any = self
        return _Attribute(value, name)

    def __len__(self) -> int:
        value = self.tracer.values[self.node]
        found = self.tracer.create_proxy("call_function", len, (self,), {})
        return self.tracer.decided(found, len(value))

    def __index__(self) -> int:
        return self.tracer.decided(self, operator.index(self.tracer.values[self.node]))

    def __int__(self) -> int:
        return self.tracer.decided(self, int(self.tracer.values[self.node]))

    def __float__(self) -> float:
        return self.tracer.decided(self, float(self.tracer.values[self.node]))


class _Proxy(_Known, fx.Proxy):
    """The value of a node."""


class _Attribute(_Known, Attribute):
    """An attribute of a value; a node when it is used."""


class _Tracer(fx.Tracer):
    """A module without split points is one call.  Every node is computed on the example when it is made."""

    def __init__(self, splits: Splits, function: Callable[[], None]) -> None:
        super().__init__()
        self.splits, self.function = splits, function
        self.values: dict[fx.Node, Any] = {}
        self.from_elements: set[fx.Node] = set()  # nodes of numbers that depend on elements of tensors
        self.computing = False

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.splits.holders:
            return False
        return not self.splits.whole or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.computing:
            return forward(*args, **kwargs)
        point = self.splits.points.get(self.path_of_module(m))
        if point == "BEGINNING":
            self.create_node("call_function", self.function, (), {})
        made = super().call_module(m, forward, args, kwargs)
        if point == "END":
            self.create_node("call_function", self.function, (), {})
        return made

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self.computing else super().getattr(attr, attr_val, parameter_proxy_cache)

    # ***** values *****

    def proxy(self, node: fx.Node) -> Any:
        return _Proxy(node, self)

    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, *others: Any, **named: Any) -> fx.Node:
        node = super().create_node(kind, target, args, kwargs, *others, **named)
        if kind not in ("placeholder", "output") and target is not self.function:
            self.computing = True
            try:
                self.values[node] = self._value(node)
            finally:
                self.computing = False
            if not isinstance(self.values[node], Tensor) and self._reads_elements(node):
                self.from_elements.add(node)
        return node

    def _reads_elements(self, node: fx.Node) -> bool:
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
        return any(
            each in self.from_elements or (isinstance(self.values[each], Tensor) and name not in FACTS)
            for each in node.all_input_nodes
        )

    def _value(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)
        target: Any = node.target
        if node.op == "get_attr":
            return operator.attrgetter(target)(self.root)
        if node.op == "call_module":
            return self.root.get_submodule(target)(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        return target(*args, **kwargs)

    def decided(self, found: Any, value: Any) -> Any:
        """A value that decides what the program does next, which the graph checks.  TraceError for elements of tensors."""
        self._check_no_elements(found.node)
        self.create_node("call_function", refuse_change, (found.node, value), {})
        return value

    def to_bool(self, obj: Any) -> bool:
        value = self.values[obj.node]
        self._check_no_elements(obj.node)
        truth = self.create_proxy("call_function", bool, (obj,), {})
        return self.decided(truth, bool(value))

    def _check_no_elements(self, node: fx.Node) -> None:
        if isinstance(self.values[node], Tensor) or node in self.from_elements:
            raise TraceError(f"elements of a tensor (`{node.name}`) decide what the program does")

    def iter(self, obj: Any) -> Iterator[Any]:
        return iter([operator.getitem(obj, k) for k in range(len(obj))])

    # ***** arguments *****

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """Placeholders for arguments that hold tensors; other arguments are constants, and are checked."""
        bound = self.splits.bound
        given = inspect.BoundArguments(bound.signature, bound.arguments.copy())
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given.arguments[name] = tuple(self._input(f"{name}_{k}", v) for k, v in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given.arguments[name] = {key: self._input(key, v) for key, v in value.items()}
            else:
                given.arguments[name] = self._input(name, value)
        return (lambda root: root_fn(root, *given.args, **given.kwargs)), [self.root]

    def _input(self, name: str, value: Any) -> Any:
        tensors = any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))
        if not tensors and not isinstance(value, CONSTANTS):
            raise RuntimeError(
                f"pipeline: argument {name} is a {type(value).__name__} without tensors; only tensors, numbers, strings and None are possible"
            )
        made = self.create_proxy("placeholder", name, () if tensors else (value,), {})
        self.values[made.node] = value
        if tensors:
            return made
        self.create_node("call_function", refuse_other, (made.node, value, name), {})
        return value


def trace(mod: Module, splits: Splits, function: Callable[[], None]) -> tuple[fx.GraphModule, dict[fx.Node, Any]]:
    """The graph of a module, in which calls of `function` are the split points, and the example's value of each node.

    RuntimeError where a module that holds split points cannot be traced.
    """
    tracer = _Tracer(splits, function)
    _TRACERS.append(tracer)
    try:
        with unchanged(mod):
            graph = tracer.trace(mod)
    except Exception as error:
        names = ", ".join(sorted(holder or type(mod).__name__ for holder in splits.holders)) or type(mod).__name__
        raise RuntimeError(
            f"pipeline: the module cannot be traced: {error}\nOnly modules that hold split points are traced ({names}); their `forward` may not "
            "ask for elements of tensors. Move what does into a part of its own, or write the stages by hand (PipelineStage)."
        ) from error
    finally:
        _TRACERS.pop()
    followed = False  # a constant has its value as default where no tensor comes behind it
    for node in reversed([node for node in graph.nodes if node.op == "placeholder"]):
        followed = followed or not node.args
        if followed:
            node.args = ()
    for node in reversed(list(graph.nodes)):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    made = fx.GraphModule(mod, graph, type(mod).__name__)  # has a copy of the graph
    pairs = zip(made.graph.nodes, graph.nodes, strict=True)
    return made, {new: tracer.values[old] for new, old in pairs if old in tracer.values}
