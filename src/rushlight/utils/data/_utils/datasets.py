"""Operations of a loader and its workers on a dataset of either kind: fetch from it, seed it, share it."""

from __future__ import annotations

import sys
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule

# Few programs have pipes, and processes without workers fetch in another way.
graph_settings: Any = LazyModule("rushlight.utils.data.graph_settings")
fetch: Any = LazyModule("rushlight.utils.data._utils.fetch")

__all__ = ["apply_sharding", "create_fetcher", "is_pipe", "seeded"]


def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
    """The function that asks a dataset of this kind for samples."""
    return (fetch.MapFetcher, fetch.IterableFetcher)[kind](dataset, auto_collation, collate_fn, drop_last)


def seeded(dataset: Any, seed: int) -> Any:
    """A graph of data pipes whose random parts all derive their numbers from `seed`."""
    return graph_settings.apply_random_seed(dataset, rushlight.Generator().manual_seed(seed))


def apply_sharding(dataset: Any, workers: int, worker: int) -> None:
    """Tell the pipes that share work which part is this worker's."""
    graph_settings.apply_sharding(dataset, workers, worker)


def is_pipe(dataset: Any) -> bool:
    """Whether a dataset is a pipe that yields."""
    pipes = sys.modules.get("rushlight.utils.data.datapipes.datapipe")  # not loaded: there are none
    return pipes is not None and isinstance(dataset, pipes.IterDataPipe)
