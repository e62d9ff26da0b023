"""Compile ahead of need, where nothing was ever compiled: workers get what nearly every program
needs at once, routines of a program that is recorded when the recording meets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.gemm.blas import product_ahead
from rushlight._base.lazy import LazyModule
from rushlight._graph.core import Graph, Node, Value
from rushlight._native.objectcode import begins_empty, expect_half, wanted
from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32, DType

__all__ = ["compile_ahead", "expect"]

attention: Any = LazyModule("rushlight._backends.cpu.attention.attention")
conv: Any = LazyModule("rushlight._backends.cpu.conv.conv")
winograd: Any = LazyModule("rushlight._backends.cpu.conv.winograd")
product_choice: Any = LazyModule("rushlight._backends.cpu.gemm.product_choice")
unpool: Any = LazyModule("rushlight._backends.cpu.image.unpool")
product_spec: Any = LazyModule("rushlight._backends.cpu.gemm.product_spec")
_HALF = (BFLOAT16, FLOAT16)


def compile_ahead() -> None:
    """Let workers begin with the routines of products."""
    if begins_empty():
        product_ahead("f32")


def expect(graph: Graph) -> None:
    """Let workers begin with the routines of a graph that is part of a program."""
    if not wanted() and any(node.prim.name in _ROUTINES and _is_half(node) for node in graph.nodes):
        expect_half()
    if wanted():
        for node in graph.nodes:
            begin = _ROUTINES.get(node.prim.name)
            if begin is not None:
                begin(node)


def _attention(node: Node) -> None:
    attention.routine_ahead("attention", node.inputs[0].dtype)


def _attention_grad(node: Node) -> None:
    ct, q, k = node.inputs[:3]
    attention.routine_ahead("attention_grad", ct.dtype)
    if all(type(size) is int for size in (*q.shape, *k.shape)) and attention.grad_division(q, k)[2]:
        attention.routine_ahead("attention_collect", ct.dtype)


_WINOGRAD_SIDE = 8  # least outputs in a row, and in a column, for which Winograd's method is likely


def _conv(node: Node) -> None:
    """Convolutions of many positions by kernels of 3 x 3 may go by Winograd's method."""
    x, w = node.inputs[:2]
    name = conv.SHORT[x.dtype.name]
    form = conv.conv_form(name, name)
    for each in (form, *conv.matrix_forms(form)):
        conv.conv_ahead(each)
    steps = *node.params["stride"], *node.params["dilation"]
    sides = node.outputs[0].shape[-2:]
    if w.shape[-2:] == (3, 3) and set(steps) == {1} and not any(type(n) is int and n < _WINOGRAD_SIDE for n in sides):
        winograd.winograd_ahead(w.shape[0], form)


def _dot(node: Node) -> None:
    a, b = node.inputs
    narrow = _converted_from(a)
    source = narrow if narrow is not None and narrow is _converted_from(b) else a.dtype
    types = product_spec.ProductTypes(source, node.outputs[0].dtype)
    sizes = a.shape[-2], b.shape[-1], a.shape[-1]
    if all(type(size) is int for size in sizes):
        product_choice.products_ahead(types, sizes, all(size == 1 for size in a.shape[:-2]))


def _converted_from(x: Value) -> DType | None:
    """The half type that an operand of a product comes from, whose kernels convert it themselves."""
    while x.node is not None and x.node.prim.name in ("reshape", "transpose"):
        x = x.node.inputs[0]
    if x.node is None or x.node.prim.name != "convert" or x.dtype is not FLOAT32:
        return None
    dtype = x.node.inputs[0].dtype
    return dtype if dtype in _HALF else None


def _is_half(node: Node) -> bool:
    """Whether a routine takes or gives numbers of a half type."""
    values = (*node.inputs, *node.outputs)
    return any(v.dtype in _HALF or (node.prim.name == "dot" and _converted_from(v) is not None) for v in values)


def _unpool(node: Node) -> None:
    unpool.unpool_ahead(*[v.dtype for v in node.inputs])


_ROUTINES: dict[str, Callable[[Node], None]] = {
    "attention": _attention, "attention_grad": _attention_grad, "conv": _conv, "dot": _dot, "unpool": _unpool,
}  # fmt: skip
