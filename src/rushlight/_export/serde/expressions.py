"""Formulas of sizes as the text of SymPy's constructors, there and back: `Mul(Integer(2), Symbol('s77', ...))`.

>>> from rushlight.fx.experimental.symbolic_shapes import ShapeEnv
>>> env = ShapeEnv()
>>> n = env.symbol(6, least=2, name="s0")
>>> text_of(2 * n + 1)
"Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))"
>>> parsed(text_of(2 * n + 1), {"s0": n})
2*s0 + 1
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rushlight._export.serde.schema import SchemaError
from rushlight._interface.sizes import Undecided

__all__ = ["condition", "condition_text", "names_of", "parsed", "text_of"]

_LONGEST = 20_000  # characters of a formula


# ***** writing *****


def text_of(number: Any) -> str:
    """The text of a symbolic integer."""
    env = number.shape_env
    resolved = getattr(env, "resolved", lambda terms: terms)
    return _sum(env, resolved(number.terms))


def _sum(env: Any, terms: Any) -> str:
    parts = [_product(env, atoms, c) for atoms, c in terms if atoms]
    parts += [f"Integer({c})" for atoms, c in terms if not atoms]
    return parts[0] if len(parts) == 1 else f"Add({', '.join(parts)})"


def _product(env: Any, atoms: Any, factor: int) -> str:
    parts = [] if factor == 1 else [f"Integer({factor})"]
    parts += [_atom(env, a) for a in atoms]
    return parts[0] if len(parts) == 1 else f"Mul({', '.join(parts)})"


_WORDS = {"//": "FloorDiv", "%": "Mod", "max": "Max", "min": "Min"}


def _atom(env: Any, atom: int) -> str:
    key = env.key_of(atom)
    if key is None:
        name = env._names[atom]
        sign = "" if name.startswith("u") else "positive=True, "
        return f"Symbol({name!r}, {sign}integer=True)"
    if key[0] not in _WORDS:
        raise NotImplementedError(f"torch.export.save: a size is computed by {key[0]}, which the schema lacks here")
    resolved = getattr(env, "resolved", lambda terms: terms)
    operands = [_sum(env, resolved(k)) if type(k) is tuple else f"Integer({k})" for k in key[1:]]
    return f"{_WORDS[key[0]]}({', '.join(operands)})"


_RELATIONS = {
    ("<=", True): "LessThan", ("<", True): "StrictLessThan", ("==", True): "Equality", ("<=", False): "StrictGreaterThan",
    ("<", False): "GreaterThan", ("==", False): "Unequality",
}  # fmt: skip


def condition_text(condition: Undecided) -> str:
    """The text of a condition on sizes."""
    number = condition.difference
    resolved = getattr(number.shape_env, "resolved", lambda terms: terms)
    relation = _RELATIONS[condition.wanted, condition.held]
    return f"{relation}({_sum(number.shape_env, resolved(number.terms))}, Integer(0))"


# ***** reading *****

_CALLS: dict[str, Callable[..., Any]] = {
    "Add": lambda *a: functools.reduce(operator.add, a), "Mul": lambda *a: functools.reduce(operator.mul, a), "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv, "Mod": operator.mod, "PythonMod": operator.mod, "Max": max, "Min": min,
    "CeilDiv": lambda a, b: -(-a // b),
}  # fmt: skip


def _tree(text: Any) -> ast.expr:
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise SchemaError("a formula of a size is no text, or a very long one")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SchemaError(f"a formula of a size cannot be read: {text[:200]}") from error


def names_of(text: Any) -> list[str]:
    """The names of the symbols in a formula."""
    return [
        node.args[0].value
        for node in ast.walk(_tree(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Symbol"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]


def parsed(text: Any, symbols: Mapping[str, Any]) -> Any:
    """The number that a formula is, over known symbols; nothing is called but arithmetic."""
    return _value(_tree(text), symbols)


def condition(text: Any, symbols: Mapping[str, Any]) -> Any:
    """The condition that a text is; nothing is decided."""
    node = _tree(text)
    found = {word: key for key, word in _RELATIONS.items()}
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Name)
        or node.func.id not in found
        or len(node.args) != 2
    ):
        raise SchemaError(f"a condition of sizes cannot be read: {str(text)[:200]}")
    one, two = (_value(each, symbols) for each in node.args)
    wanted, held = found[node.func.id]
    if type(one) is int and type(two) is int:  # what the program requires was known when it was written
        return (one < two if wanted == "<" else one <= two if wanted == "<=" else one == two) is held
    return Undecided(one - two, wanted, held)


def _value(node: ast.expr, symbols: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, symbols)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise SchemaError(f"a formula of a size has a part that it may not have: {ast.unparse(node)[:200]}")
    name = node.func.id
    if name == "Symbol":
        found = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if found not in symbols:
            raise SchemaError(f"a formula of a size has the unknown symbol {found!r}")
        return symbols[found]  # type: ignore[index]
    values = [_value(each, symbols) for each in node.args]
    if name == "Integer" and len(values) == 1:
        return values[0]
    if name == "Pow" and len(values) == 2 and type(values[1]) is int and 0 <= values[1] <= 16:
        return functools.reduce(operator.mul, [values[0]] * values[1], 1)
    if name not in _CALLS or not values:
        raise SchemaError(f"a formula of a size calls {name}")
    try:
        return _CALLS[name](*values)
    except (TypeError, ArithmeticError) as error:
        raise SchemaError(f"a formula of a size cannot be computed: {ast.unparse(node)[:200]}") from error
