"""Passes over block kernels: tiles of arrays by pointers, scalars pulled out of tiles, tiles that advance in loops made
of scalars that do, common subexpressions, code that loops do not change, code that nobody uses.

`simplified(kernel)` runs all of them on a copy.  Loads stay where they are: memory may change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rushlight._types.dtype import INT64, DType

from .ir import Kernel, Op, Region, Value
from .ops import OPS
from .tiles import expand_tiles
from .types import Pointer, Tile

__all__ = ["copied", "copied_ops", "simplified", "with_equal_pointers", "without_unused"]


def simplified(kernel: Kernel) -> Kernel:
    """An equal kernel, after all passes."""
    kernel = copied(kernel)
    expand_tiles(kernel.body)
    _Scalars().region(kernel.body)
    _hoist(kernel.body)  # what tiles are moved by must be known in front of the loop
    _Induction().region(kernel.body)
    _Scalars().region(kernel.body)
    _hoist(kernel.body)
    _Common().region(kernel.body, {})
    without_unused(kernel.body)
    return kernel


# ***** copies *****


def copied(kernel: Kernel) -> Kernel:
    """A kernel with values and operations of its own."""
    body = _copy(kernel.body, {})
    return Kernel(
        kernel.name, body, divisible=kernel.divisible, warps=kernel.warps, stages=kernel.stages, line=kernel.line
    )


def copied_ops(region: Region, new: dict[Value, Value]) -> list[Op]:
    """Copies of a region's operations on other values: `new` says what stands for each.  Operations are left out whose
    results something stands for already.
    """
    made: list[Op] = []
    for op in region.ops:
        if op.results and all(v in new for v in op.results):
            continue
        inner = [_copy(r, new) for r in op.regions]
        copy = Op(op.kind, [new[v] for v in op.operands], [v.type for v in op.results], op.attributes, inner, op.line)
        for old, fresh in zip(op.results, copy.results, strict=True):
            fresh.name = old.name
            new[old] = fresh
        made.append(copy)
    return made


def _copy(region: Region, new: dict[Value, Value]) -> Region:
    made = Region([Value(p.type, None, p.name) for p in region.params])
    new.update(zip(region.params, made.params, strict=True))
    made.ops = copied_ops(region, new)
    return made


def with_equal_pointers(kernel: Kernel, first: Mapping[int, int]) -> Kernel:
    """The kernel for launches where parameters are one address: `first` names for a parameter the one that it equals."""
    kernel = copied(kernel)
    for other, one in first.items():
        value, stands = kernel.params[other], kernel.params[one]
        if value.type != stands.type:
            cast = Op("pointer_cast", [stands], [value.type], {"to": value.type.element.to})  # type: ignore[union-attr]
            kernel.body.ops.insert(0, cast)
            stands = cast.result
        _substitute(kernel.body, value, stands)
    return kernel


# ***** scalars pulled out of tiles *****

_SHAPED = frozenset({"splat", "broadcast", "expand_dims", "reshape", "permute"})


class _Scalars:
    """A tile with one number everywhere becomes a scalar and a splat; numbers are computed where they are known."""

    def __init__(self) -> None:
        self.new: dict[Value, Value] = {}

    def region(self, region: Region) -> None:
        ops, region.ops = region.ops, []
        for op in ops:
            op.operands = [self.new.get(v, v) for v in op.operands]
            for inner in op.regions:
                self.region(inner)
            self.new.update(self.op(op, region.ops))

    def op(self, op: Op, out: list[Op]) -> dict[Value, Value]:
        """Append the operation, or a simpler one; what replaces its result."""
        if op.kind in _SHAPED:
            (x,) = op.operands
            if x.shape == op.result.shape and op.kind != "permute":
                return {op.result: x}
            if (scalar := _splatted(x)) is not None and op.kind != "splat":
                return {op.result: _append(out, "splat", [scalar], op, {"shape": op.result.shape})}
        if op.kind == "permute" and list(op.attributes["order"]) == sorted(op.attributes["order"]):
            return {op.result: op.operands[0]}
        if op.kind in ("pointwise", "offset", "pointer_cast", "address", "multiply_high") and op.result.shape:
            scalars = [_splatted(v) for v in op.operands]
            if all(s is not None for s in scalars):
                made = self.scalar(op, [s for s in scalars if s is not None], out)
                return {op.result: _append(out, "splat", [made], op, {"shape": op.result.shape})}
        if op.kind == "pointwise" and not op.result.shape:
            return {op.result: self.scalar(op, op.operands, out)}
        out.append(op)
        return {}

    def scalar(self, op: Op, operands: list[Value], out: list[Op]) -> Value:
        """The operation on scalars: a number where all are numbers."""
        if op.kind == "pointwise":
            if (same := _unchanged(op, operands)) is not None:
                return same
            if (number := _folded(op, operands)) is not None:
                return _append(out, "constant", [], op, {"dtype": op.result.dtype, "value": number})
        return _append(out, op.kind, operands, op, op.attributes)


def _append(out: list[Op], kind: str, operands: list[Value], like: Op, attributes: Mapping[str, Any]) -> Value:
    types = OPS[kind].infer([v.type for v in operands], attributes, ())
    out.append(Op(kind, operands, types, attributes, (), like.line))
    return out[-1].result


def _splatted(value: Value) -> Value | None:
    """The scalar that a tile repeats, if it is known to."""
    if not value.shape:
        return value
    return value.op.operands[0] if value.op is not None and value.op.kind == "splat" else None


def _number(value: Value) -> Any:
    return value.op.attributes["value"] if value.op is not None and value.op.kind == "constant" else None


def _unchanged(op: Op, operands: list[Value]) -> Value | None:
    """x + 0, x * 1 and the like, of integers."""
    if op.result.dtype.kind not in "iu" or len(operands) != 2 or op.attributes["prim"] not in ("add", "sub", "mul"):
        return None
    prim, (a, b) = op.attributes["prim"], map(_number, operands)
    nothing = 1 if prim == "mul" else 0
    if b == nothing:
        return operands[0]
    return operands[1] if a == nothing and prim != "sub" else None


_MEANING: Mapping[str, Callable[..., int]] = {  # plain Python: the first kernel of a process need not wait for NumPy
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div_trunc": lambda a, b: _quotient(a, b),
    "rem_trunc": lambda a, b: a - b * _quotient(a, b), "maximum": max, "minimum": min, "lt": operator.lt, "le": operator.le, "eq": operator.eq,
    "ne": operator.ne, "convert": lambda a: a,
}  # fmt: skip


def _folded(op: Op, operands: list[Value]) -> Any:
    """The number that an operation on known integers gives."""
    prim, numbers = op.attributes["prim"], [_number(v) for v in operands]
    if prim not in _MEANING or None in numbers or any(v.dtype.kind not in "iu" for v in operands):
        return None
    if op.result.dtype.kind not in "iub" or (prim.endswith("_trunc") and numbers[1] == 0):
        return None
    found = _MEANING[prim](*[_wrapped(n, v.dtype) for n, v in zip(numbers, operands, strict=True)])
    return bool(found) if op.result.dtype.kind == "b" else _wrapped(found, op.result.dtype)


def _wrapped(number: int, dtype: DType) -> int:
    """The number of a dtype with the same lowest bits."""
    bits = 8 * dtype.itemsize
    number &= (1 << bits) - 1
    return number - (1 << bits) if dtype.is_signed and number >> bits - 1 else number


def _quotient(a: int, b: int) -> int:
    """a / b without what is behind the point."""
    return abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))


# ***** tiles that advance in loops *****


class _Induction:
    """A tile that each turn of a `for` moves by the same amount: the tile at first, moved by a sum of scalars.

    So blocks of addresses that march through memory are carried as one number.
    """

    def region(self, region: Region) -> None:
        for op in list(region.ops):
            for inner in op.regions:
                self.region(inner)
            if op.kind == "for":
                self.loop(op, region)

    def loop(self, op: Op, parent: Region) -> None:
        body = op.regions[0]
        outside = _defined_outside(body)
        for k in range(len(op.results)):
            param, last = body.params[1 + k], body.yielded[k]
            by = _moved(param, last)
            if not param.shape or by is None or by not in outside:
                continue
            self.replace(op, parent, k, by)

    def replace(self, op: Op, parent: Region, k: int, by: Value) -> None:
        """Carry the sum of what tile k was moved by."""
        body, first = op.regions[0], op.operands[3 + k]
        param, last = body.params[1 + k], body.yielded[k]
        assert last.op is not None
        assert by.op is not None
        scalar, inside, before = by.op.operands[0], list[Op](), list[Op]()
        dtype = INT64 if isinstance(param.type.element, Pointer) else by.dtype  # a sum of offsets may be a long way
        if scalar.dtype is not dtype:
            scalar = _append(before, "pointwise", [scalar], op, {"prim": "convert", "params": {"dtype": dtype}})
        zero = _append(before, "constant", [], op, {"dtype": dtype, "value": 0})
        total = Value(Tile(dtype))
        moved = _moved_by(inside, first, total, last.op)
        after = _append(inside, "pointwise", [total, scalar], last.op, {"prim": "add"})
        body.params[1 + k], op.operands[3 + k] = total, zero
        body.ops[-1].operands[k] = after
        _substitute(body, param, moved)
        body.ops[:0] = inside
        # the result: the first tile moved by the whole sum
        old, fresh = op.results[k], Value(Tile(dtype), op)
        behind: list[Op] = []
        result = _moved_by(behind, first, fresh, last.op)
        place = parent.ops.index(op)
        _substitute(parent, old, result)
        op.results[k] = fresh
        parent.ops[place + 1 : place + 1] = behind
        parent.ops[place:place] = before


def _moved_by(out: list[Op], first: Value, total: Value, like: Op) -> Value:
    tile = _append(out, "splat", [total], like, {"shape": first.shape})
    if like.kind == "offset":
        return _append(out, "offset", [first, tile], like, {})
    return _append(out, "pointwise", [first, tile], like, {"prim": "add"})


def _moved(param: Value, last: Value) -> Value | None:
    """The splat by which a loop moves a tile in each turn."""
    op = last.op
    if op is None or not (op.kind == "offset" or (op.kind == "pointwise" and op.attributes["prim"] == "add")):
        return None
    if isinstance(param.type.element, DType) and param.type.element.kind not in "iu":
        return None
    for one, other in ((0, 1), (1, 0)) if op.kind == "pointwise" else ((0, 1),):
        by = op.operands[other]
        if op.operands[one] is param and by.op is not None and by.op.kind == "splat":
            return by
    return None


def _defined_outside(region: Region) -> Any:
    """Membership of splats whose scalar the region does not define."""
    inside = {v for op in region.walk() for v in op.results} | set(region.params)
    inside |= {p for op in region.walk() for r in op.regions for p in r.params}

    class Outside:
        def __contains__(self, splat: Value) -> bool:
            return splat.op is not None and splat.op.operands[0] not in inside

    return Outside()


def _substitute(region: Region, old: Value, new: Value) -> None:
    for op in region.walk():
        if old in op.operands:
            op.operands = [new if v is old else v for v in op.operands]


# ***** the classical ones *****


def pure(op: Op) -> bool:
    """Whether an operation may be moved, repeated or dropped."""
    return not OPS[op.kind].effect and all(pure(inner) for r in op.regions for inner in r.ops[:-1])


def _hoist(region: Region) -> None:
    """Move what loops do not change in front of them."""
    place = 0
    while place < len(region.ops):
        op = region.ops[place]
        for inner in op.regions:
            _hoist(inner)
        if op.kind in ("for", "while"):
            moved = [m for inner in op.regions for m in _invariant(inner, op)]
            region.ops[place:place] = moved
            place += len(moved)
        place += 1


def _invariant(body: Region, loop: Op) -> list[Op]:
    """Take out of a loop's body what does not depend on its turns."""
    inside = {v for r in loop.regions for op in r.walk() for v in op.results}
    inside |= {p for r in loop.regions for op in r.walk() for q in op.regions for p in q.params}
    inside |= {p for r in loop.regions for p in r.params}
    moved = []
    for op in list(body.ops[:-1]):
        if pure(op) and not inside.intersection(_needed(op)):
            moved.append(op)
            body.ops.remove(op)
            inside.difference_update(op.results)
    return moved


