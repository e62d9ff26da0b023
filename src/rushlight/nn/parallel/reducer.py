"""The reducer: averages gradients over processes while backward computes more of them.

Every parameter has a hook that runs when its gradient is complete.  When all gradients of a bucket are, its reduction
begins, on the communication thread; at the end of backward the results go to `.grad`.  Buckets are reduced in one order
on all processes.  After the first backward call they are made again, in the order in which gradients came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
import rushlight.distributed as dist
from rushlight import Tensor, no_grad
from rushlight._interface.autograd import queue_callback
from rushlight._interface.base import trace_marks
from rushlight.distributed.c10d.collectives import all_reduce_mean, reduce_together
from rushlight.distributed.c10d.work import ended, wait_for
from rushlight.nn.parallel.buckets import Bucket, GradBucket, assigned

__all__ = ["Reducer"]


class Reducer:
    """`parameters` are those that want gradients, with their names."""

    def __init__(
        self, parameters: Sequence[Tensor], names: Sequence[str], group: Any, caps: Sequence[int], **settings: bool
    ) -> None:
        self.parameters, self.names, self.group = list(parameters), list(names), group
        self.caps = caps
        self.find_unused = settings["find_unused"]
        self.as_views = settings["as_views"]
        self.static = settings["static"]
        self.skips_unused = settings["skips_unused"]
        self.sync = True  # whether the next backward call reduces
        self.hook: Callable[[GradBucket], Any] | None = None
        self.places: list[tuple[int, int]] = [(0, 0)] * len(self.parameters)
        self.buckets: list[Bucket] = []
        self.arrived: list[int] = []
        self.rebuilt = False
        self.reductions = 0
        self.expected: list[int] | None = None  # of a static graph: how often each hook runs
        self.counts = [0] * len(self.parameters)
        self.divisor: int | None = None  # of `join`: None is the number of processes
        self.armed = self.queued = self.began = False
        self._build(list(reversed(range(len(self.parameters)))))
        self.handles = [
            parameter.register_post_accumulate_grad_hook(lambda _, index=index: self._complete(index))
            for index, parameter in enumerate(self.parameters)
        ]

    def _build(self, order: Sequence[int]) -> None:
        rows = assigned(self.parameters, order, self.caps)
        with no_grad():
            self.buckets = [Bucket(number, row, self.parameters) for number, row in enumerate(rows)]
        for bucket in self.buckets:
            for place, index in enumerate(bucket.indices):
                self.places[index] = (bucket.number, place)

    # ***** around a forward call *****

    def prepare(self) -> None:
        """Before a forward call whose backward reduces: check that the last one did, and make buckets anew once."""
        if self.armed and self.began and not all(self.done):
            raise RuntimeError(self._unfinished())
        self.rebuild_once()

    def rebuild_once(self) -> None:
        """After the first reduction: buckets in the order of gradients."""
        if not self.rebuilt and self.reductions and (self.static or not self.find_unused):
            self._rebuild()

    def arm(self, outputs: Any) -> None:
        """After a forward call: wait for gradients; those that the outputs do not depend on are complete at once."""
        for bucket in self.buckets:
            bucket.reset()
        self.done = [False] * len(self.parameters)
        self.used = [False] * len(self.parameters)
        self.launched = 0
        self.armed, self.queued, self.began = True, False, False
        self.counts = [0] * len(self.parameters)
        first = self.static and self.expected is None
        if self.find_unused and not self.static:
            self._ready_unused(outputs)
        elif self.static and not first:
            for index, times in enumerate(self.expected or ()):
                if not times:
                    self._ready(index)

    def prepare_for_backward(self, outputs: Any) -> None:
        """Let the next backward pass reduce, also one whose forward call was made under `no_sync`."""
        self.sync = True
        self.prepare()
        self.arm(outputs)

    @trace_marks.runs_apart("looks for parameters that the outputs of DistributedDataParallel do not depend on")
    def _ready_unused(self, outputs: Any) -> None:
        """Parameters that the outputs do not depend on are complete."""
        reached = reached_from(outputs)
        for index, parameter in enumerate(self.parameters):
            if id(parameter) not in reached:
                self._ready(index)

    @trace_marks.runs_apart("makes the buckets of DistributedDataParallel anew")
    def _rebuild(self) -> None:
        """Buckets in the order in which gradients came on the first process."""
        missing = [index for index in range(len(self.parameters)) if index not in set(self.arrived)]
        order = rushlight.tensor(self.arrived + missing, dtype=rushlight.int64, device=self.parameters[0].device)
        dist.broadcast(order, group=self.group, group_src=0)
        if self.as_views:
            held = [parameter.grad for parameter in self.parameters]
        self._build(order.tolist())
        if self.as_views:
            with no_grad():
                for index, grad in enumerate(held):
                    if grad is not None:
                        view = self._view(index)
                        view.copy_(grad)
                        self.parameters[index].grad = view
        self.rebuilt, self.arrived = True, []

    def _unfinished(self) -> str:
        names = [name for name, done in zip(self.names, self.done, strict=True) if not done]
        rank = dist.get_rank()
        return (
            "Expected to have finished reduction in the prior iteration before starting a new one. On rank "
            f"{rank} these parameters got no gradient: {', '.join(names)}. Either their module was not used to compute the loss: pass "
            "find_unused_parameters=True, or call ddp.no_sync() around what is not to be reduced; or a part of the outputs took no part in "
            "the loss."
        )

    # ***** during backward *****

    def _view(self, index: int) -> Tensor:
        number, place = self.places[index]
        return self.buckets[number].views[place]

    def _complete(self, index: int) -> None:
        """The gradient of a parameter is in its `.grad`."""
        if not self.sync or not self.armed:
            return
        self.began = True
        self.counts[index] += 1
        if self.static and self.expected is None:
            if not self.queued:
                self.queued = True
                queue_callback(self._learn)
            self.used[index] = True
            if self.counts[index] == 1:
                self.arrived.append(index)
            return
        if self.static and self.counts[index] < (self.expected or self.counts)[index]:
            return
        if self.done[index]:
            if self.used[index]:
                raise RuntimeError(
                    f"Expected to mark a variable ready only once: parameter {self.names[index]} got two gradients in one backward call. Parts of the "
                    "model that are computed again in backward need static_graph=True or non-reentrant checkpoints"
                )
            raise RuntimeError(
                f"parameter {self.names[index]} was found unused in forward, and got a gradient in backward"
            )
        self.used[index] = True
        if not self.rebuilt:
            self.arrived.append(index)
        self._ready(index)

    def _learn(self) -> None:
        """The first backward call of a static graph has ended: reduce everything, and remember what came."""
        self.expected = list(self.counts)
        for index in range(len(self.parameters)):
            self._ready(index)

    def _ready(self, index: int) -> None:
        self.done[index] = True
        bucket = self.buckets[self.places[index][0]]
        bucket.pending -= 1
        if bucket.pending:
            return
        while self.launched < len(self.buckets) and not self.buckets[self.launched].pending:
            self._launch(self.buckets[self.launched])
            self.launched += 1
        if self.launched == len(self.buckets):
            self._all_launched()

    def _all_launched(self) -> None:
        if self.static and self.queued:  # in the callback of the first call
            self.queued = False
            self._finish()
        elif any(self.used) or not self.find_unused:
            queue_callback(self._finish)
        else:  # no parameter was used: there is no backward call to wait for
            self._finish()

    def _launch(self, bucket: Bucket) -> None:
        """Begin the reduction of a bucket."""
        in_place = self.hook is None and not self.as_views and not rushlight.compiler.is_compiling()
        bucket.targets = list(bucket.own)
        with no_grad():
            grads, places = [], []
            for place, parameter in enumerate(bucket.parameters):
                grad, view = parameter.grad, bucket.views[place]
                if grad is None or not self.used[bucket.indices[place]]:
                    view.zero_()
                elif in_place and place >= bucket.first_big and _lies_as(grad, view):
                    bucket.targets[place - len(bucket.parameters)] = grad.detach()
                elif grad is not view:
                    if grad.is_sparse:
                        raise NotImplementedError(
                            f"DistributedDataParallel: rushlight averages strided gradients yet, not the sparse one of {self.names[bucket.indices[place]]}"
                        )
                    grads.append(grad.detach())
                    places.append(view)
            if grads:
                rushlight._foreach_copy_(places, grads)
        self._reduce(bucket)

    def _is_skipped(self, bucket: Bucket) -> bool:
        """Whether nothing is sent, because no process uses the parameters of a bucket."""
        return self.skips_unused and not any(self.used[index] for index in bucket.indices)

    def _reduce(self, bucket: Bucket) -> None:
        if self._is_skipped(bucket):
            return
        if self.hook is not None:
            self._hooked(bucket)
        elif bucket.number < len(self.buckets) - 1:
            bucket.work = self._all_reduce(bucket, True)
        # the last one has nothing left to overlap with: `_finish` reduces it without a change of threads

    @trace_marks.runs_apart("calls a communication hook of DistributedDataParallel")
    def _hooked(self, bucket: Bucket) -> None:
        assert self.hook is not None
        bucket.future = self.hook(GradBucket(bucket, bucket.number == len(self.buckets) - 1))
        if not isinstance(bucket.future, rushlight.futures.Future):
            raise RuntimeError(f"callback must return a torch.futures.Future object, but got {type(bucket.future)}")

    def _all_reduce(self, bucket: Bucket, async_op: bool) -> Any:
        """The mean of what is to be reduced: one operation, or in programs one for each tensor, with the same messages."""
        if len(bucket.targets) == 1 or rushlight.compiler.is_compiling() or self.group.is_users:
            works = [all_reduce_mean(x, self.group, async_op, self.divisor) for x in bucket.targets]
            return (
                works[-1] if rushlight.compiler.is_compiling() else ended([work for work in works if work is not None])
            )
        mean = self._mean()
        return reduce_together(bucket.targets, mean, self.group, async_op)

    def _mean(self) -> Any:
        """The reduction: the mean over the processes, or with another divisor while some have joined."""
        return dist.ReduceOp.AVG if self.divisor is None else dist._make_nccl_premul_sum(1.0 / self.divisor)

    def _finish(self) -> None:
        """At the end of backward: wait for the reductions, and put the results into `.grad`."""
        if self.hook is None and not self._is_skipped(self.buckets[-1]):
            self._all_reduce(self.buckets[-1], False)
        everywhere = self.used if self.skips_unused else self._used_anywhere()
        with no_grad():
            for bucket in self.buckets:
                self._wait(bucket)
                self._put(bucket, everywhere)
        self.armed = False
        self.reductions += 1

    def answer(self) -> None:
        """Take part in a reduction of the others, with zeros: this process has no more input.

        The mean is its gradient too: it may have a part of the optimizer's state.
        """
        self.used = [False] * len(self.parameters)
        with no_grad():
            for bucket in self.buckets:
                bucket.reset()
                bucket.flat.zero_()
                bucket.targets = bucket.own
                self._reduce(bucket)
            if self.hook is None:
                self._all_reduce(self.buckets[-1], False)
            everywhere = self._used_anywhere()
            if self.static:  # nobody tells which were used
                everywhere = [True] * len(self.parameters)
            for bucket in self.buckets:
                self._wait(bucket)
                self._put(bucket, everywhere)
        self.reductions += 1

    def _used_anywhere(self) -> Sequence[bool]:
        """Which parameters any process has used: the others keep the gradient that they had."""
        if not self.find_unused or self.static:
            return self.used if self.static else [True] * len(self.parameters)
        used = rushlight.tensor(self.used, device=self.parameters[0].device)
        dist.all_reduce(used, dist.ReduceOp.MAX, group=self.group)
        return used.tolist()

    def _wait(self, bucket: Bucket) -> None:
        if bucket.work is not None:
            wait_for(bucket.work)
        if bucket.future is not None:
            found = bucket.future.wait()
            found = found[0] if isinstance(found, (list, tuple)) else found
            if not isinstance(found, Tensor):
                raise RuntimeError(f"the future of a communication hook must hold a tensor, got {type(found)}")
            if found.data_ptr() != bucket.flat.data_ptr():
                bucket.flat.copy_(found.view(-1))

    def _put(self, bucket: Bucket, everywhere: Sequence[bool]) -> None:
        grads, views = [], []
        for place, (index, parameter, view) in enumerate(
            zip(bucket.indices, bucket.parameters, bucket.views, strict=True)
        ):
            if not everywhere[index] or bucket.is_in_place(place):
                continue
            if self.as_views:
                if parameter.grad is not view:
                    parameter.grad = view
            elif parameter.grad is None:
                parameter.grad = view.clone()
            else:
                grads.append(parameter.grad)
                views.append(view)
        if grads:
            rushlight._foreach_copy_(grads, views)


def _lies_as(grad: Tensor, view: Tensor) -> bool:
    """Whether a gradient has the layout that all processes have for it, and memory of its own."""
    return not grad.is_sparse and grad.dtype is view.dtype and grad.is_contiguous() and view.is_contiguous()


def reached_from(outputs: Any) -> set[int]:
    """The ids of the leaves that tensors in nested outputs depend on."""
    found: set[int] = set()
    seen: set[Any] = set()
    stack = []
    for x in tensors_in(outputs):
        if x.grad_fn is not None:
            stack.append(x.grad_fn)
        elif x.requires_grad:
            found.add(id(x))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        stack += [following for following, _ in node.next_functions if following is not None and following not in seen]
    return found


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists, dicts and records."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in tensors_in(item)]
    return []
