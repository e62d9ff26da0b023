"""`torch.fx.interpreter`: running a graph node by node, and making a changed one while doing so."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from rushlight.fx import traceback as fx_traceback
from rushlight.fx._symbolic_trace import Tracer
from rushlight.fx.codegen import last_uses
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Argument, Node, Target, map_aggregate, map_arg
from rushlight.fx.proxy import Proxy
from rushlight.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph one node after another; each kind of node is a method that a subclass may change.

    >>> import rushlight as torch
    >>> class Shapes(torch.fx.Interpreter):
    ...     def run_node(self, n):
    ...         value = super().run_node(n)
    ...         print(n.name, tuple(value.shape))
    ...         return value
    >>> _ = Shapes(torch.fx.symbolic_trace(torch.nn.Linear(2, 3))).run(torch.ones(4, 2))
    input_1 (4, 2)
    weight (3, 2)
    bias (3,)
    linear (4, 3)
    output (4, 3)
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses = last_uses(self.graph.nodes) if garbage_collect_values else {}

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Run the graph; returns its result. `initial_env` holds values of nodes that are then not run."""
        self.env = {} if initial_env is None else dict(initial_env)
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    error.add_note(
                        f"While executing {node.format_node()}"
                        + (f"\nOriginal traceback:\n{node.stack_trace}" if node.stack_trace else "")
                    )
                raise
            for done in self.user_to_last_uses.get(node, ()):
                self.env.pop(done, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` of a list that is emptied, so that the arguments can be freed while it runs."""
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        initial = dict(zip(placeholders, args_list, strict=False))
        args_list.clear()
        return self.run(initial_env=initial)

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        with fx_traceback.set_current_meta(n, f"Interpreter_{type(self).__name__}"):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, or the default."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function."""
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a method of the first argument."""
        instance, *rest = args
        return getattr(instance, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a module of the module."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The graph's result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """The attribute at a path of the module; RuntimeError with the path as far as it goes."""
        found: Any = self.module
        parts = target.split(".")
        for number, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: number + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A node's arguments with values for nodes."""
        args = self.map_nodes_to_values(n.args, n)
        kwargs = self.map_nodes_to_values(n.kwargs, n)
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Nested arguments with values for nodes."""

        def load(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[used]

        return map_arg(args, load)


class Transformer(Interpreter):
    """An interpreter whose values are proxies: `transform` gives a new `GraphModule`, made by the methods that a
    subclass has changed.

    >>> import operator
    >>> import rushlight as torch
    >>> class Swap(torch.fx.Transformer):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(operator.sub if target is operator.add else target, args, kwargs)
    >>> Swap(torch.fx.symbolic_trace(lambda x: x + 1)).transform()(torch.ones(2))
    tensor([0., 0.])
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph

            def is_leaf_module(self, _: Module, __: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """An input of the new graph."""
        default = next(iter(args)) if args else inspect.Signature.empty
        given = () if default is inspect.Signature.empty else (default,)
        return Proxy(self.new_graph.create_node("placeholder", target, given), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module in the new graph."""
        return self.tracer.call_module(self.fetch_attr(str(target)), self.fetch_attr(str(target)).forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            old = self.graph.output_node()
            made = self.new_graph.output(
                map_aggregate(result, lambda value: value.node if isinstance(value, Proxy) else value)
            )
            made.type = old.type
            made.meta.update(old.meta)
        return GraphModule(self.module, self.new_graph)
