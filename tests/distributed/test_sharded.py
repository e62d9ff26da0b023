"""`ShardedTensor`, and how tensors are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.distributed.programs import shard_programs as programs
from tests.distributed.ranks import Ranks

from rushlight.distributed._shard.sharding_spec import (
    ChunkShardingSpec,
    DevicePlacementSpec,
    EnumerableShardingSpec,
    ShardMetadata,
    _infer_sharding_spec_from_shards_metadata,
)
from rushlight.distributed._shard.sharding_spec._internals import check_tensor, get_chunk_sharding_params


def test_chunks_of_tensors(four: Ranks) -> None:
    rows = [(2, 6), (2, 6), (1, 6), (0, 6)]
    columns = [(5, 2), (5, 2), (5, 2), (5, 0)]
    for rank, found in enumerate(four.run(programs.chunks)):
        assert found[0] == [(5, 6), rows[rank], 60.0] and found[1] == [(5, 6), columns[rank], 60.0]
        assert found[2:] == [[True, True], [False, True]]


def test_boxes_files_and_plans(four: Ranks, tmp_path: Path) -> None:
    assert four.run(programs.boxes) == [[1.0, 2.0, 2.0]] * 4
    assert four.run(programs.checkpoints, str(tmp_path)) == [[float(k) for k in range(24)]] * 4
    for name, weight, made in four.run(programs.plans):
        assert (name, weight, made) == ("ShardedTensor", (1, 3), (2,))


def test_what_is_refused(four: Ranks) -> None:
    for found in four.run(programs.refusals):
        said = [
            "RuntimeError: torch function 'add'",
            "must be specified on destination rank",
            "ValueError: Expecting ShardingSpec",
            "NotImplementedError: ChunkShardingSpec does not support named dimension",
            "ValueError: Invalid sharding dim: 2",
            "ValueError: Global rank 7 does not exist",
            "ValueError: Local shard metadata's rank does not match",
            "NotImplementedError: ShardedTensor(init_rrefs=True)",
            "AttributeError: Linear has no attribute `other`",
        ]
        for text, part in zip(found, said, strict=True):
            assert part in text


def boxes(*rows: tuple[list[int], list[int]]) -> list[ShardMetadata]:
    return [ShardMetadata(offsets, sizes, f"rank:{k}/cpu") for k, (offsets, sizes) in enumerate(rows)]


@pytest.mark.parametrize(
    ("parts", "overlaps"),
    [
        (boxes(([0, 0], [2, 2]), ([2, 0], [2, 2])), False),
        (boxes(([0, 0], [3, 2]), ([2, 0], [2, 2])), True),
        (boxes(([0, 0], [2, 2]), ([2, 2], [2, 2]), ([0, 2], [2, 2])), False),
        (boxes(([0, 0], [2, 3]), ([2, 2], [2, 2]), ([0, 2], [2, 2])), True),
        (boxes(([0], [2]), ([0], [2])), True),
        (boxes(([0], [0]), ([0], [0])), False),
        (boxes(([0, 0], [0, 2]), ([0, 0], [4, 2])), False),
    ],
)
def test_boxes_that_overlap(parts: Any, overlaps: bool) -> None:
    if overlaps:
        with pytest.raises(ValueError, match="overlap"):
            EnumerableShardingSpec(parts)
    else:
        assert EnumerableShardingSpec(parts).shards == parts


def test_how_tensors_are_cut() -> None:
    spec = ChunkShardingSpec(0, ["rank:1/cpu", "rank:0/cpu"])
    parts = spec.build_metadata([5, 2], None).shards_metadata
    assert _infer_sharding_spec_from_shards_metadata(parts[::-1]) == spec
    assert [get_chunk_sharding_params(5, 2, spec, rank) for rank in (0, 1)] == [(3, 2), (0, 3)]
    uneven = boxes(([0, 0], [2, 2]), ([2, 0], [3, 2]))
    assert isinstance(_infer_sharding_spec_from_shards_metadata(uneven), EnumerableShardingSpec)
    with pytest.raises(ValueError, match="Total volume of shards: 10 does not match tensor volume: 12"):
        check_tensor(uneven, [6, 2])
    with pytest.raises(ValueError, match="exceeds tensor dim"):
        check_tensor(uneven, [4, 2])
    with pytest.raises(ValueError, match="Rank of tensor is 1, but shards rank is 2"):
        check_tensor(uneven, [5])
    with pytest.raises(ValueError, match="Empty shard list"):
        EnumerableShardingSpec([])
    assert DevicePlacementSpec("rank:1/cpu").device.rank() == 1
    with pytest.raises(ValueError, match="same number of elements"):
        ShardMetadata([0], [1, 2])
