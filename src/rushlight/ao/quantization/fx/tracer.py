"""Tracing for graph mode: modules that are layers stay whole, and each node knows the module that it was called in."""

from __future__ import annotations

from typing import Any

from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.fx import GraphModule, Tracer

__all__ = ["QuantizationTracer", "traced"]


class QuantizationTracer(Tracer):
    """`scopes` maps the names of nodes to (name, class) of the innermost module."""

    def __init__(self, skipped_module_names: list[str], skipped_module_classes: list[Any]) -> None:
        super().__init__()
        self.skipped_module_names, self.skipped_module_classes = skipped_module_names, tuple(skipped_module_classes)
        self.within: list[tuple[str, Any]] = [("", None)]
        self.scopes: dict[str, tuple[str, Any]] = {}
        self.record_stack_traces = True

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Layers of the library, fused modules, and what was named."""
        own = type(m).__module__.startswith(
            ("rushlight.nn", "torch.nn", "rushlight.ao.nn", "torch.ao.nn")
        ) and not isinstance(m, nn.Sequential)
        named = module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes
        return own or named or isinstance(m, nni._FusedModule)

    def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
        """A call of a module: what happens inside of it is in its scope."""
        self.within.append((self.path_of_module(m), type(m)))
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.within.pop()

    def create_node(self, *args: Any, **kwargs: Any) -> Any:
        """A node, with its scope."""
        node = super().create_node(*args, **kwargs)
        self.scopes[node.name] = self.within[-1]
        return node


def traced(model: Any, names: list[str], classes: list[Any]) -> tuple[Any, dict[str, tuple[str, Any]]]:
    """The model as a graph module, and the scope of each node."""
    tracer = QuantizationTracer(names, classes)
    graph = tracer.trace(model)
    made = GraphModule(model, graph, class_name="GraphModule")
    made.train(model.training)
    return made, tracer.scopes
