"""`ProcessGroup`: collectives as methods of a group, which take lists of tensors and give `Work`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.distributed.c10d import collectives, messages
from rushlight.distributed.c10d.options import RedOpType, ReduceOp
from rushlight.distributed.c10d.work import Work, ended
from rushlight.distributed.c10d.world import BaseGroup

__all__ = ["ProcessGroup", "ProcessGroupGloo"]


def _one(tensors: Any) -> Tensor:
    """The tensor of a list of one, as PyTorch's methods take it."""
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise RuntimeError(f"a process group of the CPU takes one tensor, got a list of {len(tensors)}")
    return tensors[0]


def _op(opts: Any) -> Any:
    """The reduction that options or an argument name."""
    if opts is None:
        return ReduceOp.SUM
    return opts if isinstance(opts, (ReduceOp, RedOpType)) else opts.reduceOp


def _root(opts: Any) -> int:
    """The place of the root that options or an argument name."""
    return opts if isinstance(opts, int) else 0 if opts is None else opts.rootRank


class ProcessGroup(BaseGroup):
    """Processes that work together; `init_process_group` and `new_group` make them.

    Its methods are those of PyTorch's class: they take lists of one tensor, places in the group as roots and peers, and
    give a `Work`.
    """

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`all_reduce`."""
        return collectives.all_reduce(_one(tensors), _op(opts), self, async_op=True)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work | None:
        """`all_reduce_coalesced`."""
        return collectives.all_reduce_coalesced(tensors, _op(opts), self, async_op=True)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`broadcast` from a place in the group."""
        return collectives.broadcast(_one(tensors), group=self, async_op=True, group_src=_root(opts))

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Work | None:
        """`reduce` to a place in the group."""
        chosen = op if op is not None else _op(opts) if hasattr(opts, "reduceOp") else ReduceOp.SUM
        return collectives.reduce(_one(tensors), op=chosen, group=self, async_op=True, group_dst=_root(opts))

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        """`all_gather`; the output is a list of a list."""
        rows = output_tensors if isinstance(output_tensors[0], Tensor) else output_tensors[0]
        return collectives.all_gather(rows, _one(input_tensors), self, async_op=True)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return collectives.all_gather_into_tensor(output, input, self, async_op=True)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work | None:
        """`all_gather_into_tensor` of several."""
        works = [self._allgather_base(out, x) for out, x in zip(outputs, inputs, strict=True)]
        return ended([work for work in works if work is not None])

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`gather` to a place in the group."""
        rows = output_tensors[0] if output_tensors and not isinstance(output_tensors[0], Tensor) else output_tensors
        return collectives.gather(_one(input_tensors), rows or None, group=self, async_op=True, group_dst=_root(opts))

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`scatter` from a place in the group."""
        rows = input_tensors[0] if input_tensors and not isinstance(input_tensors[0], Tensor) else input_tensors
        return collectives.scatter(_one(output_tensors), rows or None, group=self, async_op=True, group_src=_root(opts))

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        """`reduce_scatter`; the input is a list of a list."""
        rows = input_tensors if isinstance(input_tensors[0], Tensor) else input_tensors[0]
        return collectives.reduce_scatter(_one(output_tensors), rows, _op(opts), self, async_op=True)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return collectives.reduce_scatter_tensor(output, input, _op(opts), self, async_op=True)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work | None:
        """`reduce_scatter_tensor` of several."""
        works = [self._reduce_scatter_base(out, x, opts) for out, x in zip(outputs, inputs, strict=True)]
        return ended([work for work in works if work is not None])

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        """`all_to_all`."""
        return collectives.all_to_all(output_tensors, input_tensors, self, async_op=True)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: Any, input_splits: Any, opts: Any = None
    ) -> Work | None:
        """`all_to_all_single`."""
        return collectives.all_to_all_single(output, input, output_splits, input_splits, self, async_op=True)

    all_to_all_single = alltoall_base

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work | None:
        """`barrier`."""
        return collectives.barrier(self, async_op=True)

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work | None:
        """`isend` to a place in the group."""
        return messages.isend(_one(tensors), group=self, tag=tag, group_dst=dstRank)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work | None:
        """`irecv` from a place in the group."""
        return messages.irecv(_one(tensors), group=self, tag=tag, group_src=srcRank)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work | None:
        """`irecv` from anyone."""
        return messages.irecv(_one(tensors), group=self, tag=tag)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """`monitored_barrier`."""
        messages.monitored_barrier(self, timeout, wait_all_ranks)


class ProcessGroupGloo:
    """For `isinstance`: groups that were asked to be gloo's are `ProcessGroup`s here, of rushlight's own engine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "rushlight has no ProcessGroupGloo: init_process_group('gloo') makes a ProcessGroup on MPI"
        )
