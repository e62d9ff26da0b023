"""`torch.fx.experimental.symbolic_shapes`: symbolic sizes, what is asked of them, and how tensors get them.

>>> import rushlight as torch
>>> from rushlight._subclasses.fake_tensor import FakeTensorMode
>>> env = ShapeEnv()
>>> context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
>>> x = FakeTensorMode(shape_env=env).from_tensor(torch.ones(4, 6), symbolic_context=context)
>>> (x @ x.t()).shape, free_symbols(x) == {"s26"}
(torch.Size([s26, s26]), True)

A symbolic size has the value that it was made for: a condition on it is decided at once, and kept as a guard.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rushlight import SymBool, SymInt
from rushlight._capture.recording.dynamic.shape_env import Expression, ShapeEnv, ShapeGuard, SymNode
from rushlight._interface.tensors import Spec
from rushlight._types.shape_env import ConstraintViolationError, GuardOnDataDependentSymNode
from rushlight._types.symbols import is_symbolic

__all__ = [
    "ConstraintViolationError", "DimDynamic", "Expression", "GuardOnDataDependentSymNode", "RelaxedUnspecConstraint", "ShapeEnv", "ShapeGuard",
    "StatelessSymbolicContext", "StrictMinMaxConstraint", "SymNode", "ValueRange", "bind_symbols", "compute_unbacked_bindings", "eval_guards",
    "expect_true", "free_symbols", "free_unbacked_symbols", "fx_placeholder_targets", "fx_placeholder_vals", "guard_bool", "guard_float", "guard_int",
    "guard_or_false", "guard_or_true", "guard_scalar", "guard_size_oblivious", "has_free_symbols", "has_hint", "has_symbolic_sizes_strides",
    "hint_int", "is_concrete_bool", "is_concrete_int", "is_symbolic", "size_hint", "statically_known_true", "sym_and", "sym_eq", "sym_or",
]  # fmt: skip


class PendingUnbackedSymbolNotFound(RuntimeError):
    """An unknown size is in no result."""


class ValueRangeError(RuntimeError):
    """Bounds of a size exclude each other."""


# ***** how a tensor gets symbols *****


class DimDynamic(Enum):
    """The treatment of a dim: a symbol (the same as that of equal sizes with DUCK), or a number (STATIC)."""

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    UNBACKED = 3
    INFER_STRIDE = 4


@dataclass(frozen=True)
class ValueRange:
    """Least and greatest value."""

    lower: float
    upper: float


@dataclass(frozen=True)
class StrictMinMaxConstraint:
    """A dim stays a symbol with these bounds: `vr`."""

    vr: Any
    warn_only: bool = False


@dataclass(frozen=True)
class RelaxedUnspecConstraint:
    """A dim stays a symbol."""

    warn_only: bool = False


@dataclass(frozen=True)
class StatelessSymbolicContext:
    """The treatment of each dim of a tensor: `dynamic_sizes`, and what must hold of it: `constraint_sizes`."""

    dynamic_sizes: Sequence[DimDynamic] = ()
    dynamic_strides: Sequence[DimDynamic] | None = None
    constraint_sizes: Sequence[Any] | None = None
    constraint_strides: Sequence[Any] | None = None
    view_base_context: Any = field(default=None)

    def chosen(self, spec: Spec) -> dict[str, Any]:
        """Dims that stay numbers, bounds of others, and those that get a symbol of their own."""
        sizes = list(self.dynamic_sizes) or [DimDynamic.DUCK] * spec.ndim
        if DimDynamic.UNBACKED in sizes:
            raise NotImplementedError(
                "DimDynamic.UNBACKED: every symbolic size of rushlight has a value while it is traced"
            )
        constraints = list(self.constraint_sizes or [None] * spec.ndim)
        ranges = {
            d: (int(c.vr.lower), c.vr.upper) for d, c in enumerate(constraints) if isinstance(c, StrictMinMaxConstraint)
        }
        return {
            "static": [d for d, each in enumerate(sizes) if each is DimDynamic.STATIC],
            "own": [d for d, each in enumerate(sizes) if each is DimDynamic.DYNAMIC],
            "ranges": ranges,
        }


# ***** graphs with symbols *****


def fx_placeholder_vals(gm: Any) -> list[Any]:
    """What the inputs of a graph were traced with."""
    return [n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"]


def fx_placeholder_targets(gm: Any) -> list[str]:
    """The names of a graph's inputs."""
    return [n.target for n in gm.graph.nodes if n.op == "placeholder"]


