"""`torch.fx.passes.backends.cudagraphs`: the parts of a graph that a CUDA graph can record."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from rushlight import Tensor, ops
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.fx.passes.fake_tensor_prop import FakeTensorProp
from rushlight.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from rushlight.fx.passes.operator_support import OperatorSupport
from rushlight.fx.passes.tools_common import CALLABLE_NODE_OPS
from rushlight.nn.modules.module import Module
from rushlight.utils._pytree import tree_leaves

__all__ = ["CudaGraphsSupport", "partition_cudagraphs"]


class CudaGraphsSupport(OperatorSupport):
    """Nodes all of whose tensors, inputs and results, are on a GPU, by `node.meta["val"]`."""

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return False
        if node.target is ops.aten.embedding_dense_backward.default:  # waits for the device
            return False
        if node.target is operator.getitem:
            return True
        values = [_value(each) for each in (*node.all_input_nodes, node)]
        return all(each.device.type == "cuda" for each in tree_leaves(values) if isinstance(each, Tensor))


def _value(node: Node) -> Any:
    return node.meta["val"] if "val" in node.meta else node.meta["fake_result"]


def partition_cudagraphs(gm: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """Replace the parts that a CUDA graph can record by calls of modules `fused_0`, ...; in place."""
    FakeTensorProp(gm).propagate(*inputs)
    return CapabilityBasedPartitioner(gm, CudaGraphsSupport(), allows_single_node_partition=True).partition_and_fuse()
