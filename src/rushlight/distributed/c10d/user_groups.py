"""Process groups that a program defines in Python, as subclasses of `ProcessGroup`.

The functions of `torch.distributed` hand them their tensors as they are, in the lists and options of PyTorch's methods.
Compiled programs know groups by their numbers and tensors by their addresses: for them a communicator turns elements
into tensors of one dim.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import rushlight
from rushlight import Tensor
from rushlight._interface.distributed import GROUPS, Buffer, FakeGroup, Reduction, SingleCommunicator
from rushlight.distributed.c10d import options
from rushlight.distributed.c10d.options import Backend, BackendConfig, ReduceOp
from rushlight.distributed.c10d.work import wait_for

__all__ = ["DistributedBackendOptions", "Place", "call", "defines", "make", "opts_of", "plugin_of", "user_group"]

_NUMBERS = itertools.count(1 << 49)  # of their groups, which threads may have many of
_FORMER = {
    "all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base", "all_to_all_single": "alltoall_base",
    "allgather": "all_gather", "alltoall": "all_to_all", "allreduce": "all_reduce",
}  # fmt: skip


class DistributedBackendOptions:
    """First argument of a function that was registered with `extended_api=True`."""

    store: Any = None
    group_rank, group_size = 0, 0
    timeout: timedelta = options.default_pg_timeout
    group_id = ""
    global_ranks_in_group: Sequence[int] = ()


class Place(NamedTuple):
    """Where a new group stands."""

    name: str
    ranks: Sequence[int]
    rank: int
    store: Any
    seconds: float


def plugin_of(config: BackendConfig) -> Any:
    """The registered backend that a configuration names first, or None."""
    for name in config.get_device_backend_map().values():
        found = Backend._plugins.get(name.upper())
        if found is not None:
            return found
    return None


def make(plugin: Any, place: Place, pg_options: Any = None) -> Any:
    """Call the function of a registered backend: the group that it gives.

    TypeError where that is no `ProcessGroup`: engines in C++ are not loaded.
    """
    timeout = timedelta(seconds=place.seconds)
    if plugin.extended_api:
        given = DistributedBackendOptions()
        given.store, given.timeout, given.group_id = place.store, timeout, place.name
        given.group_rank, given.group_size = place.rank, len(place.ranks)
        given.global_ranks_in_group = list(place.ranks)
        made = plugin.creator_fn(given, pg_options)
    else:
        made = plugin.creator_fn(place.store, place.rank, len(place.ranks), timeout)
    if not hasattr(made, "_adopt"):
        raise TypeError(
            f"a backend of torch.distributed gives a subclass of torch.distributed.ProcessGroup, got {type(made).__name__}"
        )
    return made


# ***** calls *****


def defines(pg: Any, name: str) -> bool:
    """Whether a user's group has a method of its own."""
    return name in vars(pg) or getattr(type(pg), name, None) is not getattr(pg._base_class, name, None)


def call(pg: Any, name: str, device: Any, *given: Any, async_op: bool = False) -> Any:
    """Call a method of a user's group: its `Work` with `async_op`, else wait for it.

    RuntimeError where the group does not have it.
    """
    chosen = name if defines(pg, name) else _FORMER.get(name, name)
    if not defines(pg, chosen):
        raise RuntimeError(
            f"No backend type associated with device type {device.type}: {type(pg).__name__} has no {name}"
        )
    work = getattr(pg, chosen)(*given)
    if pg._coalescing is not None and work is not None:
        pg._coalescing.append(work)
        return work if async_op else None
    if async_op:
        return work
    if work is not None:
        wait_for(work)
    return None


def opts_of(kind: Callable[[], Any], async_op: bool = False, **values: Any) -> Any:
    """Options of a method."""
    made = kind()
    made.asyncOp = async_op
    for name, value in values.items():
        setattr(made, name, value)
    return made


def _real(x: Tensor) -> Tensor:
    """Complex numbers as pairs."""
    return rushlight.view_as_real(x) if x.is_complex() else x


def all_reduce(pg: Any, tensors: Sequence[Tensor], op: Any, async_op: bool, together: bool = False) -> Any:
    """`allreduce` of one tensor, or `allreduce_coalesced` of many."""
    opts = opts_of(options.AllreduceCoalescedOptions if together else options.AllreduceOptions, async_op)
    opts.reduceOp = _reduce_op(op)
    name = "allreduce_coalesced" if together else "allreduce"
    return call(pg, name, tensors[0].device, [_real(x) for x in tensors], opts, async_op=async_op)


