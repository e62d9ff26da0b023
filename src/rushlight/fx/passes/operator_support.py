"""`torch.fx.passes.operator_support`: which nodes of a graph a backend can run.

>>> import rushlight as torch
>>> traced = torch.fx.symbolic_trace(lambda x: (x + 1).relu())
>>> can_add = OperatorSupport({"_operator.add": None})
>>> [node.name for node in traced.graph.nodes if can_add.is_node_supported({}, node)]
['x', 'add', 'output']
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight import dtype as DType
from rushlight.fx.node import Node
from rushlight.fx.passes.shape_prop import TensorMetadata
from rushlight.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target
from rushlight.nn.modules.module import Module

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]

IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]
# Of a target: dtypes of positional arguments (None: any), and of keyword arguments; None for any arguments.
SupportDict = Mapping[str, tuple[Sequence[Sequence[DType] | None], Mapping[str, Sequence[DType]]] | None]


class OperatorSupportBase(ABC):
    """Says of a node whether it can be run."""

    @abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether a node can be run; `submodules` are those of the traced module, by name."""


class OperatorSupport(OperatorSupportBase):
    """Nodes whose target, as `get_node_target` names it, is in `support_dict`, and whose arguments have the dtypes
    given there.

    Nodes that call nothing are supported.  Arguments that are no nodes, and keywords not in the table, may be anything.
    """

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        allowed = self._support_dict[target]
        if allowed is None:
            return True
        by_place, by_name = allowed
        pairs: list[tuple[Any, Any]] = list(zip(node.args, by_place, strict=False))
        pairs += [(node.kwargs[name], dtypes) for name, dtypes in by_name.items() if name in node.kwargs]
        return all(
            dtypes is None or not isinstance(given, Node) or _dtype_of(given) in dtypes for given, dtypes in pairs
        )


class _ByFunction(OperatorSupportBase):
    def __init__(self, function: IsNodeSupported) -> None:
        self._function = function

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        return self._function(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """A function of the submodules and a node as an `OperatorSupportBase`."""
    return _ByFunction(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what every one supports."""
    return _ByFunction(lambda submodules, node: all(each.is_node_supported(submodules, node) for each in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what at least one supports."""
    return _ByFunction(lambda submodules, node: any(each.is_node_supported(submodules, node) for each in op_support))


class OpSupports:
    """Simple rules, to be combined with `chain` and `any_chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: DType) -> OperatorSupportBase:
        """No node with an input of this dtype."""
        return _ByFunction(lambda _, node: all(_dtype_of(each) != dtype for each in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """No node with one of these names."""
        return _ByFunction(lambda _, node: node.name not in disallow_set)


def _dtype_of(node: Node) -> Any:
    """The dtype that `ShapeProp` noted, or the type of another value."""
    noted = node.meta.get("tensor_meta")
    return noted.dtype if isinstance(noted, TensorMetadata) else node.meta["type"]
