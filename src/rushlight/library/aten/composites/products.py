"""Functions that PyTorch makes of several operators above autograd: products of matrices and sums of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.library.aten.composites import aten, contiguous, listed, reshaped, symbolic
from rushlight.library.aten.handlers import handles

__all__: list[str] = []

Tensor = rushlight.Tensor


# ***** products *****


@handles("matmul")
def matmul(input: Any, other: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    a, b = input, other
    m, n = a.dim(), b.dim()
    if m == 1 and n == 1:
        return aten("dot")(a, b)
    if m == 2 and n == 1:
        return aten("mv")(a, b)
    if m == 1 and n == 2:
        return aten("squeeze_.dim")(aten("mm")(aten("unsqueeze")(a, 0), b), 0)
    if m == 2 and n == 2:
        return aten("mm")(a, b)
    if not m or not n:
        raise RuntimeError("both arguments to matmul need to be at least 1D, but they are " + f"{m}D and {n}D")
    if m >= 3 and n == 3 and b.shape[0] == 1:
        b, n = aten("squeeze.dim")(b, 0), 2
    if _folds(a, b):
        return _folded(a, b)
    rows = a.shape[-2] if m > 1 else 1
    columns = b.shape[-1] if n > 1 else 1
    if m == 1:
        a = aten("unsqueeze")(a, 0)
    if n == 1:
        b = aten("unsqueeze")(b, 1)
    batch = list(rushlight.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2])))
    count = math.prod(batch)
    left = reshaped(aten("expand")(a, [*batch, a.shape[-2], a.shape[-1]]), [count, a.shape[-2], a.shape[-1]])
    right = reshaped(aten("expand")(b, [*batch, b.shape[-2], b.shape[-1]]), [count, b.shape[-2], b.shape[-1]])
    shape = [*batch, *([rows] if m > 1 else []), *([columns] if n > 1 else [])]
    view = "_unsafe_view" if not symbolic(shape) else "view"
    return aten(view)(aten("bmm")(left, right), shape)


def _folds(a: Any, b: Any) -> bool:
    """Whether a batch is multiplied as one matrix."""
    large, small = (a, b) if a.dim() >= b.dim() else (aten("transpose.int")(b, -2, -1), a)
    if not (large.dim() >= 3 and small.dim() <= 2):
        return False
    if small.requires_grad and large.dim() >= 3:
        return True
    if large.numel() == 0:
        return True
    sizes, strides = list(large.shape), list(large.stride())
    return all(strides[i] == strides[i + 1] * sizes[i + 1] for i in range(len(sizes) - 2))


def _folded(a: Any, b: Any) -> Any:
    turned = b.dim() > a.dim()
    if turned:
        large = aten("transpose.int")(b, -2, -1)
        small = aten("t")(a) if a.dim() == 2 else a
    else:
        large = a
        small = b
    shape = list(large.shape)
    rows = math.prod(shape[:-1])
    flat = reshaped(large, [rows, shape[-1]])
    if small.dim() == 1:
        return aten("_unsafe_view")(aten("mv")(flat, small), shape[:-1])
    made = aten("_unsafe_view")(aten("mm")(flat, small), [*shape[:-1], small.shape[1]])
    if not turned:
        return made
    made = aten("transpose.int")(made, -2, -1)
    return contiguous(made)


@handles("inner")
def inner(input: Any, other: Any, *, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if not input.dim() or not other.dim():
        return aten("mul.Tensor")(input, other)
    return tensordot(input, other, [[-1], [-1]])


@handles("tensordot")
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    if out is not None:
        return NotImplemented
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims)
    if isinstance(dims, int):
        first, second = list(range(-dims, 0)), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    first, second = [d % a.dim() for d in first], [d % b.dim() for d in second]
    x, y = a, b
    for i, j in zip(first, second, strict=True):
        if a.shape[i] == 1 and b.shape[j] != 1:
            y = aten("sum.dim_IntList")(y, [j], True, dtype=x.dtype)
        elif b.shape[j] == 1 and a.shape[i] != 1:
            x = aten("sum.dim_IntList")(x, [i], True, dtype=y.dtype)
    left = [d for d in range(x.dim()) if d not in first]
    right = [d for d in range(y.dim()) if d not in second]
    size = math.prod(x.shape[d] for d in first)
    shape = [x.shape[d] for d in left] + [y.shape[d] for d in right]
    rows, columns = math.prod(x.shape[d] for d in left), math.prod(y.shape[d] for d in right)
    if rows == 1 and columns == 1:
        p = aten("permute")(x, [*left, *first])
        q = aten("permute")(y, [*second, *right])
        if size and p.is_contiguous() and q.is_contiguous():
            flat_q, flat_p = (reshaped(q, [size]) if q.dim() != 1 else q), (reshaped(p, [size]) if p.dim() != 1 else p)
            return aten("view")(aten("dot")(flat_p, flat_q), shape)
        q, p = aten("squeeze")(q), aten("squeeze")(p)
        return aten("view")(aten("sum")(aten("mul.Tensor")(p, q), dtype=x.dtype), shape)
    p = reshaped(aten("permute")(x, [*left, *first]), [rows, size])
    q = reshaped(aten("permute")(y, [*second, *right]), [size, columns])
    return aten("view")(aten("mm")(p, q), shape)


@handles("linalg_multi_dot chain_matmul")
def multi_dot(*tensors: Any, out: Any = None) -> Any:
    items = listed(tensors)
    if out is not None or len(items) < 2:
        return NotImplemented
    shape: list[int] = []
    if items[0].dim() == 1:
        items[0] = aten("unsqueeze")(items[0], 0)
    else:
        shape.append(items[0].shape[0])
    if items[-1].dim() == 1:
        items[-1] = aten("unsqueeze")(items[-1], -1)
    else:
        shape.append(items[-1].shape[1])
    return aten("view")(_best_order(items), shape)


def _best_order(items: list[Any]) -> Any:
    if len(items) == 2:
        return aten("mm")(items[0], items[1])
    if len(items) == 3:
        a, b, c, d = (*(t.shape[0] for t in items), items[2].shape[1])
        if a * b * c + a * c * d < b * c * d + a * b * d:
            return aten("mm")(aten("mm")(items[0], items[1]), items[2])
        return aten("mm")(items[0], aten("mm")(items[1], items[2]))
    sizes = [t.shape[0] for t in items] + [items[-1].shape[1]]
    n = len(items)
    cost = [[0.0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j] = math.inf
            for k in range(i, j):
                q = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if q < cost[i][j]:
                    cost[i][j], cut[i][j] = q, k

    def product(i: int, j: int) -> Any:
        if i == j:
            return items[i]
        right = product(cut[i][j] + 1, j)
        return aten("mm")(product(i, cut[i][j]), right)

    return product(0, n - 1)


@handles("block_diag")
def block_diag(*tensors: Any) -> Any:
    return aten("block_diag")(listed(tensors))


# ***** sums of products *****


@handles("einsum")
def einsum(*args: Any) -> Any:
    equation, operands = _equation(args)
    if equation is None:
        return NotImplemented
    return _einsum(equation, operands)


def _equation(args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The text of the sum and its operands; None for a form that is not read here."""
    if isinstance(args[0], str):
        operands = list(args[1:])
        if len(operands) == 1 and not isinstance(operands[0], Tensor):
            operands = list(operands[0])
        return args[0].replace(" ", ""), operands
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

    def text(labels: Any) -> str:
        return "".join("..." if s is ... else letters[int(s)] for s in labels)

    operands, parts, at = [], [], 0
    while at + 1 < len(args):
        operands.append(args[at])
        parts.append(text(args[at + 1]))
        at += 2
    equation = ",".join(parts)
    return (f"{equation}->{text(args[-1])}" if len(args) % 2 else equation), operands