def eval_guards(gm: Any, *args: Any, ignore_static: bool = True) -> bool:
    """Whether a graph with symbolic sizes holds for other arguments.

    >>> import rushlight as torch
    >>> from rushlight.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x: x * 2 if x.shape[0] > 3 else x, tracing_mode="symbolic")(torch.ones(5))
    >>> eval_guards(graph, torch.ones(4)), eval_guards(graph, torch.ones(2))
    (True, False)
    """
    held: bool = gm.shape_env.evaluate_guards_for_args(fx_placeholder_vals(gm), args)
    return held


def bind_symbols(gm: Any, *args: Any) -> dict[str, int]:
    """The size that each symbol of a graph has in other arguments."""
    found: dict[str, int] = gm.shape_env.bind_symbols(fx_placeholder_vals(gm), args)
    return found


# ***** what is asked *****


def statically_known_true(x: Any) -> bool:
    """A condition's value; False where it is unknown."""
    return not isinstance(x, SymBool) and bool(x)


def free_symbols(val: Any) -> set[str]:
    """The names of the symbols in a value: a number, a tensor's layout, or sequences of them."""
    if is_symbolic(val):
        return set(val.shape_env.symbols_in(val))
    if isinstance(val, (tuple, list)):
        return set().union(*map(free_symbols, val))
    return free_symbols([*val.shape, *val.stride(), val.storage_offset()]) if hasattr(val, "storage_offset") else set()


def free_unbacked_symbols(x: Any) -> set[str]:
    """The sizes in a value that are unknown until it runs."""
    return {name for name in free_symbols(x) if name[0] == "u"}


def compute_unbacked_bindings(shape_env: Any, example_value: Any, *args: Any, **kwargs: Any) -> None:
    """Where the unknown sizes of a value are found in it: there are none."""


def has_free_symbols(val: Any) -> bool:
    """Whether a value depends on symbols."""
    return bool(free_symbols(val))


def has_symbolic_sizes_strides(elem: Any) -> bool:
    """Whether a tensor's sizes or strides are symbolic."""
    return any(map(is_symbolic, (*elem.shape, *elem.stride())))


def has_hint(a: Any) -> bool:
    """Whether the value that a number was traced with is known."""
    return not free_unbacked_symbols(a)


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The value that a size was traced with; nothing is decided by it."""
    return a.value if is_symbolic(a) else int(a)


size_hint = hint_int


def guard_or_false(a: Any) -> bool:
    """A condition's value; False where it is unknown."""
    return not isinstance(a, SymBool) and bool(a)


def guard_or_true(a: Any) -> bool:
    """A condition's value; True where it is unknown."""
    return isinstance(a, SymBool) or bool(a)


def guard_size_oblivious(expr: Any) -> bool:
    """A condition's value."""
    return bool(expr)


def expect_true(a: Any, skip: int = 0) -> bool:
    """Take a condition to be true; a condition that is known has its value."""
    if not isinstance(a, SymBool):
        return bool(a)
    a.require()
    return True


def guard_bool(a: Any) -> bool:
    """A condition as a plain one; an error where it is unknown."""
    return bool(a)


def guard_float(a: Any) -> float:
    """A number as a plain one; a guard says that it is this one."""
    return float(guard_scalar(a))


def guard_int(a: Any) -> int:
    """A size as a number; a guard says that it is this one."""
    return operator.index(a)


def guard_scalar(a: Any) -> Any:
    """A number as a plain one; a guard says that it is this one."""
    return a.pin() if is_symbolic(a) else a


def is_concrete_int(a: Any) -> bool:
    """Whether a size is a number: True for integers without a formula, and where one value was decided."""
    return a.shape_env.decided(a) is not None if isinstance(a, SymInt) else isinstance(a, int)


def is_concrete_bool(a: Any) -> bool:
    """Whether a condition is known: True for booleans."""
    return isinstance(a, bool)


def sym_eq(x: Any, y: Any) -> bool:
    """Whether two numbers, or two sequences of them, are equal."""
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(sym_eq(a, b) for a, b in zip(x, y, strict=True))
    return bool(x == y)


def sym_and(*conditions: Any) -> bool:
    """Whether all conditions hold."""
    return all(conditions)


def sym_or(*conditions: Any) -> bool:
    """Whether one of the conditions holds."""
    return any(conditions)
