"""`torch._export.utils`: questions about exported programs and operators, and switches of export."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from rushlight import Tensor
from rushlight._interface.base import trace_marks
from rushlight.library.operators import OpOverload
from rushlight.nn.parameter import Parameter

__all__ = ["get_buffer", "get_lifted_tensor_constant", "get_param", "is_buffer", "is_lifted_tensor_constant", "is_param", "nodes_count", "nodes_filter", "nodes_first"]  # fmt: skip


@contextlib.contextmanager
@trace_marks.changes_later_calls
def _disable_aten_to_metadata_assertions() -> Iterator[None]:
    """A context in which `to` is exported without assertions of its input's dtype, device and layout: as always here."""
    yield


def _is_cia_op(op: OpOverload) -> bool:
    """Whether an operator is an ordinary function of other operators, which dispatch modes do not see."""
    form = getattr(op, "form", None)
    return bool(form.composite) if form is not None else isinstance(op, OpOverload) and op._is_composite()


def is_param(program: Any, node: Any) -> bool:
    """Whether a node of an exported program is a parameter."""
    return node.name in program.graph_signature.inputs_to_parameters


def get_param(program: Any, node: Any) -> Parameter | None:
    """The parameter that a node stands for; None for other nodes."""
    name = program.graph_signature.inputs_to_parameters.get(node.name)
    return None if name is None else program.state_dict[name]


def is_buffer(program: Any, node: Any) -> bool:
    """Whether a node of an exported program is a buffer."""
    return node.name in program.graph_signature.inputs_to_buffers


def get_buffer(program: Any, node: Any) -> Tensor | None:
    """The buffer that a node stands for; None for other nodes."""
    name = program.graph_signature.inputs_to_buffers.get(node.name)
    if name is None:
        return None
    return (
        program.constants[name] if name in program.graph_signature.non_persistent_buffers else program.state_dict[name]
    )


def is_lifted_tensor_constant(program: Any, node: Any) -> bool:
    """Whether a node of an exported program is a tensor that is neither parameter nor buffer."""
    return node.name in program.graph_signature.inputs_to_lifted_tensor_constants


def get_lifted_tensor_constant(program: Any, node: Any) -> Tensor | None:
    """The constant that a node stands for; None for other nodes."""
    name = program.graph_signature.inputs_to_lifted_tensor_constants.get(node.name)
    return None if name is None else program.constants[name]


def nodes_filter(nodes: Any, node_call_back: Any) -> list[Any]:
    """The nodes of which the function is true."""
    return [node for node in nodes if node_call_back(node)]


def nodes_first(nodes: Any, node_call_back: Any = None) -> Any:
    """The first node of which the function is true; None for none."""
    return next((node for node in nodes if node_call_back is None or node_call_back(node)), None)


def nodes_count(nodes: Any, node_call_back: Any) -> int:
    """Of how many nodes the function is true."""
    return len(nodes_filter(nodes, node_call_back))
