"""Which part of a spread tensor a process has, from placements and coordinates alone."""

from __future__ import annotations

import types
from typing import Any

import pytest

from rushlight.distributed.tensor import Replicate, Shard
from rushlight.distributed.tensor._utils import compute_local_shape_and_global_offset


def mesh_at(shape: tuple[int, ...], coordinate: tuple[int, ...] | None) -> Any:
    return types.SimpleNamespace(size=lambda d: shape[d], get_coordinate=lambda: coordinate)


@pytest.mark.parametrize(
    ("coordinate", "placements", "expected"),
    [
        ((0, 0), (Shard(0), Replicate()), ((3, 7), (0, 0))),
        ((1, 0), (Shard(0), Replicate()), ((2, 7), (3, 0))),
        ((1, 2), (Shard(0), Shard(1)), ((2, 1), (3, 6))),
        ((1, 2), (Shard(1), Shard(1)), ((5, 1), (0, 6))),
        (None, (Shard(0), Shard(1)), ((0,), ())),
    ],
)
def test_parts(coordinate: Any, placements: Any, expected: Any) -> None:
    """A tensor of 5 x 7 over 2 x 3 processes."""
    assert compute_local_shape_and_global_offset((5, 7), mesh_at((2, 3), coordinate), placements) == expected
