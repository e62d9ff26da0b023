"""Names and small records: `ReduceOp`, `Backend`, `BackendConfig`, `DebugLevel`, and options of methods of groups."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from rushlight._interface.base import trace_marks, warn_user

__all__ = [
    "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "Backend", "BackendConfig", "BackendType", "BarrierOptions",
    "BroadcastOptions", "BuiltinCommHookType", "DebugLevel", "GatherOptions", "GroupName", "ReduceOp", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions",
    "default_pg_timeout", "get_debug_level", "reduce_op", "set_debug_level", "set_debug_level_from_env", "supports_complex",
]  # fmt: skip

default_pg_timeout = timedelta(minutes=30)
GroupName = str


class RedOpType(enum.Enum):
    """The kinds of reduction."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ReduceOp) and other.op is self)

    def __hash__(self) -> int:
        return int(self.value)


class ReduceOp:
    """How values of several processes become one: `ReduceOp.SUM`, `AVG`, `PRODUCT`, `MIN`, `MAX`, `BAND`, `BOR`, `BXOR`.

    `PREMUL_SUM` multiplies by a factor before the sum; `torch.distributed._make_nccl_premul_sum` makes one.
    """

    RedOpType = RedOpType
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = RedOpType

    def __init__(self, op: Any = RedOpType.SUM, factor: float | None = None) -> None:
        self._op: Any = op.op if isinstance(op, ReduceOp) else RedOpType(op)
        self._factor = factor

    @property
    def op(self) -> Any:
        """The kind of reduction."""
        return self._op

    @property
    def factor(self) -> float | None:
        """Of `PREMUL_SUM`: what values are multiplied by."""
        return self._factor

    def __copy__(self) -> ReduceOp:
        return ReduceOp(self._op, self._factor)

    def __deepcopy__(self, memo: Any) -> ReduceOp:
        return self.__copy__()

    def __getstate__(self) -> tuple[int, float | None]:
        return int(self._op), self._factor

    def __setstate__(self, state: tuple[int, float | None]) -> None:
        self._op, self._factor = RedOpType(state[0]), state[1]

    def __eq__(self, other: object) -> bool:
        return (other.op if isinstance(other, ReduceOp) else other) is self.op

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return repr(self.op)

    __str__ = __repr__


class _ReduceOpNames:
    """The former names of reductions, `torch.distributed.reduce_op.SUM`."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


reduce_op = _ReduceOpNames


def supports_complex(reduceOp: Any) -> bool:
    """Whether a reduction is defined for complex numbers."""
    kind = reduceOp.op if isinstance(reduceOp, ReduceOp) else reduceOp
    return kind not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


class BackendType(enum.Enum):
    """Kinds of backends: `ProcessGroup.BackendType`."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, CUSTOM = range(7)


