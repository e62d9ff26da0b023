"""Schedules: in which order the ranks of a pipeline run their stages on micro-batches.

A schedule is data: its order (`pipeline_order`) says what each rank computes, `pipeline_order_with_comms` also what it
sends and receives.  `print(schedule)` shows it as a table.  All kinds are run by the same loop (`running.py`).
"""

from __future__ import annotations

import csv
import logging
from abc import ABC
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight.distributed.pipelining import orders
from rushlight.distributed.pipelining.actions import Action, ComputationType, Order, read_table
from rushlight.distributed.pipelining.lowering import (
    check,
    in_steps,
    merged,
    shown,
    with_gathering,
    with_late_receives,
    with_messages,
    with_reductions,
)
from rushlight.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks
from rushlight.distributed.pipelining.running import Step, StepContext, start_messages, wait_for_messages

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "get_schedule_class",
]  # fmt: skip

logger = logging.getLogger(__name__)
_Action, _ComputationType, _PipelineContext = Action, ComputationType, StepContext
_format_pipeline_order = shown
# PyTorch's module has the kinds of actions as names, and their letters.
FORWARD = ComputationType.FORWARD
BACKWARD_INPUT = ComputationType.BACKWARD_INPUT
BACKWARD_WEIGHT = ComputationType.BACKWARD_WEIGHT
FULL_BACKWARD = ComputationType.FULL_BACKWARD
OVERLAP_F_B = ComputationType.OVERLAP_F_B
REDUCE_GRAD = ComputationType.REDUCE_GRAD
UNSHARD = ComputationType.UNSHARD
RESHARD = ComputationType.RESHARD
SEND_F = ComputationType.SEND_F
RECV_F = ComputationType.RECV_F
SEND_B = ComputationType.SEND_B
RECV_B = ComputationType.RECV_B
F = FORWARD
B = FULL_BACKWARD
I = BACKWARD_INPUT
W = BACKWARD_WEIGHT

_FORWARD_ONLY = frozenset(
    {ComputationType.FORWARD, ComputationType.SEND_F, ComputationType.RECV_F, ComputationType.UNSHARD, ComputationType.RESHARD}
)  # fmt: skip


