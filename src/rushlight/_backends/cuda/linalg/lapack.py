"""Factorisations on CUDA devices: which routine computes which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.linalg.host import host_step
from rushlight._backends.cuda.program.steps import Step
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__: list[str] = []

_BY_HOST = (
    "eigh",
    "eig",
    "svd",
    "ldl",
    "ldl_solve",
    "least_squares",
    "cholesky",
    "lu",
    "triangular_solve",
    "qr",
    "reflections",
)


def has_elements(node: Node) -> bool:
    """Whether operands and the first result have elements; Q is made of reflections."""
    packed = node.params.get("form", "packed") == "packed"
    return packed and all(numel(v.shape) for v in (*node.inputs, *node.outputs[:1]))


def by_host(call: ExternCall) -> list[Step]:
    """The host's LAPACK."""
    return [host_step(call)]


for _name in _BY_HOST:
    extern(_name, takes=has_elements)(by_host)