class Backend(str):
    """The name of a backend, in lower case: `Backend("GLOO")` is `"gloo"`.

    "gloo" and "mpi" between CPUs are both the MPI that `rushlight[mpi]` installs; groups of one process need none. "nccl"
    between GPUs is the library of `rushlight[cuda]`.
    """

    UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE = "undefined", "gloo", "nccl", "xccl", "ucc", "mpi", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}
    backend_capability = {GLOO: ["cpu"], MPI: ["cpu"], NCCL: ["cuda"]}  # types of devices whose tensors are taken
    backend_type_map = {
        UNDEFINED: BackendType.UNDEFINED, GLOO: BackendType.GLOO, NCCL: BackendType.NCCL, XCCL: BackendType.XCCL, UCC: BackendType.UCC,
        MPI: BackendType.MPI, FAKE: BackendType.CUSTOM,
    }  # fmt: skip

    class _BackendPlugin(NamedTuple):
        creator_fn: Callable[..., Any]
        extended_api: bool

    _plugins: dict[str, _BackendPlugin] = {}  # those that programs registered, by their names in upper case

    def __new__(cls, name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        value = getattr(Backend, name.upper(), Backend.UNDEFINED)
        return value if isinstance(value, str) and value != Backend.UNDEFINED else name.lower()

    @classmethod
    def register_backend(cls, name: str, func: Any, extended_api: bool = False, devices: Any = None) -> None:
        """A backend of one's own: `func(store, rank, size, timeout)` gives a subclass of `ProcessGroup` for this process.

        With `extended_api=True` it is `func(options, pg_options)`, where `options` has `store`, `group_rank`,
        `group_size`, `timeout`, `group_id`, `global_ranks_in_group`.  `devices` are the types of devices that it serves
        ("cpu" and "cuda" without them, with a warning).

        Example: `dist.Backend.register_backend("mine", lambda store, rank, size, timeout: Mine(rank, size), devices=["cpu"])`
        """
        low = name.lower()
        if not hasattr(Backend, name.upper()):
            setattr(Backend, name.upper(), low)
        if low not in Backend.backend_list:
            Backend.backend_list.append(low)
        if devices is None:
            warn_user(
                f"Device capability of {name} unspecified, assuming `cpu` and `cuda` or `xpu`. Please specify it via the `devices` argument of `register_backend`.",
                UserWarning,
            )
        served = ["cpu", "cuda"] if devices is None else [devices] if isinstance(devices, str) else list(devices)
        for kind in served if devices is not None else ():
            if Backend.default_device_backend_map.get(kind) in (None, Backend.FAKE) and low != Backend.FAKE:
                Backend.default_device_backend_map[kind] = low
        Backend.backend_type_map[low] = BackendType.CUSTOM
        Backend.backend_capability[low] = served
        Backend._plugins[name.upper()] = Backend._BackendPlugin(func, extended_api)


class BackendConfig:
    """Which backend serves which type of device: "gloo", or "cpu:gloo,cuda:nccl"."""

    def __init__(self, backend: str) -> None:
        text = str(backend)
        if ":" in text:
            pairs = [pair.split(":") for pair in text.lower().split(",")]
            if any(len(pair) != 2 for pair in pairs):
                raise ValueError(
                    f"Invalid device:backend pairing: {text}. Expected format: 'device:backend', as in 'cpu:gloo,cuda:nccl'"
                )
            self.device_backend_map = {device: Backend(name) for device, name in pairs}
        elif text == Backend.UNDEFINED or not text:
            self.device_backend_map = {"cpu": Backend.GLOO, "cuda": Backend.NCCL}
        else:
            known = Backend.backend_capability if text.upper() in Backend._plugins else {Backend.NCCL: ["cuda"]}
            self.device_backend_map = dict.fromkeys(known.get(text, ["cpu", "cuda"]), Backend(text))
        for name in self.device_backend_map.values():
            if name not in Backend.backend_list:
                raise AssertionError(f"Unknown backend type {name}")

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())

    def get_device_backend_map(self) -> dict[str, str]:
        """Type of device -> name of a backend."""
        return self.device_backend_map


class BuiltinCommHookType(enum.Enum):
    """Hooks of `DistributedDataParallel._register_builtin_comm_hook`."""

    ALLREDUCE, FP16_COMPRESS = range(2)


class DebugLevel(enum.IntEnum):
    """How much is checked: `TORCH_DISTRIBUTED_DEBUG` is OFF, INFO or DETAIL."""

    OFF, INFO, DETAIL = range(3)


_LEVEL: list[DebugLevel] = []


@trace_marks.changes_later_calls
def set_debug_level_from_env() -> None:
    """Take the level from `TORCH_DISTRIBUTED_DEBUG`."""
    text = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if text not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO or DETAIL, got {text!r}")
    set_debug_level(DebugLevel[text])


@trace_marks.changes_later_calls
def set_debug_level(level: DebugLevel) -> None:
    """Set the level for groups that are made from now on."""
    _LEVEL[:] = [DebugLevel(level)]


def get_debug_level() -> DebugLevel:
    """The level: DETAIL compares every collective among the ranks before it begins."""
    if not _LEVEL:
        set_debug_level_from_env()
    return _LEVEL[0]


# ***** options of the methods of process groups *****


class _Options:
    """Attributes with defaults."""

    timeout = default_pg_timeout
    asyncOp = True


class AllreduceOptions(_Options):
    """Of `ProcessGroup.allreduce`."""

    reduceOp: Any = ReduceOp.SUM


class AllreduceCoalescedOptions(AllreduceOptions):
    """Of `ProcessGroup.allreduce_coalesced`."""


class AllgatherOptions(_Options):
    """Of `ProcessGroup.allgather`."""


class AllToAllOptions(_Options):
    """Of `ProcessGroup.alltoall`."""


class BarrierOptions(_Options):
    """Of `ProcessGroup.barrier`."""

    device_ids: Any = None
    device: Any = None


class BroadcastOptions(_Options):
    """Of `ProcessGroup.broadcast`."""

    rootRank, rootTensor = 0, 0


class GatherOptions(_Options):
    """Of `ProcessGroup.gather`."""

    rootRank = 0


class ScatterOptions(_Options):
    """Of `ProcessGroup.scatter`."""

    rootRank = 0


class ReduceOptions(_Options):
    """Of `ProcessGroup.reduce`."""

    reduceOp: Any = ReduceOp.SUM
    rootRank, rootTensor = 0, 0


class ReduceScatterOptions(_Options):
    """Of `ProcessGroup.reduce_scatter`."""

    reduceOp: Any = ReduceOp.SUM
