"""`einsum`: an equation read in Python becomes transposes, reshapes and products of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._ops.bodies import common, count_dtype, narrow, wide
from rushlight._ops.shapes.views import diagonal_of
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.layout import numel
from rushlight._types.promotion import join, result_type

__all__: list[str] = []

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _labels(text: str, what: str, start: int) -> list[str]:
    """The labels of one operand, which begins at `start` in the equation; "..." is one label until the number of its dims is known."""
    labels, i = [], 0
    while i < len(text):
        if text.startswith("...", i):
            if "..." in labels:
                raise RuntimeError(f"einsum(): found '.' for {what} for which an ellipsis was already found")
            labels.append("...")
            i += 3
            continue
        if text[i] not in _LETTERS:
            if text[i] == ".":
                raise RuntimeError(f"einsum(): found '.' for {what} that is not part of any ellipsis")
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {start + i} in the equation string, subscripts must be in [a-zA-Z]"
            )
        labels.append(text[i])
        i += 1
    return labels


def parse_equation(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[list[list[str]], list[str]]:
    """Labels of every operand and of the result.  Dims under an ellipsis are named by their distance from the right."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) > len(shapes):
        raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
    if len(parts) < len(shapes):
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")
    operands, widest, start = [], 0, 0
    for number, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        labels = _labels(part, f"operand {number}", start)
        start += len(part) + 1
        extra = len(shape) - len([n for n in labels if n != "..."])
        if extra < 0 or (extra > 0 and "..." not in labels):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(labels)}) does not match the number of dimensions ({len(shape)}) "
                f"for operand {number} and no ellipsis was given"
            )
        widest = max(widest, extra if "..." in labels else 0)
        operands.append(_expand(labels, extra))
    if arrow:
        result = _expand(_labels(right, "the output", len(left) + 2), widest)
        for label in result:
            if result.count(label) > 1:
                raise RuntimeError(f"einsum(): output subscript {label} appears more than once in the output")
            if label.isalpha() and not any(label in labels for labels in operands):
                raise RuntimeError(
                    f"einsum(): output subscript {label} does not appear in the equation for any input operand"
                )
        return operands, result
    seen = [n for labels in operands for n in labels]
    dots = [str(k) for k in range(widest, 0, -1)]
    return operands, dots + sorted({n for n in seen if seen.count(n) == 1 and n.isalpha()})


def _expand(labels: list[str], extra: int) -> list[str]:
    expanded: list[str] = []
    for label in labels:
        expanded += [str(k) for k in range(extra, 0, -1)] if label == "..." else [label]
    return expanded


