"""Branches and loops of the running kernel: `if`, `for` and `while` as regions of the block IR.

Values that a region changes are its results.  Which variables a loop carries is read from the source: those that its body
assigns and that exist before it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._interface.blocks import Region, Value

from .._semantics.arithmetic import cast
from .._semantics.constants import is_runtime, unwrap
from .._semantics.dtypes import BY_TRITON_NAME
from .._semantics.program import range as tl_range
from .._semantics.promotion import promote_integers
from .._semantics.values import tensor, to_tensor
from .frame import Frame, flatten, rebuild, sanitized, structure

__all__ = ["assigned_names", "branch", "contains_return", "count_loop", "repeat_loop"]

Execute = Callable[[], Any]


def contains_return(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Return) for inner in ast.walk(node))


def assigned_names(stmts: Sequence[ast.stmt]) -> list[str]:
    """Variables that statements assign, without those declared constexpr."""
    names: dict[str, None] = {}
    declared = set()
    for stmt in stmts:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and "constexpr" in ast.unparse(node.annotation)
            ):
                declared.add(node.target.id)
    return [name for name in names if name not in declared]


def _yield(frame: Frame, region: Region, values: Sequence[Value]) -> None:
    """End a region that is closed for the builder."""
    frame.builder.regions.append(region)
    frame.builder.emit("yield", *values)
    frame.builder.regions.pop()


# ***** if *****


def branch(frame: Frame, condition: tensor, then: Execute, otherwise: Execute, last: bool = False) -> None:
    """Run both branches into regions; variables that differ afterwards are results of the `if`.

    With `last` nothing of the function follows: only what it returns is merged.
    """
    before, result, node = dict(frame.scope), frame.result, frame.node
    regions, scopes = [], []
    for run in (then, otherwise):
        frame.scope, frame.result = dict(before), result
        with frame.builder.region() as region:
            run()
        regions.append(region)
        scopes.append({"return": frame.result} if last else {**frame.scope, "return": frame.result})
    frame.at(node)
    merged = _merged_names(scopes[0], scopes[1])
    values = [_pair(frame, region, scope, merged) for region, scope in zip(regions, scopes, strict=True)]
    for name in merged:
        one, other = (structure(v[name]) for v in values)
        if one != other:
            what = "the value returned" if name == "return" else name
            raise TypeError(f"Mismatched type for {what} between then block ({one}) and else block ({other})")
    for region, found in zip(regions, values, strict=True):
        _yield(frame, region, [h for name in merged for h in flatten(found[name])])
    op = frame.builder.emit("if", condition.handle, regions=regions)
    handles = iter(op.results)
    frame.scope = {name: value for name, value in scopes[0].items() if name in scopes[1] and name != "return"}
    frame.result = scopes[0]["return"]
    for name in merged:
        made = rebuild(values[0][name], handles)
        if name == "return":
            frame.result = made
        else:
            frame.scope[name] = made


def _merged_names(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Variables of both branches whose values differ."""
    return [name for name in first if name in second and not _same(first[name], second[name])]


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return all(map(_same, a, b))
    if is_runtime(a) or is_runtime(b):
        return is_runtime(a) and is_runtime(b) and structure(a) == structure(b) and flatten(a) == flatten(b)
    return type(unwrap(a)) is type(unwrap(b)) and bool(unwrap(a) == unwrap(b))


