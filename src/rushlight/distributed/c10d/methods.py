"""`ProcessGroup`: collectives as methods of a group, which take lists of tensors and give `Work`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rushlight import Tensor
from rushlight._interface.distributed import GROUPS
from rushlight.distributed.c10d import collectives, messages
from rushlight.distributed.c10d.options import BackendConfig, BackendType, RedOpType, ReduceOp, default_pg_timeout
from rushlight.distributed.c10d.user_groups import defines, user_group
from rushlight.distributed.c10d.work import Work, ended
from rushlight.distributed.c10d.world import BaseGroup

__all__ = ["WAYS", "ProcessGroup", "ProcessGroupGloo"]

WAYS: dict[str, Any] = {}  # functions of `groups`, which makes the groups: `split_group`, `shrink_group`, `new_gloo`


def _one(tensors: Any) -> Tensor:
    """The tensor of a list of one, as PyTorch's methods take it."""
    if isinstance(tensors, Tensor):
        return tensors
    if not tensors:
        raise RuntimeError("a process group's method requires non-empty tensor list")
    if len(tensors) != 1:
        raise RuntimeError(f"a process group of the CPU takes one tensor, got a list of {len(tensors)}")
    return tensors[0]


def _op(opts: Any) -> Any:
    """The reduction that options or an argument name."""
    if opts is None:
        return ReduceOp.SUM
    return opts if isinstance(opts, (ReduceOp, RedOpType)) else opts.reduceOp


def _root(opts: Any, pg: BaseGroup) -> int:
    """The place of the root that options or an argument name; RuntimeError for one outside of the group."""
    root = opts if isinstance(opts, int) else 0 if opts is None else opts.rootRank
    if not 0 <= root < pg.size():
        raise RuntimeError(f"invalid root rank: {root} in a group of {pg.size()}")
    if getattr(opts, "rootTensor", 0):
        raise RuntimeError(f"invalid root tensor: {opts.rootTensor} of a list of one")
    return root