def without_repeats(
    x: Any, labels: list[str], number: int = 0, diagonal: Callable[..., Any] = diagonal_of
) -> tuple[Any, list[str]]:
    """The diagonal of a label that occurs twice in operand `number`."""
    labels = list(labels)
    while len(set(labels)) != len(labels):
        label = next(n for n in labels if labels.count(n) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        if x.shape[first] != x.shape[second]:
            raise RuntimeError(
                f"einsum(): subscript {label} is repeated for operand {number} but the sizes don't match, {x.shape[second]} != {x.shape[first]}"
            )
        x = diagonal(x, 0, first, second)
        labels = [n for d, n in enumerate(labels) if d not in (first, second)] + [label]
    return x, labels


def _check_sizes(values: Sequence[Any], operands: Sequence[list[str]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for number, (x, labels) in enumerate(zip(values, operands, strict=True)):
        for size, label in zip(x.shape, labels, strict=True):
            known = sizes.setdefault(label, size)
            if known != size:
                if known == 1:
                    sizes[label] = size
                elif size != 1:
                    raise RuntimeError(
                        f"einsum(): subscript {label} has size {size} for operand {number} which does not broadcast with previously seen size {known}"
                    )
    return sizes


def _sum_out(x: Any, labels: list[str], kept: set[str]) -> tuple[Any, list[str]]:
    """Sum over labels that no other operand and not the result needs."""
    dims = tuple(d for d, n in enumerate(labels) if n not in kept)
    if not dims:
        return x, labels
    x = build.convert(x, count_dtype(x, None))  # sums of integers are int64, products keep their dtype
    return narrow(prim.sum(wide(x), dims=dims), x.dtype), [n for n in labels if n in kept]


def _arranged(x: Any, labels: list[str], groups: Sequence[Sequence[str]]) -> Any:
    """Dims in the order of the groups, each group merged to one dim."""
    order = [labels.index(n) for group in groups for n in group]
    moved = build.transpose(x, order)
    return build.reshape(moved, [numel([x.shape[labels.index(n)] for n in group]) for group in groups])


def _pair(a: Any, la: list[str], b: Any, lb: list[str], kept: set[str], sizes: dict[str, int]) -> tuple[Any, list[str]]:
    """The product of two operands, summed over the labels that both have and nothing later needs."""
    a, la = _sum_out(a, la, kept | set(lb))
    b, lb = _sum_out(b, lb, kept | set(la))
    a, b = common([a, b])
    size_a, size_b = dict(zip(la, a.shape, strict=True)), dict(zip(lb, b.shape, strict=True))
    # A size of 1 against a larger one is a broadcast: then the operand does not have the label.
    a, la = _drop(a, la, [n for n in la if n in size_b and size_a[n] == 1 and size_b[n] != 1])
    b, lb = _drop(b, lb, [n for n in lb if n in size_a and size_b[n] == 1 and size_a[n] != 1])
    both = [n for n in la if n in lb]
    batch, inner = [n for n in both if n in kept], [n for n in both if n not in kept]
    rows, columns = [n for n in la if n not in lb], [n for n in lb if n not in la]
    joined = [*batch, *rows, *columns]
    known = {**size_a, **{n: s for n, s in size_b.items() if size_a.get(n, 1) == 1}}
    left = _arranged(a, la, (batch, rows, inner))
    right = _arranged(b, lb, (batch, inner, columns))
    if inner or (rows and columns):
        product = build.dot(left, right)
    else:
        product = _times(left, right)
    product = build.reshape(product, [known[n] for n in joined])
    dead = [n for n in joined if n not in kept]
    return _sum_out(product, joined, kept) if dead else (product, joined)


def _times(left: Any, right: Any) -> Any:
    """[B, M, 1] times [B, 1, N] where M or N is 1: no sums."""
    shape = (left.shape[0], left.shape[1], right.shape[2])
    return narrow(build.broadcast_to(wide(left), shape) * build.broadcast_to(wide(right), shape), left.dtype)


def _drop(x: Any, labels: list[str], gone: list[str]) -> tuple[Any, list[str]]:
    """Drop dims of size 1."""
    if not gone:
        return x, labels
    return build.squeeze(x, [labels.index(n) for n in gone]), [n for n in labels if n not in gone]


def _long(x: Any, labels: list[str]) -> set[str]:
    """The labels of dims of other sizes than 1."""
    return {label for size, label in zip(x.shape, labels, strict=True) if size != 1}


def _check_kinds(first: Any, second: Any, summed: set[str]) -> None:
    """Refuse a matrix product of two dtypes; products that sum over nothing may mix them."""
    if summed:
        raise RuntimeError(f"expected scalar type {first.scalar} but found {second.scalar}")


@operator("einsum_core(str equation, Tensor[] operands) -> Tensor", spaces=(), method=False, node="ViewBackward0")
def einsum_core(equation: str, operands: Sequence[Any]) -> Any:
    """Sums of products named by an equation such as "bij,bjk->bik"; operands are joined from left to right."""
    if not operands:
        raise RuntimeError("einsum(): must provide at least one operand")
    labels, result = parse_equation(equation, [x.shape for x in operands])
    most = max(len(x.shape) for x in operands)  # each operand gets the dims of all before they are combined
    kinds = [x.dtype for x in operands]
    dtype = result_type([(kind, most) for kind in kinds], [], join)
    operands = [build.convert(x, dtype) for x in operands]
    reduced = [without_repeats(x, n, i) for i, (x, n) in enumerate(zip(operands, labels, strict=True))]
    sizes = _check_sizes([x for x, _ in reduced], [n for _, n in reduced])
    (product, names), *rest = reduced
    kind = kinds[0]
    for i, (x, n) in enumerate(rest):
        later = {label for _, others in rest[i + 1 :] for label in others} | set(result)
        if kind is not kinds[i + 1]:
            _check_kinds(kind, kinds[i + 1], _long(product, names) & _long(x, n) - later)
            kind = join(kind, kinds[i + 1])
        product, names = _pair(product, names, x, n, later, sizes)
    product, names = _sum_out(product, names, set(result))
    missing = [n for n in result if n not in names]
    product = build.expand_dims(product, range(len(names), len(names) + len(missing)))
    product = build.transpose(product, [[*names, *missing].index(n) for n in result])
    return build.broadcast_to(product, [sizes.get(n, 1) for n in result])
