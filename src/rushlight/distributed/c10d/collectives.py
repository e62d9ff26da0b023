"""Collectives of tensors: the functions of `torch.distributed`.

Each checks its arguments, turns tensors into buffers, and gives the steps of its group's communicator to the group.
Tensors that are not contiguous are received into stand-ins and copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rushlight import Tensor, device, no_grad
from rushlight._interface.distributed import STATE, Operation
from rushlight.distributed.c10d import recorded, user_groups
from rushlight.distributed.c10d.checks import (
    Staging,
    buffer,
    check_list,
    check_same_dtype,
    check_tensor,
    reduced_buffer,
    reduction_of,
    specs_of,
)
from rushlight.distributed.c10d.observing import told
from rushlight.distributed.c10d.options import (
    AllgatherOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOp,
    ScatterOptions,
)
from rushlight.distributed.c10d.work import Work, ended
from rushlight.distributed.c10d.world import BaseGroup, member, place_in
from rushlight.futures import Future

__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_reduce_mean", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "gather", "issue", "reduce", "reduce_together", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter",
]  # fmt: skip


def issue(
    staging: Staging,
    name: str,
    steps: list[Any],
    tensors: Sequence[Tensor],
    async_op: bool,
    results: Any = (),
    keep: Any = None,
) -> Work | None:
    """Run steps as the next operation of the group that `staging` has chosen; `tensors` are what it is described by."""
    recorded.refuse(name)
    inputs = tuple([x._spec for x in tensors])
    outputs = (results._spec,) if isinstance(results, Tensor) else specs_of(results)
    nbytes = inputs[0].nbytes if len(inputs) == 1 else sum([x.nbytes for x in inputs])
    if staging.after:
        steps = steps + staging.after
    operation = Operation(staging.group, name, steps, inputs, nbytes, outputs)
    operation.keep = (tensors, results, keep)
    if STATE.observers:
        return told(operation, tensors, lambda: _run(staging.pg, operation, async_op, results))
    return _run(staging.pg, operation, async_op, results)


def _run(pg: BaseGroup, operation: Operation, async_op: bool, results: Any) -> Work | None:
    if pg._coalescing is not None:
        pg._coalescing.append(Work(operation.group.start(operation), results))
        return pg._coalescing[-1] if async_op else None
    if async_op:
        return Work(operation.group.start(operation), results)
    operation.group.run(operation)
    return None


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Reduce `tensor` over all processes, in place on each.

    With `async_op=True` it gives a `Work`, and the result is there after `wait()`.  TypeError for other than a tensor;
    RuntimeError for a reduction that its dtype does not have.

    Example: `dist.all_reduce(loss, op=dist.ReduceOp.AVG)`
    """
    check_tensor(tensor, "tensor")
    pg = member(group, "all_reduce")
    if pg is None:
        return None
    reduction = reduction_of(op, tensor, "all_reduce")
    if recorded.is_recording():
        return recorded.all_reduce(pg, tensor, reduction, async_op)
    if pg.is_users:
        return user_groups.all_reduce(pg, [tensor], op, async_op)
    staging = Staging(pg)
    held = staging.write(tensor, filled=True)
    steps = staging.communicator.all_reduce(reduced_buffer(held), reduction)
    return issue(staging, f"all_reduce({reduction.name})", steps, (tensor,), async_op, tensor, held)