class ProcessGroup(BaseGroup):
    """Processes that work together; `init_process_group` and `new_group` make them.

    Its methods are those of PyTorch's class: they take lists of one tensor, places in the group as roots and peers, and
    give a `Work`.
    """

    BackendType = BackendType
    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, CUSTOM = BackendType
    _base_class: Any = None

    def __init__(self, *place: Any) -> None:
        """`ProcessGroup(rank, size)`, or with a store before: of a subclass, whose methods carry collectives out."""
        if len(place) not in (2, 3) or not all(isinstance(number, int) for number in place[-2:]):
            raise TypeError(f"ProcessGroup takes (rank, size) or (store, rank, size), got {place}")
        self.is_users = True
        self._set_up(user_group(self, *place[-2:]), "undefined", BackendConfig("gloo"), "undefined")
        for name, own in (("rank", "getRank"), ("size", "getSize")):
            if not defines(self, name) and hasattr(self, own):
                setattr(self, name, getattr(self, own))

    @classmethod
    def _of(cls, group: Any, backend: str, config: Any, description: str, devices: dict[str, Any]) -> ProcessGroup:
        """A group on an engine of rushlight's."""
        made = cls.__new__(cls)
        made._set_up(group, backend, config, description, devices)
        return made

    def _adopt(self, name: str, ranks: Any, seconds: float, backend: str, config: Any, description: str) -> None:
        """A user's group becomes one of the job's."""
        group = self._group
        group.name, group.ranks, group.timeout, group.backend = name, tuple(ranks), seconds, backend
        group.description = description
        self._backend, self._config = backend, config
        self._set_group_name(name)
        self._set_group_desc(description)
        GROUPS[group.number] = group

    @property
    def use_pg_for_symm_mem_rendezvous(self) -> bool:
        """Whether symmetric memory of GPUs is agreed on by this group: there is none."""
        return False

    def boxed(self) -> ProcessGroup:
        """The group itself: PyTorch's goes through a box to compiled code."""
        return self

    @staticmethod
    def unbox(boxed: ProcessGroup) -> ProcessGroup:
        """The object in a box of `boxed`; ValueError for anything else."""
        if not isinstance(boxed, ProcessGroup):
            raise ValueError(f"ProcessGroup.unbox() takes what ProcessGroup.boxed() gave, not {type(boxed).__name__}")
        return boxed

    def split_group(
        self, ranks: Any, timeout: Any = None, opts: Any = None, group_name: str | None = None, group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:  # fmt: skip
        """A group of some places of this one, for those who are in it, else None; all processes of this group call it."""
        made: ProcessGroup | None = WAYS["split_group"](self, [list(ranks)], timeout, opts, group_desc)
        return made

    def _get_backend(self, device: Any) -> ProcessGroup:
        """The backend of operations on a type of device: the group itself; RuntimeError for devices that it does not
        serve.
        """
        if all(device.type != served.type for served in self._device_types):
            raise RuntimeError(f"No backend type associated with device type {device.type}")
        return self

    def merge_remote_group(
        self, store: Any, size: int, timeout: Any = None, group_name: str | None = None, group_desc: str | None = None
    ) -> Any:
        """NotImplementedError: the processes of an MPI world are those with which it began."""
        raise NotImplementedError(
            "torch.distributed.ProcessGroup.merge_remote_group is not there: a world takes no further processes, start another one"
        )

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`all_reduce`."""
        return collectives.all_reduce(_one(tensors), _op(opts), self, async_op=True)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work | None:
        """`all_reduce_coalesced`."""
        return collectives.reduce_together(tensors, _op(opts), self, True)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`broadcast` from a place in the group."""
        return collectives.broadcast(_one(tensors), group=self, async_op=True, group_src=_root(opts, self))

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Work | None:
        """`reduce` to a place in the group."""
        chosen = op if op is not None else _op(opts) if hasattr(opts, "reduceOp") else ReduceOp.SUM
        return collectives.reduce(_one(tensors), op=chosen, group=self, async_op=True, group_dst=_root(opts, self))

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        """`all_gather`; the output is a list of a list."""
        rows = output_tensors if isinstance(output_tensors[0], Tensor) else output_tensors[0]
        return collectives.all_gather(rows, _one(input_tensors), self, async_op=True)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return collectives.all_gather_into_tensor(output, input, self, async_op=True)

    all_gather_single = _allgather_base

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Work | None:
        """`all_gather` of several: `output_lists[rank][k]` gets that rank's `input_list[k]`."""
        works = [self.allgather([[row[k] for row in output_lists]], [x]) for k, x in enumerate(input_list)]
        return ended([work for work in works if work is not None])

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work | None:
        """`all_gather_into_tensor` of several."""
        works = [self._allgather_base(out, x) for out, x in zip(outputs, inputs, strict=True)]
        return ended([work for work in works if work is not None])

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`gather` to a place in the group."""
        rows = output_tensors[0] if output_tensors and not isinstance(output_tensors[0], Tensor) else output_tensors
        return collectives.gather(
            _one(input_tensors), rows or None, group=self, async_op=True, group_dst=_root(opts, self)
        )

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None) -> Work | None:
        """`scatter` from a place in the group."""
        rows = input_tensors[0] if input_tensors and not isinstance(input_tensors[0], Tensor) else input_tensors
        return collectives.scatter(
            _one(output_tensors), rows or None, group=self, async_op=True, group_src=_root(opts, self)
        )

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

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

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


ProcessGroup._base_class = ProcessGroup


class ProcessGroupGloo(ProcessGroup):
    """A group of all processes that is made of a store, below `init_process_group`: it runs on MPI too.

    All processes make it, with their `rank` and the same `size`. Memory of its own and its being put to sleep are refused.
    """

    class Options:
        """Settings: how long operations may take."""

        def __init__(self) -> None:
            self._timeout = default_pg_timeout
            self._devices: list[Any] = []
            self._threads = 2

    _Options = Options

    class Device:
        """The binding of PyTorch's sockets: an interface's name, or a host's. MPI chooses by itself."""

        def __init__(self, hostname: str = "", interface: str = "") -> None:
            self.hostname, self.interface = hostname, interface

    supports_splitting = supports_coalescing = supports_shrinking = True
    supports_time_estimate = False

    def __init__(self, store: Any, rank: int, size: int, timeout: Any = default_pg_timeout) -> None:
        limit = getattr(timeout, "_timeout", timeout)
        seconds = limit.total_seconds() if hasattr(limit, "total_seconds") else float(limit)
        self._set_up(WAYS["new_gloo"](store, rank, size, seconds), "gloo", BackendConfig("gloo"), "undefined")

    @staticmethod
    def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> Device:
        """A device of an interface or a host."""
        return ProcessGroupGloo.Device(hostname, interface)

    @staticmethod
    def create_default_device(lazy_init: bool | None = None) -> Device:
        """The device that is chosen where none is named."""
        return ProcessGroupGloo.Device()

    @property
    def options(self) -> Options:
        """The settings."""
        made = self.Options()
        made._timeout = timedelta(seconds=self._group.timeout)
        return made

    def shrink(self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None) -> Any:
        """A group without some places: see `torch.distributed.shrink_group`."""
        return WAYS["shrink_group"](ranks_to_exclude, self, shrink_flags, opts_override)

    def eager_connect_single_device(self, device: Any = None) -> None:
        """Nothing: processes are connected."""

    def setUsePgForSymmMemRendezvous(self, use: bool) -> None:
        """Nothing is agreed on; NotImplementedError for True."""
        if use:
            raise NotImplementedError("there is no symmetric memory between CPUs")

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether it has memory of its own for tensors: no."""
        return False

    def allocate_tensor(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: any tensor will do."""
        raise NotImplementedError("process groups of the CPU have no memory of their own: any tensor will do")

    @property
    def mem_allocator(self) -> Any:
        """The allocator of that memory: NotImplementedError."""
        raise NotImplementedError("process groups of the CPU have no memory of their own")

    def suspend(self) -> None:
        """Give memory back for a while: NotImplementedError."""
        raise NotImplementedError("process groups of the CPU hold no memory that could be given back")

    resume = suspend

    def memory_stats(self) -> dict[str, int]:
        """The bytes that it holds on a device: none."""
        return {}
