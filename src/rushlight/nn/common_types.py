"""Types of arguments that may be one number, or one number for each dimension."""

from __future__ import annotations

from typing import TypeAlias, Union

from rushlight import Tensor

_size_any_t: TypeAlias = Union[int, tuple[int, ...]]
_size_1_t: TypeAlias = Union[int, tuple[int]]
_size_2_t: TypeAlias = Union[int, tuple[int, int]]
_size_3_t: TypeAlias = Union[int, tuple[int, int, int]]
_size_4_t: TypeAlias = Union[int, tuple[int, int, int, int]]
_size_5_t: TypeAlias = Union[int, tuple[int, int, int, int, int]]
_size_6_t: TypeAlias = Union[int, tuple[int, int, int, int, int, int]]

# None keeps the input's size.
_size_any_opt_t: TypeAlias = Union[int, tuple[int | None, ...], None]
_size_2_opt_t: TypeAlias = Union[int, tuple[int | None, int | None], None]
_size_3_opt_t: TypeAlias = Union[int, tuple[int | None, int | None, int | None], None]

_ratio_2_t: TypeAlias = Union[float, tuple[float, float]]
_ratio_3_t: TypeAlias = Union[float, tuple[float, float, float]]
_ratio_any_t: TypeAlias = Union[float, tuple[float, ...]]

# What a pooling that may return indices returns.
_maybe_indices_t: TypeAlias = Union[Tensor, tuple[Tensor, Tensor]]