def _einsum(equation: str, operands: list[Any]) -> Any:
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    ellipsis = max(
        (t.dim() - len(term.replace("...", "")) for term, t in zip(terms, operands, strict=True) if "..." in term),
        default=0,
    )
    counts: dict[str, int] = {}
    for term in terms:
        for letter in term.replace("...", ""):
            counts[letter] = counts.get(letter, 0) + 1
    places: dict[str, int] = {}
    wide = 0
    if not arrow:
        order = ["..."] * ellipsis + sorted(c for c in counts if counts[c] == 1)
        for letter in sorted(c for c in counts if counts[c] == 1):
            places[letter] = ellipsis + len(places)
    else:
        order = []
        rest = right
        while rest:
            if rest.startswith("..."):
                wide = len(order)
                order += ["..."] * ellipsis
                rest = rest[3:]
            else:
                places[rest[0]] = len(order)
                order.append(rest[0])
                rest = rest[1:]
    out_size = len(order)
    total = out_size
    if arrow and "..." not in right and ellipsis:
        wide = total
        total += ellipsis
    for letter in sorted(counts, key=lambda c: (c.islower(), c)):
        if letter not in places:
            places[letter] = total
            total += 1
    ready = [_spread(t, term, places, wide, ellipsis, total) for t, term in zip(operands, terms, strict=True)]
    return _contracted(ready, out_size, total)


