"""Averages in small groups, after a start in which all processes take part: post-local SGD."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from rushlight.futures import Future

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Averages over `process_group` until iteration `start_localSGD_iter`, then over `subgroup`; parameters are then
    averaged now and then by `model_averaging`.
    """

    def __init__(
        self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count calls of backward, by their last buckets."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Future[Tensor]:
    """The mean over all, then over the processes of a small group."""
    local = state.iter >= state.start_localSGD_iter
    state.maybe_increase_iter(bucket)
    if not local:
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        future: Future[Tensor] = Future()
        future.set_result(bucket.buffer())
        return future
    return allreduce_hook(state.subgroup, bucket)
