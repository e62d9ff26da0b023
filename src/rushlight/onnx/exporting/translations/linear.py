"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.onnx.exporting.table import Call, translates
from rushlight.onnx.exporting.values import Value

_GEMM = frozenset((rushlight.float16, rushlight.float32, rushlight.float64, rushlight.bfloat16))


def product(call: Call, a: Value, b: Value, shape: Any = None) -> Value:
    """MatMul; of small integers by way of int64."""
    if a.dtype in (rushlight.int8, rushlight.uint8, rushlight.int16, rushlight.bool):
        wide = call.op("MatMul", call.cast(a, rushlight.int64), call.cast(b, rushlight.int64), shape=shape)
        return call.cast(wide, a.dtype)
    return call.op("MatMul", a, b, shape=shape)


@translates(
    "aten::mm",
    "aten::bmm",
    "aten::matmul",
    "aten::mv",
    "aten::dot",
    "aten::linalg_matmul",
    "aten::vdot",
    "aten::inner_product",
)
def matmul(call: Call, a: Value, b: Value) -> Value:
    if not b.ndim or not a.ndim:
        return call.out("Mul", a, b)
    return product(call, a, b, shape=call.shape)


def _times(call: Call, x: Value, factor: Any) -> Value:
    return (
        x
        if not isinstance(factor, Value) and factor == 1
        else call.op("Mul", x, call.scalar(factor, x.dtype), shape=x.shape)
    )


def _plain_turn(x: Value) -> Value | None:
    """The matrix of which this one is the transpose; None where there is none."""
    node = x.producer
    if node is not None and node.op == "Transpose" and node.attrs["perm"] == [1, 0]:
        return node.inputs[0]
    return None


