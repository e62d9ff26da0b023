"""Symbolic sizes: numbers with a formula, and the conditions on them."""

from __future__ import annotations

from rushlight._capture.recording.dynamic.sizes import MOST, asked_by_operator
from rushlight._types.shape_env import Undecided, apart, is_unknown, names_in, require_between, require_equal
from rushlight._types.symbols import Integer, Terms, as_double, double_bits, is_symbolic, single, truncated

__all__ = [
    "MOST",  # no size is greater
    "Integer",  # an integer with its formula
    "Terms",  # the formula: a sum of products
    "Undecided",  # a condition on sizes without a value
    "apart",  # a formula without its constant, the constant, and whether it was negated
    "asked_by_operator",  # whether an operator's own code compares sizes
    "as_double",
    "double_bits",
    "is_symbolic",  # whether a number has a formula
    "is_unknown",  # whether it is an integer without a value
    "names_in",  # the names in a condition as text
    "require_between",  # take an integer without a value to have bounds
    "require_equal",  # take two integers, one of them without a value, to be equal
    "single",
    "truncated",
]