def _pair(frame: Frame, region: Region, scope: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Values of one branch; constexpr numbers become scalars within its region."""
    frame.builder.regions.append(region)
    found = {name: sanitized(scope[name]) for name in names}
    frame.builder.regions.pop()
    return found


# ***** loops *****


class Carried:
    """The variables that a loop carries."""

    def __init__(self, frame: Frame, stmts: Sequence[ast.stmt], without: Sequence[str] = ()) -> None:
        self.frame = frame
        self.names = [n for n in assigned_names(stmts) if n in frame.scope and n not in without]
        self.start = {name: sanitized(frame.scope[name]) for name in self.names}
        self.names = [name for name in self.names if flatten(self.start[name])]

    def handles(self) -> list[Value]:
        return [handle for name in self.names for handle in flatten(self.start[name])]

    def bind(self, handles: Sequence[Value]) -> None:
        """The variables have these values."""
        rest = iter(handles)
        for name in self.names:
            self.frame.scope[name] = rebuild(self.start[name], rest)

    def turn(self) -> list[Value]:
        """The values at the end of a turn; TypeError where a variable has another type than before the loop."""
        handles = []
        for name in self.names:
            value = sanitized(self.frame.scope[name])
            before, after = structure(self.start[name]), structure(value)
            if before != after:
                raise TypeError(
                    f"Loop-carried variable {name} has initial type {before} but is re-assigned to {after} in loop! "
                    "Please make sure that the type stays consistent."
                )
            handles += flatten(value)
        return handles


def _within(frame: Frame, run: Execute) -> None:
    frame.loops += 1
    try:
        run()
    finally:
        frame.loops -= 1


def count_loop(frame: Frame, node: ast.For, bounds: tl_range, execute: Callable[[Sequence[ast.stmt]], Any]) -> None:
    """`for x in range(...)` of a running kernel."""
    if not isinstance(node.target, ast.Name):
        raise TypeError("the variable of a loop is one name")
    name = node.target.id
    low, high, step, index_of = _bounds(bounds)
    carried = Carried(frame, node.body, without=(name,))
    outer, b = dict(frame.scope), frame.builder
    start = carried.handles()
    with b.region([low.handle.type, *(h.type for h in start)]) as region:
        carried.bind(region.params[1:])
        frame.scope[name] = index_of(tensor(region.params[0], low.type))
        _within(frame, lambda: execute(node.body))
        frame.at(node)
        b.emit("yield", *carried.turn())
    op = b.emit("for", low.handle, high.handle, step.handle, *start, regions=[region])
    frame.scope = outer
    carried.bind(op.results)


def _bounds(bounds: tl_range) -> tuple[tensor, tensor, tensor, Callable[[tensor], tensor]]:
    """Low, high and step in one type, and the loop's variable of the index."""
    start, end, step = (unwrap(v) for v in (bounds.start, bounds.end, bounds.step))
    tensors = [to_tensor(v) for v in (start, end, step)]
    type = tensors[0].dtype
    for value in tensors:
        if not value.dtype.is_int() or value.shape:
            raise TypeError(
                f"For loop bounds and step must all be scalar integers, and are {[str(v.type) for v in tensors]}"
            )
        type = promote_integers(type, value.dtype)
    if type.int_bitwidth < 32:
        type = BY_TRITON_NAME["int32"]
    low, high, by = (cast(value, type) for value in tensors)
    if isinstance(step, int) and step <= 0:
        if step == 0:
            raise ValueError("range() arg 3 must not be zero")
        count = (low - high + (-step - 1)) // -step
        zero, one = (cast(to_tensor(n), type) for n in (0, 1))
        return zero, count, one, lambda index: low + index * step
    return low, high, by, lambda index: index


def repeat_loop(
    frame: Frame, node: ast.While, test: Callable[[], tensor], execute: Callable[[Sequence[ast.stmt]], Any]
) -> None:
    """`while` of a running kernel."""
    carried = Carried(frame, [*node.body, ast.Expr(node.test)])
    outer, b = dict(frame.scope), frame.builder
    start = carried.handles()
    types = [h.type for h in start]
    with b.region(types) as before:
        carried.bind(before.params)
        condition = test()
        b.emit("yield", condition.handle, *carried.turn())
    with b.region(types) as after:
        carried.bind(after.params)
        _within(frame, lambda: execute(node.body))
        frame.at(node)
        b.emit("yield", *carried.turn())
    op = b.emit("while", *start, regions=[before, after])
    frame.scope = outer
    carried.bind(op.results)
