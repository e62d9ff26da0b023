"""`torch.fx.passes.infra.pass_base`: a pass takes a graph module and returns one, and whether it changed anything."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

from rushlight.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module that a pass made, and whether anything is another than before."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` does the work, `requires` and `ensures` check what stands before and after it.

    >>> import rushlight as torch
    >>> class Clean(PassBase):
    ...     def call(self, graph_module):
    ...         return PassResult(graph_module, graph_module.graph.eliminate_dead_code())
    >>> Clean()(torch.fx.symbolic_trace(torch.nn.ReLU())).modified
    False
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """The work."""

    def requires(self, graph_module: GraphModule) -> Any:  # noqa: B027 - may be left out
        """Checks before the work; raises where the pass cannot run."""

    def ensures(self, graph_module: GraphModule) -> Any:  # noqa: B027 - may be left out
        """Checks after the work; raises where it is wrong."""
