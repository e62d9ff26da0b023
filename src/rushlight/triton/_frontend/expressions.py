"""Expressions of kernels: each kind of node has a function (frame, node) -> value.

A value is a `constexpr`, a value of the running kernel (`tensor`, block pointer), a tuple of values, or a thing of Python
(a module, a dtype, a function).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from .._semantics.arithmetic import logical_and, logical_not, logical_or, truth
from .._semantics.constants import constexpr, is_runtime, unwrap, unwrap_deep
from .._semantics.program import range as tl_range
from .._semantics.shapes import unsplat
from .._semantics.values import tensor, to_tensor
from ..compiler.errors import UnsupportedLanguageConstruct
from .calls import call
from .frame import Frame, sanitized, wrapped

__all__ = ["apply", "condition_of", "evaluate", "is_condition", "static_items", "unsupported"]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.MatMult: operator.matmul,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_MEMBERSHIP: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


_CONVERSIONS: dict[int, Callable[[Any], Any]] = {114: repr, 115: str, 97: ascii}


def unsupported(frame: Frame, node: ast.AST, what: str) -> UnsupportedLanguageConstruct:
    """The error for what the language does not have."""
    return UnsupportedLanguageConstruct(frame.place(node), node, what)


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise unsupported(frame, node, f"unsupported AST node type: {type(node).__name__}")
    frame.at(node)
    return handler(frame, node)


# ***** atoms *****


def _constant(frame: Frame, node: ast.Constant) -> Any:
    return constexpr(node.value)


def _name(frame: Frame, node: ast.Name) -> Any:
    return frame.lookup(node.id)


def _attribute(frame: Frame, node: ast.Attribute) -> Any:
    base = evaluate(frame, node.value)
    frame.at(node)
    if isinstance(base, constexpr):
        if node.attr == "value":
            return base
        base = base.value
    return wrapped(getattr(base, node.attr))


def _subscript(frame: Frame, node: ast.Subscript) -> Any:
    base, place = evaluate(frame, node.value), evaluate(frame, node.slice)
    frame.at(node)
    if is_runtime(base):
        return base[place]
    if isinstance(place, tensor):
        raise TypeError("a tuple is indexed by a constexpr, not by a value of a running kernel")
    return wrapped(unwrap(base)[unwrap_deep(place)])


def _slice(frame: Frame, node: ast.Slice) -> slice:
    parts = [None if part is None else unwrap(evaluate(frame, part)) for part in (node.lower, node.upper, node.step)]
    return slice(*parts)


def _tuple(frame: Frame, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
    values: list[Any] = []
    for item in node.elts:
        if isinstance(item, ast.Starred):
            values.extend(wrapped(unwrap(evaluate(frame, item.value))))
        else:
            values.append(evaluate(frame, item))
    return tuple(values)


def _joined(frame: Frame, node: ast.JoinedStr) -> constexpr:
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            assert isinstance(part, ast.FormattedValue)
            value = unwrap_deep(evaluate(frame, part.value))
            value = _CONVERSIONS.get(part.conversion, lambda v: v)(value)
            spec = "" if part.format_spec is None else evaluate(frame, part.format_spec).value
            text += format(value, spec) if spec else str(value)
    return constexpr(text)


# ***** operators *****


def _binary(frame: Frame, node: ast.BinOp) -> Any:
    a, b = evaluate(frame, node.left), evaluate(frame, node.right)
    frame.at(node)
    return apply(type(node.op), a, b)


def apply(kind: type[ast.operator], a: Any, b: Any) -> Any:
    """An operator of Python on two values."""
    function = _BINARY[kind]
    if isinstance(a, tuple) or isinstance(b, tuple):
        a, b = (v if isinstance(v, tuple) else unwrap(v) for v in (a, b))
    if kind in (ast.Pow, ast.MatMult) and (is_runtime(a) or is_runtime(b)):
        raise TypeError(
            f"the language has no operator {'**' if kind is ast.Pow else '@'} for values of a running kernel"
        )
    return wrapped(function(a, b))


def _unary(frame: Frame, node: ast.UnaryOp) -> Any:
    value = evaluate(frame, node.operand)
    frame.at(node)
    if isinstance(node.op, ast.Not):
        return logical_not(value) if isinstance(value, tensor) else constexpr(not unwrap(value))
    return wrapped(_UNARY[type(node.op)](value))


def _boolean(frame: Frame, node: ast.BoolOp) -> Any:
    return _joined_by(isinstance(node.op, ast.And), (evaluate(frame, value) for value in node.values))


def _joined_by(conjunction: bool, values: Iterator[Any]) -> Any:
    """`and` or `or`: constexpr values decide at once, the others when the kernel runs."""
    running, last = [], None
    for value in values:
        last = value
        if is_runtime(value):
            running.append(value)
        elif bool(unwrap(value)) is not conjunction:
            return value
    if not running:
        return last
    result = running[0]
    for value in running[1:]:
        result = (logical_and if conjunction else logical_or)(result, value)
    return result


def _compare(frame: Frame, node: ast.Compare) -> Any:
    def comparisons() -> Iterator[Any]:
        left = evaluate(frame, node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = evaluate(frame, comparator)
            frame.at(node)
            if type(op) in _MEMBERSHIP:
                yield constexpr(_MEMBERSHIP[type(op)](unwrap(left), unwrap_deep(right)))
            else:
                yield _compared(type(op), left, right)
            left = right

    values = comparisons()
    return next(values) if len(node.ops) == 1 else _joined_by(True, values)


def _compared(kind: type[ast.cmpop], left: Any, right: Any) -> Any:
    if not (is_runtime(left) or is_runtime(right)):
        left, right = unwrap_deep(left), unwrap_deep(right)
    elif not all(isinstance(v, tensor) or isinstance(unwrap(v), (bool, int, float)) for v in (left, right)):
        return constexpr(kind is ast.NotEq)  # a tensor and None, or a text
    return wrapped(_COMPARE[kind](left, right))


def is_condition(value: Any) -> bool:
    """Whether a condition is decided when the kernel runs."""
    return isinstance(value, tensor)


def condition_of(value: tensor) -> tensor:
    """A condition of a running kernel as one scalar mask."""
    if value.shape:
        if value.handle.type.numel != 1:
            raise ValueError("Boolean value of Tensor with more than one value is ambiguous")
        value = unsplat(value)
    return truth(value)


def _if_expression(frame: Frame, node: ast.IfExp) -> Any:
    test = evaluate(frame, node.test)
    if not is_condition(test):
        return evaluate(frame, node.body if unwrap(test) else node.orelse)
    condition = condition_of(test)
    found: list[tensor] = []

    def branch(which: ast.expr) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            found.append(to_tensor(sanitized(evaluate(frame, which))))
            return [found[-1].handle]

        return run

    b = frame.builder
    regions = []
    for which in (node.body, node.orelse):
        with b.region() as region:
            b.emit("yield", *branch(which)())
        regions.append(region)
    if found[0].type != found[1].type:
        raise TypeError(
            f"Ternary expression with dynamic condition has inconsistent types {found[0].type} and {found[1].type}"
        )
    return tensor(b.emit("if", condition.handle, regions=regions).result, found[0].type)


# ***** functions *****


def _call(frame: Frame, node: ast.Call) -> Any:
    function = evaluate(frame, node.func)
    args: list[Any] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            args.extend(wrapped(unwrap(evaluate(frame, arg.value))))
        else:
            args.append(evaluate(frame, arg))
    kwargs: dict[str, Any] = {}
    for keyword in node.keywords:
        value = evaluate(frame, keyword.value)
        kwargs.update(unwrap(value) if keyword.arg is None else {keyword.arg: value})
    frame.at(node)
    result = call(frame, function, args, kwargs)
    frame.at(node)
    return result


def _lambda(frame: Frame, node: ast.Lambda) -> Callable[..., Any]:
    """A function that the compiler calls; it sees the variables as they are now."""
    names = [arg.arg for arg in node.args.args]
    outer = dict(frame.scope)

    def function(*args: Any) -> Any:
        inner = Frame(frame.inliner, frame.source, {**outer, **dict(zip(names, args, strict=True))})
        return evaluate(inner, node.body)

    vars(function)["__triton_builtin__"] = True
    return function


def _comprehension(frame: Frame, node: ast.ListComp | ast.GeneratorExp) -> tuple[Any, ...]:
    if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
        raise unsupported(frame, node, "comprehensions have one `for` with one variable")
    loop = node.generators[0]
    results = []
    inner = Frame(frame.inliner, frame.source, dict(frame.scope))
    for item in static_items(evaluate(frame, loop.iter)):
        inner.scope[node.generators[0].target.id] = item
        if all(unwrap(evaluate(inner, test)) for test in loop.ifs):
            results.append(evaluate(inner, node.elt))
    return tuple(results)


def static_items(value: Any) -> list[Any]:
    """The items of a loop that is unrolled; TypeError where they are not known."""
    value = unwrap(value)
    if isinstance(value, tl_range):
        bounds = [unwrap(bound) for bound in (value.start, value.end, value.step)]
        if any(isinstance(bound, tensor) for bound in bounds):
            raise TypeError("a loop that is unrolled has constexpr bounds")
        return [constexpr(i) for i in range(*bounds)]
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(f"{value!r} is nothing that a kernel loops over: range, tl.range, tl.static_range, or a tuple")


def _named(frame: Frame, node: ast.NamedExpr) -> Any:
    value = sanitized(evaluate(frame, node.value))
    frame.scope[node.target.id] = value
    return value


_HANDLERS: dict[type[ast.expr], Callable[[Frame, Any], Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Subscript: _subscript, ast.Slice: _slice, ast.Tuple: _tuple,
    ast.List: _tuple, ast.JoinedStr: _joined, ast.BinOp: _binary, ast.UnaryOp: _unary, ast.BoolOp: _boolean, ast.Compare: _compare,
    ast.IfExp: _if_expression, ast.Call: _call, ast.Lambda: _lambda, ast.ListComp: _comprehension, ast.GeneratorExp: _comprehension,
    ast.NamedExpr: _named,
}  # fmt: skip
