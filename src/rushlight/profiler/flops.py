"""How many floating point operations the heavy operators do: two for each multiplication that is added up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

__all__ = [
    "PASSED_ON",
    "attention_backward_flops",
    "attention_flops",
    "batched_product_flops",
    "convolution_backward_flops",
    "convolution_flops",
    "product_flops",
    "profile_flops",
]

Shape = Sequence[int]


def product_flops(a: Shape, b: Shape) -> int:
    """(m, k) @ (k, n)."""
    (m, k), (k2, n) = a, b
    if k != k2:
        raise AssertionError(f"matmul: inner dimensions must match, got {k} and {k2}")
    return 2 * m * k * n


def batched_product_flops(a: Shape, b: Shape) -> int:
    """(b, m, k) @ (b, k, n)."""
    if a[0] != b[0]:
        raise AssertionError(f"bmm: batch dimensions must match, got {a[0]} and {b[0]}")
    return a[0] * product_flops(a[1:], b[1:])


def convolution_flops(x: Shape, w: Shape, out: Shape, transposed: bool = False) -> int:
    """Every place of the result (of the input, for a transposed one) meets the whole kernel of every channel."""
    places = (x if transposed else out)[2:]
    return 2 * prod(places) * prod(w) * x[0]


def convolution_backward_flops(grad: Shape, x: Shape, w: Shape, mask: Sequence[bool], transposed: bool = False) -> int:
    """The gradient of the input, and that of the weight, where `mask` wants them.

    The first is as large as the forward convolution.  For the second PyTorch counts every pair of channels, whatever
    the groups.
    """
    places = (x if transposed else grad)[2:]
    weight = 2 * prod(places) * prod(w[2:]) * x[0] * x[1] * grad[1]
    return bool(mask[0]) * convolution_flops(x, w, grad, transposed) + bool(mask[1]) * weight


def attention_flops(query: Shape, key: Shape, value: Shape) -> int:
    """Scores, and their product with the values."""
    b, h, s, d = query
    _, _, t, _ = key
    return 2 * b * h * s * t * (d + value[-1])


def attention_backward_flops(query: Shape, key: Shape, value: Shape) -> int:
    """The scores again, and the gradients of values, scores, queries and keys."""
    b, h, s, d = query
    _, _, t, _ = key
    return 2 * b * h * s * t * (3 * d + 2 * value[-1])


# ***** what profiles show *****


def profile_flops(name: str, args: Any) -> int | None:
    """The count of an event, from its described arguments; None where PyTorch's profiler counts nothing."""
    rule = _RULES.get(name)
    if rule is None or not args:
        return None
    return rule(
        {key or str(i): value[0] for i, (key, value) in enumerate(args)}, {key: value[3] for key, value in args}
    )


def _first(shapes: dict[str, Any]) -> list[Any]:
    return list(shapes.values())


def _mm(shapes: dict[str, Any], texts: dict[str, Any]) -> int | None:
    a, b = _first(shapes)[:2]
    return 2 * prod(a) * b[-1] if a and b else None


def _addmm(shapes: dict[str, Any], texts: dict[str, Any]) -> int | None:
    _, a, b = _first(shapes)[:3]
    return 2 * prod(a) * b[-1] if a and b else None


def _linear(shapes: dict[str, Any], texts: dict[str, Any]) -> int | None:
    a, w = _first(shapes)[:2]
    return 2 * prod(a) * w[0] if a and len(w) == 2 else None


def _matmul(shapes: dict[str, Any], texts: dict[str, Any]) -> int | None:
    a, b = _first(shapes)[:2]
    if not a or not b:
        return None
    columns = b[-1] if len(b) > 1 else 1
    batch = prod(b[:-2]) if len(b) > 2 and prod(b[:-2]) > prod(a[:-2]) else 1
    return 2 * prod(a) * columns * batch


def _elementwise(shapes: dict[str, Any], texts: dict[str, Any]) -> int | None:
    return prod(_first(shapes)[0])


def _conv2d(shapes: dict[str, Any], texts: dict[str, Any]) -> int | None:
    x, w = _first(shapes)[:2]
    if len(x) != 4 or len(w) != 4:
        return None
    stride, padding, dilation = (
        _pair(texts.get(k, ""), d) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    if padding is None or stride is None or dilation is None:
        return None
    out = [(x[2 + i] + 2 * padding[i] - dilation[i] * (w[2 + i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    return convolution_flops(x, w, (x[0], w[0], *out))


def _pair(text: str, default: int) -> tuple[int, int] | None:
    numbers = [int(part) for part in text.strip("()[]").replace(",", " ").split() if part.lstrip("-").isdigit()]
    if not numbers:
        return (default, default) if not text else None
    return (numbers[0], numbers[-1])


# The operator inside of these has the count.
PASSED_ON = frozenset(("aten::linear", "aten::matmul"))
_RULES = {
    "aten::mm": _mm, "aten::bmm": _mm, "aten::addmm": _addmm, "aten::baddbmm": _addmm, "aten::linear": _linear, "aten::matmul": _matmul,
    "aten::conv2d": _conv2d, "aten::mul": _elementwise, "aten::add": _elementwise,
}  # fmt: skip