@translates("aten::addmm", "aten::addmv", "aten::addbmm", "aten::baddbmm")
def addmm(call: Call, bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    fixed = not isinstance(alpha, Value) and not isinstance(beta, Value)
    if call.name == "aten::addmm" and call.dtype in _GEMM and bias.ndim <= 2 and fixed:
        turned = _plain_turn(b)
        attrs: dict[str, Any] = {"transB": 1} if turned is not None else {}
        if alpha != 1:
            attrs["alpha"] = float(alpha)
        if beta != 1:
            attrs["beta"] = float(beta)
        return call.out("Gemm", a, b if turned is None else turned, bias, **attrs)
    made = product(call, a, b)
    if call.name == "aten::addbmm":
        made.shape = ((a.shape or ())[0], *(call.shape or ()))
        made = call.reduce("ReduceSum", made, [0])
    if not isinstance(beta, Value) and beta == 0:
        made = _times(call, made, alpha)
        made.shape = call.shape
        return made
    return call.out("Add", _times(call, bias, beta), _times(call, made, alpha))


@translates("aten::addr")
def addr(call: Call, x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    outer_ = call.op("Mul", call.unsqueeze(a, [1]), call.unsqueeze(b, [0]), shape=call.shape)
    if not isinstance(beta, Value) and beta == 0:
        return _times(call, outer_, alpha)
    return call.out("Add", _times(call, x, beta), _times(call, outer_, alpha))


@translates("aten::outer", "aten::ger")
def outer(call: Call, a: Value, b: Value) -> Value:
    return call.out("Mul", call.unsqueeze(call.cast(a, call.dtype), [1]), call.unsqueeze(call.cast(b, call.dtype), [0]))


@translates("aten::linear")
def linear(call: Call, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Gemm for matrices; a product and a sum for tensors of more dims."""
    if x.ndim == 2 and weight.ndim == 2 and x.dtype in _GEMM:
        return call.out("Gemm", x, weight, bias, transB=1)
    turned = call.transpose(weight, [1, 0]) if weight.ndim == 2 else weight
    if bias is None:
        return product(call, x, turned, shape=call.shape)
    return call.out("Add", product(call, x, turned, shape=call.shape), bias)


@translates("aten::bilinear")
def bilinear(call: Call, a: Value, b: Value, weight: Value, bias: Value | None = None) -> Value:
    made = call.op("Einsum", a, weight, b, equation="...i,oij,...j->...o", shape=call.shape)
    return made if bias is None else call.out("Add", made, bias)


@translates("aten::einsum")
def einsum(call: Call, equation: str, operands: Sequence[Value], *, path: Any = None) -> Value:
    equation = equation.replace(" ", "")
    return call.op("Einsum", *[call.cast(o, call.dtype) for o in operands], equation=equation, shape=call.shape)


@translates("aten::linalg_det", "aten::det")
def det(call: Call, x: Value) -> Value:
    return call.out("Det", x)


@translates("aten::_linalg_det")
def det_with_factors(call: Call, x: Value) -> list[Value]:
    made = call.out("Det", x)
    return [made, made, made]  # the factors serve gradients alone


@translates("aten::linalg_cross", "aten::cross")
def cross(call: Call, a: Value, b: Value, dim_: int | None = None, *, dim: int = -1) -> Value:
    axis = dim if dim_ is None else dim_
    a, b = call.cast(a, call.dtype), call.cast(b, call.dtype)
    rank = len(call.shape or ())
    axis %= rank

    def turned(x: Value, order: Sequence[int]) -> Value:
        return call.gather(x, call.ints(order), axis)

    a, b = _filled(call, a, axis), _filled(call, b, axis)
    first = call.op("Mul", turned(a, [1, 2, 0]), turned(b, [2, 0, 1]))
    return call.out("Sub", first, call.op("Mul", turned(a, [2, 0, 1]), turned(b, [1, 2, 0])))


def _filled(call: Call, x: Value, axis: int) -> Value:
    return call.unsqueeze(x, list(range(len(call.shape or ()) - x.ndim)))


@translates("aten::trace")
def trace(call: Call, x: Value) -> Value:
    rows, columns = call.dims(x)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise call.refuse("a matrix of symbolic size")
    flat = call.reshape(call.cast(x, call.dtype), [rows * columns])
    places = call.ints([i * (columns + 1) for i in range(min(rows, columns))])
    return call.reduce("ReduceSum", call.gather(flat, places, 0), None)


@translates("aten::kron")
def kron(call: Call, a: Value, b: Value) -> Value:
    rank = max(a.ndim, b.ndim)
    a, b = (call.unsqueeze(x, list(range(rank - x.ndim))) for x in (a, b))
    made = call.op(
        "Mul", call.unsqueeze(a, [2 * d + 1 for d in range(rank)]), call.unsqueeze(b, [2 * d for d in range(rank)])
    )
    return call.reshape(made, list(call.shape or ()), shape=call.shape)


@translates("aten::tensordot")
def tensordot(call: Call, a: Value, b: Value, dims_a: Sequence[int], dims_b: Sequence[int]) -> Value:
    letters = "abcdefghijklmnopqrstuvwxyz"
    first = list(letters[: a.ndim])
    second = list(letters[a.ndim : a.ndim + b.ndim])
    for i, j in zip(dims_a, dims_b, strict=True):
        second[j] = first[i]
    shared = {first[i] for i in dims_a}
    kept = [c for c in first if c not in shared] + [c for c in second if c not in shared]
    return call.op("Einsum", a, b, equation=f"{''.join(first)},{''.join(second)}->{''.join(kept)}", shape=call.shape)


@translates("aten::_weight_norm_interface", "aten::_weight_norm")
def weight_norm(call: Call, v: Value, g: Value, dim: int = 0) -> Any:
    axes = [d for d in range(v.ndim) if d != dim % v.ndim]
    size = call.reduce("ReduceL2", v, axes, True)
    made = call.op("Mul", v, call.op("Div", g, size), shape=v.shape)
    return [made, size] if len(call.results) > 1 else made


@translates("aten::cdist", "aten::_cdist_forward", "aten::_euclidean_dist")
def cdist(call: Call, a: Value, b: Value, p: Any = 2.0, mode: Any = None) -> Value:
    gap = call.op("Sub", call.unsqueeze(a, [a.ndim - 1]), call.unsqueeze(b, [b.ndim - 2]))
    gap.shape = (*(call.shape or ()), (a.shape or ())[-1])
    if p == 2:
        return call.reduce("ReduceL2", gap, [-1])
    if p == 1:
        return call.reduce("ReduceL1", gap, [-1])
    size = call.op("Abs", gap, shape=gap.shape)
    if p == float("inf"):
        return call.reduce("ReduceMax", size, [-1])
    powers = call.op("Pow", size, call.const(float(p), gap.dtype), shape=gap.shape)
    return call.out("Pow", call.reduce("ReduceSum", powers, [-1]), call.const(1 / float(p), gap.dtype))


@translates("aten::cosine_similarity")
def cosine_similarity(call: Call, a: Value, b: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    a, b = call.cast(a, call.dtype), call.cast(b, call.dtype)
    least = call.const(eps, a.dtype)
    rank = max(a.ndim, b.ndim)
    a, b = (call.unsqueeze(x, list(range(rank - x.ndim))) for x in (a, b))
    units = [call.op("Div", x, call.op("Max", call.reduce("ReduceL2", x, [dim], True), least)) for x in (a, b)]
    made = call.op("Mul", *units, shape=tuple(f"d{i}" for i in range(rank)))
    return call.reduce("ReduceSum", made, [dim])
