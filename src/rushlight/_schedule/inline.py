"""Inlining: an element of a value as an expression of its index.

Shape primitives become maps of indices, pointwise primitives scalar operations, stored values loads. A whole graph of
these becomes one expression without intermediate arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._schedule.expressions import Buffer, Builder, Expr, identity
from rushlight._schedule.indexing import ZERO, Data, Ix, Var, delinearize, linearize
from rushlight._types.dtype import BOOL, FLOAT32, INT64
from rushlight._types.layout import BELOW_ALL

if TYPE_CHECKING:
    from rushlight._graph.core import Node, Value

__all__ = [
    "REDUCTIONS",
    "Inliner",
    "Location",
    "data_index",
    "index_before",
    "is_trivial",
    "reduced_sizes",
    "unwindow_element",
]

Index = Sequence[Ix]
# Reducing primitives and the operations that combine their elements.
REDUCTIONS = {
    "sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum", "argmax": "argmax", "argmin": "argmin",
}  # fmt: skip


class Location:
    """Memory of a value: a buffer and strides; `start` is where the first element lies in the buffer."""

    __slots__ = ("buffer", "start", "strides")

    def __init__(self, buffer: Buffer, strides: Sequence[int], start: int = 0) -> None:
        self.buffer, self.strides, self.start = buffer, tuple(strides), start

    def offset(self, index: Index) -> Ix:
        """The offset of the element at `index`, in elements."""
        total = ZERO + self.start if self.start else ZERO
        for ix, stride in zip(index, self.strides, strict=True):
            if stride and (ix.terms or ix.const):
                total = total + ix * stride
        return total


class Inliner:
    """Builds the expressions of elements.  `resolve(value, index, guard)` gives those of stored values and reductions,
    None for other values.
    """

    def __init__(self, builder: Builder, resolve: Callable[[Value, Index, Expr | None], Expr | None]) -> None:
        self.builder, self.resolve = builder, resolve
        self._memo: dict[Any, Expr] = {}
        self._keep: list[Value] = []

    def element(self, value: Value, index: Index, guard: Expr | None = None) -> Expr:
        """The element of `value` at `index`.  Memory is read only where `guard` holds."""
        key = (id(value), tuple(index), guard)
        expr = self._memo.get(key)
        if expr is None:
            expr = self.resolve(value, index, guard)
            if expr is None:
                expr = self._compute(value, index, guard)
            self._memo[key] = expr
            self._keep.append(value)
        return expr

    def _compute(self, value: Value, index: Index, guard: Expr | None) -> Expr:
        node = value.node
        if node is None:
            raise AssertionError(f"{value!r} is neither computed nor stored")
        kind = node.prim.lower[0]
        if kind == "scalar":
            params = tuple((k, v) for k, v in node.params.items() if k != "dtype")
            args = []
            for x in node.inputs:  # a comprehension would add a Python frame to each step of a long chain
                args.append(self.element(x, index, guard))
            return self.builder.op(node.prim.lower[1], args, value.dtype, params)
        rule = _RULES.get(node.prim.name)
        if rule is None:
            raise NotImplementedError(f"no loop is known for primitive {node.prim.name!r} ({node.prim.lower})")
        return rule(self, node, index, guard)

    def under(self, condition: Expr | None, guard: Expr | None, yes: Callable[[Expr | None], Expr], no: Expr) -> Expr:
        """`yes` where the condition holds, `no` elsewhere.  The condition guards the reads of `yes`."""
        if condition is None:
            return yes(guard)
        inner = yes(self.builder.both(guard, condition))
        return self.builder.op("select", (condition, inner, no), no.dtype)


# ***** index maps *****


def _broadcast(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x = node.inputs[0]
    dims = node.params["dims"]
    return p.element(x, [ZERO if size == 1 else index[d] for size, d in zip(x.shape, dims, strict=True)], guard)


def _reshape(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x = node.inputs[0]
    return p.element(x, reindex(index, node.outputs[0].shape, x.shape), guard)


def reindex(index: Index, shape: Sequence[int], target: Sequence[int]) -> list[Ix]:
    """The index in shape `target` of the element at `index` in `shape`.  Corresponding dims are matched one by one."""
    result: list[Ix] = []
    i = j = 0
    while i < len(shape) or j < len(target):
        a = b = 1
        start_i, start_j = i, j
        while True:
            if a <= b and i < len(shape):
                a *= shape[i]
                i += 1
            elif j < len(target):
                b *= target[j]
                j += 1
            elif i < len(shape):
                a *= shape[i]
                i += 1
            if a == b:
                break
        if i - start_i == 1 and j - start_j == 1:
            result.append(index[start_i])
        else:
            result.extend(delinearize(linearize(index[start_i:i], shape[start_i:i]), target[start_j:j]))
    return result


def _transpose(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    perm = node.params["perm"]
    source: list[Ix] = [ZERO] * len(perm)
    for i, d in enumerate(perm):
        source[d] = index[i]
    return p.element(node.inputs[0], source, guard)


def _slice(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    starts, steps = node.params["starts"], node.params["steps"]
    return p.element(
        node.inputs[0], [i * step + start for i, start, step in zip(index, starts, steps, strict=True)], guard
    )


def _flip(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x, dims = node.inputs[0], node.params["dims"]
    return p.element(
        x,
        [(i * -1) + (size - 1) if d in dims else i for d, (i, size) in enumerate(zip(index, x.shape, strict=True))],
        guard,
    )


def _pad(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x = node.inputs[0]
    b = p.builder
    fill = b.const(node.params["value"], x.dtype)
    if 0 in x.shape:
        return fill
    condition: Expr | None = None
    source = []
    for i, size, lo, gap in zip(index, x.shape, node.params["lo"], node.params["interior"], strict=True):
        at, step = i - lo, gap + 1
        condition = b.both(condition, b.inrange(at, 0, (size - 1) * step + 1))
        if step != 1:
            condition = b.both(condition, b.divides(at, step))
            at = at.floordiv(step)
        source.append(at)
    return p.under(condition, guard, lambda g: p.element(x, source, g), fill)


def _cat(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    dim = node.params["dim"]
    start, result = 0, None
    for x in node.inputs:
        size = x.shape[dim]
        if size:
            result = _cat_operand(p, x, index, guard, dim, start, result)
        start += size
    if result is None:
        return p.builder.const(0, node.outputs[0].dtype)
    return result


def _cat_operand(
    p: Inliner, x: Value, index: Index, guard: Expr | None, dim: int, start: int, others: Expr | None
) -> Expr:
    source = list(index)
    source[dim] = index[dim] - start
    condition = p.builder.inrange(index[dim], start, start + x.shape[dim])
    inner = p.element(x, source, p.builder.both(guard, condition))
    if others is None or condition is None:
        return inner
    return p.builder.op("select", (condition, inner, others), x.dtype)


def _window(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x = node.inputs[0]
    q = node.params
    source = list(index[: len(x.shape)])
    for k, (d, stride, dilation) in enumerate(zip(q["dims"], q["stride"], q["dilation"], strict=True)):
        source[d] = index[d] * stride + index[len(x.shape) + k] * dilation
    return p.element(x, source, guard)


def unwindow_element(p: Inliner, node: Node, index: Index, offsets: Index, guard: Expr | None) -> Expr:
    """The term at window offset `offsets` of the element at `index` of an `unwindow`."""
    g, q, b = node.inputs[0], node.params, p.builder
    zero = b.const(0.0 if g.dtype.kind in "fc" else 0, g.dtype)
    condition: Expr | None = None
    source = list(index)
    for k, (d, stride, dilation) in enumerate(zip(q["dims"], q["stride"], q["dilation"], strict=True)):
        at = index[d] - offsets[k] * dilation
        condition = b.both(condition, b.inrange(at, 0, (g.shape[d] - 1) * stride + 1))
        if stride != 1:
            whole = -(-max(-at.lo, 0) // stride)  # steps added so that the divided number is not negative
            above = at + whole * stride
            condition = b.both(condition, b.divides(above, stride))
            at = above.floordiv(stride) - whole
        source[d] = at
    if 0 in g.shape:
        return zero
    return p.under(condition, guard, lambda inner: p.element(g, [*source, *offsets], inner), zero)


def _iota(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    dtype = node.params["dtype"]
    if dtype.kind == "f" and dtype.itemsize == 2:
        wide = p.builder.index(index[node.params["dim"]], FLOAT32)
        return p.builder.op("convert", (wide,), dtype)
    return p.builder.index(index[node.params["dim"]], dtype)


def _full(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    return p.builder.const(node.params["value"], node.params["dtype"])


# ***** indices from data *****


INDEX_ERROR, RUNTIME_ERROR = 0, 1


def data_index(value: Expr, size: int, dim: int, code: int = INDEX_ERROR, guard: Expr | None = None) -> Ix:
    """An index read from data and checked where `guard` holds."""
    plain = _counted_from_zero(value)
    return Ix(((Data(value if plain is None else plain, size, dim, code, guard, plain is None), 1),), 0)


def _counted_from_zero(value: Expr) -> Expr | None:
    """The index from before negative ones were moved out of range (see `BELOW_ALL`); the bounds check finds them
    without it.
    """

    def is_op(x: Expr, name: str, number: int) -> bool:
        return x.kind == "op" and x.value[0] == name and x.args[1].kind == "const" and x.args[1].value == number

    if value.kind != "op" or value.value[0] != "select":
        return None
    below, moved, index = value.args
    matches = is_op(below, "lt", 0) and is_op(moved, "sub", BELOW_ALL)
    return index if matches and below.args[0] is index and moved.args[0] is index else None


def _gather(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x, at = node.inputs
    source = list(index)
    dim = node.params["dim"]
    source[dim] = data_index(p.element(at, index, guard), x.shape[dim], dim, RUNTIME_ERROR, guard)
    return _checked(p, p.element(x, source, guard), [source[dim]])


def _index(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    x, *at = node.inputs
    ndim = len(at[0].shape)
    source = [
        data_index(p.element(a, index[:ndim], guard), x.shape[k], k, INDEX_ERROR, guard) for k, a in enumerate(at)
    ]
    return _checked(p, p.element(x, [*source, *index[ndim:]], guard), source)


def _checked(p: Inliner, element: Expr, indices: Sequence[Ix]) -> Expr:
    """The element, with its indices from data checked even where no address depends on them (dims of size 1 or stride
    0).
    """
    seen: set[int] = set()
    for ix in indices:
        atom = ix.terms[0][0]
        if not _reads_at(element, atom, seen):
            holds = p.builder.op("le", (p.builder.const(0, INT64), p.builder.index(ix, INT64)), BOOL)
            zero = p.builder.const(0.0 if element.dtype.kind in "fc" else 0, element.dtype)
            element = p.builder.op("select", (holds, element, zero), element.dtype)
        seen.clear()
    return element


def _reads_at(x: Expr, atom: Data, seen: set[int]) -> bool:
    """Whether the expression reads memory at an address that depends on `atom`."""
    if id(x) in seen:
        return False
    seen.add(id(x))
    ix = x.value[1] if x.kind == "load" else x.value[0] if x.kind == "inrange" else x.value if x.kind == "ix" else None
    return (ix is not None and _depends(ix, atom, seen)) or any(_reads_at(a, atom, seen) for a in x.args)


def _depends(ix: Ix, atom: Data, seen: set[int]) -> bool:
    for each, _ in ix.terms:
        if type(each) is Data:
            if each == atom or _reads_at(each.value, atom, seen):
                return True
        elif type(each) is not Var and _depends(each.ix, atom, seen):
            return True
    return False


def _trivial_reduction(p: Inliner, node: Node, index: Index, guard: Expr | None) -> Expr:
    """A reduction of no elements, which gives the neutral element, or of single elements, which gives these."""
    x = node.inputs[0]
    name = node.prim.name
    if name == "unwindow":
        return unwindow_element(p, node, index, [ZERO] * len(node.params["size"]), guard)
    if 0 in x.shape:
        return p.builder.const(identity(REDUCTIONS[name], x.dtype), x.dtype)
    if name in ("argmax", "argmin"):
        return p.builder.const(0, node.outputs[0].dtype)
    rest = iter(index)
    dims = node.params["dims"]
    return p.element(x, [ZERO if d in dims else next(rest) for d in range(len(x.shape))], guard)


class _Recorder:
    """Stands in for an inliner and returns the index that it is asked for."""

    def element(self, value: Value, index: Index, guard: Expr | None = None) -> Any:
        return list(index)


def index_before(node: Node, index: Index) -> list[Ix]:
    """The index in its input of a view's element at `index`."""
    return _RULES[node.prim.name](_Recorder(), node, index, None)  # type: ignore[arg-type,return-value]


