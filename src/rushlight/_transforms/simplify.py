"""Algebra on graphs.  Every rule keeps the values, NaN and infinity included: x * 0 stays, because NaN * 0 is NaN.

`EXACT` keeps every bit.  `GRADIENT` adds rules that may change a zero's sign or round once less; backward graphs use
them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from rushlight._graph.core import Graph, Node, Value
from rushlight._graph.rewrite import Rule, rewrite, rule
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, DType
from rushlight._types.layout import numel
from rushlight._types.symbols import as_double, finite, is_symbolic, single, truncated

__all__ = ["EXACT", "GRADIENT", "simplify"]


def simplify(graph: Graph, gradient: bool = False) -> Graph:
    """The graph after the algebraic rules, without duplicate or dead nodes; `gradient` allows the `GRADIENT` rules too."""
    return rewrite(graph, GRADIENT if gradient else EXACT)


# ***** reading nodes *****


def made_by(value: Value, name: str) -> Node | None:
    """The node of primitive `name` that computes `value`, or None."""
    node = value.node
    return node if node is not None and node.prim.name == name else None


def constant(value: Value) -> Any:
    """The number that every element of `value` equals, or None if unknown."""
    node = made_by(value, "full")
    return None if node is None else node.params["value"]


def is_plus_zero(number: Any) -> bool:
    """Whether a constant is 0 with a plus sign (for complex: both parts)."""
    if isinstance(number, complex):
        return is_plus_zero(number.real) and is_plus_zero(number.imag)
    return number is not None and number == 0 and math.copysign(1.0, number) > 0


def is_minus_zero(number: Any) -> bool:
    """Whether a constant is a float zero with a minus sign."""
    return isinstance(number, float) and number == 0 and math.copysign(1.0, number) < 0


def rounded(number: Any, dtype: DType) -> Any:
    """A Python number rounded to `dtype`, or None where that is not known here."""
    if dtype is FLOAT64:
        return as_double(number)
    if dtype in (FLOAT32, FLOAT16):
        code = "f" if dtype is FLOAT32 else "e"
        try:
            return single(number, code)
        except OverflowError:
            return None
    if dtype.is_integer and isinstance(number, int):
        bits = dtype.itemsize * 8
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
        return truncated(number) if low <= number <= high else None
    return None


# ***** arithmetic *****


@rule("add")
def add_nothing(node: Node) -> Any:
    """x + -0 = x, and for integers x + 0 = x"""
    for x, other in (node.inputs, node.inputs[::-1]):
        number = constant(other)
        if is_minus_zero(number) or (number == 0 and x.dtype.is_integer):
            return x
    return None


@rule("sub")
def subtract_nothing(node: Node) -> Any:
    """x - 0 = x"""
    x, other = node.inputs
    return x if is_plus_zero(constant(other)) and not x.dtype.is_complex else None


@rule("mul")
def times_one(node: Node) -> Any:
    """x * 1 = x, x * -1 = -x (not for complex, where inf * 1 has a NaN part)"""
    for x, other in (node.inputs, node.inputs[::-1]):
        number = constant(other)
        if number is not None and not x.dtype.is_complex:
            if number == 1:
                return x
            if number == -1:
                return prim.neg(x)
    return None


@rule("div")
def over_one(node: Node) -> Any:
    """x / 1 = x, x / -1 = -x"""
    x, other = node.inputs
    number = constant(other)
    if number is None or x.dtype.is_complex or number not in (1, -1):
        return None
    return x if number == 1 else prim.neg(x)


@rule("neg")
def double_negation(node: Node) -> Any:
    """--x = x, -(constant) = constant"""
    (x,) = node.inputs
    inner = made_by(x, "neg")
    if inner is not None:
        return inner.inputs[0]
    number = constant(x)
    value = rounded(-number, x.dtype) if number is not None else None
    return None if value is None else build.full(x.shape, value, x.dtype)


@rule("add")
def add_negative(node: Node) -> Any:
    """x + -y = x - y, -x + y = y - x"""
    for x, other in (node.inputs, node.inputs[::-1]):
        inner = made_by(other, "neg")
        if inner is not None:
            return prim.sub(x, inner.inputs[0])
    return None


@rule("sub")
def subtract_negative(node: Node) -> Any:
    """x - -y = x + y"""
    x, other = node.inputs
    inner = made_by(other, "neg")
    return prim.add(x, inner.inputs[0]) if inner is not None else None


@rule("mul", "div")
def negative_factors(node: Node) -> Any:
    """-x * -y = x * y, and the same for division"""
    a, b = (made_by(x, "neg") for x in node.inputs)
    return node.prim(a.inputs[0], b.inputs[0]) if a is not None and b is not None else None


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}


@rule(*_FOLD)
def fold_constants(node: Node) -> Any:
    """Fold two constants to one; a double holds enough bits that rounding twice is rounding once."""
    a, b = (constant(x) for x in node.inputs)
    dtype = node.outputs[0].dtype
    if a is None or b is None or dtype not in (FLOAT32, FLOAT64) or (node.prim.name == "div" and b == 0):
        return None
    a, b = rounded(a, dtype), rounded(b, dtype)
    if a is None or b is None:
        return None
    zero = _zero_times(a, b) if node.prim.name in ("mul", "div") else None  # constants are not divided by zero here
    value = zero if zero is not None else rounded(_FOLD[node.prim.name](a, b), dtype)
    return None if value is None else build.full(node.outputs[0].shape, value, dtype)


def _zero_times(a: float, b: float) -> float | None:
    """The zero that is a literal zero times a number that follows from sizes: one value for all sizes, where that
    number keeps its sign."""
    if is_symbolic(a):
        a, b = b, a
    if is_symbolic(a) or not is_symbolic(b) or a != 0:
        return None
    return a if b > 0 else -a if b < 0 else None


# ***** dtype *****


def _widens(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if source is target or source is BOOL:
        return True
    if source.is_floating_point:
        order = {FLOAT16: 11, BFLOAT16: 8, FLOAT32: 24, FLOAT64: 53}
        real = target.to_real()
        if {source, real} == {FLOAT16, BFLOAT16}:
            return False
        return real in order and order[real] >= order[source]
    if source.is_integer and target.is_integer:
        return (
            source.itemsize < target.itemsize
            and (target.is_signed or not source.is_signed)
            or (source.itemsize == target.itemsize and source.is_signed == target.is_signed)
        )
    if source.is_integer and target.to_real().is_floating_point:
        bits = {FLOAT16: 11, BFLOAT16: 8, FLOAT32: 24, FLOAT64: 53}[target.to_real()]
        return source.itemsize * 8 <= bits
    return source.is_complex and target.is_complex and source.itemsize <= target.itemsize


@rule("convert")
def convert_nothing(node: Node) -> Any:
    """convert to the same dtype; through a dtype that holds all values of the first"""
    (x,) = node.inputs
    dtype = node.params["dtype"]
    if x.dtype is dtype:
        return x if not x.weak else None
    inner = made_by(x, "convert")
    if inner is not None and _widens(inner.inputs[0].dtype, x.dtype) and (dtype is not BOOL or not x.dtype.is_complex):
        return build.convert(inner.inputs[0], dtype) if not inner.inputs[0].weak else None
    return None


@rule("convert")
def convert_constant(node: Node) -> Any:
    """a constant that the new dtype represents exactly"""
    (x,) = node.inputs
    dtype, number = node.params["dtype"], constant(x)
    if number is None:
        return None
    if isinstance(number, complex) or (isinstance(number, float) and not finite(number)):
        return None
    exact = number if x.dtype is BOOL else rounded(number, x.dtype)
    if exact is None:
        return None
    if dtype is BOOL or dtype.is_complex or (isinstance(exact, float) and dtype.is_integer):
        return None
    value = rounded(exact, dtype)
    return build.full(x.shape, value, dtype) if value is not None and value == exact else None


# ***** choosing *****


@rule("select")
def select_known(node: Node) -> Any:
    """select(c, x, x) = x; select(not c, a, b) = select(c, b, a); a constant condition"""
    condition, a, b = node.inputs
    if a is b:
        return a
    number = constant(condition)
    if number is not None:
        return a if number else b
    positive, flipped = _without_constant(condition)
    return prim.select(positive, b, a) if flipped else None


@rule("select")
def select_again(node: Node) -> Any:
    """select(c, select(c, a, b), d) = select(c, a, d), and for the other side"""
    condition, a, b = node.inputs
    inner = made_by(a, "select")
    if inner is not None and inner.inputs[0] is condition:
        return prim.select(condition, inner.inputs[1], b)
    inner = made_by(b, "select")
    if inner is not None and inner.inputs[0] is condition:
        return prim.select(condition, a, inner.inputs[2])
    return None


def _without_constant(x: Value) -> tuple[Value, int]:
    """(y, c) with x = y xor c and a constant c, 0 if there is none.  `not` is such an xor."""
    node = made_by(x, "bitwise_xor")
    for y, other in (node.inputs, node.inputs[::-1]) if node is not None else ():
        number = constant(other)
        if number is not None:
            return y, number
    return x, 0


@rule("bitwise_xor")
def double_not(node: Node) -> Any:
    """x xor c xor c = x: not not x = x"""
    outer, number = _without_constant(node.outputs[0])
    inner, again = _without_constant(outer)
    return inner if number and number == again else None


@rule("bitwise_and", "bitwise_or", "maximum", "minimum")
def same_twice(node: Node) -> Any:
    """x and x = x"""
    a, b = node.inputs
    return a if a is b else None


# ***** complex *****


@rule("real", "imag", "conj", "complex")
def parts(node: Node) -> Any:
    """real(complex(a, b)) = a; complex(real z, imag z) = z; conj conj z = z"""
    name = node.prim.name
    if name == "complex":
        a, b = made_by(node.inputs[0], "real"), made_by(node.inputs[1], "imag")
        return a.inputs[0] if a is not None and b is not None and a.inputs[0] is b.inputs[0] else None
    (z,) = node.inputs
    whole, inner_node = made_by(z, "complex"), made_by(z, "conj")
    if name == "conj":
        return inner_node.inputs[0] if inner_node is not None else None
    if whole is not None:
        return whole.inputs[0 if name == "real" else 1]
    if inner_node is not None:
        inner = inner_node.inputs[0]
        return prim.real(inner) if name == "real" else prim.neg(prim.imag(inner))
    return None


# ***** moving elements *****


@rule("broadcast", "reshape", "transpose", "slice", "flip")
def move_constant(node: Node) -> Any:
    """a constant with another shape is a constant"""
    number = constant(node.inputs[0])
    return None if number is None else build.full(node.outputs[0].shape, number, node.outputs[0].dtype)


@rule("reshape", "slice", "pad", "broadcast")
def move_nothing(node: Node) -> Any:
    """the same shape: nothing moves"""
    x, out = node.inputs[0], node.outputs[0]
    return x if x.shape == out.shape and not x.weak else None


@rule("transpose")
def transpose_twice(node: Node) -> Any:
    """two transposes are one, or none"""
    (x,), perm = node.inputs, node.params["perm"]
    if perm == tuple(range(len(perm))):
        return x
    inner = made_by(x, "transpose")
    return build.transpose(inner.inputs[0], [inner.params["perm"][d] for d in perm]) if inner is not None else None


@rule("reshape")
def reshape_twice(node: Node) -> Any:
    """reshape of reshape; of a broadcast that only adds dims of size 1; of a transpose that moves only such dims"""
    (x,), shape = node.inputs, node.params["shape"]
    inner = made_by(x, "reshape")
    if (
        inner is None
        and (broadcast := made_by(x, "broadcast")) is not None
        and numel(x.shape) == numel(broadcast.inputs[0].shape)
    ):
        inner = broadcast
    if inner is None and (inner_node := made_by(x, "transpose")) is not None:
        order = [d for d in inner_node.params["perm"] if inner_node.inputs[0].shape[d] != 1]
        inner = inner_node if order == sorted(order) else None
    if inner is None or inner.inputs[0].weak:
        return None
    return build.reshape(inner.inputs[0], shape)


@rule("broadcast")
def broadcast_twice(node: Node) -> Any:
    """broadcast of broadcast; of a reshape that only adds or drops dims of size 1"""
    (x,), shape, dims = node.inputs, node.params["shape"], node.params["dims"]
    inner = made_by(x, "broadcast")
    if inner is not None:
        through = tuple(dims[d] for d in inner.params["dims"])
        return prim.broadcast(inner.inputs[0], shape=shape, dims=through)
    inner = made_by(x, "reshape")
    if inner is None:
        return None
    source = inner.inputs[0]
    kept = [d for d, size in enumerate(x.shape) if size != 1]
    if (
        source.weak
        or [s for s in source.shape if s != 1] != [x.shape[d] for d in kept]
        or len(source.shape) != len(kept)
    ):
        return None
    return prim.broadcast(source, shape=shape, dims=tuple(dims[d] for d in kept))


@rule("flip")
def flip_twice(node: Node) -> Any:
    """two flips cancel; flips of dims of size 1 do nothing"""
    (x,), dims = node.inputs, node.params["dims"]
    needed = tuple(d for d in dims if x.shape[d] > 1)
    if needed != dims:
        return prim.flip(x, dims=needed) if needed else x
    inner = made_by(x, "flip")
    if inner is None:
        return None
    rest = tuple(sorted(set(dims) ^ set(inner.params["dims"])))
    return prim.flip(inner.inputs[0], dims=rest) if rest else inner.inputs[0]


@rule("slice")
def slice_inside(node: Node) -> Any:
    """slice of pad that removes the padding; slice of slice"""
    (x,), p = node.inputs, node.params
    inner = made_by(x, "pad")
    if inner is not None:
        source, q = inner.inputs[0], inner.params
        same = p["starts"] == q["lo"] and p["steps"] == tuple(i + 1 for i in q["interior"])
        return source if same and node.outputs[0].shape == source.shape else None
    inner = made_by(x, "slice")
    if inner is None:
        return None
    q = inner.params
    starts = tuple(a + b * s for a, b, s in zip(q["starts"], p["starts"], q["steps"], strict=True))
    steps = tuple(s * t for s, t in zip(q["steps"], p["steps"], strict=True))
    counts = node.outputs[0].shape
    stops = tuple(a + (n - 1) * s + 1 if n else a for a, n, s in zip(starts, counts, steps, strict=True))
    return prim.slice(inner.inputs[0], starts=starts, stops=stops, steps=steps)


@rule("cat")
def cat_one(node: Node) -> Any:
    """operands without elements along the dim are dropped; cat of one operand is that operand"""
    dim = node.params["dim"]
    parts = [x for x in node.inputs if x.shape[dim]]
    if len(parts) == len(node.inputs):
        return node.inputs[0] if len(parts) == 1 else None
    return prim.cat(*parts, dim=dim) if parts else node.inputs[0]


# ***** reductions *****


@rule("sum", "prod", "amax", "amin")
def reduce_nothing(node: Node) -> Any:
    """no dims, or dims of size 1: the elements themselves"""
    (x,), dims = node.inputs, node.params["dims"]
    if not dims:
        return x
    needed = tuple(d for d in dims if x.shape[d] != 1)
    if needed == dims:
        return None
    kept = [s for d, s in enumerate(x.shape) if d not in dims or d in needed]
    position = {d: i for i, d in enumerate(d for d in range(len(x.shape)) if d not in dims or d in needed)}
    flat = build.reshape(x, kept)
    return node.prim(flat, dims=tuple(position[d] for d in needed)) if needed else flat


@rule("sum")
def sum_of_constant(node: Node) -> Any:
    """the sum of zeros"""
    (x,) = node.inputs
    return build.full(node.outputs[0].shape, 0, x.dtype) if is_plus_zero(constant(x)) else None


# ***** for gradients: a zero's sign may change, a sum of equals becomes a product *****


@rule("add")
def add_zero(node: Node) -> Any:
    """x + 0 = x"""
    for x, other in (node.inputs, node.inputs[::-1]):
        if is_plus_zero(constant(other)):
            return x
    return None


@rule("add")
def add_selected(node: Node) -> Any:
    """select(c, a, 0) + select(c, 0, b) = select(c, a, b)"""
    left, right = (made_by(x, "select") for x in node.inputs)
    if left is None or right is None or left.inputs[0] is not right.inputs[0]:
        return None
    sides = []
    for a, b in zip(left.inputs[1:], right.inputs[1:], strict=True):
        if is_plus_zero(constant(a)):
            sides.append(b)
        elif is_plus_zero(constant(b)):
            sides.append(a)
        else:
            return None
    return prim.select(left.inputs[0], *sides)


@rule("sum")
def sum_of_broadcast(node: Node) -> Any:
    """the sum of n equal elements is n times one"""
    (x,), dims = node.inputs, node.params["dims"]
    inner = made_by(x, "broadcast")
    if inner is None or not x.dtype.is_floating_point:
        return None
    source, placed = inner.inputs[0], inner.params["dims"]
    repeated = [d for d in dims if d not in placed or (source.shape[placed.index(d)] == 1)]
    if not repeated or source.weak:
        return None
    count = numel([x.shape[d] for d in repeated])
    rest = [d for d in dims if d not in repeated]
    kept = [d for d in range(len(x.shape)) if d not in repeated]
    small = build.reshape(source, [s for d, s in zip(placed, source.shape, strict=True) if d not in repeated])
    shape = tuple(x.shape[d] for d in kept)
    small = prim.broadcast(small, shape=shape, dims=tuple(kept.index(d) for d in placed if d not in repeated))
    small = small * as_double(count)
    return prim.sum(small, dims=tuple(kept.index(d) for d in rest)) if rest else small


@rule("div")
def over_constant(node: Node) -> Any:
    """(x * c) / d with constants: one product less, if c / d is exact"""
    x, other = node.inputs
    inner, d = made_by(x, "mul"), constant(other)
    if inner is None or d is None or x.dtype not in (FLOAT32, FLOAT64) or d == 0:
        return None
    a, c = inner.inputs[0], constant(inner.inputs[1])
    if c is None:
        a, c = inner.inputs[1], constant(inner.inputs[0])
    if c is None or c % d != 0 or not finite(c):
        return None
    return a * (c / d)


EXACT: tuple[Rule, ...] = (
    add_nothing, subtract_nothing, times_one, over_one, double_negation, add_negative, subtract_negative, negative_factors,
    fold_constants, convert_nothing, convert_constant, select_known, select_again, double_not, same_twice, parts, move_constant,
    move_nothing, transpose_twice, reshape_twice, broadcast_twice, flip_twice, slice_inside, cat_one, reduce_nothing, sum_of_constant,
)  # fmt: skip
GRADIENT: tuple[Rule, ...] = (*EXACT, add_zero, add_selected, sum_of_broadcast, over_constant)
