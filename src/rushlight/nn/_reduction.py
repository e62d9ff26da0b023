"""The ways to reduce a loss, as numbers, and from the two arguments that said it before `reduction` did."""

from __future__ import annotations

import warnings

__all__ = ["get_enum", "legacy_get_enum", "legacy_get_string"]

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction: 0 for "none", 1 for "mean", 2 for "sum". ValueError for others."""
    if reduction == "elementwise_mean":
        warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2)
        return 1
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True, stacklevel: int = 2
) -> str:
    """The `reduction` that the two old arguments stand for, with a warning."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    name = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.",
            stacklevel=stacklevel + 1,
        )
    return name


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """The number of the reduction that the two old arguments stand for."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
