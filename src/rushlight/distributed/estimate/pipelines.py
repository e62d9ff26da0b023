"""A schedule of a pipeline in seconds: when each rank computes what, and how long it is idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rushlight.distributed.estimate.layouts import Layout
from rushlight.distributed.pipelining import orders
from rushlight.distributed.pipelining.actions import Action, ComputationType, Order
from rushlight.distributed.pipelining.lowering import needs

__all__ = ["Run", "kept_at_most", "order_of", "replay"]

F, B = ComputationType.FORWARD, ComputationType.FULL_BACKWARD


class Run(NamedTuple):
    """Seconds from the first action to the last, and for how many of them each rank computes."""

    seconds: float
    busy: dict[int, float]


def order_of(layout: Layout) -> Order:
    """Rank -> its actions.  ValueError for numbers that the schedule does not take."""
    count = layout.micro_batches
    if layout.pp == 1:
        return {0: [Action(0, kind, m) for m in range(count) for kind in (F, B)]}
    if layout.schedule == "gpipe":
        return orders.gpipe(layout.pp, count)
    if layout.schedule == "1f1b":
        return orders.one_forward_one_backward(layout.pp, count)
    return orders.interleaved(layout.pp, layout.stages_per_rank, count)


def replay(
    order: Mapping[int, Sequence[Action | None]],
    stages: int,
    seconds: Callable[[Action], float],
    message: Callable[[int], float],
) -> Run:
    """Run an order: `seconds` of an action, and of the message from a stage to the next (or back)."""
    left = {rank: [a for a in actions if a is not None] for rank, actions in order.items()}
    at, clock, busy = dict.fromkeys(left, 0), dict.fromkeys(left, 0.0), dict.fromkeys(left, 0.0)
    ended: dict[Action, float] = {}
    going = True
    while going:
        going = False
        for rank, actions in left.items():
            while at[rank] < len(actions):
                action = actions[at[rank]]
                start = _ready(action, stages, ended, message)
                if start is None:
                    break
                took = seconds(action)
                ended[action] = clock[rank] = max(clock[rank], start) + took
                busy[rank] += took
                at[rank] += 1
                going = True
    if any(at[rank] < len(actions) for rank, actions in left.items()):
        raise ValueError("this order of a pipeline never ends: its actions wait for each other")
    return Run(max(clock.values(), default=0.0), busy)


def _ready(action: Action, stages: int, ended: Mapping[Action, float], message: Callable[[int], float]) -> float | None:
    """When what an action needs is there; None while it is not."""
    start = 0.0
    for some in needs(action, stages):
        done = [other for other in some if other in ended]
        if not done:
            return None
        other = done[0]
        moved = message(min(other.stage_index, action.stage_index)) if other.stage_index != action.stage_index else 0.0
        start = max(start, ended[other] + moved)
    return start


def kept_at_most(actions: Sequence[Action | None], saved: Callable[[int], float]) -> float:
    """The most bytes that forwards have kept and backwards not yet used; `saved` is for each stage."""
    held = most = 0.0
    for action in actions:
        if action is not None:
            held += saved(action.stage_index) * (1 if action.computation_type == F else -1)
            most = max(most, held)
    return most
