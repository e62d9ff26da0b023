"""`torch.fx.experimental.symbolic_shapes` where sizes are numbers: conditions on them are known."""

from __future__ import annotations

from typing import Any

__all__ = [
    "GuardOnDataDependentSymNode", "free_symbols", "free_unbacked_symbols", "guard_int", "guard_or_false", "guard_or_true", "guard_size_oblivious",
    "has_free_symbols", "is_concrete_bool", "is_concrete_int", "statically_known_true",
]  # fmt: skip


class GuardOnDataDependentSymNode(RuntimeError):
    """A condition depends on an unknown size; it is never raised here."""


class PendingUnbackedSymbolNotFound(RuntimeError):
    """An unknown size is in no result; it is never raised here."""


class ConstraintViolationError(RuntimeError):
    """A size is not what the program was captured for; it is never raised here."""


class ValueRangeError(RuntimeError):
    """Bounds of a size exclude each other; it is never raised here."""


def statically_known_true(x: Any) -> bool:
    """A condition's value; False where it is unknown, which it never is."""
    return bool(x)


def free_symbols(val: Any) -> set[Any]:
    """The unknown sizes in a value: none."""
    return set()


def free_unbacked_symbols(x: Any) -> set[Any]:
    """The sizes in a value that are unknown until it runs: none."""
    return set()


def guard_or_false(a: Any) -> bool:
    """A condition's value; False where it is unknown, which it never is."""
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """A condition's value; True where it is unknown, which it never is."""
    return bool(a)


def guard_size_oblivious(expr: Any) -> bool:
    """A condition's value."""
    return bool(expr)


def guard_int(a: Any) -> int:
    """A size as a number."""
    return int(a)


def has_free_symbols(val: Any) -> bool:
    """Whether a value depends on unknown sizes: False."""
    return False


def is_concrete_int(a: Any) -> bool:
    """Whether a size is known: True for integers."""
    return isinstance(a, int)


def is_concrete_bool(a: Any) -> bool:
    """Whether a condition is known: True for booleans."""
    return isinstance(a, bool)