def reduce(pg: Any, tensor: Tensor, op: Any, root: int, async_op: bool) -> Any:
    """`reduce` to a place."""
    opts = opts_of(options.ReduceOptions, async_op, reduceOp=_reduce_op(op), rootRank=root)
    return call(pg, "reduce", tensor.device, [_real(tensor)], opts, async_op=async_op)


def reduce_scatter(pg: Any, output: Tensor, parts: Tensor | Sequence[Tensor], op: Any, async_op: bool) -> Any:
    """`reduce_scatter` of parts, or `reduce_scatter_single` of one tensor."""
    opts = opts_of(options.ReduceScatterOptions, async_op, reduceOp=_reduce_op(op))
    if isinstance(parts, Tensor):
        return call(pg, "reduce_scatter_single", output.device, _real(output), _real(parts), opts, async_op=async_op)
    rows = [[_real(part) for part in parts]]
    return call(pg, "reduce_scatter", output.device, [_real(output)], rows, opts, async_op=async_op)


def _reduce_op(op: Any) -> Any:
    return op if isinstance(op, ReduceOp) else ReduceOp(op)


# ***** below tensors *****


def _tensor(x: Buffer) -> Tensor:
    """A tensor of one dim over a buffer's elements."""
    dtype = getattr(rushlight, x.dtype)
    if not x.count:
        return rushlight.empty(0, dtype=dtype)
    return rushlight.frombuffer((ctypes.c_char * x.nbytes).from_address(x.address), dtype=dtype)


class _UserCommunicator(SingleCommunicator):
    """Steps that call the methods of a user's group."""

    def __init__(self, pg: Any, rank: int, size: int) -> None:
        self._pg, self.rank, self.size = pg, rank, size

    def _step(self, name: str, *given: Any) -> list[Any]:
        def run() -> None:
            work = self._made(name, given)
            if work is not None:
                wait_for(work)

        return [run]

    def _made(self, name: str, given: Any) -> Any:
        cpu = rushlight.device("cpu")
        return call(self._pg, name, cpu, *(one() if callable(one) else one for one in given), async_op=True)

    def all_reduce(self, x: Buffer, reduction: Reduction) -> list[Any]:
        return self._step("allreduce", lambda: [_tensor(x)], _reduce_opts(options.AllreduceOptions, reduction))

    def reduce(self, x: Buffer, reduction: Reduction, root: int) -> list[Any]:
        opts = _reduce_opts(options.ReduceOptions, reduction)
        opts.rootRank = root
        return self._step("reduce", lambda: [_tensor(x)], opts)

    def broadcast(self, x: Buffer, root: int) -> list[Any]:
        return self._step("broadcast", lambda: [_tensor(x)], opts_of(options.BroadcastOptions, rootRank=root))

    def all_gather(self, x: Buffer, out: Sequence[Buffer], together: bool = False) -> list[Any]:
        rows = lambda: [[_tensor(part) for part in out]]
        return self._step("allgather", rows, lambda: [_tensor(x)], opts_of(options.AllgatherOptions))

    def reduce_scatter(
        self, x: Buffer, parts: Sequence[Buffer], reduction: Reduction, together: bool = False
    ) -> list[Any]:
        rows = lambda: [[_tensor(part) for part in parts]]
        opts = _reduce_opts(options.ReduceScatterOptions, reduction)
        return self._step("reduce_scatter", lambda: [_tensor(x)], rows, opts)

    def all_to_all(self, out: Sequence[Buffer], parts: Sequence[Buffer], together: bool = False) -> list[Any]:
        return self._step(
            "alltoall",
            lambda: [_tensor(part) for part in out],
            lambda: [_tensor(part) for part in parts],
            opts_of(options.AllToAllOptions),
        )


_OPS = {
    "sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "prod": ReduceOp.PRODUCT, "min": ReduceOp.MIN, "max": ReduceOp.MAX, "band": ReduceOp.BAND,
    "bor": ReduceOp.BOR, "bxor": ReduceOp.BXOR, "premul_sum": ReduceOp.PREMUL_SUM,
}  # fmt: skip


def _reduce_opts(kind: Callable[[], Any], reduction: Reduction) -> Any:
    return opts_of(kind, reduceOp=ReduceOp(_OPS[reduction.name], reduction.factor))


class _UserGroup(FakeGroup):
    """A user's group below tensors: operations are done as soon as they are asked for."""

    def free(self) -> None:
        """Let the user's group end."""
        self.communicator._pg.shutdown()


def user_group(pg: Any, rank: int, size: int) -> Any:
    """The group below tensors of a user's group; the ranks are its own until it becomes one of the job's."""
    made = _UserGroup(next(_NUMBERS), "", range(size), _UserCommunicator(pg, rank, size), 0.0)
    del GROUPS[made.number]
    return made
