"""Statements of kernels, executed in order at compile time.

`if` on a constexpr takes one branch.  A `return` within an `if` of the running kernel puts the statements that follow into
the branches, so that the form stays structured.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from .._semantics.ambient import compilation
from .._semantics.arithmetic import truth
from .._semantics.constants import constexpr, is_runtime, unwrap, unwrap_deep
from .._semantics.program import condition as tl_condition
from .._semantics.program import device_assert, static_range
from .._semantics.program import range as tl_range
from .._semantics.values import tensor, to_tensor
from .control import branch, contains_return, count_loop, repeat_loop
from .expressions import apply, condition_of, evaluate, is_condition, static_items, unsupported
from .frame import Frame, sanitized

__all__ = ["execute"]

_CONDITIONS = (bool, int, float, type(None), str, tuple)


def execute(frame: Frame, stmts: Sequence[ast.stmt]) -> bool:
    """Run statements; whether the function has returned."""
    rest = list(stmts)
    while rest:
        stmt = rest.pop(0)
        frame.at(stmt)
        if isinstance(stmt, ast.Return):
            _return(frame, stmt)
            return True
        if isinstance(stmt, ast.If):
            test = evaluate(frame, stmt.test)
            if not is_condition(test):
                rest = [*_taken(frame, stmt, test), *rest]
            elif contains_return(stmt) and not frame.loops:
                _branch_and_finish(frame, stmt, test, rest)
                return True
            else:
                condition = condition_of(test)
                frame.at(stmt)
                branch(frame, condition, _run(frame, stmt.body), _run(frame, stmt.orelse))
            continue
        handler = _HANDLERS.get(type(stmt))
        if handler is None:
            raise unsupported(frame, stmt, f"unsupported AST node type: {type(stmt).__name__}")
        handler(frame, stmt)
    return False


def _run(frame: Frame, stmts: Sequence[ast.stmt]) -> Callable[[], Any]:
    return lambda: execute(frame, stmts)


def _taken(frame: Frame, stmt: ast.If, test: Any) -> Sequence[ast.stmt]:
    value = unwrap(test)
    if type(value) not in _CONDITIONS and not callable(value) and is_runtime(value):
        raise unsupported(
            frame, stmt, f"`if` conditionals take numbers, texts, None or scalars, not {type(value).__name__}"
        )
    return stmt.body if value else stmt.orelse


def _branch_and_finish(frame: Frame, stmt: ast.If, test: tensor, rest: Sequence[ast.stmt]) -> None:
    """An `if` that may return: what follows it belongs to each branch."""
    condition = condition_of(test)
    frame.at(stmt)
    branch(frame, condition, _run(frame, [*stmt.body, *rest]), _run(frame, [*stmt.orelse, *rest]), last=True)


def _return(frame: Frame, stmt: ast.Return) -> None:
    if frame.loops:
        raise unsupported(frame, stmt, "Cannot have `return` statements inside `while` or `for` statements in triton.")
    frame.result = constexpr(None) if stmt.value is None else evaluate(frame, stmt.value)


# ***** assignments *****


def _assign(frame: Frame, stmt: ast.Assign) -> None:
    value = evaluate(frame, stmt.value)
    frame.at(stmt)
    for target in stmt.targets:
        _store(frame, target, value)


def _store(frame: Frame, target: ast.expr, value: Any) -> None:
    if isinstance(target, ast.Name):
        frame.scope[target.id] = value if target.id in frame.annotated else sanitized(value)
        kept = frame.scope[target.id]
        if isinstance(kept, tensor) and not kept.handle.name:
            kept.handle.name = target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        items = unwrap(value)
        if not isinstance(items, tuple):
            raise TypeError(f"cannot unpack {value!r}")
        if len(items) != len(target.elts):
            raise ValueError(f"expected {len(target.elts)} values to unpack, and there are {len(items)}")
        for one, item in zip(target.elts, items, strict=True):
            _store(frame, one, item)
    else:
        raise unsupported(frame, target, f"a kernel assigns to names, not to {ast.unparse(target)}")


def _annotated(frame: Frame, stmt: ast.AnnAssign) -> None:
    if not isinstance(stmt.target, ast.Name):
        raise unsupported(frame, stmt, "a kernel assigns to names")
    annotation = evaluate(frame, stmt.annotation)
    is_constexpr = annotation is constexpr
    if stmt.value is None:
        if is_constexpr:
            frame.annotated.add(stmt.target.id)
        return
    value = evaluate(frame, stmt.value)
    frame.at(stmt)
    if not is_constexpr:
        _store(frame, stmt.target, value)
        return
    # As in Triton, a value of the running kernel may be declared so; where a constant is needed, it is refused there.
    plain = is_runtime(value) or isinstance(value, (constexpr, tuple))
    frame.scope[stmt.target.id] = value if plain else constexpr(value)


def _augmented(frame: Frame, stmt: ast.AugAssign) -> None:
    target = stmt.target
    if not isinstance(target, ast.Name):
        raise unsupported(frame, stmt, f"a kernel assigns to names, not to {ast.unparse(target)}")
    before, value = frame.lookup(target.id), evaluate(frame, stmt.value)
    frame.at(stmt)
    _store(frame, target, apply(type(stmt.op), before, value))


# ***** loops *****


def _for(frame: Frame, stmt: ast.For) -> None:
    if stmt.orelse:
        raise unsupported(frame, stmt, "`for` has no `else` in kernels")
    over = evaluate(frame, stmt.iter)
    frame.at(stmt)
    if isinstance(over, tl_range) and not isinstance(over, static_range):
        count_loop(frame, stmt, over, lambda body: execute(frame, body))
        return
    for item in static_items(over):
        _unrolled_turn(frame, stmt, item)


def _unrolled_turn(frame: Frame, stmt: ast.For, item: Any) -> None:
    if isinstance(stmt.target, ast.Name):
        frame.scope[stmt.target.id] = item
    else:
        _store(frame, stmt.target, item)
    frame.loops += 1
    try:
        execute(frame, stmt.body)
    finally:
        frame.loops -= 1


def _while(frame: Frame, stmt: ast.While) -> None:
    if stmt.orelse:
        raise unsupported(frame, stmt, "`while` has no `else` in kernels")

    def test() -> tensor:
        value = evaluate(frame, stmt.test)
        if isinstance(value, tl_condition):
            value = value.condition
        return condition_of(value) if isinstance(value, tensor) else truth(to_tensor(bool(unwrap(value))))

    repeat_loop(frame, stmt, test, lambda body: execute(frame, body))


# ***** others *****


def _expression(frame: Frame, stmt: ast.Expr) -> None:
    if not isinstance(stmt.value, ast.Constant):  # a text, or `...`
        evaluate(frame, stmt.value)


def _assert(frame: Frame, stmt: ast.Assert) -> None:
    test = evaluate(frame, stmt.test)
    message = "" if stmt.msg is None else str(unwrap_deep(evaluate(frame, stmt.msg)))
    if isinstance(test, tensor):
        if compilation().options.debug:
            device_assert(test, message)
    elif not unwrap(test):
        raise AssertionError(message or ast.unparse(stmt.test))


def _raise(frame: Frame, stmt: ast.Raise) -> None:
    shown = "" if stmt.exc is None else ast.unparse(stmt.exc)
    raise unsupported(frame, stmt, f"`raise` is reached when the kernel is compiled: {shown}")


def _jump(frame: Frame, stmt: ast.stmt) -> None:
    word = type(stmt).__name__.lower()
    raise unsupported(
        frame, stmt, f"kernels have no `{word}`: put what follows under an `if`, or the condition into a `while`"
    )


def _pass(frame: Frame, stmt: ast.stmt) -> None:
    pass


_HANDLERS: dict[type[ast.stmt], Callable[[Frame, Any], None]] = {
    ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.For: _for, ast.While: _while, ast.Expr: _expression,
    ast.Assert: _assert, ast.Pass: _pass, ast.Raise: _raise, ast.Break: _jump, ast.Continue: _jump,
}  # fmt: skip