def reduced_sizes(node: Node) -> list[int]:
    """The sizes of the loops that a reducing node runs for each element."""
    if node.prim.name == "unwindow":
        return list(node.params["size"])
    dims = [node.params["dim"]] if "dim" in node.params else node.params["dims"]
    return [node.inputs[0].shape[d] for d in dims]


def is_trivial(node: Node) -> bool:
    """Whether a reducing node reduces no elements or single ones."""
    return 0 in node.inputs[0].shape or all(s == 1 for s in reduced_sizes(node))


_RULES: dict[str, Callable[[Inliner, Node, Index, Expr | None], Expr]] = {
    "broadcast": _broadcast, "reshape": _reshape, "transpose": _transpose, "slice": _slice, "flip": _flip, "pad": _pad,
    "unfused": lambda p, node, index, guard: p.element(node.inputs[0], index, guard),
    "laid_out": lambda p, node, index, guard: p.element(node.inputs[0], index, guard), "cat": _cat, "window": _window, "iota": _iota, "full": _full, "gather": _gather, "index": _index,
    "sum": _trivial_reduction, "prod": _trivial_reduction, "amax": _trivial_reduction, "amin": _trivial_reduction,
    "argmax": _trivial_reduction, "argmin": _trivial_reduction,
    "unwindow": _trivial_reduction,
}  # fmt: skip