def all_reduce_coalesced(
    tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Future[Any] | None:
    """`all_reduce` of a list of tensors with one dtype, as one operation.  With `async_op=True` a future of the tensors."""
    work = reduce_together(tensors, op, group, async_op)
    return work.get_future() if work is not None else None


def reduce_together(tensors: Any, op: Any, group: Any, async_op: bool) -> Work | None:
    """`all_reduce_coalesced`, which gives a `Work`."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    check_list(tensors, "tensors")
    check_same_dtype(tensors)
    pg = member(group, "all_reduce_coalesced")
    if pg is None or not tensors:
        return None
    if recorded.is_recording():
        works = [all_reduce(tensor, op, group, True) for tensor in tensors]
        return ended(works) if async_op else None  # type: ignore[arg-type]
    if pg.is_users:
        return user_groups.all_reduce(pg, tensors, op, async_op, together=True)
    staging, steps, kept = Staging(pg), [], []
    for tensor in {(x.data_ptr(), x._spec) if x.numel() else id(x): x for x in tensors}.values():  # each once
        reduction = reduction_of(op, tensor, "all_reduce_coalesced")
        kept.append(staging.write(tensor, filled=True))
        steps += staging.communicator.all_reduce(reduced_buffer(kept[-1]), reduction)
    return issue(staging, f"all_reduce_coalesced({reduction.name})", steps, tensors, async_op, list(tensors), kept)


def all_reduce_mean(
    tensor: Tensor, group: Any = None, async_op: bool = False, divisor: float | None = None
) -> Work | None:
    """The mean over all processes, or their sum by another divisor, in place.

    Groups that a program defines may know sums alone: there the division comes first.
    """
    pg = member(group, "all_reduce")
    if pg is None:
        return None
    if pg.is_users:
        with no_grad():
            tensor.detach().div_(divisor or pg.size())
        return all_reduce(tensor, ReduceOp.SUM, pg, async_op)
    mean = ReduceOp.AVG if divisor is None else ReduceOp(ReduceOp.PREMUL_SUM, 1.0 / divisor)
    return all_reduce(tensor, mean, pg, async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Copy `tensor` of rank `src` to all others."""
    check_tensor(tensor, "tensor")
    pg = member(group, "broadcast")
    if pg is None:
        return None
    root, staging = place_in(pg, src, group_src), Staging(pg)
    if recorded.is_recording():
        return recorded.broadcast(pg, tensor, root, async_op)
    if pg.is_users:
        opts = user_groups.opts_of(BroadcastOptions, async_op, rootRank=root)
        return user_groups.call(pg, "broadcast", tensor.device, [tensor], opts, async_op=async_op)
    held = staging.read(tensor) if pg.rank() == root else staging.write(tensor)
    steps = staging.communicator.broadcast(buffer(held), root)
    return issue(staging, f"broadcast(from {pg._group.ranks[root]})", steps, (tensor,), async_op, tensor, held)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduce `tensor` over all processes, in place on rank `dst`; what others hold then stays as it was."""
    check_tensor(tensor, "tensor")
    pg = member(group, "reduce")
    if pg is None:
        return None
    root, reduction, staging = place_in(pg, dst, group_dst), reduction_of(op, tensor, "reduce"), Staging(pg)
    if recorded.is_recording():
        return recorded.reduce(pg, tensor, reduction, root, async_op)
    if pg.is_users:
        return user_groups.reduce(pg, tensor, op, root, async_op)
    held = staging.write(tensor, filled=True) if pg.rank() == root else staging.read(tensor)
    steps = staging.communicator.reduce(reduced_buffer(held), reduction, root)
    return issue(
        staging, f"reduce({reduction.name}, to {pg._group.ranks[root]})", steps, (tensor,), async_op, tensor, held
    )


def _check_parts(name: str, parts: Sequence[Any], pg: BaseGroup, what: str) -> None:
    if len(parts) != pg.size():
        raise RuntimeError(f"{name}: invalid {what} tensor list (expected length {pg.size()}, got {len(parts)})")


def _check_sizes(name: str, x: Tensor, parts: Sequence[Tensor]) -> None:
    for place, part in enumerate(parts):
        if part.numel() != x.numel():
            raise RuntimeError(
                f"{name}: invalid tensor size at index {place} (expected {tuple(x.shape)}, got {tuple(part.shape)})"
            )


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Every process's `tensor` into `tensor_list`, on all of them; sizes may differ from rank to rank."""
    check_list(tensor_list, "tensor_list")
    check_tensor(tensor, "tensor")
    check_same_dtype(tensor_list, tensor)
    pg = member(group, "all_gather")
    if pg is None:
        return None
    _check_parts("all_gather", tensor_list, pg, "output")
    _check_sizes("all_gather", tensor, tensor_list[pg.rank() : pg.rank() + 1])
    if recorded.is_recording():
        return recorded.all_gather(pg, tensor_list, tensor, async_op)
    if pg.is_users:
        opts = user_groups.opts_of(AllgatherOptions, async_op)
        return user_groups.call(pg, "allgather", tensor.device, [tensor_list], [tensor], opts, async_op=async_op)
    staging = Staging(pg)
    sent, out = staging.read(tensor), [staging.write(x) for x in tensor_list]
    steps = staging.communicator.all_gather(buffer(sent), [buffer(x) for x in out])
    return issue(staging, "all_gather", steps, (tensor,), async_op, tensor_list, (sent, out))


def all_gather_coalesced(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Future[Any] | None:
    """`all_gather` of a list of tensors; `output_tensor_lists[rank][k]` is that rank's tensor k.  With `async_op=True` a
    future of the lists.
    """
    work = _gather_together(output_tensor_lists, input_tensor_list, group, async_op)
    return work.get_future() if work is not None else None


def _gather_together(
    output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: Any, async_op: bool
) -> Work | None:
    check_list(input_tensor_list, "tensor_list")
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for output in output_tensor_lists:
        check_list(output, "output_tensor_lists")
    pg = member(group, "all_gather_coalesced")
    if pg is None or not input_tensor_list:
        return None
    _check_parts("all_gather_coalesced", output_tensor_lists, pg, "output")
    if pg.is_users:
        opts, device = user_groups.opts_of(AllgatherOptions, async_op), input_tensor_list[0].device
        given = output_tensor_lists, input_tensor_list, opts
        return user_groups.call(pg, "allgather_coalesced", device, *given, async_op=async_op)
    staging, steps, kept = Staging(pg), [], []
    for k, tensor in enumerate(input_tensor_list):
        sent, out = staging.read(tensor), [staging.write(row[k]) for row in output_tensor_lists]
        _check_sizes("all_gather_coalesced", tensor, out)
        steps += staging.communicator.all_gather(buffer(sent), [buffer(x) for x in out])
        kept.append((sent, out))
    return issue(staging, "all_gather_coalesced", steps, input_tensor_list, async_op, output_tensor_lists, kept)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Every process's `input_tensor` into one tensor: joined along its first dim, or stacked, as its shape says."""
    check_tensor(input_tensor, "input_tensor")
    check_tensor(output_tensor, "output_tensor")
    pg = member(group, "all_gather_into_tensor")
    if pg is None:
        return None
    _check_whole("all_gather_into_tensor", output_tensor, input_tensor, pg)
    if recorded.is_recording():
        return recorded.all_gather(pg, output_tensor, input_tensor, async_op)
    if pg.is_users:
        given = output_tensor, input_tensor, user_groups.opts_of(AllgatherOptions, async_op)
        return user_groups.call(pg, "all_gather_single", input_tensor.device, *given, async_op=async_op)
    staging = Staging(pg)
    sent, out = staging.read(input_tensor), staging.write(output_tensor)
    parts = buffer(out).pieces([sent.numel()] * pg.size())
    steps = staging.communicator.all_gather(buffer(sent), parts, together=True)
    return issue(staging, "all_gather_into_tensor", steps, (input_tensor,), async_op, output_tensor, (sent, out))


all_gather_single = all_gather_into_tensor


def _check_whole(name: str, whole: Tensor, part: Tensor, pg: BaseGroup) -> None:
    """A tensor of everybody's parts has their dtype and size."""
    if whole.dtype is not part.dtype:
        raise RuntimeError(
            f"{name}: output tensor must have the same type as input tensor, got {whole.dtype} and {part.dtype}"
        )
    if whole.numel() != part.numel() * pg.size():
        raise RuntimeError(
            f"{name}: invalid tensor size (expected {pg.size()} times the elements of {tuple(part.shape)}, got {tuple(whole.shape)})"
        )


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:  # fmt: skip
    """Every process's `tensor` into `gather_list` on rank `dst` (0 where none is named)."""
    check_tensor(tensor, "tensor")
    if gather_list is not None:
        check_list(gather_list, "gather_list")
        check_same_dtype(tensor, gather_list)
    pg = member(group, "gather")
    if pg is None:
        return None
    root = place_in(pg, dst, group_dst if dst is not None or group_dst is not None else 0)
    if pg.rank() == root:
        if not gather_list:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        _check_parts("gather", gather_list, pg, "output")
        _check_sizes("gather", tensor, gather_list)
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    if pg.is_users:
        opts, rows = user_groups.opts_of(GatherOptions, async_op, rootRank=root), [gather_list] if gather_list else []
        return user_groups.call(pg, "gather", tensor.device, rows, [tensor], opts, async_op=async_op)
    staging = Staging(pg)
    sent, out = staging.read(tensor), [staging.write(x) for x in gather_list] if gather_list else None
    steps = staging.communicator.gather(buffer(sent), None if out is None else [buffer(x) for x in out], root)
    name = f"gather(to {pg._group.ranks[root]})"
    return issue(staging, name, steps, (tensor,), async_op, gather_list or [], (sent, out))


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:  # fmt: skip
    """This process's place in rank `src`'s `scatter_list` into `tensor` (0 where none is named)."""
    check_tensor(tensor, "tensor")
    if scatter_list is not None:
        check_list(scatter_list, "scatter_list")
        check_same_dtype(tensor, scatter_list)
    pg = member(group, "scatter")
    if pg is None:
        return None
    root = place_in(pg, src, group_src if src is not None or group_src is not None else 0)
    if pg.rank() == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        if len(scatter_list) != pg.size():
            raise RuntimeError(
                f"scatter: Incorrect input list size {len(scatter_list)}. Input list size should be {pg.size()}, same as size of the process group."
            )
        _check_sizes("scatter", tensor, scatter_list)
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    if pg.is_users:
        opts, rows = (
            user_groups.opts_of(ScatterOptions, async_op, rootRank=root),
            [scatter_list] if scatter_list else [],
        )
        return user_groups.call(pg, "scatter", tensor.device, [tensor], rows, opts, async_op=async_op)
    staging = Staging(pg)
    out, parts = staging.write(tensor), [staging.read(x) for x in scatter_list] if scatter_list else None
    steps = staging.communicator.scatter(buffer(out), None if parts is None else [buffer(x) for x in parts], root)
    name = f"scatter(from {pg._group.ranks[root]})"
    return issue(staging, name, steps, (tensor,), async_op, [tensor], (out, parts))


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce everybody's `input_list[rank]` into `output` of each rank; sizes may differ from rank to rank."""
    check_tensor(output, "output")
    check_list(input_list, "input_list")
    check_same_dtype(output, input_list)
    pg = member(group, "reduce_scatter")
    if pg is None:
        return None
    if len(input_list) != pg.size():
        raise RuntimeError("invalid input tensor list size, must be world size")
    _check_sizes("reduce_scatter", output, input_list[pg.rank() : pg.rank() + 1])
    reduction, staging = reduction_of(op, output, "reduce_scatter"), Staging(pg)
    if recorded.is_recording():
        return recorded.reduce_scatter(pg, output, input_list, reduction, async_op)
    if pg.is_users:
        return user_groups.reduce_scatter(pg, output, input_list, op, async_op)
    out, parts = staging.write(output), [staging.read(x) for x in input_list]
    steps = staging.communicator.reduce_scatter(reduced_buffer(out), [reduced_buffer(x) for x in parts], reduction)
    name = f"reduce_scatter({reduction.name})"
    return issue(staging, name, steps, input_list, async_op, output, (out, parts))


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce everybody's `input` and give each rank its part, along the first dim."""
    check_tensor(output, "output")
    check_tensor(input, "input")
    pg = member(group, "reduce_scatter_tensor")
    if pg is None:
        return None
    _check_whole("reduce_scatter_tensor", input, output, pg)
    reduction, staging = reduction_of(op, output, "reduce_scatter_tensor"), Staging(pg)
    if recorded.is_recording():
        return recorded.reduce_scatter(pg, output, input, reduction, async_op)
    if pg.is_users:
        return user_groups.reduce_scatter(pg, output, input, op, async_op)
    out, sent = staging.write(output), staging.read(input)
    target = reduced_buffer(out)
    parts = reduced_buffer(sent).pieces([target.count] * pg.size())
    steps = staging.communicator.reduce_scatter(target, parts, reduction, together=True)
    name = f"reduce_scatter_tensor({reduction.name})"
    return issue(staging, name, steps, (input,), async_op, output, (out, sent))


reduce_scatter_single = reduce_scatter_tensor


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Tensor k of `input_tensor_list` goes to rank k, and rank k's tensor for this one into `output_tensor_list[k]`."""
    check_list(output_tensor_list, "output_tensor_list")
    check_list(input_tensor_list, "input_tensor_list")
    check_same_dtype(output_tensor_list, input_tensor_list)
    pg = member(group, "all_to_all")
    if pg is None:
        return None
    _check_parts("all_to_all", output_tensor_list, pg, "output")
    _check_parts("all_to_all", input_tensor_list, pg, "input")
    if recorded.is_recording():
        sizes = [[x.numel() for x in row] for row in (output_tensor_list, input_tensor_list)]
        return recorded.all_to_all(pg, output_tensor_list, input_tensor_list, (sizes[0], sizes[1]), False, async_op)
    if pg.is_users:
        given = output_tensor_list, input_tensor_list, user_groups.opts_of(AllToAllOptions, async_op)
        return user_groups.call(pg, "alltoall", input_tensor_list[0].device, *given, async_op=async_op)
    staging = Staging(pg)
    sent, out = [staging.read(x) for x in input_tensor_list], [staging.write(x) for x in output_tensor_list]
    steps = staging.communicator.all_to_all([buffer(x) for x in out], [buffer(x) for x in sent])
    return issue(staging, "all_to_all", steps, input_tensor_list, async_op, output_tensor_list, (sent, out))


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None, input_split_sizes: list[int] | None = None,
    group: Any = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Pieces of `input` along its first dim to all ranks, and theirs into `output`; equal pieces without sizes."""
    check_tensor(output, "output")
    check_tensor(input, "input")
    check_same_dtype(output, input)
    pg = member(group, "all_to_all_single")
    if pg is None:
        return None
    if not (output.is_contiguous() and input.is_contiguous()):
        raise ValueError("Tensors must be contiguous")
    even = not output_split_sizes and not input_split_sizes
    counts = _split_counts(output, output_split_sizes, pg), _split_counts(input, input_split_sizes, pg)
    if recorded.is_recording():
        return recorded.all_to_all(pg, output, input, counts, even, async_op)
    if pg.is_users:
        splits = output_split_sizes or [], input_split_sizes or []
        opts = user_groups.opts_of(AllToAllOptions, async_op)
        return user_groups.call(pg, "all_to_all_single", input.device, output, input, *splits, opts, async_op=async_op)
    staging = Staging(pg)
    out, sent = staging.write(output), staging.read(input)
    got, parts = buffer(out).pieces(counts[0]), buffer(sent).pieces(counts[1])
    steps = staging.communicator.all_to_all(got, parts, together=even)
    return issue(staging, "all_to_all_single", steps, (input,), async_op, output, (sent, out))


def _split_counts(x: Tensor, sizes: Sequence[int] | None, pg: BaseGroup) -> list[int]:
    """The numbers of elements of the pieces of a tensor along its first dim."""
    rows = x.shape[0] if x.ndim else 1
    if not sizes:
        if rows % pg.size():
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        return [x.numel() // pg.size()] * pg.size()
    if len(sizes) != pg.size():
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != rows:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    row = x.numel() // rows if rows else 0
    return [size * row for size in sizes]


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: timedelta | None = None
) -> Work | None:
    """Wait until all processes are here."""
    pg = member(group, "barrier")
    if pg is None:
        return None
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    if pg.is_users:
        opts = user_groups.opts_of(BarrierOptions, async_op, device=device("cpu"))
        return user_groups.call(pg, "barrier", opts.device, opts, async_op=async_op)
    staging = Staging(pg)
    return issue(staging, "barrier", staging.communicator.barrier(), (), async_op)
