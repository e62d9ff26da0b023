"""Gradients that are averaged together when the gradient of another parameter is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor, no_grad
from rushlight._interface.autograd import queue_callback
from rushlight.distributed.c10d.collectives import all_reduce_mean
from rushlight.distributed.c10d.work import wait_for
from rushlight.nn.parallel.buckets import views_of

__all__ = ["Delayed"]


class Delayed:
    """Parameters whose gradients lie one behind the other, in memory that is averaged by one call when the gradient of
    `trigger` comes.

    Autograd adds to gradients in place, so what it adds is there already: theirs must have come by then.
    """

    def __init__(self, parameters: Sequence[Tensor], trigger: Tensor, group: Any) -> None:
        self.parameters, self.group = list(parameters), group
        first = self.parameters[0]
        with no_grad():
            self.flat = first.new_zeros(sum(p.numel() for p in self.parameters))
            self.views = views_of(self.flat, self.parameters)
            for parameter in self.parameters:
                dist.broadcast(parameter.detach(), group=group, group_src=0)
        trigger.register_hook(self._average)

    def prepare(self) -> None:
        """After a forward call: let gradients that were dropped begin with zeros, in the common memory."""
        with no_grad():
            for parameter, view in zip(self.parameters, self.views, strict=True):
                if parameter.grad is None:
                    parameter.grad = view.zero_()

    def _average(self, grad: Tensor) -> None:
        work = all_reduce_mean(self.flat, self.group, True, None)
        if work is not None and not rushlight.compiler.is_compiling():
            queue_callback(lambda: wait_for(work))