class _PipelineSchedule(ABC):
    """The common part: micro-batches, losses, and a step of this rank's stages."""

    pipeline_order: Order
    pipeline_order_with_comms: dict[int, list[Action]]

    def __init__(
        self,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._has_backward = loss_fn is not None
        self._custom: dict[ComputationType, Callable[..., None]] = {}
        self._all: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        """The state of a step, which functions of one's own for actions read and change, as in PyTorch."""
        self.fwd_recv_ops: dict[tuple[int, int], list[Any]] = {}  # (stage, micro-batch) -> receives on their way
        self.bwd_recv_ops: dict[tuple[int, int], list[Any]] = {}
        self.backward_counter: Counter[int] = Counter()  # stage -> backwards done
        self._losses: dict[int, Any] = {}

    def __str__(self) -> str:
        return shown(self.pipeline_order)

    def _set_order(self, order: Order, owner: dict[int, int], late: bool = False) -> None:
        """Take an order of computations, checked, and put messages in."""
        for stage in self._all:
            stage.stage_index_to_group_rank = dict(owner)
        reduced = {rank: with_reductions(actions, self._n_microbatches) for rank, actions in order.items()}
        self.pipeline_order = in_steps(reduced)
        gathered = {rank: with_gathering(actions) for rank, actions in reduced.items()}
        full = with_messages(gathered, lambda stage: owner[stage], len(owner))
        self.pipeline_order_with_comms = with_late_receives(full) if late else full

    # ***** a step *****

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Forward and, with a loss function, backward of a whole batch.

        - `args`, `kwargs`: of the module; `args` count on the rank of the first stage, `kwargs` on each
        - `target`: for the loss function, on the rank of the last stage
        - `losses`: a list that is filled there with the losses of the micro-batches, in order
        - `return_outputs`: whether the outputs are joined and returned there; elsewhere None comes back
        - `loss_kwargs`: further arguments of the loss function

        Gradients of micro-batches are added up; with `scale_grads` their sum is divided by how many there are.
        RuntimeError under `no_grad` where there is a backward.
        """
        if self._has_backward and not rushlight.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() context."
                " Please call eval() instead."
            )
        arg_mbs, kwarg_mbs = self._split_inputs(args, kwargs)
        target_mbs = None if target is None else list(target.tensor_split(self._n_microbatches))
        self._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs)
        ends = [stage for stage in self._all if stage.is_last]
        found = self._merge_outputs(ends[0].output_chunks) if ends and return_outputs else None
        for stage in self._all:
            stage.clear_runtime_states()
        return found

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """Forward of a whole batch: `step` without backward."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _step_microbatches(
        self,
        arg_mbs: list[Any] | None = None,
        kwarg_mbs: list[Any] | None = None,
        target_mbs: list[Any] | None = None,
        losses: list[Any] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """A step on micro-batches that are divided already."""
        count = self._n_microbatches
        for what, given in (("arg_mbs", arg_mbs), ("kwarg_mbs", kwarg_mbs), ("target_mbs", target_mbs)):
            if given is not None and len(given) != count:
                raise ValueError(f"Expecting {count} {what} but got {len(given)}")
        if losses is not None and not isinstance(losses, list):
            raise TypeError(f"losses must be a list but got a {type(losses)}")
        for stage in self._all:
            stage.clear_runtime_states()
            stage.has_backward = self._has_backward
        if target_mbs is None and self._loss_fn is not None and any(stage.is_last for stage in self._all):
            raise TypeError("the rank of the last stage needs target=: the schedule has a loss function")
        context = StepContext(self, arg_mbs or [()] * count, kwarg_mbs or [{}] * count, target_mbs, losses)
        context.loss_kwargs = loss_kwargs or {}
        self._begin()
        actions = self.pipeline_order_with_comms[self._all[0].group_rank]
        if not self._has_backward:
            actions = _forwards(actions)
        Step(context, self._all, return_outputs).run(actions, self._custom)
        if losses is not None and self._losses:
            losses[:] = [self._losses[m] for m in range(count)]

    def _maybe_compute_loss(
        self,
        stage: Any,
        output: Any,
        target_mbs: list[Any] | None,
        mb_index: int,
        loss_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Keep the loss of a micro-batch's output, where the stage is the last and there is a loss function."""
        if stage.is_last and self._loss_fn is not None:
            assert target_mbs is not None
            self._losses[mb_index] = self._loss_fn(output, target_mbs[mb_index], **(loss_kwargs or {}))

    def _maybe_get_loss(self, stage: Any, mb_index: int) -> Any:
        """The loss from which a micro-batch's backward begins; None at other stages than the last.

        RuntimeError where its forward has not run.
        """
        if not stage.is_last or self._loss_fn is None:
            return None
        if mb_index not in self._losses:
            raise RuntimeError(
                f"Loss for microbatch {mb_index} is not available. Available losses for microbatches: {sorted(self._losses)}"
            )
        return self._losses[mb_index]

    @staticmethod
    def _assert_unsharded(stage: Any) -> None:
        """Every stage may compute: a module that is divided by `fully_shard` gathers its parameters around each use."""
        return

    def _split_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if not args and not kwargs:
            return None, None
        found = split_args_kwargs_into_chunks(
            args, kwargs, self._n_microbatches, self._args_chunk_spec, self._kwargs_chunk_spec
        )
        if len(found[0]) != self._n_microbatches:
            raise AssertionError(
                f"Tensor size {len(found[0])} is smaller than num_chunks {self._n_microbatches}: a micro-batch would be empty"
            )
        return found

    def _merge_outputs(self, output_chunks: list[Any]) -> Any:
        return merge_chunks(output_chunks, self._output_merge_spec)


def _forwards(actions: Sequence[Action]) -> list[Action]:
    """The actions that a step without backward does."""
    found: list[Action] = []
    for action in actions:
        found += [part for part in action.sub_actions or (action,) if part.computation_type in _FORWARD_ONLY]
    return found


# ***** one stage on each rank *****


class PipelineScheduleSingle(_PipelineSchedule):
    """Schedules with one stage on each rank.

    - `stage`: this rank's stage
    - `n_microbatches`: into how many a batch is divided; ValueError for fewer than stages
    - `loss_fn`: `loss_fn(output, target)` of a micro-batch; without it there is no backward
    - `args_chunk_spec`, `kwargs_chunk_spec`, `output_merge_spec`: how arguments are divided and outputs joined, by default
      along dim 0
    - `scale_grads`: whether gradients are means over the micro-batches, for losses that are means
    """

    def __init__(
        self,
        stage: Any,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__(n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if n_microbatches < stage.num_stages:
            raise ValueError(
                f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages ({stage.num_stages})."
            )
        if stage.group_size != stage.num_stages:
            raise ValueError(
                f"{type(self).__name__} has one stage on each rank, got {stage.num_stages} stages on {stage.group_size} ranks"
            )
        self._stage, self._num_stages, self._all = stage, stage.num_stages, [stage]
        order = self._computations(stage.num_stages, n_microbatches)
        owner = check(order, stage.group_size, stage.num_stages, n_microbatches)
        self._set_order(order, owner)

    def _computations(self, ranks: int, microbatches: int) -> Order:
        raise NotImplementedError(f"{type(self).__name__} does not say its order")

    def _get_pipeline_order(self) -> Order:
        return self.pipeline_order


class ScheduleGPipe(PipelineScheduleSingle):
    """All forwards, then all backwards."""

    def _computations(self, ranks: int, microbatches: int) -> Order:
        return orders.gpipe(ranks, microbatches)


class Schedule1F1B(PipelineScheduleSingle):
    """Backward of a micro-batch as soon as it can run: at most as many micro-batches are kept as there are stages."""

    def _computations(self, ranks: int, microbatches: int) -> Order:
        return orders.one_forward_one_backward(ranks, microbatches)


# ***** several stages on each rank *****


class PipelineScheduleMulti(_PipelineSchedule):
    """Schedules with several stages on each rank: `stages` are this rank's.  See `PipelineScheduleSingle`.

    - `backward_requires_autograd`: False where functions of one's own (`register_custom_function`) do the backward, so
      that there is one without a loss function
    - `defer_pp_recv`: whether receives begin where what they bring is needed, and not before
    """

    def __init__(
        self,
        stages: Sequence[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        use_full_backward: bool | None = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._has_backward = loss_fn is not None or not backward_requires_autograd
        self._stages = self._all = list(stages)
        first = self._all[0]
        self._num_stages, self.pp_group_size, self.rank = first.num_stages, first.group_size, first.group_rank
        self.n_local_stages, self._late = len(self._all), defer_pp_recv
        self._check_stages()
        if self.n_local_stages * self.pp_group_size != self._num_stages:
            raise ValueError(
                f"{self._num_stages} stages on {self.pp_group_size} ranks are {self._num_stages / self.pp_group_size:g} on each; this rank has"
                f" {self.n_local_stages}"
            )
        order = self._computations()
        if order is not None:
            self._take(order)

    def _check_stages(self) -> None:
        """ValueError for a number of stages that the schedule cannot have."""

    def _computations(self) -> Order | None:
        """The order; None where it is read from a file later."""
        return None

    def _take(self, order: Order) -> None:
        owner = check(order, self.pp_group_size, self._num_stages, self._n_microbatches)
        for stage in self._all:
            if owner[stage.stage_index] != self.rank:
                raise ValueError(
                    f"{type(self).__name__} puts stage {stage.stage_index} on rank {owner[stage.stage_index]}, but rank {self.rank} has it"
                )
        self._set_order(order, owner, self._late)

    def register_custom_function(
        self, computation_type: ComputationType, custom_function: Callable[[Action, StepContext], None]
    ) -> None:
        """Let `custom_function(action, context)` do the actions of one kind; the messages around them stay as they are.

        It does all that the action does: it waits for what arrives (`fwd_recv_ops`, `bwd_recv_ops` of the schedule, by
        stage and micro-batch), counts backwards (`backward_counter`), and hands results to a next stage on this rank.
        ValueError for sends and receives.
        """
        if not isinstance(computation_type, ComputationType) or computation_type in (SEND_F, RECV_F, SEND_B, RECV_B):
            raise ValueError(
                f"Invalid computation type {computation_type}. Only FORWARD, FULL_BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT,"
                " OVERLAP_F_B, UNSHARD, RESHARD and REDUCE_GRAD are supported."
            )
        if computation_type in self._custom:
            logger.warning(
                "Computation type %s is already registered. Overwriting the existing custom function.", computation_type
            )
        self._custom[computation_type] = custom_function

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """Take the order from a file with a line of comma-separated actions for each rank."""
        with open(filename, newline="") as file:
            order = read_table(file)
        if format == "compute_only":
            self._take({r: [a for a in actions if a is None or a.is_compute_op] for r, actions in order.items()})
            return
        if format != "compute_comms":
            raise ValueError(f"format is 'compute_only' or 'compute_comms', got {format!r}")
        owner = check(order, self.pp_group_size, self._num_stages, self._n_microbatches)
        for stage in self._all:
            stage.stage_index_to_group_rank = dict(owner)
        self.pipeline_order_with_comms = {r: [a for a in actions if a is not None] for r, actions in order.items()}
        self.pipeline_order = {
            r: [a for a in actions if a.is_compute_op] for r, actions in self.pipeline_order_with_comms.items()
        }

    def _dump_csv(self, filename: str, format: str = "compute_comms") -> None:
        """Write the order to a file that `_load_csv` reads."""
        found: Any = self.pipeline_order if format == "compute_only" else self.pipeline_order_with_comms
        with open(filename, "w", newline="") as file:
            writer = csv.writer(file)
            for rank in sorted(found):
                writer.writerow(["" if action is None else str(action) for action in found[rank]])


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """A schedule whose order comes from a file or from `_prepare_schedule_with_comms`."""

    def _prepare_schedule_with_comms(self, actions: Order, format: str = "compute_only") -> None:
        if format != "compute_only":
            raise ValueError(f"give the computations alone (format='compute_only'), got {format!r}")
        self._take(actions)


class ScheduleLoopedBFS(_PipelineScheduleRuntime):
    """All micro-batches through one of a rank's stages before the next."""

    def __init__(
        self,
        stages: Sequence[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(
            stages,
            n_microbatches,
            loss_fn,
            output_merge_spec=output_merge_spec,
            scale_grads=scale_grads,
            backward_requires_autograd=backward_requires_autograd,
            defer_pp_recv=defer_pp_recv,
        )

    def _computations(self) -> Order:
        return orders.breadth_first(self.pp_group_size, self.n_local_stages, self._n_microbatches)


class _Several(_PipelineScheduleRuntime):
    """The signature of the other schedules with several stages."""

    def __init__(
        self,
        stages: Sequence[Any],
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        super().__init__(
            stages,
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            None,
            scale_grads,
            backward_requires_autograd,
            defer_pp_recv,
        )

    def _two_stages(self, name: str) -> None:
        if self.n_local_stages != 2:
            raise ValueError(f"{name} requires exactly 2 stages per rank, but got {self.n_local_stages}.")


class ScheduleInterleaved1F1B(_Several):
    """1F1B with several stages on each rank; micro-batches fill whole rounds of at least as many as there are ranks."""

    def _computations(self) -> Order:
        return orders.interleaved(self.pp_group_size, self.n_local_stages, self._n_microbatches)


class ScheduleInterleavedZeroBubble(_Several):
    """Interleaved 1F1B, with gradients of parameters computed where a rank would wait."""

    def _computations(self) -> Order:
        return orders.interleaved_zero_bubble(self.pp_group_size, self.n_local_stages, self._n_microbatches)


class ScheduleZBVZeroBubble(_Several):
    """Two stages on each rank, down and up a V: rank 0 has the first and the last.  Without bubbles where forward, and
    both halves of backward, take the same time.
    """

    def _check_stages(self) -> None:
        self._two_stages("ZBV")

    def _computations(self) -> Order:
        return orders.zero_bubble_v(self.pp_group_size, self._n_microbatches)


class ScheduleDualPipeV(_Several):
    """Two stages on each rank, down and up a V; a forward and the backward of another micro-batch are one action, which a
    function of one's own may run at once.
    """

    def _check_stages(self) -> None:
        self._two_stages("DualPipeV")

    def _computations(self) -> Order:
        return orders.dual_pipe_v(self.pp_group_size, self._n_microbatches)


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """The class of a schedule by its name, in any case: `1F1B`, `GPipe`, ...; ValueError for another."""
    kinds: dict[str, type[_PipelineSchedule]] = {
        "1F1B": Schedule1F1B, "Interleaved1F1B": ScheduleInterleaved1F1B, "GPipe": ScheduleGPipe, "LoopedBFS": ScheduleLoopedBFS,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble, "PipelineScheduleSingle": PipelineScheduleSingle,
        "PipelineScheduleMulti": PipelineScheduleMulti, "ZBVZeroBubble": ScheduleZBVZeroBubble, "DualPipeV": ScheduleDualPipeV,
    }  # fmt: skip
    for name, kind in kinds.items():
        if name.lower() == schedule_name.lower():
            return kind
    raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(kinds)}")


_merge_bw, _add_send_recv, _add_unshard_reshard, _validate_schedule = merged, with_messages, with_gathering, check
_batch_p2p, _wait_batch_p2p = start_messages, wait_for_messages
