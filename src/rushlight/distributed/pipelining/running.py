"""One rank's actions of a step, in order.

Sends are never waited for before the end of a step, receives where what they bring is needed: with messages in the order
of `lowering.with_messages` no rank can wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.fsdp import FSDPModule
from rushlight.distributed.pipelining.actions import Action, ComputationType

__all__ = ["Step", "StepContext", "start_messages", "wait_for_messages"]

F, B = ComputationType.FORWARD, ComputationType.FULL_BACKWARD
I, W = ComputationType.BACKWARD_INPUT, ComputationType.BACKWARD_WEIGHT


def start_messages(p2p_ops: list[Any], desc: str | None = None) -> list[Any]:
    """Start messages together; their works, none for no messages.  `desc` is for those who read the program."""
    return dist.batch_isend_irecv(p2p_ops) if p2p_ops else []


def wait_for_messages(work: Iterable[Any]) -> None:
    """Wait for all works of `start_messages`; the first error is raised."""
    for one in work:
        one.wait()


class StepContext:
    """Argument of a custom function for a kind of action: the schedule and its micro-batches."""

    def __init__(
        self,
        schedule_ref: Any,
        arg_mbs: list[Any] | None = None,
        kwarg_mbs: list[Any] | None = None,
        target_mbs: list[Any] | None = None,
        losses: list[Any] | None = None,
    ) -> None:
        self.schedule_ref, self.arg_mbs, self.kwarg_mbs = schedule_ref, arg_mbs, kwarg_mbs
        self.target_mbs, self.losses = target_mbs, losses
        self.loss_kwargs: dict[str, Any] = {}


class Step:
    """One step of this rank's stages."""

    def __init__(self, context: StepContext, stages: Iterable[Any], save_outputs: bool) -> None:
        self.context, self.stages = context, {stage.stage_index: stage for stage in stages}
        self.schedule, self.save_outputs = context.schedule_ref, save_outputs
        self.count = self.schedule._n_microbatches
        self.sent: list[Any] = []
        self.deferred: dict[int, list[int]] = {}  # of stages that do not know their inputs yet: micro-batches asked for
        self.headed: set[int] = set()
        self.does: dict[ComputationType, Callable[[Any, Any], None]] = {
            F: self._forward, B: self._backward, I: self._backward, W: self._weight,
            ComputationType.SEND_F: self._send_forward, ComputationType.RECV_F: self._receive_forward,
            ComputationType.SEND_B: self._send_backward, ComputationType.RECV_B: self._receive_backward,
            ComputationType.UNSHARD: self._gather, ComputationType.RESHARD: self._release, ComputationType.REDUCE_GRAD: self._reduce,
        }  # fmt: skip

    def run(self, actions: Iterable[Action], custom: dict[ComputationType, Callable[..., None]]) -> None:
        """Do the actions, and wait until what was sent may be changed."""
        for action in actions:
            parts = action.sub_actions or (action,)
            function = custom.get(action.computation_type)
            if function is not None:
                for part in parts:
                    if part.computation_type == F:
                        self._ask_deferred(self.stages[part.stage_index])
                function(action, self.context)
                continue
            for part in parts:
                self.does[part.computation_type](self.stages[part.stage_index], part)
        wait_for_messages(self.sent)

    # ***** messages *****

    def _send(self, ops: list[Any]) -> None:
        self.sent += start_messages(ops)

    def _send_forward(self, stage: Any, action: Action) -> None:
        header = []
        if stage.stage_index not in self.headed:
            self.headed.add(stage.stage_index)
            header = stage.header_send_ops()
        self._send([*header, *stage.get_fwd_send_ops(action.microbatch_index)])

    def _receive_forward(self, stage: Any, action: Action) -> None:
        if stage.knows_inputs():
            self._ask(stage, action.microbatch_index)
        else:
            self.deferred.setdefault(stage.stage_index, []).append(action.microbatch_index)  # type: ignore[arg-type]

    def _ask(self, stage: Any, m: Any) -> None:
        self.schedule.fwd_recv_ops[stage.stage_index, m] = start_messages(stage.get_fwd_recv_ops(m))

    def _ask_deferred(self, stage: Any) -> None:
        for asked in self.deferred.pop(stage.stage_index, ()):
            self._ask(stage, asked)

    def _send_backward(self, stage: Any, action: Action) -> None:
        self._send(stage.get_bwd_send_ops(action.microbatch_index))

    def _receive_backward(self, stage: Any, action: Action) -> None:
        key = stage.stage_index, action.microbatch_index
        self.schedule.bwd_recv_ops[key] = start_messages(stage.get_bwd_recv_ops(action.microbatch_index))

    # ***** computing *****

    def _forward(self, stage: Any, action: Action) -> None:
        m: Any = action.microbatch_index
        self._ask_deferred(stage)
        wait_for_messages(self.schedule.fwd_recv_ops.pop((stage.stage_index, m), ()))
        context = self.context
        assert context.arg_mbs is not None and context.kwarg_mbs is not None
        output = stage.forward_one_chunk(m, context.arg_mbs[m], context.kwarg_mbs[m], self.save_outputs)
        if stage.is_last:
            self.schedule._maybe_compute_loss(stage, output, context.target_mbs, m, context.loss_kwargs)
        elif stage.stage_index + 1 in self.stages:
            after = self.stages[stage.stage_index + 1]
            after.set_local_fwd_input(stage.fwd_cache[m][0], m)
            if not stage.has_backward:
                del stage.fwd_cache[m]

    def _is_last_backward(self, stage: Any) -> bool:
        self.schedule.backward_counter[stage.stage_index] += 1
        return bool(self.schedule.backward_counter[stage.stage_index] == self.count)

    def _backward(self, stage: Any, action: Action) -> None:
        m: Any = action.microbatch_index
        wait_for_messages(self.schedule.bwd_recv_ops.pop((stage.stage_index, m), ()))
        full = action.computation_type == B or stage.at_once
        loss = self.schedule._maybe_get_loss(stage, m)
        stage.backward_one_chunk(m, loss, full, full and self._is_last_backward(stage))
        if not stage.is_first and stage.stage_index - 1 in self.stages:
            self.stages[stage.stage_index - 1].set_local_bwd_input(stage.get_local_bwd_output(m), m)

    def _weight(self, stage: Any, action: Action) -> None:
        if not stage.at_once:
            stage.backward_weight_one_chunk(action.microbatch_index, self._is_last_backward(stage))

    # ***** stages as a whole *****

    def _gather(self, stage: Any, action: Action) -> None:
        """Nothing: a module that is divided by `fully_shard` gathers its parameters around each use."""

    def _release(self, stage: Any, action: Action) -> None:
        if isinstance(stage.submod, FSDPModule):
            stage.submod.reshard()

    def _reduce(self, stage: Any, action: Action) -> None:
        stage.perform_reduce_grad(self.count if self.context.schedule_ref.scale_grads else 1)