def _needed(op: Op) -> Iterable[Value]:
    """Values that an operation reads from enclosing regions."""
    yield from op.operands
    for region in op.regions:
        own = set(region.params) | {v for inner in region.walk() for v in inner.results}
        own |= {p for inner in region.walk() for r in inner.regions for p in r.params}
        yield from (v for inner in region.walk() for v in inner.operands if v not in own)


class _Common:
    """Equal operations on equal operands are one."""

    def __init__(self) -> None:
        self.new: dict[Value, Value] = {}

    def region(self, region: Region, known: dict[Any, Op]) -> None:
        known, kept = dict(known), []
        for op in region.ops:
            op.operands = [self.new.get(v, v) for v in op.operands]
            for inner in op.regions:
                self.region(inner, known)
            key = _key(op)
            same = known.get(key) if key is not None else None
            if same is not None:
                self.new.update(zip(op.results, same.results, strict=True))
                continue
            if key is not None:
                known[key] = op
            kept.append(op)
        region.ops = kept


def _key(op: Op) -> Any:
    if OPS[op.kind].effect or op.regions:
        return None
    attributes = sorted(
        (k, repr(sorted(v.items(), key=str)) if isinstance(v, dict) else repr(v)) for k, v in op.attributes.items()
    )
    return op.kind, tuple(op.operands), tuple(attributes), tuple(v.type for v in op.results)


_DROPPED = frozenset({"load", "for", "while", "if"})  # have an effect for others, and none when nobody uses them


def without_unused(region: Region) -> None:
    """Drop operations, loads among them, whose results nobody uses."""
    used: set[Value] = set()
    _sweep(region, used)


def _sweep(region: Region, used: set[Value]) -> None:
    kept = []
    for op in reversed(region.ops):
        wanted = any(v in used for v in op.results)
        if not wanted and _droppable(op):
            continue
        for inner in reversed(op.regions):
            _sweep(inner, used)
        used.update(op.operands)
        kept.append(op)
    region.ops = kept[::-1]


def _droppable(op: Op) -> bool:
    if op.kind in _DROPPED:
        return all(_droppable(inner) for r in op.regions for inner in r.ops[:-1])
    return not OPS[op.kind].effect
