"""Small parts of `torch.distributed.pipelining`."""

from __future__ import annotations

from dataclasses import dataclass

from rushlight import fx
from rushlight.distributed.pipelining import orders

__all__ = ["PipeInfo", "generate_rank_to_stage_mapping", "generate_stage_to_rank_mapping"]


@dataclass
class PipeInfo:
    """The graph that calls the stages, and how many there are."""

    graph: fx.Graph
    num_stages: int
    has_loss_and_backward: bool


def generate_stage_to_rank_mapping(pp_size: int, num_stages: int, style: str = "loop") -> dict[int, int]:
    """Stage -> rank, for stages that go round (`"loop"`) or back and forth (`"v"`)."""
    if style not in ("loop", "v"):
        raise ValueError(f"Style {style} is not supported.")
    return (orders.stages_in_loop if style == "loop" else orders.stages_in_v)(pp_size, num_stages)


def generate_rank_to_stage_mapping(pp_size: int, num_stages: int, style: str = "loop") -> dict[int, list[int]]:
    """Rank -> its stages."""
    found: dict[int, list[int]] = {rank: [] for rank in range(pp_size)}
    for stage, rank in generate_stage_to_rank_mapping(pp_size, num_stages, style).items():
        found[rank].append(stage)
    return found