def _spread(t: Any, term: str, places: dict[str, int], wide: int, ellipsis: int, total: int) -> Any:
    """An operand with its dims in the order of all labels, dims of size one for labels that it lacks."""
    seen: dict[str, int] = {}
    target = [-1] * total
    dim = 0
    rest = term
    while rest:
        if rest.startswith("..."):
            own = t.dim() - (dim + len([c for c in rest[3:] if c not in seen]) + _repeats(rest[3:], seen))
            for i in range(ellipsis - own, ellipsis):
                target[wide + i] = dim
                dim += 1
            rest = rest[3:]
            continue
        letter, rest = rest[0], rest[1:]
        if letter in seen:
            diagonal = aten("diagonal")(t, 0, seen[letter], dim)
            n = diagonal.dim()
            order = list(range(n - 1))
            order.insert(seen[letter], n - 1)
            t = aten("permute")(diagonal, order)
        else:
            seen[letter] = dim
            target[places[letter]] = dim
            dim += 1
    for i, d in enumerate(target):
        if d == -1:
            t = aten("unsqueeze")(t, dim)
            target[i] = dim
            dim += 1
    return aten("permute")(t, target)


def _repeats(rest: str, seen: dict[str, int]) -> int:
    known, more = set(seen), 0
    for letter in rest:
        more += letter in known
        known.add(letter)
    return more


def _contracted(ops: list[Any], out_size: int, total: int) -> Any:
    result = ops.pop(0)
    sums = list(range(out_size, total))
    if not ops:
        return aten("sum.dim_IntList")(result, sums) if sums else result
    while ops:
        other = ops.pop(0)
        gone, a_dims, b_dims = [], [], []
        for d in range(out_size, total):
            here, there = result.shape[d] != 1, other.shape[d] != 1
            if any(o.shape[d] != 1 for o in ops):
                continue
            if here and there:
                gone.append(d)
            elif here:
                a_dims.append(d)
            elif there:
                b_dims.append(d)
            else:
                continue
        if b_dims:
            other = aten("sum.dim_IntList")(other, b_dims, True)
        if a_dims:
            result = aten("sum.dim_IntList")(result, a_dims, True)
        result = aten("mul.Tensor")(result, other) if not gone else sum_of_products(result, other, gone)
    return aten("view")(result, list(result.shape[:out_size])) if total > out_size else result


def sum_of_products(left: Any, right: Any, dims: list[int]) -> Any:
    """The sum over dims of a product, as one batched product of matrices; summed dims stay with size one."""
    n = left.dim()
    both: list[int] = []
    left_only: list[int] = []
    right_only: list[int] = []
    for d in range(n):
        if d in dims:
            continue
        here, there = left.shape[d] != 1, right.shape[d] != 1
        (both if here and there or not here and not there else left_only if here else right_only).append(d)
    sizes = lambda t, ds: math.prod(t.shape[d] for d in ds)
    batch = sizes(left, both)
    a = aten("permute")(left, [*both, *left_only, *dims, *right_only])
    a = reshaped(a, [batch, sizes(left, left_only), sizes(left, dims)])
    b = aten("permute")(right, [*both, *dims, *right_only, *left_only])
    b = reshaped(b, [batch, sizes(right, dims), sizes(right, right_only)])
    shape = (
        [left.shape[d] for d in both]
        + [left.shape[d] for d in left_only]
        + [1] * len(dims)
        + [right.shape[d] for d in right_only]
    )
    order = [*both, *left_only, *dims, *right_only]
    back = [0] * n
    for i, d in enumerate(order):
        back[d] = i
    made = aten("view")(aten("bmm")(a, b), shape)
    return aten("permute")(made, back)
