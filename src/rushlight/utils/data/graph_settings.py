"""Settings of all pipes of a graph: who shares the work, who shuffles, with what seed."""

from __future__ import annotations

import inspect
from typing import Any

from rushlight.utils.data.graph import traverse_dps
from rushlight.utils.data.sampler import draw_seed

__all__ = ["apply_random_seed", "apply_sharding", "apply_shuffle_settings", "get_all_graph_pipes"]


def get_all_graph_pipes(graph: dict[int, Any]) -> list[Any]:
    """The pipes of a graph (see `traverse_dps`), each once."""
    found: dict[int, Any] = {}

    def visit(part: dict[int, Any]) -> None:
        for key, (pipe, below) in part.items():
            if key not in found:
                found[key] = pipe
                visit(below)

    visit(graph)
    return list(found.values())


def apply_sharding(datapipe: Any, num_of_instances: int, instance_id: int, sharding_group: int = 1) -> Any:
    """Tell the pipes that can share the work which part is this process'. RuntimeError where one such lies below
    another.
    """

    def visit(graph: dict[int, Any], above: Any) -> None:
        for pipe, below in graph.values():
            here = above
            if callable(getattr(pipe, "apply_sharding", None)) and not isinstance(
                getattr(type(pipe), "apply_sharding", None), property
            ):
                if above is not None:
                    raise RuntimeError(
                        f"Sharding twice on a single pipeline is likely unintended and will cause data loss. Sharding already applied to {above} while trying to apply to {pipe}"
                    )
                if len(inspect.signature(pipe.apply_sharding).parameters) < 3:
                    pipe.apply_sharding(num_of_instances, instance_id)
                else:
                    pipe.apply_sharding(num_of_instances, instance_id, sharding_group=sharding_group)
                here = pipe
            visit(below, here)

    visit(traverse_dps(datapipe), None)
    return datapipe


def _shuffles(pipe: Any) -> bool:
    return inspect.ismethod(getattr(pipe, "set_shuffle", None)) and inspect.ismethod(getattr(pipe, "set_seed", None))


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Let the pipes that shuffle do so, or not; where there is none and one is wanted, the last step becomes one."""
    if shuffle is None:
        return datapipe
    shufflers = [pipe for pipe in get_all_graph_pipes(traverse_dps(datapipe)) if _shuffles(pipe)]
    if shuffle and not shufflers:
        datapipe = datapipe.shuffle()
        shufflers = [datapipe]
    for pipe in shufflers:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_random_seed(datapipe: Any, rng: Any) -> Any:
    """Give every pipe with `set_seed` a seed drawn from a generator."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if callable(getattr(pipe, "set_seed", None)):
            pipe.set_seed(draw_seed(rng))
    return datapipe
