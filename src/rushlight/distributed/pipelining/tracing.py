"""A module's graph, as far as its split points are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor, fx
from rushlight.nn import Module
from rushlight.utils._pytree import tree_leaves

__all__ = ["Splits", "annotated", "note_split", "trace"]

_NOTING: list[list[str]] = []  # the stack of modules of the run that looks for split points
_FOUND: list[set[str]] = []
_TRACERS: list[fx.Tracer] = []
CONSTANTS = (bool, int, float, str, type(None))


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
    """What is known of a module before it is traced.

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


class _Tracer(fx.Tracer):
    """A module without split points is one call."""

    def __init__(self, splits: Splits, function: Callable[[], None]) -> None:
        super().__init__()
        self.splits, self.function = splits, function

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        if module_qualified_name in self.splits.holders:
            return False
        return not self.splits.whole or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        point = self.splits.points.get(self.path_of_module(m))
        if point == "BEGINNING":
            self.create_node("call_function", self.function, (), {})
        made = super().call_module(m, forward, args, kwargs)
        if point == "END":
            self.create_node("call_function", self.function, (), {})
        return made

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
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
            return self.create_proxy("placeholder", name, (), {})
        if not isinstance(value, CONSTANTS):
            raise RuntimeError(
                f"pipeline: argument {name} is a {type(value).__name__} without tensors; only tensors, numbers, strings and None are possible"
            )
        made = self.create_proxy("placeholder", name, (value,), {})
        self.create_node("call_function", refuse_other, (made.node, value, name), {})
        return value


def trace(mod: Module, splits: Splits, function: Callable[[], None]) -> fx.GraphModule:
    """The graph of a module, in which calls of `function` are the split points.

    RuntimeError where a module that holds split points cannot be traced.
    """
    tracer = _Tracer(splits, function)
    _TRACERS.append(tracer)
    try:
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
    return fx.GraphModule(mod, graph, type(mod).__name__)
