"""Messages between two processes: `send`, `recv`, and many at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.distributed import STATE, DistBackendError, Operation
from rushlight.distributed.c10d.checks import Staging, buffer, check_tensor, specs_of
from rushlight.distributed.c10d.observing import told
from rushlight.distributed.c10d.user_groups import call
from rushlight.distributed.c10d.work import Work, wait_for
from rushlight.distributed.c10d.world import BaseGroup, group_of, member, place_in

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "monitored_barrier", "recv", "send", "start_batch"]

_TO_ITSELF = "Invalid destination rank: destination rank should not be the same as the rank of the current process."
_FROM_ITSELF = "Invalid source rank: source rank should not be the same as the rank of the current process."
_BARRIER = 30001  # the tag of tokens of monitored barriers


def _message(name: str, steps: Any, tensor: Tensor, staging: Staging, held: Any, communicator: Any) -> Operation:
    specs = specs_of(tensor)
    operation = Operation(staging.group, name, [*steps, *staging.after], specs, tensor._spec.nbytes, specs)
    operation.keep, operation.communicator = (tensor, held), communicator
    return operation


def _sending(
    tensor: Any, pg: BaseGroup, dst: int | None, tag: int, group_dst: int | None, batched: bool = False
) -> Operation:
    check_tensor(tensor, "tensor")
    to = place_in(pg, dst, group_dst)
    if to == pg.rank():
        raise ValueError(_TO_ITSELF)
    staging = Staging(pg)
    held = staging.read(tensor)
    communicator, place = staging.group.way_to(to, batched)
    steps = communicator.send(buffer(held), place, tag)
    return _message(f"send(to {pg._group.ranks[to]})", steps, tensor, staging, held, communicator)


def _receiving(
    tensor: Any, pg: BaseGroup, src: int | None, tag: int, group_src: int | None, batched: bool = False
) -> Operation:
    check_tensor(tensor, "tensor")
    anyone = src is None and group_src is None
    source = -1 if anyone else place_in(pg, src, group_src)
    if source == pg.rank():
        raise ValueError(_FROM_ITSELF)
    staging = Staging(pg)
    held = staging.write(tensor)
    name = "recv(from any)" if anyone else f"recv(from {pg._group.ranks[source]})"
    communicator, place = staging.group.way_to(source, batched)
    return _message(name, communicator.receive(buffer(held), place, tag), tensor, staging, held, communicator)


def _issued(pg: BaseGroup, operation: Operation, tensor: Tensor) -> Work | None:
    if pg._coalescing is not None and operation.group in pg._devices.values():
        pg._batched.append((operation, tensor))
        return None
    work = Work(_begun(operation, tensor, operation.group.start_message), tensor)
    if pg._coalescing is not None:
        pg._coalescing.append(work)
    return work


def _begun(operation: Operation, tensor: Tensor, begin: Callable[[Operation], Any]) -> Any:
    if STATE.observers:
        return told(operation, (tensor,), lambda: begin(operation))
    return begin(operation)


def _users_send(tensor: Any, pg: BaseGroup, dst: int | None, tag: int, group_dst: int | None) -> Any:
    check_tensor(tensor, "tensor")
    to = place_in(pg, dst, group_dst)
    if to == pg.rank():
        raise ValueError(_TO_ITSELF)
    return call(pg, "send", tensor.device, [tensor], to, tag, async_op=True)


def _users_receive(tensor: Any, pg: BaseGroup, src: int | None, tag: int, group_src: int | None) -> Any:
    check_tensor(tensor, "tensor")
    if src is None and group_src is None:
        return call(pg, "recv_anysource", tensor.device, [tensor], tag, async_op=True)
    source = place_in(pg, src, group_src)
    if source == pg.rank():
        raise ValueError(_FROM_ITSELF)
    return call(pg, "recv", tensor.device, [tensor], source, tag, async_op=True)


def _waited(work: Any) -> Any:
    if work is not None:
        wait_for(work)
    return work


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Send a tensor; it must stay as it is until `wait()` of the `Work` that is given."""
    pg = member(group, "isend")
    if pg is None:
        return None
    if pg.is_users:
        return _users_send(tensor, pg, dst, tag, group_dst)
    return _issued(pg, _sending(tensor, pg, dst, tag, group_dst, pg._coalescing is not None), tensor)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Receive into a tensor: the elements are there after `wait()`.  Without a source, from anyone."""
    pg = member(group, "irecv")
    if pg is None:
        return None
    if pg.is_users:
        return _users_receive(tensor, pg, src, tag, group_src)
    return _issued(pg, _receiving(tensor, pg, src, tag, group_src, pg._coalescing is not None), tensor)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to another process, and wait until it may be changed again."""
    pg = member(group, "send")
    if pg is not None and pg.is_users:
        _waited(_users_send(tensor, pg, dst, tag, group_dst))
    elif pg is not None:
        operation = _sending(tensor, pg, dst, tag, group_dst)
        _begun(operation, tensor, operation.group.run_message)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive into a tensor; the rank that it came from, or -1 outside of the group.  Without a source, from anyone."""
    pg = member(group, "recv")
    if pg is None:
        return -1
    if pg.is_users:
        work = _waited(_users_receive(tensor, pg, src, tag, group_src))
        if src is None and group_src is None:
            return pg._group.ranks[work._source_rank()] if work is not None else -1
        return src if src is not None else pg._group.ranks[group_src or 0]
    operation = _receiving(tensor, pg, src, tag, group_src)
    _begun(operation, tensor, operation.group.run_message)
    if operation.received is None and src is not None:  # of a device, where the source must be named
        return src
    return pg._group.ranks[group_src] if operation.received is None and group_src is not None else operation.source()


class P2POp:
    """One message of `batch_isend_irecv`: `op` is `isend` or `irecv`, `peer` a rank of the whole job."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        check_tensor(tensor, "tensor")
        pg = group_of(group)
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.group_peer = place_in(pg, peer, group_peer)
        self.peer = pg._group.ranks[self.group_peer]

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, group={self.group}, peer={self.peer}, tag={self.tag}, {tuple(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Start many messages at once; a `Work` for each."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if not p2p_op_list:
        raise ValueError("Invalid ``p2p_op_list``: it is empty")
    if any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    pg: BaseGroup = group_of(p2p_op_list[0].group)
    if p2p_op_list[0].tensor.device.type in pg._devices:
        for op in p2p_op_list:
            begin = _sending if op.op is isend else _receiving
            pg._batched.append((begin(op.tensor, pg, None, op.tag, op.group_peer, True), op.tensor))
        work = start_batch(pg)
        return [] if work is None else [work]
    works = [
        op.op(op.tensor, group=op.group, tag=op.tag, **{"group_dst" if op.op is isend else "group_src": op.group_peer})
        for op in p2p_op_list
    ]
    return [work for work in works if work is not None]


def start_batch(pg: BaseGroup) -> Work | None:
    """Start the messages on a device that were collected, as one group of calls: none waits for another one.  All
    processes of the group take part where it is their first operation there.
    """
    batch, pg._batched = pg._batched, []
    if not batch:
        return None
    tensors = [tensor for _, tensor in batch]
    group, steps = batch[0][0].group, [step for operation, _ in batch for step in operation.steps]
    specs = specs_of(tensors)
    whole = Operation(group, "batch_isend_irecv", group.communicator.together(steps), specs, 0, specs)
    whole.keep = [operation.keep for operation, _ in batch]
    return Work(group.start(whole), tensors)


def monitored_barrier(group: Any = None, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that says who does not come: DistBackendError on rank 0 of the group names the rank that has not come
    after `timeout`, or with `wait_all_ranks=True` all of them.
    """
    pg = member(group, "monitored_barrier")
    if pg is None or pg.size() == 1:
        return
    if not pg._on_host:
        raise ValueError("monitored_barrier is only implemented for GLOO backend")
    seconds = pg._group.timeout if timeout is None else timeout.total_seconds()
    ranks, token = pg._group.ranks, rushlight.zeros(1, dtype=rushlight.uint8)
    if pg.rank():
        isend(token, group=pg, tag=_BARRIER, group_dst=0)
        verdict = rushlight.zeros(1, dtype=rushlight.uint8)
        answer = irecv(verdict, group=pg, tag=_BARRIER, group_src=0)
        _await(answer, seconds, f"rank {ranks[0]} has not let rank {ranks[pg.rank()]} pass the monitored barrier")
        if verdict.item():
            raise DistBackendError(
                f"[Rank {ranks[pg.rank()]}]: rank {ranks[0]} says that not all ranks came to the monitored barrier"
            )
        return
    places = range(1, pg.size())
    works = [irecv(rushlight.zeros(1, dtype=rushlight.uint8), group=pg, tag=_BARRIER, group_src=k) for k in places]
    until, missing = time.monotonic() + seconds, []
    for rank, work in zip(ranks[1:], works, strict=True):
        try:
            _await(work, max(until - time.monotonic(), 0.001), "")
        except DistBackendError:
            missing.append(rank)
            if not wait_all_ranks:
                break
    # Everybody gets an answer, those too that come later: so the next barrier begins with nothing on the way.
    token.fill_(1 if missing else 0)
    for k in places:
        isend(token, group=pg, tag=_BARRIER, group_dst=k)
    if missing:
        names = ", ".join(map(str, missing))
        raise DistBackendError(
            f"[Rank {ranks[0]}]: Ranks {names} failed to pass monitoredBarrier in {1000 * seconds:.0f} ms"
        )


def _await(work: Any, seconds: float, what: str) -> None:
    try:
        work.wait(timedelta(seconds=seconds))
    except DistBackendError as error:
        raise DistBackendError(f"{what} in {1000 * seconds:.0f} ms: {error}") from error
